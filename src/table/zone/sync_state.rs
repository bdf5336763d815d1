//! The sync of a namespace's shard with its store, as the processes of a configuration see it.

use super::buffers::Buffers;
use super::event_lines::add;
use super::events::{SyncLine, SyncStats};
use super::layout::DirectoryEntry;
use super::near_cell::MAX_NODES;
use super::sync_line::SyncCycle;
use super::sync_slot::{BatchWord, ModeWord, SyncSlot};
use crate::policy::reserve::Grants;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;

/// Milliseconds since the machine started, by a clock that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicMillis(pub u64);

/// The living nodes that share a namespace's store, in a word of its directory entry.
///
/// ```text
///  63     62      48   47          32   31       0
/// +-------+----------+----------------+----------+
/// | alone | 0        | place plus one | count    |
/// +-------+----------+----------------+----------+
/// ```
///
/// A count of 0 is unknown, and so is a place of 0. `alone` says that each node admits only its
/// share.
#[derive(Clone, Copy)]
pub(crate) struct NodesWord(pub(crate) u64);

impl NodesWord {
    pub(crate) const ALONE: u64 = 1 << 63;
    const PLACE: u32 = 32;

    /// Returns the word with other nodes.
    fn of_living(self, nodes: u64, place: Option<u64>) -> NodesWord {
        let nodes = nodes.clamp(1, MAX_NODES);
        // A place beyond the number of nodes is none.
        let place = place.filter(|it| *it < nodes);
        let place = place.map_or(0, |it| it.saturating_add(1));
        NodesWord(self.0 & Self::ALONE | place << Self::PLACE | nodes)
    }

    pub(crate) fn is_alone(self) -> bool {
        self.0 & Self::ALONE != 0
    }

    /// Returns the number of nodes, at least 1.
    pub(crate) fn count(self) -> u64 {
        u64::from(self.0 as u32).max(1)
    }

    /// Returns this node's place among the nodes.
    pub(crate) fn place(self) -> Option<u64> {
        u64::from((self.0 >> Self::PLACE) as u16).checked_sub(1)
    }
}

/// The sync of one namespace and shard with its store.
#[derive(Clone, Copy, Debug)]
pub struct SyncState<'m> {
    pub(crate) slot: &'m SyncSlot,
    /// Number of the slot.
    pub(crate) index: usize,
    /// The namespace.
    pub(crate) entry: &'m DirectoryEntry,
    pub(crate) line: &'m SyncLine,
    pub(crate) buffers: Buffers<'m>,
    /// The configuration that this belongs to.
    pub(crate) sync_generation: u64,
}

impl<'m> SyncState<'m> {
    /// Returns whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.entry.sync_generation.load(Acquire) != self.sync_generation
    }

    /// Returns the number of records of the sealed batch, which may be in flight; 0 without one.
    pub fn sealed_records(&self) -> usize {
        BatchWord(self.slot.batch.load(Acquire)).count()
    }

    /// Returns the state of the store's charges for reserves.
    pub fn grants(&self) -> Grants {
        ModeWord(self.slot.mode.load(Acquire)).grants()
    }

    /// Sets the state of the store's charges for reserves, if it is still `before`, so that a
    /// worker that was stopped changes nothing.
    pub fn record_grants(&self, before: Grants, grants: Grants) {
        let (before, grants) = (ModeWord::pushing(before).0, ModeWord::pushing(grants).0);
        // AcqRel: a reader of the state does not see hits that were granted later.
        let noted = self.slot.mode.compare_exchange(before, grants, AcqRel, Relaxed);
        fail_point!("grants.noted");
        // If the exchange fails, the state is set already.
        let _ = noted;
    }

    /// Counts an exchange with the store that took `micros` microseconds, for [`SyncState::stats`].
    pub fn count_exchange(&self, micros: u64) {
        self.line.exchanged(micros);
    }

    /// Counts connections that were made to the store.
    pub fn count_connects(&self, connects: u64) {
        add(&self.line.connects, connects);
    }

    /// Counts a cycle, for [`SyncState::stats`].
    pub fn count_cycle(&self, cycle: &SyncCycle) {
        self.line.count(cycle);
    }

    /// Returns the counts of all cycles of all workers.
    pub fn stats(&self) -> SyncStats {
        self.line.stats()
    }

    /// Records the number of living nodes that share the store, and this node's place among them.
    pub fn record_living(&self, nodes: u64, place: Option<u64>) {
        let noted = |word| Some(NodesWord(word).of_living(nodes, place).0);
        // The closure always returns a value, so this cannot fail.
        let _ = self.entry.nodes.fetch_update(Relaxed, Relaxed, noted);
    }

    /// Returns the known number of living nodes, at least 1.
    pub fn nodes(&self) -> u64 {
        NodesWord(self.entry.nodes.load(Relaxed)).count()
    }

    /// Returns whether a sync of this node has succeeded in this configuration.
    pub fn has_synced(&self) -> bool {
        self.slot.synced.load(Relaxed) != 0
    }

    /// Returns the milliseconds from the start of this node's last successful sync to `now`; `None`
    /// if there was none in this configuration.
    pub fn since_sync(&self, now: MonotonicMillis) -> Option<u64> {
        match self.slot.synced.load(Relaxed) {
            0 => None,
            synced => Some(now.0.saturating_sub(synced)),
        }
    }
}
