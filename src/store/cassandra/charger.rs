//! What decisions charge: rows of a writer that nobody else is, so that it knows what they hold.
//!
//! A charger is a node of its own to others, which are told of its changes as of those of a node. It is random,
//! and as long as what it wrote is sure: after a failure, another one takes its place, and its rows stay as
//! they are, whatever came of the last. Its number begins with that of the node, which need not be told of it.

use core::hash::BuildHasher as _;
use std::collections::HashMap;
use std::hash::RandomState;

use super::name::Partition;
use super::push::micros;
use crate::policy::window::UnixMillis;
use crate::store::strategy::{BatchId, Epoch, MAX_TOTAL, NodeId};

/// As many counts as one charger remembers.
const MOST: usize = 100_000;
/// After so many milliseconds, others may not be told any more what it did.
const LONGEST_REST: u64 = 30 * 60 * 1000;

/// The chargers of a node's decider, by the epochs in which they charge.
#[derive(Debug, Default)]
pub(super) struct Chargers {
    all: HashMap<Epoch, Charger>,
    /// The epochs of shards and the clock, as they were when it was decided last.
    pub(super) last: Option<LastDecision>,
}

/// What a decider expects to find again.
#[derive(Debug)]
pub(super) struct LastDecision {
    pub(super) epochs: HashMap<crate::store::strategy::Shard, Epoch>,
    pub(super) now: UnixMillis,
}

/// A writer, and what it has written.
#[derive(Debug)]
pub(super) struct Charger {
    pub(super) node: NodeId,
    /// Microseconds of the store's clock.
    pub(super) began: i64,
    batches: u64,
    /// When it charged last.
    at: UnixMillis,
    counts: HashMap<(Partition, Box<[u8]>), i64>,
}

impl Chargers {
    /// Takes the charger of an epoch away, or a new one: it comes back when all that it wrote is sure.
    pub(super) fn take(&mut self, epoch: Epoch, node: NodeId, now: UnixMillis) -> Charger {
        let rested = |it: &Charger| now.0.saturating_sub(it.at.0) > LONGEST_REST;
        self.all.retain(|_, charger| !rested(charger));
        let known = self.all.remove(&epoch);
        known
            .filter(|charger| charger.counts.len() < MOST)
            .unwrap_or_else(|| Charger::new(node, now))
    }

    pub(super) fn give_back(&mut self, epoch: Epoch, charger: Charger) {
        self.all.insert(epoch, charger);
    }
}

impl Charger {
    fn new(NodeId([high, _]): NodeId, now: UnixMillis) -> Charger {
        Charger {
            node: NodeId([high, RandomState::new().hash_one(())]),
            began: micros(now),
            batches: 0,
            at: now,
            counts: HashMap::new(),
        }
    }

    /// The id of its next batch.
    pub(super) fn next(&mut self, now: UnixMillis) -> BatchId {
        self.at = now;
        self.batches = self.batches.saturating_add(1);
        BatchId::new(self.batches, 0)
    }

    /// That of its first.
    pub(super) fn first(&self) -> BatchId {
        BatchId::new(1, 0)
    }

    /// That of its last.
    pub(super) fn last(&self) -> BatchId {
        BatchId::new(self.batches, 0)
    }

    /// What it has counted of a counter, in thousandths.
    pub(super) fn count(&self, partition: Partition, key: &[u8]) -> i64 {
        let name = (partition, key.into());
        self.counts.get(&name).copied().unwrap_or_default()
    }

    /// Counts so much more, or less. Returns what it has counted then.
    pub(super) fn charge(&mut self, partition: Partition, key: &[u8], charge: i64) -> i64 {
        let count = self.counts.entry((partition, key.into())).or_default();
        *count = count.saturating_add(charge).clamp(-MAX_TOTAL, MAX_TOTAL);
        *count
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;
    use crate::store::cassandra::position::is_charger_of;
    use crate::store::conformance::MINUTE;

    const EPOCH: Epoch = Epoch(NonZeroU64::MIN);
    const NODE: NodeId = NodeId([1, 2]);

    #[test]
    fn a_charger_is_known_while_what_it_wrote_is_sure() {
        let mut all = Chargers::default();
        let partition = Partition::of(b"k", MINUTE, 7);
        let mut charger = all.take(EPOCH, NODE, UnixMillis(5));
        assert!(is_charger_of(charger.node, NODE) && charger.node != NODE);
        assert_eq!(charger.charge(partition, b"k", 3), 3);
        let first = (charger.node, charger.next(UnixMillis(6)));
        all.give_back(EPOCH, charger);
        let mut charger = all.take(EPOCH, NODE, UnixMillis(7));
        assert_eq!(charger.charge(partition, b"k", -1), 2);
        assert_eq!(charger.count(partition, b"k"), 2);
        assert_eq!((charger.node, charger.last()), first);
        // It did not come back.
        let other = all.take(EPOCH, NODE, UnixMillis(8));
        assert_ne!(other.node, charger.node);
        assert_eq!(other.count(partition, b"k"), 0);
        // It rested for too long.
        all.give_back(EPOCH, charger);
        let later = all.take(EPOCH, NODE, UnixMillis(LONGEST_REST + 7));
        assert_ne!((later.node, BatchId::new(1, 0)), first);
    }

    #[test]
    fn counts_saturate() {
        let mut charger = Charger::new(NODE, UnixMillis(0));
        let partition = Partition::of(b"k", MINUTE, 7);
        assert_eq!(charger.charge(partition, b"k", i64::MAX), MAX_TOTAL);
        assert_eq!(charger.charge(partition, b"k", i64::MAX), MAX_TOTAL);
        assert_eq!(charger.charge(partition, b"k", i64::MIN), -MAX_TOTAL);
    }
}
