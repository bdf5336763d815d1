//! The last push of a process before it ends, in a limited time.

use core::pin::pin;
use core::time::Duration;

use futures_util::future::{Either, select};

use super::shard_sync::Env;
use super::sync_outcome::{Report, SyncError};
use super::syncer::Syncer;
use crate::store::contract::strategy::Strategy;

/// The time of a process's last push.
#[derive(Clone, Copy, Debug)]
pub struct LastPush {
    /// Start of the last push, in time since the machine's start.
    pub began: Duration,
    /// Longest time.
    pub longest: Duration,
}

impl LastPush {
    /// Pushes the remaining hits of a namespace, with a `pause` between cycles. Returns the result
    /// of the last cycle; `None` if the time was over before.
    ///
    /// A failed cycle is repeated: its connection may have been stale. A cycle in which another
    /// worker holds a lease is repeated, too: if that worker is also ending, it may miss the last
    /// hits of this one. A holder that does nothing for half of the time was killed or stopped, and
    /// its shard is taken over. The other half is for the exchange.
    pub async fn run(
        self,
        syncer: &Syncer<'_, '_>,
        store: &mut impl Strategy,
        surroundings: &impl Env,
        pause: impl AsyncFn(),
    ) -> Option<Result<Option<Report>, SyncError>> {
        let push = async {
            let mut holders = syncer.holders(surroundings);
            loop {
                match syncer.sync(store, surroundings).await {
                    Ok(report) if Report::is_whole(report) => break Ok(report),
                    // Workers of a newer configuration push the rest.
                    result if syncer.is_superseded() => break result,
                    Ok(_) | Err(_) => {}
                }
                syncer.take_over_from(&mut holders, self.longest.mul_f32(0.5), surroundings);
                pause().await;
            }
        };
        let watch = async {
            while surroundings.uptime().saturating_sub(self.began) < self.longest {
                pause().await;
            }
        };
        match select(pin!(push), pin!(watch)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}
