//! The sync of one namespace, in the thread that talks to stores: when asked, and again and again.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::definition::DefinedNamespace;
use crate::engine::{Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::store::contract::strategy::Strategy;

/// After how long it is looked again whether another user of the memory is done.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Longest last push of an instance that is given up: without a batch that the store takes, and
/// altogether.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(4);
/// Interval between looks for hits that were decided without a deciding store.
const PUSH_PERIOD: Duration = Duration::from_secs(1);

/// A command of a caller.
pub(super) struct SyncCommand {
    pub(super) kind: SyncCall,
    pub(super) reply: oneshot::Sender<Result<Report, SyncError>>,
}

/// The function that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncCall {
    /// `sync`, which starts the timer.
    Sync,
    /// `fetch`
    Fetch,
}

/// A namespace to be served.
pub(super) struct StoreTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    /// `None`: the store decides, and only what was decided without it is pushed.
    pub(super) period: Option<Duration>,
    pub(super) lease_lifetime: Duration,
    pub(super) commands: UnboundedReceiver<SyncCommand>,
}

/// The next time of the timer, by the machine's uptime.
struct SyncTimer {
    period: Duration,
    next: Option<Duration>,
    /// Number of failures of the store in a row.
    failures: u32,
}

impl StoreTask {
    /// Serves until all callers are gone; then pushes the remaining hits. `connect` makes a strategy, which
    /// connects when it is used.
    pub(super) async fn run<S: Strategy>(self, connect: impl Fn() -> S) {
        let StoreTask { namespace, period, lease_lifetime, mut commands } = self;
        let counters = &namespace.counters().namespace;
        let Some(mut syncer) = Syncer::new(counters, &namespace.sizes, lease_lifetime) else {
            return;
        };
        let mut store = connect();
        let mut timer =
            SyncTimer { period: period.unwrap_or(PUSH_PERIOD), next: None, failures: 0 };
        if period.is_none() {
            syncer = syncer.pushing_only();
            timer.start();
        }
        syncer = syncer.living_for(Syncer::life_of(timer.period));
        loop {
            match timer.or(commands.recv()).await {
                // The timer: another user of the memory may have synced it by now.
                None if syncer.is_fresh(timer.period, &Machine) => timer.set(Ok(())),
                None => {
                    let result = syncer.sync(&mut store, &Machine).await;
                    timer.set(result.map(drop));
                }
                Some(Some(SyncCommand { kind, reply })) => {
                    if kind == SyncCall::Sync {
                        timer.start();
                    } else {
                        syncer.fetch_anew();
                    }
                    let result = sync_until_done(&syncer, &mut store, lease_lifetime).await;
                    timer.note(&result);
                    // A caller may be gone.
                    let _ = reply.send(result);
                }
                Some(None) => break,
            }
        }
        let limits = LastPush { began: Machine.uptime(), patience: PATIENCE, longest: LONGEST };
        let last = sync_until_done(&syncer, &mut store, lease_lifetime);
        // What fails now is lost, as that of a process that ends.
        let _ = limits.run(&syncer, &Machine, async || sleep(LOOK_AGAIN).await, last).await;
    }
}

/// Syncs; if another user of the memory is at it, waits for that, since it may not push what was counted
/// last. A user that was killed at it is waited for as long as its lease lasts.
async fn sync_until_done(
    syncer: &Syncer<'_, '_>,
    store: &mut impl Strategy,
    lease_lifetime: Duration,
) -> Result<Report, SyncError> {
    let begin = Machine.uptime();
    let patience = lease_lifetime.saturating_mul(2);
    loop {
        match syncer.sync(store, &Machine).await {
            Ok(Some(report)) if !report.is_part => return Ok(report),
            Ok(_) | Err(SyncError::LeaseLost) => {}
            Err(error) => return Err(error),
        }
        let is_long = Machine.uptime().saturating_sub(begin) > patience;
        // Or the namespace has another store by now.
        if is_long || syncer.is_superseded() {
            return Err(SyncError::LeaseLost);
        }
        sleep(LOOK_AGAIN).await;
    }
}

impl SyncTimer {
    /// Returns the result of `future`, unless the timer fires before.
    async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        match self.next {
            None => Some(future.await),
            Some(next) => {
                let left = next.saturating_sub(Machine.uptime());
                timeout(left, future).await.ok()
            }
        }
    }

    /// From now on, it fires once in a period.
    fn start(&mut self) {
        self.next = Some(Machine.uptime().saturating_add(self.period));
    }

    /// Has it fire again after a cycle: later and later while the store is away.
    fn set(&mut self, result: Result<(), SyncError>) {
        self.start();
        self.note(&result);
    }

    /// Notes what came of a cycle.
    fn note<T>(&mut self, result: &Result<T, SyncError>) {
        match result {
            Ok(_) | Err(SyncError::LeaseLost) => self.failures = 0,
            Err(SyncError::Store(_) | SyncError::NoProgress(_)) => {
                self.failures = self.failures.saturating_add(1);
                if self.next.is_some() {
                    let pause = Machine.back_off(self.failures);
                    self.next = Some(Machine.uptime().saturating_add(pause));
                }
            }
        }
    }
}
