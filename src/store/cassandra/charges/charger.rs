//! Chargers: a charger writes the charges of decisions under an id of its own, so that it knows the
//! content of its rows.
//!
//! To other nodes a charger is a node of its own, and they learn of its changes in the same way.
//! Its ids are random, except that they begin like the node's, so that the node does not fetch
//! their changes.
//!
//! After a failed exchange it is unknown which rows were written, but no hit of it was admitted. So
//! the charger sets the counters back to their values before the exchange, before it decides again.
//! Other nodes learn of that under a new id, since the batches of the former one may have a gap.

use core::hash::BuildHasher as _;
use core::mem;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;

use crate::policy::window::UnixMillis;
use crate::store::cassandra::name::Partition;
use crate::store::cassandra::push::micros;
use crate::store::contract::strategy::{BatchId, Epoch, MAX_TOTAL, NodeId, Shard};

/// Most counts that a charger remembers. It is replaced if this many are left after those of ended
/// windows were dropped.
const MOST: usize = 100_000;
const MOST_LEFT: usize = MOST / 4 * 3;
/// Milliseconds after the end of a window when its counts are dropped. Clocks of the store's nodes
/// rarely differ by more.
const FORGET_AFTER: u64 = 10_000;
/// Milliseconds without a charge after which other nodes may not learn of its changes any more.
const LONGEST_REST: u64 = 30 * 60 * 1000;

/// The chargers of a node's decider, by epoch.
#[derive(Debug, Default)]
pub(crate) struct Chargers {
    all: HashMap<Epoch, Charger>,
    /// The shards' epochs and the clock at the last decision.
    pub(crate) last: Option<LastDecision>,
}

/// The state that a decider expects to find again.
#[derive(Debug, Default)]
pub(crate) struct LastDecision {
    pub(crate) epochs: HashMap<Shard, Epoch>,
    pub(crate) now: UnixMillis,
}

/// The chargers of an exchange, by shard. They are put back when it ends in any way.
#[derive(Debug)]
pub(crate) struct Writers<'c> {
    chargers: &'c mut Chargers,
    pub(crate) of_shards: BTreeMap<usize, (Epoch, Charger)>,
}

/// A charger, with the counts that it has written.
#[derive(Debug)]
pub(crate) struct Charger {
    /// Writer id of the rows with the counts.
    pub(crate) writer: NodeId,
    /// Node id of the changes for other nodes.
    pub(crate) node: NodeId,
    /// Start in microseconds of the store's clock.
    pub(crate) began: i64,
    /// The number of the first batch under this id.
    first: u64,
    batches: u64,
    /// Time of the last charge.
    at: UnixMillis,
    counts: HashMap<CountName, i64>,
    /// Latest end of windows whose counts were dropped.
    forgotten_until: UnixMillis,
    /// Changes of the exchange that is running or has failed, in order.
    unsure: Vec<Unsure>,
}

type CountName = (Partition, Box<[u8]>);

/// A count that may or may not have been written.
#[derive(Clone, Debug)]
pub(crate) struct Unsure {
    pub(crate) partition: Partition,
    pub(crate) key: Box<[u8]>,
    /// The count before the change, in thousandths.
    pub(crate) before: i64,
    pub(crate) expires_in: Duration,
}

impl Chargers {
    /// Takes the charger of an epoch out, or creates one. Its charges are for windows at `now`.
    fn take(&mut self, epoch: Epoch, node: NodeId, now: UnixMillis) -> Charger {
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

    /// Begins an exchange, without writers so far.
    pub(crate) fn writers(&mut self) -> Writers<'_> {
        Writers { chargers: self, of_shards: BTreeMap::new() }
    }

    /// Returns the writers of the previous exchange, with the counts before it, if it has failed.
    pub(crate) fn unsure(&mut self) -> Option<Writers<'_>> {
        let is_unsure = |charger: &Charger| !charger.unsure.is_empty();
        if !self.all.values().any(is_unsure) {
            return None;
        }
        let all = mem::take(&mut self.all).into_iter();
        let (unsure, sure): (Vec<_>, Vec<_>) = all.partition(|(_, charger)| is_unsure(charger));
        self.all = sure.into_iter().collect();
        let mut writers = self.writers();
        writers.of_shards = unsure.into_iter().enumerate().collect();
        for (_, charger) in writers.of_shards.values_mut() {
            charger.go_back();
        }
        Some(writers)
    }
}

impl Writers<'_> {
    /// Returns the charger of a shard that has this epoch.
    pub(crate) fn of(
        &mut self,
        shard: usize,
        epoch: Epoch,
        node: NodeId,
        now: UnixMillis,
    ) -> &mut Charger {
        let chargers = &mut *self.chargers;
        let made = || (epoch, chargers.take(epoch, node, now));
        let (_, charger) = self.of_shards.entry(shard).or_insert_with(made);
        charger
    }

    /// Records that all counts were written.
    pub(crate) fn settle(&mut self) {
        for (_, charger) in self.of_shards.values_mut() {
            charger.unsure.clear();
        }
    }
}

