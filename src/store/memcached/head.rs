//! The head of a shard: the item with which everything begins, and which each transaction changes.
//!
//! It has all writes of the last transaction. So a transaction is one compare-and-set of the head; its writes follow,
//! and if their writer stops before they are done, others do them.

use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::{
    BatchId, Epoch, LONGEST_LIFE, LivingNodes, NodeId, Position,
};
use crate::store::keyed::change::{numbers, put_numbers};

/// The value of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShardHead {
    pub(super) epoch: Epoch,
    /// Number of the last transaction that wrote something.
    pub(super) number: u64,
    pub(super) nodes: BTreeMap<NodeId, NodeEntry>,
    /// The windows with counters, by the bits of their sizes and their numbers.
    pub(super) windows: BTreeMap<(u64, u64), WindowEntry>,
    /// Writes of the last transaction.
    pub(super) writes: Vec<ItemWrite>,
}

/// A node that has pushed, or is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeEntry {
    /// The last batch that was applied.
    pub(super) last: BatchId,
    /// Unix time in milliseconds until which the store remembers the node.
    pub(super) until: u64,
    /// Unix time in milliseconds until which the node is alive.
    pub(super) lives_until: u64,
}

/// A window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WindowEntry {
    /// Number of the last page of its index.
    pub(super) page: u64,
    /// Unix time in milliseconds at which its items end.
    pub(super) until: u64,
}

/// A write of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemWrite {
    /// The name, after the epoch.
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// Unix time in milliseconds at which the item ends.
    pub(super) until: u64,
}

impl ShardHead {
    pub(super) fn new(epoch: Epoch) -> ShardHead {
        let (nodes, windows) = (BTreeMap::new(), BTreeMap::new());
        ShardHead { epoch, number: 0, nodes, windows, writes: Vec::new() }
    }

    /// Parses the value; `None` if somebody else wrote it.
    pub(super) fn parse(mut value: &[u8]) -> Option<ShardHead> {
        let value = &mut value;
        let [epoch, number, nodes, windows, writes] = numbers(value)?;
        let mut head = ShardHead::new(Epoch(NonZeroU64::new(epoch)?));
        // A larger one has no successor, or is not a position.
        head.number = Some(number).filter(|it| *it < u64::MAX - 1)?;
        for _ in 0..nodes {
            let [high, low, last, until, lives_until] = numbers(value)?;
            let row = NodeEntry { last: BatchId(last), until, lives_until };
            head.nodes.insert(NodeId([high, low]), row);
        }
        for _ in 0..windows {
            let [size, window, page, until] = numbers(value)?;
            head.windows.insert((size, window), WindowEntry { page, until });
        }
        for _ in 0..writes {
            let [until, name, length] = numbers(value)?;
            let mut bytes = |length| Some(value.split_off(..usize::try_from(length).ok()?)?.into());
            head.writes.push(ItemWrite { name: bytes(name)?, value: bytes(length)?, until });
        }
        value.is_empty().then_some(head)
    }

    pub(super) fn to_value(&self) -> Vec<u8> {
        let Epoch(epoch) = self.epoch;
        let [nodes, windows, writes] =
            [self.nodes.len(), self.windows.len(), self.writes.len()].map(|it| it as u64);
        let mut value = Vec::new();
        put_numbers(&mut value, [epoch.get(), self.number, nodes, windows, writes]);
        for (NodeId([high, low]), NodeEntry { last, until, lives_until }) in &self.nodes {
            put_numbers(&mut value, [*high, *low, last.0, *until, *lives_until]);
        }
        for ((size, window), WindowEntry { page, until }) in &self.windows {
            put_numbers(&mut value, [*size, *window, *page, *until]);
        }
        for ItemWrite { name, value: written, until } in &self.writes {
            put_numbers(&mut value, [*until, name.len() as u64, written.len() as u64]);
            value.extend(name);
            value.extend(written);
        }
        value
    }

    /// Returns the head of the next transaction, as long as it has no writes. It lacks what has ended.
    pub(super) fn next(&self, now: UnixMillis) -> ShardHead {
        let mut next = ShardHead { writes: Vec::new(), ..self.clone() };
        next.nodes.retain(|_, it| it.until.max(it.lives_until) > now.0);
        next.windows.retain(|_, it| it.until > now.0);
        next
    }

    pub(super) fn position(&self) -> Position {
        Position([self.number, self.epoch.0.get()])
    }

    /// Returns the last batch of a node.
    pub(super) fn last_of(&self, node: NodeId) -> BatchId {
        self.nodes.get(&node).map_or(BatchId::NONE, |it| it.last)
    }

    /// Returns the row of a node, a new one if there is none.
    pub(super) fn node(&mut self, node: NodeId) -> &mut NodeEntry {
        let new = NodeEntry { last: BatchId::NONE, until: 0, lives_until: 0 };
        self.nodes.entry(node).or_insert(new)
    }

    /// Records for how long a node lives from `now` on. Returns the living nodes.
    pub(super) fn live(&mut self, node: NodeId, life: Duration, now: UnixMillis) -> LivingNodes {
        let life = u64::try_from(life.min(LONGEST_LIFE).as_millis()).unwrap_or_default();
        self.node(node).lives_until = match life {
            0 => 0,
            life => now.0.saturating_add(life),
        };
        let living = self.nodes.iter().filter(|(_, it)| it.lives_until > now.0);
        let before = living.clone().filter(|(it, _)| **it < node);
        LivingNodes { count: living.count() as u64, place: Some(before.count() as u64) }
    }
}
