//! News of others' pushes that come before an exchange tells them: they are applied at once.
//!
//! A total that is heard includes what the store had of this node's hits at that position, so that this has
//! to be known. While no batch with the counter is on its way, it is what was acknowledged. While one is, the
//! total may include it or not; then it waits until the batch is answered. The answer has everything up to its
//! own position, and what is heard of before that is old.
//!
//! The position of the node stays: the next exchange tells all of it again, and that is the truth. So what
//! is heard twice, late or never does no more harm than that the node knows it later.

use core::time::Duration;

use super::shard_sync::ShardSync;
use crate::engine::namespace::Namespace;
use crate::policy::window::{Clock, WindowSize};
use crate::store::contract::strategy::{Count, Epoch, NodeId, Position, PushNews, Subscription};
use crate::table::BatchRecord;

/// A subscriber to the news of a namespace.
#[derive(Debug)]
pub struct Subscriber<'n, 'm> {
    shards: Vec<HeardShard<'n, 'm>>,
}

/// A shard, and up to where it was listened to.
#[derive(Debug)]
struct HeardShard<'n, 'm> {
    shard: ShardSync<'n, 'm>,
    heard: Option<HeardUpTo>,
}

/// Up to where a shard was heard, until an exchange tells more: what was heard may come from somebody who counts
/// nothing, and be further than there is anything to hear.
#[derive(Clone, Copy, Debug)]
struct HeardUpTo {
    epoch: Epoch,
    /// The position that the node had.
    reach: Position,
    position: Position,
}

impl<'n, 'm> Subscriber<'n, 'm> {
    /// Creates the subscriber of `namespace`, which counts in windows of `sizes`. `None`: the
    /// namespace is not synced.
    pub fn new(namespace: &'n Namespace<'m>, sizes: &[WindowSize]) -> Option<Self> {
        // It takes no lease.
        let shards = ShardSync::of(namespace, sizes, Duration::ZERO);
        let shards = shards.into_iter().map(|shard| HeardShard { shard, heard: None });
        let shards: Vec<_> = shards.collect();
        (!shards.is_empty()).then_some(Subscriber { shards })
    }

    /// Splits the subscriber into one for each of its shards.
    pub fn by_shard(self) -> impl Iterator<Item = Self> {
        let shards = self.shards.into_iter();
        shards.map(|shard| Subscriber { shards: vec![shard] })
    }

    /// Whether this is what some news is for.
    pub fn is_of(&self, news: &PushNews) -> bool {
        self.shards.iter().any(|it| it.shard.shard == news.shard)
    }

    /// Returns the subscriptions: none before the node has seen the store's state.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.shards.iter().filter_map(HeardShard::subscription).collect()
    }

    /// Notes what is news of one of its shards. Returns what of that has to wait until what this node has
    /// on its way is answered.
    pub fn note(&mut self, news: PushNews, clock: &impl Clock) -> Option<PushNews> {
        let mut shards = self.shards.iter_mut();
        let heard = shards.find(|it| it.shard.shard == news.shard)?;
        heard.note(news, clock)
    }
}

impl HeardShard<'_, '_> {
    /// From where on it is listened to: the end of what is known, by an exchange or by the channel.
    fn subscription(&self) -> Option<Subscription> {
        let (epoch, position) = self.reach()?;
        let heard = self.heard_since(epoch, position);
        let heard = heard.filter(|heard| heard.is_after(position));
        let state = self.shard.state();
        Some(Subscription {
            shard: self.shard.shard.clone(),
            epoch,
            after: heard.unwrap_or(position),
            node: NodeId(state.node(self.shard.namespace.table())),
        })
    }

    /// Up to where it was heard since the node has this position.
    fn heard_since(&self, epoch: Epoch, reach: Position) -> Option<Position> {
        let is_since = |heard: &HeardUpTo| (heard.epoch, heard.reach) == (epoch, reach);
        self.heard.filter(is_since).map(|heard| heard.position)
    }

    fn reach(&self) -> Option<(Epoch, Position)> {
        let (epoch, position) = self.shard.state().reach()?;
        Some((Epoch(epoch), Position(position)))
    }

    /// Whether the node does not know what has come to this position.
    fn is_new(&self, epoch: Epoch, position: Position) -> bool {
        self.reach().is_some_and(|(present, known)| present == epoch && position.is_after(known))
    }

    fn note(&mut self, news: PushNews, clock: &impl Clock) -> Option<PushNews> {
        let PushNews { epoch, position, .. } = news;
        if let Some((present, reach)) = self.reach()
            && present == epoch
            && let heard = self.heard_since(epoch, reach)
            && heard.is_none_or(|heard| position.is_after(heard))
        {
            self.heard = Some(HeardUpTo { epoch, reach, position });
        }
        let table = self.shard.namespace.table();
        let is_own = news.node == NodeId(self.shard.state().node(table));
        if is_own || !self.is_new(epoch, position) {
            return None;
        }
        let on_its_way = self.shard.state().on_its_way(table).unwrap_or_default();
        let is_waiting = |count: &Count| !self.record_count(count, &news, &on_its_way, clock);
        let waiting: Vec<_> = news.counts.iter().filter(|it| is_waiting(it)).cloned().collect();
        (!waiting.is_empty()).then_some(PushNews { counts: waiting, ..news })
    }

    /// Notes a total. Returns `false` if it cannot be told yet what of it is this node's.
    fn record_count(
        &self,
        count: &Count,
        news: &PushNews,
        on_its_way: &[BatchRecord],
        clock: &impl Clock,
    ) -> bool {
        let Count { key, size, window, total } = count;
        let (table, now) = (self.shard.namespace.table(), clock.now());
        let mut counters = self.shard.counters.iter();
        let Some(counter) = counters.find(|it| it.size() == *size) else {
            return true;
        };
        let at = size.at(now);
        let is_near = window.saturating_add(1) >= at.number
            && (*window <= at.number || at.is_before_next(*size));
        if !is_near {
            return true;
        }
        // A full zone has no place for what only others count.
        let Some(counter) = table.make_room_for(counter, table.key(key), clock) else {
            return true;
        };
        let mut records = on_its_way.iter();
        if records.any(|it| it.counter == counter && it.window == *window) {
            return false;
        }
        let mut is_syncing = false;
        table.hear_remote(counter, *window, now, |ours| {
            // A sync under way may have noted what is newer already, but not yet up to where that is all; or
            // it has come to it meanwhile.
            is_syncing = self.shard.state().is_leased();
            let is_new = !is_syncing && self.is_new(news.epoch, news.position);
            is_new.then(|| total.minus(ours))
        });
        !is_syncing
    }
}
