//! The last push of a process before it ends, as long as the store makes progress.

use core::pin::pin;
use core::time::Duration;

use futures_util::future::{Either, select};

use super::shard_sync::Env;
use super::syncer::Syncer;

/// The limits of a process's last push.
#[derive(Clone, Copy, Debug)]
pub struct LastPush {
    /// Start of the last push, in time since the machine's start.
    pub began: Duration,
    /// Longest time without an acknowledged batch.
    pub patience: Duration,
    /// Longest time in total.
    pub longest: Duration,
}

impl LastPush {
    /// Runs `push` within the limits. Checks after each `pause` whether the store has acknowledged
    /// a batch. Returns the result of `push`; `None` if a limit ended it.
    pub async fn run<T>(
        self,
        syncer: &Syncer<'_, '_>,
        surroundings: &impl Env,
        pause: impl AsyncFn(),
        push: impl Future<Output = T>,
    ) -> Option<T> {
        let watch = async {
            let (mut acknowledged, mut since) = (syncer.acknowledged(), self.began);
            loop {
                pause().await;
                let now = surroundings.uptime();
                let present = syncer.acknowledged();
                if present != acknowledged {
                    (acknowledged, since) = (present, now);
                }
                let is_stuck = now.saturating_sub(since) >= self.patience;
                if is_stuck || now.saturating_sub(self.began) >= self.longest {
                    return;
                }
            }
        };
        match select(pin!(push), pin!(watch)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}
