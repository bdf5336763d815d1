//! Notifications on a listening connection that a shard has changed.
//!
//! Every role of the database can listen and notify. So a notification contains only a number,
//! which depends on the shard's epoch and the node, and no key, total or position. It is only a
//! reason to read the changes. A shard has either changed or not, so notifications do not pile up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::contract::strategy::{Epoch, NodeId, Subscription};

/// Notifications whose changes were not read yet.
#[derive(Debug, Default)]
pub(super) struct Notified {
    watched: Mutex<Watched>,
    /// Wakes the waiting task.
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

/// Returns the number by which a node notifies others of changes in this epoch: the first half of
/// the epoch, and a part of the node's id.
pub(super) fn number(Epoch(epoch): Epoch, NodeId([node, _]): NodeId) -> i64 {
    const HALF: u64 = u32::MAX as u64;
    ((epoch.get() & !HALF) | (node & HALF)).cast_signed()
}

impl Notified {
    /// Watches these shards from now on. A shard that was not watched before counts as changed.
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

    /// Records a notification. Ignores those that are not of another node and a watched shard.
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

    /// Records that the connection has ended.
    pub(super) fn end(&self) {
        self.watched().has_ended = true;
        self.news.notify_one();
    }

    /// Waits until a shard has changed. Returns false if the connection has ended.
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

    /// Returns whether this shard has changed, and resets that.
    pub(super) fn take(&self, subscription: &Subscription) -> bool {
        let mut watched = self.watched();
        let mut shards = watched.shards.iter_mut();
        let shard = shards.find(|it| it.epoch == subscription.epoch);
        shard.is_some_and(|shard| core::mem::take(&mut shard.is_changed))
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Each change of the value is atomic.
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
    fn only_notifications_of_others_about_a_watched_shard_are_news() {
        let (one, other) = (subscription(u64::MAX), subscription(0x1234_5678_9abc_def0));
        let told = Notified::default();
        told.watch(&[one.clone(), other.clone()]);
        let take = || [told.take(&one), told.take(&other)];
        // They may have changed before they were watched.
        assert_eq!(take(), [true, true]);
        let of = |subscription: &Subscription, node| {
            number(subscription.epoch, NodeId([node, 0])).to_string()
        };
        for (payload, expected) in [
            (of(&one, 9), [true, false]),
            (of(&other, 9), [false, true]),
            // This node's own notification, and one of another epoch.
            (of(&one, 7), [false, false]),
            (of(&subscription(1), 9), [false, false]),
            // A notification of another program.
            (String::new(), [false, false]),
            ("hello".into(), [false, false]),
            (format!("{} 7 60000:7:100:00", of(&one, 9)), [false, false]),
            ("9".repeat(30), [false, false]),
        ] {
            told.note(&payload);
            assert_eq!(take(), expected, "{payload}");
        }
        told.note(&of(&one, 9));
        // A shard that is still watched keeps its state.
        told.watch(&[other.clone(), one.clone()]);
        assert_eq!(take(), [true, false]);
    }
}