impl Drop for Writers<'_> {
    fn drop(&mut self) {
        let all = mem::take(&mut self.of_shards);
        self.chargers.all.extend(all.into_values());
    }
}

impl Charger {
    fn new(node: NodeId, now: UnixMillis) -> Charger {
        let id = other_id(node);
        Charger {
            writer: id,
            node: id,
            began: micros(now),
            first: 1,
            batches: 0,
            at: now,
            counts: HashMap::new(),
            forgotten_until: UnixMillis(0),
            unsure: Vec::new(),
        }
    }

    /// Drops counts of ended windows, so that no new charger with further rows in current windows
    /// is needed. If that is not enough, the charger stays full.
    fn forget_ended(&mut self, now: UnixMillis) {
        let until = UnixMillis(now.0.saturating_sub(FORGET_AFTER));
        let goes_on = |partition: &Partition| partition.end() > until;
        let left = self.counts.keys().filter(|(it, _)| goes_on(it)).count();
        if left <= MOST_LEFT {
            self.counts.retain(|(it, _), _| goes_on(it));
            self.forgotten_until = self.forgotten_until.max(until);
        }
    }

    /// Restores the counts before the unsure changes, which stay unsure.
    fn go_back(&mut self) {
        for unsure in self.unsure.iter().rev() {
            let name = (unsure.partition, unsure.key.clone());
            self.counts.insert(name, unsure.before);
        }
        self.node = other_id(self.writer);
        self.began = micros(self.at);
        self.first = self.batches.saturating_add(1);
    }

    /// Returns each unsure counter once, with its count before the exchange.
    pub(crate) fn unsure(&self) -> Vec<Unsure> {
        let mut first: BTreeMap<(Partition, &[u8]), &Unsure> = BTreeMap::new();
        for unsure in &self.unsure {
            first.entry((unsure.partition, &unsure.key)).or_insert(unsure);
        }
        first.into_values().cloned().collect()
    }

    /// Returns the id of its next batch, at time `now`.
    pub(crate) fn next(&mut self, now: UnixMillis) -> BatchId {
        self.at = now;
        self.batches = self.batches.saturating_add(1);
        BatchId::new(self.batches, 0)
    }

    /// Returns the time of the last charge.
    pub(crate) fn at(&self) -> UnixMillis {
        self.at
    }

    /// Returns the id of its first batch.
    pub(crate) fn first(&self) -> BatchId {
        BatchId::new(self.first, 0)
    }

    /// Returns the id of its last batch.
    pub(crate) fn last(&self) -> BatchId {
        BatchId::new(self.batches, 0)
    }

    /// Returns the charger's count of a counter, in thousandths.
    pub(crate) fn count(&self, partition: Partition, key: &[u8]) -> i64 {
        let name = (partition, key.into());
        self.counts.get(&name).copied().unwrap_or_default()
    }

    /// Adds to a count, for windows that matter for `life`. Returns the new count.
    pub(crate) fn charge(
        &mut self,
        partition: Partition,
        key: &[u8],
        charge: i64,
        expires_in: Duration,
    ) -> i64 {
        let count = self.counts.entry((partition, key.into())).or_default();
        self.unsure.push(Unsure { partition, key: key.into(), before: *count, expires_in });
        *count = count.saturating_add(charge).clamp(-MAX_TOTAL, MAX_TOTAL);
        *count
    }
}

