//! The task that syncs one namespace in the thread, and its reports to the event loop.

use core::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::broker::{EventLoopQueue, StoreEvent, StoreWatch};
use crate::engine::{
    Machine, Report, SyncCommand, SyncDriver, SyncError, SyncObserver, SyncResult, SyncTimes,
    Syncer,
};
use crate::nginx::conf::SyncedNamespace;
use crate::nginx::cycle;
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;
use crate::store::registry::StoreVisitor;

/// The end of a cycle.
pub(super) struct Done {
    /// Number of the namespace, in the order in which they were added.
    pub(super) number: usize,
    /// `None` if the cycle did not sync.
    pub(super) report: Option<Report>,
    /// The waiter for the cycle. The cycle is reported without one, too.
    pub(super) waiter: Option<SyncWaiter>,
}

/// A function to call when a cycle has ended; not called if the thread panics before.
pub(crate) struct SyncWaiter {
    /// Called by the event loop with `id` and the cycle's report; with `None` if the cycle did not
    /// sync.
    pub(crate) done: fn(u64, Option<Report>),
    pub(crate) id: u64,
}

/// The arguments of the task that syncs one namespace.
pub(super) struct SyncTask<'a> {
    pub(super) observer: CycleObserver,
    pub(super) commands: UnboundedReceiver<SyncCommand>,
    pub(super) tasks: &'a mut JoinSet<()>,
}

impl StoreVisitor for SyncTask<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let SyncTask { observer, commands, tasks } = self;
        tasks.spawn_local(serve(observer, connect, commands));
    }
}

/// Syncs one namespace.
async fn serve<S: Strategy>(
    observer: CycleObserver,
    connect: impl Fn() -> S,
    mut commands: UnboundedReceiver<SyncCommand>,
) {
    let synced = observer.namespace.clone();
    let Some(mut syncer) = Syncer::new(synced.namespace, &synced.sizes, synced.lease_lifetime)
    else {
        return;
    };
    if synced.is_synchronous {
        syncer = syncer.pushing_only();
    }
    if synced.is_early {
        syncer = syncer.telling();
    }
    let syncer = syncer.within(synced.store.budget);
    let syncer = syncer.by_worker(u16::try_from(cycle::worker()).unwrap_or(u16::MAX));
    let times = SyncTimes {
        period: synced.period,
        // nginx has the timers.
        recurs: false,
        polls: synced.is_early,
        patience: Duration::MAX,
    };
    let mut driver = SyncDriver::new(syncer, times, Machine, connect, observer);
    if let Some(limits) = driver.run(&mut commands).await {
        driver.finish(limits).await;
    }
}

/// Reports the cycles of one namespace, and the events of its store, to the event loop.
pub(super) struct CycleObserver {
    pub(super) number: usize,
    pub(super) namespace: SyncedNamespace,
    pub(super) watch: StoreWatch,
    pub(super) results: EventLoopQueue<Done>,
    pub(super) store_events: EventLoopQueue<StoreEvent>,
}

impl SyncObserver for CycleObserver {
    fn begin(&mut self) {
        self.watch.begin();
    }

    fn end(&mut self, result: &SyncResult, store: &impl Strategy) {
        // Determined here, since another worker may change the store's state before nginx reads the
        // result.
        let (watch, watched) = (&mut self.watch, &self.namespace.store);
        let (event, of_clock) = match result {
            Ok(Some(report)) => {
                (watch.succeed(|| store.server()), watched.record_clock(report.clock_offset))
            }
            // Another worker holds or has taken the lease.
            Ok(None) | Err(SyncError::LeaseLost) => (None, None),
            Err(error) => {
                let is_disconnected =
                    matches!(error, SyncError::Store(cause) if cause.is_disconnected());
                (watch.fail(error, is_disconnected), None)
            }
        };
        let has_other = self.namespace.namespace.table().record_identity();
        let of_identity = has_other.then(|| watched.other_identity());
        let events: Vec<_> = [event, of_clock, of_identity].into_iter().flatten().collect();
        if !events.is_empty() {
            self.store_events.push(events);
        }
        if let Ok(report @ Some(_)) = *result {
            self.results.push([Done { number: self.number, report, waiter: None }]);
        }
    }

    fn unconfirmed(&mut self) {
        let event = self.namespace.store.unconfirmed(&self.namespace.name);
        self.store_events.push([event]);
    }
}
