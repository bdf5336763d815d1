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

    /// Records the number of living nodes that share the store.
    pub fn record_nodes(&self, nodes: u64) {
        let nodes = nodes.clamp(1, MAX_NODES);
        // The upper half belongs to `own_share`.
        let noted = |word: u64| Some(word & !u64::from(u32::MAX) | nodes);
        // The closure always returns a value, so this cannot fail.
        let _ = self.entry.nodes.fetch_update(Relaxed, Relaxed, noted);
    }

    /// Returns the known number of living nodes, at least 1.
    pub fn nodes(&self) -> u64 {
        let nodes = self.entry.nodes.load(Relaxed) as u32;
        u64::from(nodes).max(1)
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
