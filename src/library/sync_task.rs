//! Syncs one namespace in the store thread: when a caller asks, and periodically.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::definition::DefinedNamespace;
use crate::engine::{Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::store::contract::strategy::Strategy;

/// Interval in which a task checks whether another user of the memory has finished.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Longest last push of a dropped instance, both without progress and in total.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(4);
/// Interval in which hits that were counted without a deciding store are pushed.
const PUSH_PERIOD: Duration = Duration::from_secs(1);

/// A command of a caller.
pub(super) struct SyncCommand {
    pub(super) kind: SyncCall,
    pub(super) reply: oneshot::Sender<Result<Report, SyncError>>,
}

/// The called function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncCall {
    /// `sync`, which starts the timer.
    Sync,
    /// `fetch`
    Fetch,
}

/// A namespace to sync.
pub(super) struct StoreTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    /// `None` if the store decides; then only hits that were counted without it are pushed.
    pub(super) period: Option<Duration>,
    pub(super) lease_lifetime: Duration,
    pub(super) commands: UnboundedReceiver<SyncCommand>,
}

/// Next time of the timer, in time since the machine's start.
struct SyncTimer {
    period: Duration,
    next: Option<Duration>,
    /// Failures of the store in a row.
    failures: u32,
}

impl StoreTask {
    /// Serves commands until all callers are gone, and then pushes the remaining hits. `connect`
    /// creates a strategy, which connects at its first use.
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
                // Another user of the memory has synced the namespace in this period.
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
                    // The caller may be gone.
                    let _ = reply.send(result);
                }
                Some(None) => break,
            }
        }
        let limits = LastPush { began: Machine.uptime(), patience: PATIENCE, longest: LONGEST };
        let pause = async || sleep(LOOK_AGAIN).await;
        // Hits of a failed last push are lost, as those of a process that ends.
        let _ = limits.run(&syncer, &mut store, &Machine, pause).await;
    }
}

/// Syncs. If another user of the memory is syncing, waits and then syncs, since the other may have
/// missed the last hits. If the other was killed, waits until its lease expires.
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
        // The namespace may have another store by now.
        if is_long || syncer.is_superseded() {
            return Err(SyncError::LeaseLost);
        }
        sleep(LOOK_AGAIN).await;
    }
}

impl SyncTimer {
    /// Returns the result of `future`, or `None` if the timer fires first.
    async fn or<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        match self.next {
            None => Some(future.await),
            Some(next) => {
                let left = next.saturating_sub(Machine.uptime());
                timeout(left, future).await.ok()
            }
        }
    }

    /// Starts the timer, which then fires once in each period.
    fn start(&mut self) {
        self.next = Some(Machine.uptime().saturating_add(self.period));
    }

    /// Schedules the timer after a cycle, with a growing pause while the store is down.
    fn set(&mut self, result: Result<(), SyncError>) {
        self.start();
        self.note(&result);
    }

    /// Records the result of a cycle.
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
