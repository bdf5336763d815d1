//! The last push of a process that ends: for as long as the store takes what is left.

use core::pin::pin;
use core::time::Duration;

use futures_util::future::{Either, select};

use super::shard_sync::Env;
use super::syncer::Syncer;

/// The limits of the last push of a process that ends.
#[derive(Clone, Copy, Debug)]
pub struct LastPush {
    /// The machine's uptime when it began.
    pub began: Duration,
    /// Longest time without a batch that the store acknowledges.
    pub patience: Duration,
    /// Longest time altogether.
    pub longest: Duration,
}

impl LastPush {
    /// Runs `push`, and gives it up when the store has acknowledged nothing for too long, which is looked at after each
    /// `pause`. Returns its result; `None` if it was given up.
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
