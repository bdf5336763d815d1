//! The last push of a worker that ends.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use tokio::time::sleep;

use crate::engine::{Env as _, LastPush, Machine, Report, SyncError, Syncer};
use crate::store::contract::strategy::Strategy;

/// Pause between attempts, and between looks whether the store goes on.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of namespaces at their last push.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPushes(Arc<AtomicUsize>);

/// One of them, until it is dropped.
struct Running(LastPushes);

// Relaxed, all: nothing else is told by the number.
impl LastPushes {
    /// Whether there are any.
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

/// Pushes what is left of a namespace. Returns what came of the last cycle; `None` if it was given up.
pub(super) async fn push_rest(
    syncer: &Syncer<'_, '_>,
    store: &mut impl Strategy,
    limits: LastPush,
    all: &LastPushes,
) -> Option<Result<Option<Report>, SyncError>> {
    let _running = all.begin();
    // The other half is for an exchange.
    let holder_patience = limits.patience.mul_f32(0.5);
    let push = async {
        let (mut sign, mut since) = (syncer.holder_sign(), Machine.uptime());
        loop {
            match syncer.sync(store, &Machine).await {
                Ok(report) if Report::is_whole(report) => break Ok(report),
                // Others of a newer configuration go on.
                result if syncer.is_superseded() => break result,
                // Another worker that ends is at it: what this one counted last may be left. Or one was killed or
                // stopped at it: then the lease is not given back in time.
                Ok(_) => {
                    let (present, now) = (syncer.holder_sign(), Machine.uptime());
                    if present != sign {
                        (sign, since) = (present, now);
                    } else if now.saturating_sub(since) >= holder_patience {
                        syncer.take_over(&Machine);
                        since = now;
                    }
                }
                // A connection may have been of no use any more.
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    };
    limits.run(syncer, &Machine, async || sleep(PAUSE).await, push).await
}
