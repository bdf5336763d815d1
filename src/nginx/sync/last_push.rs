//! The last push of a worker before it ends.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use tokio::time::sleep;

use crate::engine::{Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::store::contract::strategy::Strategy;

/// Pause between attempts, and between checks whether the store makes progress.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of namespaces whose last push is running.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPushes(Arc<AtomicUsize>);

/// Counts a running last push until it is dropped.
struct Running(LastPushes);

// All accesses are relaxed: the number orders no other memory.
impl LastPushes {
    /// Returns whether any last push is running.
    pub(super) fn are_running(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn begin(&self) -> Running {
        self.0.fetch_add(1, Relaxed);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let LastPushes(count) = &self.0;
        count.fetch_sub(1, Relaxed);
    }
}

/// Pushes the remaining hits of a namespace. Returns the result of the last cycle; `None` if the
/// limits ended the push.
pub(super) async fn push_rest(
    syncer: &Syncer<'_, '_>,
    store: &mut impl Strategy,
    limits: LastPush,
    all: &LastPushes,
) -> Option<Result<Option<Report>, SyncError>> {
    let _running = all.begin();
    // Half of the patience is for another holder of the lease, the other half for the exchange.
    let holder_patience = limits.patience.mul_f32(0.5);
    let push = async {
        let (mut sign, mut since) = (syncer.holder_sign(), Machine.uptime());
        loop {
            match syncer.sync(store, &Machine).await {
                Ok(report) if Report::is_whole(report) => break Ok(report),
                // Workers of a newer configuration push the rest.
                result if syncer.is_superseded() => break result,
                // Another worker holds the lease. If it is also ending, it may miss the last hits
                // of this one, so this one retries. If it was killed or stopped, it never releases
                // the lease, so this one takes it over.
                Ok(_) => {
                    let (present, now) = (syncer.holder_sign(), Machine.uptime());
                    if present != sign {
                        (sign, since) = (present, now);
                    } else if now.saturating_sub(since) >= holder_patience {
                        syncer.take_over(&Machine);
                        since = now;
                    }
                }
                // The connection may have been stale, so the push is retried.
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    };
    limits.run(syncer, &Machine, async || sleep(PAUSE).await, push).await
}
