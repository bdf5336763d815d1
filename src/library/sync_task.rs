//! Syncs one namespace in the store thread: when a caller asks, and periodically.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::definition::DefinedNamespace;
use crate::engine::{Env as _, LastPush, Machine, SyncCommand, SyncDriver, SyncTimes, Syncer};
use crate::store::contract::strategy::Strategy;

/// Longest last push of a dropped instance, both without progress and in total.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(4);
/// Interval in which hits that were counted without a deciding store are pushed.
const PUSH_PERIOD: Duration = Duration::from_secs(1);

/// A namespace to sync.
pub(super) struct StoreTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    /// `None` if the store decides; then only hits that were counted without it are pushed.
    pub(super) period: Option<Duration>,
    pub(super) lease_lifetime: Duration,
    pub(super) commands: UnboundedReceiver<SyncCommand>,
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
        if period.is_none() {
            syncer = syncer.pushing_only();
        }
        let times = SyncTimes {
            period: period.unwrap_or(PUSH_PERIOD),
            // Otherwise a caller starts the timer.
            recurs: period.is_none(),
            polls: false,
            patience: lease_lifetime.saturating_mul(2),
        };
        let mut driver = SyncDriver::new(syncer, times, Machine, connect, ());
        driver.run(&mut commands).await;
        let limits = LastPush { began: Machine.uptime(), patience: PATIENCE, longest: LONGEST };
        // Hits of a failed last push are lost, as those of a process that ends.
        driver.finish(limits).await;
    }
}
