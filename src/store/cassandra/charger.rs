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

/// As many counts as one charger remembers; and as many of them may be left when it is full and has forgotten
/// those of ended windows.
const MOST: usize = 100_000;
const MOST_LEFT: usize = MOST / 4 * 3;
/// For how many milliseconds a window has ended when its counts are forgotten: further than this, clocks of the
/// store's nodes are seldom apart.
const FORGET_AFTER: u64 = 10_000;
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
    /// What it counted in windows that ended until then is not in `counts`.
    forgotten_until: UnixMillis,
}

impl Chargers {
    /// Takes the charger of an epoch away, or a new one: it comes back when all that it wrote is sure. It charges in
    /// windows of this moment.
    pub(super) fn take(&mut self, epoch: Epoch, node: NodeId, now: UnixMillis) -> Charger {
        let rested = |it: &Charger| now.0.saturating_sub(it.at.0) > LONGEST_REST;
        self.all.retain(|_, charger| !rested(charger));
        let mut known = self.all.remove(&epoch);
        if let Some(charger) = known.as_mut().filter(|it| it.counts.len() >= MOST) {
            charger.forget_ended(now);
        }
        known
            .filter(|it| it.counts.len() < MOST && now >= it.forgotten_until)
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
            forgotten_until: UnixMillis(0),
        }
    }

    /// Forgets what it counted in ended windows, so that another one need not take its place, with rows of its
    /// own in the windows that go on. If that is too little, it remains full.
    fn forget_ended(&mut self, now: UnixMillis) {
        let until = UnixMillis(now.0.saturating_sub(FORGET_AFTER));
        let goes_on = |partition: &Partition| partition.end() > until;
        let left = self.counts.keys().filter(|(it, _)| goes_on(it)).count();
        if left <= MOST_LEFT {
            self.counts.retain(|(it, _), _| goes_on(it));
            self.forgotten_until = self.forgotten_until.max(until);
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
    use crate::policy::window::WindowSize;
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
    fn a_full_charger_forgets_ended_windows() {
        const SECOND: WindowSize = WindowSize::from_millis(1000).unwrap();
        let long = |key| Partition::of(key, MINUTE, 7);
        // Of the last minute's seconds, so many keys in each.
        let full = |now: u64, seconds: u64| {
            let mut all = Chargers::default();
            let mut charger = all.take(EPOCH, NODE, UnixMillis(now));
            charger.charge(long(b"k"), b"k", 5);
            for number in 0..MOST as u64 {
                let window = now / 1000 - number % seconds;
                let key = number.to_be_bytes();
                charger.charge(Partition::of(&key, SECOND, window), &key, 1);
            }
            let node = charger.node;
            charger.next(UnixMillis(now));
            all.give_back(EPOCH, charger);
            (all, node)
        };
        let now = 7 * 60_000 + 50_000;
        let (mut all, node) = full(now, 60);
        let mut charger = all.take(EPOCH, NODE, UnixMillis(now));
        assert_eq!(charger.node, node);
        assert_eq!(charger.count(long(b"k"), b"k"), 5);
        assert!((MOST / 7..MOST / 4).contains(&charger.counts.len()));
        // A clock that is a little behind finds what it counted.
        for (behind, window, count) in [(9, 9_u64, 1), (0, 0, 1), (0, 30, 0)] {
            all.give_back(EPOCH, charger);
            charger = all.take(EPOCH, NODE, UnixMillis(now - behind * 1000));
            assert_eq!(charger.node, node);
            let key = window.to_be_bytes();
            let partition = Partition::of(&key, SECOND, now / 1000 - window);
            assert_eq!(charger.count(partition, &key), count, "{window}");
        }
        // One that is further behind counts where this one does not know any more what it has.
        all.give_back(EPOCH, charger);
        let charger = all.take(EPOCH, NODE, UnixMillis(now - 11_000));
        assert_ne!(charger.node, node);
        // There is too little to forget.
        let (mut all, node) = full(now, 5);
        assert_ne!(all.take(EPOCH, NODE, UnixMillis(now)).node, node);
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
