//! Notifications on a listening connection that a shard has changed.
//!
//! Every role of the database can listen and notify. So a notification contains only a number,
//! which depends on the shard's epoch and the node, and no key, total or position. It is only a
//! reason to read the changes. A shard has either changed or not, so notifications do not pile up.
//!
//! For a short time after a notification, pushes do not notify. A listener that reads meanwhile learns how
//! long that lasts, and reads once more when it has ended.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use crate::store::contract::strategy::{Epoch, NodeId, Subscription};

/// Notifications whose changes were not read yet.
#[derive(Debug, Default)]
pub(super) struct Notified {
    watched: Mutex<Watched>,
    /// Wakes the waiting task.
    news: Notify,
}

/// Time until the changes are read after a notification of this node's own push, to learn how long
/// others are silent.
const AFTER_OWN: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Watched {
    shards: Vec<WatchedShard>,
    has_ended: bool,
}

#[derive(Debug)]
struct WatchedShard {
    epoch: Epoch,
    node: NodeId,
    reason: Option<Reason>,
    /// The time for which pushes may change it without a notification.
    silence: Option<Pin<Box<Sleep>>>,
}

/// The reason to read the changes of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A notification, or the shard was not watched before.
    Notified,
    /// The end of the time for which pushes do not notify.
    SilenceEnded,
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
        let mut known = core::mem::take(&mut watched.shards);
        let shards = subscriptions.iter().map(|&Subscription { epoch, node, .. }| {
            match known.iter().position(|it| (it.epoch, it.node) == (epoch, node)) {
                Some(index) => known.swap_remove(index),
                None => WatchedShard { epoch, node, reason: Some(Reason::Notified), silence: None },
            }
        });
        watched.shards = shards.collect();
    }

    /// Records a notification. Ignores those that are not of a watched shard. One of this node's own
    /// pushes is no news, but after it, others are silent.
    pub(super) fn note(&self, payload: &str) {
        let Ok(told) = payload.parse::<i64>() else {
            return;
        };
        let mut is_news = false;
        for shard in &mut self.watched().shards {
            let own = number(shard.epoch, shard.node);
            if told >> 32 != own >> 32 {
                continue;
            }
            match told == own {
                true => shard.expect_silence(AFTER_OWN),
                false => shard.reason = Some(Reason::Notified),
            }
            is_news = true;
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

    /// Waits until there is a reason to read a shard. Returns false if the connection has ended.
    pub(super) async fn changed(&self) -> bool {
        loop {
            let mut notified = pin!(self.news.notified());
            let is_open = poll_fn(|context| {
                let mut watched = self.watched();
                let has_ended = watched.has_ended;
                if has_ended || watched.shards.iter_mut().any(|it| it.has_reason(context)) {
                    return Poll::Ready(Some(!has_ended));
                }
                notified.as_mut().poll(context).map(|()| None)
            });
            if let Some(is_open) = is_open.await {
                return is_open;
            }
        }
    }

    /// Returns the reason to read this shard, if there is one, and resets it.
    pub(super) fn take(&self, subscription: &Subscription) -> Option<Reason> {
        self.with(subscription, |shard| {
            let reason = shard.reason.take()?;
            shard.silence = None;
            Some(reason)
        })
        .flatten()
    }

    /// Records for how long pushes may change this shard without a notification.
    pub(super) fn expect_silence(&self, subscription: &Subscription, rest: Duration) {
        self.with(subscription, |shard| shard.expect_silence(rest));
    }

    fn with<T>(
        &self,
        subscription: &Subscription,
        work: impl FnOnce(&mut WatchedShard) -> T,
    ) -> Option<T> {
        let mut watched = self.watched();
        let mut shards = watched.shards.iter_mut();
        shards.find(|it| it.epoch == subscription.epoch).map(work)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Each change of the value is atomic.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedShard {
    /// Records that pushes may be silent for this time, at least until an earlier end that is known.
    fn expect_silence(&mut self, rest: Duration) {
        let silence = sleep(rest);
        let known = self.silence.as_ref().map(|it| it.deadline());
        if known.is_none_or(|known| silence.deadline() < known) {
            self.silence = Some(Box::pin(silence));
        }
    }

    /// Returns whether there is a reason to read the changes. Otherwise wakes the task when the silence
    /// ends.
    fn has_reason(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(silence) = &mut self.silence
            && silence.as_mut().poll(context).is_ready()
        {
            self.silence = None;
            self.reason.get_or_insert(Reason::SilenceEnded);
        }
        self.reason.is_some()
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;
    use crate::store::contract::strategy::Position;
    use crate::testing::conformance::{block_on, shard};

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
        block_on(async { check_notifications() });
    }

    fn check_notifications() {
        let (one, other) = (subscription(u64::MAX), subscription(0x1234_5678_9abc_def0));
        let told = Notified::default();
        told.watch(&[one.clone(), other.clone()]);
        let take = || [&one, &other].map(|it| told.take(it).is_some());
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
