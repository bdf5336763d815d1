//! Applies other nodes' pushes when they arrive on the channel, before an exchange returns them.
//!
//! A total on the channel includes the hits of this node that the store had at that position, which
//! must be known. While no batch with the counter is in flight, these are the acknowledged hits.
//! While one is in flight, the total may include it or not, so it waits until the batch is
//! answered. The answer contains everything up to its own position, so earlier totals on the
//! channel are obsolete.
//!
//! After a partial answer, the store has hits of this node that a total on the channel may lack. Such
//! a total is ignored until the rest of the answer has arrived.
//!
//! The node's position does not change: the next exchange returns all changes again and is
//! authoritative. So if a total arrives twice, late or never, the node only learns of it later.

use core::time::Duration;

use super::shard_sync::ShardSync;
use crate::engine::namespace::Namespace;
use crate::policy::window::{Clock, WindowSize};
use crate::store::contract::strategy::{Count, Epoch, NodeId, Position, PushNews, Subscription};
use crate::table::{BatchRecord, ExchangeBudget};

/// A subscriber of a namespace's pushes.
#[derive(Debug)]
pub struct Subscriber<'n, 'm> {
    shards: Vec<HeardShard<'n, 'm>>,
}

/// A shard, and the position up to which its channel was read.
#[derive(Debug)]
struct HeardShard<'n, 'm> {
    shard: ShardSync<'n, 'm>,
    heard: Option<HeardUpTo>,
}

/// The position up to which a shard's channel was read, until an exchange returns a later one. A
/// message of a node that counts nothing can be further than any change.
#[derive(Clone, Copy, Debug)]
struct HeardUpTo {
    epoch: Epoch,
    /// The node's position.
    reach: Position,
    position: Position,
}

impl<'n, 'm> Subscriber<'n, 'm> {
    /// Creates the subscriber of `namespace`, in windows of `sizes`. `None` if the namespace is
    /// local.
    pub fn new(namespace: &'n Namespace<'m>, sizes: &[WindowSize]) -> Option<Self> {
        // It takes no lease.
        let shards = ShardSync::of(namespace, sizes, Duration::ZERO);
        let shards = shards.into_iter().map(|shard| HeardShard { shard, heard: None });
        let shards: Vec<_> = shards.collect();
        (!shards.is_empty()).then_some(Subscriber { shards })
    }

    /// Splits the subscriber into one for each shard.
    pub fn by_shard(self) -> impl Iterator<Item = Self> {
        let shards = self.shards.into_iter();
        shards.map(|shard| Subscriber { shards: vec![shard] })
    }

    /// Sets the budget of exchanges with the store, in which reads wait.
    pub fn within(self, budget: Option<ExchangeBudget<'m>>) -> Self {
        let within = |it: HeardShard<'n, 'm>| HeardShard { shard: it.shard.within(budget), ..it };
        Subscriber { shards: self.shards.into_iter().map(within).collect() }
    }

    /// Returns the budget of exchanges with the store; `None` without a bound.
    pub(super) fn budget(&self) -> Option<ExchangeBudget<'m>> {
        self.shards.first()?.shard.budget
    }

    /// Returns the known number of living nodes, at least 1.
    pub(super) fn nodes(&self) -> u64 {
        let nodes = self.shards.iter().map(|it| it.shard.counts.nodes());
        nodes.max().unwrap_or(1)
    }

    /// Returns whether there is a newer configuration, whose workers listen now.
    pub(super) fn is_superseded(&self) -> bool {
        self.shards.iter().any(|it| it.shard.state().is_superseded())
    }

    /// Returns whether `news` is for this subscriber.
    pub fn is_of(&self, news: &PushNews) -> bool {
        self.shards.iter().any(|it| it.shard.shard == news.shard)
    }

    /// Returns the subscriptions; empty before the node has a position in the store's changes.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        self.shards.iter().filter_map(HeardShard::subscription).collect()
    }

    /// Applies a message about one of the shards. Returns the part that must wait until this node's
    /// batch is answered; `None` without one.
    pub fn note(&mut self, news: PushNews, clock: &impl Clock) -> Option<PushNews> {
        let mut shards = self.shards.iter_mut();
        let heard = shards.find(|it| it.shard.shard == news.shard)?;
        heard.note(news, clock)
    }
}

impl HeardShard<'_, '_> {
    /// Returns the subscription of the shard, from the last position known by an exchange or by the
    /// channel.
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

    /// Returns the position up to which the channel was read since the node has the position
    /// `reach`.
    fn heard_since(&self, epoch: Epoch, reach: Position) -> Option<Position> {
        let is_since = |heard: &HeardUpTo| (heard.epoch, heard.reach) == (epoch, reach);
        self.heard.filter(is_since).map(|heard| heard.position)
    }

    fn reach(&self) -> Option<(Epoch, Position)> {
        let (epoch, position) = self.shard.state().reach()?;
        Some((Epoch(epoch), Position(position)))
    }

    /// Returns whether the node does not know the changes up to this position.
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

    /// Records a total. Returns `false` if this node's part of it is not known yet.
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
        let Some(of_size) = counters.find(|it| it.size() == *size) else {
            return true;
        };
        let at = size.at(now);
        let is_near = window.saturating_add(1) >= at.number
            && (*window <= at.number || at.is_before_next(*size));
        if !is_near {
            return true;
        }
        // A full zone has no slot for a counter with only other nodes' hits.
        let Some(counter) = table.make_room_for(of_size, table.key(key), clock) else {
            return true;
        };
        let mut records = on_its_way.iter();
        if records.any(|it| it.counter == counter && it.window == *window) {
            return false;
        }
        let (state, mut last_sync) = (self.shard.state(), None);
        let is_heard = table.hear_remote(counter, *window, now, |ours| {
            // A running sync may have recorded a newer total before it advanced the position; or it
            // has reached this position meanwhile.
            last_sync = state.unleased();
            let is_settled = last_sync.is_some() && !state.is_ahead();
            let is_new = is_settled && self.is_new(news.epoch, news.position);
            is_new.then(|| total.minus(ours))
        });
        let Some(last_sync) = last_sync else { return false };
        if is_heard && state.may_have_applied_since(last_sync) {
            // This process was stopped for long, and may have replaced a newer total, which was the
            // same as the one before this.
            state.fetch_anew();
        }
        table.look_at_remote(counter, of_size, clock);
        true
    }
}