/// Returns another id that begins like a node's.
fn other_id(NodeId([high, _]): NodeId) -> NodeId {
    NodeId([high, RandomState::new().hash_one(())])
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;
    use crate::policy::window::WindowSize;
    use crate::store::cassandra::position::is_charger_of;
    use crate::testing::conformance::MINUTE;

    const EPOCH: Epoch = Epoch(NonZeroU64::MIN);
    const NODE: NodeId = NodeId([1, 2]);

    const LIFE: Duration = Duration::from_secs(100);

    fn charge(charger: &mut Charger, key: &[u8], charge: i64) -> i64 {
        let partition = Partition::of(key, MINUTE, 7);
        charger.charge(partition, key, charge, LIFE)
    }

    #[test]
    fn a_charger_knows_its_written_charges() {
        let mut all = Chargers::default();
        let mut writers = all.writers();
        let charger = writers.of(0, EPOCH, NODE, UnixMillis(5));
        assert!(is_charger_of(charger.node, NODE) && charger.node != NODE);
        assert_eq!(charge(charger, b"k", 3), 3);
        let first = (charger.node, charger.next(UnixMillis(6)));
        writers.settle();
        drop(writers);
        let mut writers = all.writers();
        let charger = writers.of(0, EPOCH, NODE, UnixMillis(7));
        assert_eq!(charge(charger, b"k", -1), 2);
        assert_eq!((charger.node, charger.last()), first);
        writers.settle();
        drop(writers);
        // It was idle for too long.
        let mut writers = all.writers();
        let later = writers.of(0, EPOCH, NODE, UnixMillis(LONGEST_REST + 7));
        assert_ne!(later.node, first.0);
        assert_eq!(charge(later, b"k", 1), 1);
    }

    #[test]
    fn after_a_failure_a_charger_goes_back() {
        let mut all = Chargers::default();
        let mut writers = all.writers();
        let charger = writers.of(0, EPOCH, NODE, UnixMillis(5));
        charge(charger, b"k", 3);
        charger.next(UnixMillis(6));
        let (writer, node) = (charger.writer, charger.node);
        writers.settle();
        drop(writers);
        assert!(all.unsure().is_none());

        let mut writers = all.writers();
        let charger = writers.of(0, EPOCH, NODE, UnixMillis(7));
        for (key, more) in [(b"k", 4), (b"l", 5), (b"k", -1)] {
            charge(charger, key, more);
        }
        charger.next(UnixMillis(7));
        // The exchange fails, and so does the first attempt to take its charges back.
        drop(writers);
        drop(all.unsure().unwrap());
        let mut writers = all.unsure().unwrap();
        let (epoch, charger) = writers.of_shards.get_mut(&0).unwrap();
        assert_eq!((*epoch, charger.writer), (EPOCH, writer));
        let unsure = charger.unsure();
        let unsure: Vec<_> = unsure.iter().map(|it| (&*it.key, it.before)).collect();
        assert!(unsure.contains(&(b"k", 3)) && unsure.contains(&(b"l", 0)));
        assert_eq!(unsure.len(), 2);
        // The rows have the same writer and later timestamps; other nodes get a new chain.
        assert!(is_charger_of(charger.node, NODE) && charger.node != node);
        assert_eq!(charger.next(UnixMillis(8)), BatchId::new(3, 0));
        assert_eq!(charger.first(), charger.last());
        writers.settle();
        drop(writers);
        assert!(all.unsure().is_none());
        let mut writers = all.writers();
        let charger = writers.of(0, EPOCH, NODE, UnixMillis(8));
        assert_eq!(charge(charger, b"k", 1), 4);
        assert_eq!(charge(charger, b"l", 1), 1);
    }

    #[test]
    fn a_full_charger_forgets_ended_windows() {
        const SECOND: WindowSize = WindowSize::from_millis(1000).unwrap();
        let long = |key| Partition::of(key, MINUTE, 7);
        // This number of keys in each of the last minute's seconds.
        let full = |now: u64, seconds: u64| {
            let mut all = Chargers::default();
            let mut charger = all.take(EPOCH, NODE, UnixMillis(now));
            charger.charge(long(b"k"), b"k", 5, LIFE);
            for number in 0..MOST as u64 {
                let window = now / 1000 - number % seconds;
                let key = number.to_be_bytes();
                charger.charge(Partition::of(&key, SECOND, window), &key, 1, LIFE);
            }
            let node = charger.node;
            charger.next(UnixMillis(now));
            all.all.insert(EPOCH, charger);
            (all, node)
        };
        let now = 7 * 60_000 + 50_000;
        let (mut all, node) = full(now, 60);
        let mut charger = all.take(EPOCH, NODE, UnixMillis(now));
        assert_eq!(charger.node, node);
        assert_eq!(charger.count(long(b"k"), b"k"), 5);
        assert!((MOST / 7..MOST / 4).contains(&charger.counts.len()));
        // A slightly late clock finds the counts.
        for (behind, window, count) in [(9, 9_u64, 1), (0, 0, 1), (0, 30, 0)] {
            all.all.insert(EPOCH, charger);
            charger = all.take(EPOCH, NODE, UnixMillis(now - behind * 1000));
            assert_eq!(charger.node, node);
            let key = window.to_be_bytes();
            let partition = Partition::of(&key, SECOND, now / 1000 - window);
            assert_eq!(charger.count(partition, &key), count, "{window}");
        }
        // A later clock counts in a window whose counts were dropped.
        all.all.insert(EPOCH, charger);
        let charger = all.take(EPOCH, NODE, UnixMillis(now - 11_000));
        assert_ne!(charger.node, node);
        // There are too few counts to drop.
        let (mut all, node) = full(now, 5);
        assert_ne!(all.take(EPOCH, NODE, UnixMillis(now)).node, node);
    }

    #[test]
    fn counts_saturate() {
        let mut charger = Charger::new(NODE, UnixMillis(0));
        assert_eq!(charge(&mut charger, b"k", i64::MAX), MAX_TOTAL);
        assert_eq!(charge(&mut charger, b"k", i64::MAX), MAX_TOTAL);
        assert_eq!(charge(&mut charger, b"k", i64::MIN), -MAX_TOTAL);
    }
}
