//! Notifications to a listening connection: that a shard was changed.
//!
//! A channel of notifications is open to every role of the database, to listen and to notify. So what is notified is a
//! number that says of which shard it is, and by which node: no key, no total, no position. It is no more than a reason
//! to look. However much is told, a shard is changed or it is not, so that nothing piles up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::contract::strategy::{Epoch, NodeId, Subscription};

/// Notifications that nobody has looked at yet.
#[derive(Debug, Default)]
pub(super) struct Notified {
    watched: Mutex<Watched>,
    /// Wakes who waits.
    news: Notify,
}

#[derive(Debug, Default)]
struct Watched {
    shards: Vec<WatchedShard>,
    has_ended: bool,
}

#[derive(Debug)]
struct WatchedShard {
    epoch: Epoch,
    node: NodeId,
    is_changed: bool,
}

/// The number by which a node tells others that it has changed a shard in this epoch: the first half of the epoch, and
/// a part of the node.
pub(super) fn number(Epoch(epoch): Epoch, NodeId([node, _]): NodeId) -> i64 {
    const HALF: u64 = u32::MAX as u64;
    ((epoch.get() & !HALF) | (node & HALF)).cast_signed()
}

impl Notified {
    /// Waits for news of these shards from now on. Of one that was not waited for before, there may be some.
    pub(super) fn watch(&self, subscriptions: &[Subscription]) {
        let mut watched = self.watched();
        let is_changed = |subscription: &Subscription| {
            let mut shards = watched.shards.iter();
            let known =
                shards.find(|it| (it.epoch, it.node) == (subscription.epoch, subscription.node));
            known.is_none_or(|known| known.is_changed)
        };
        let shards = subscriptions.iter().map(|subscription| WatchedShard {
            epoch: subscription.epoch,
            node: subscription.node,
            is_changed: is_changed(subscription),
        });
        watched.shards = shards.collect();
    }

    /// Notes what was notified. What no other node notifies of one of the shards is nothing.
    pub(super) fn note(&self, payload: &str) {
        let Ok(told) = payload.parse::<i64>() else {
            return;
        };
        let mut is_news = false;
        for shard in &mut self.watched().shards {
            let own = number(shard.epoch, shard.node);
            if told != own && told >> 32 == own >> 32 {
                shard.is_changed = true;
                is_news = true;
            }
        }
        if is_news {
            self.news.notify_one();
        }
    }

    /// Notes that nothing more will be told.
    pub(super) fn end(&self) {
        self.watched().has_ended = true;
        self.news.notify_one();
    }

    /// Waits until a shard was changed; returns whether more may be told.
    pub(super) async fn changed(&self) -> bool {
        loop {
            {
                let watched = self.watched();
                if watched.has_ended || watched.shards.iter().any(|it| it.is_changed) {
                    return !watched.has_ended;
                }
            }
            self.news.notified().await;
        }
    }

    /// Whether this shard was changed; from now on, it was not.
    pub(super) fn take(&self, subscription: &Subscription) -> bool {
        let mut watched = self.watched();
        let mut shards = watched.shards.iter_mut();
        let shard = shards.find(|it| it.epoch == subscription.epoch);
        shard.is_some_and(|shard| core::mem::take(&mut shard.is_changed))
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Each change of it is whole.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;
    use crate::store::contract::strategy::Position;
    use crate::testing::conformance::shard;

    fn subscription(epoch: u64) -> Subscription {
        Subscription {
            shard: shard("api"),
            epoch: Epoch(NonZeroU64::new(epoch).unwrap()),
            after: Position([6, epoch]),
            node: NodeId([7, 8]),
        }
    }

    #[test]
    fn only_what_others_tell_of_a_watched_shard_is_news() {
        let (one, other) = (subscription(u64::MAX), subscription(0x1234_5678_9abc_def0));
        let told = Notified::default();
        told.watch(&[one.clone(), other.clone()]);
        let take = || [told.take(&one), told.take(&other)];
        // Before they were watched, they may have been changed.
        assert_eq!(take(), [true, true]);
        let of = |subscription: &Subscription, node| {
            number(subscription.epoch, NodeId([node, 0])).to_string()
        };
        for (payload, expected) in [
            (of(&one, 9), [true, false]),
            (of(&other, 9), [false, true]),
            // Its own, or of another epoch.
            (of(&one, 7), [false, false]),
            (of(&subscription(1), 9), [false, false]),
            // Somebody else's.
            (String::new(), [false, false]),
            ("hello".into(), [false, false]),
            (format!("{} 7 60000:7:100:00", of(&one, 9)), [false, false]),
            ("9".repeat(30), [false, false]),
        ] {
            told.note(&payload);
            assert_eq!(take(), expected, "{payload}");
        }
        told.note(&of(&one, 9));
        // What is watched still stays as it is.
        told.watch(&[other.clone(), one.clone()]);
        assert_eq!(take(), [true, false]);
    }
}
