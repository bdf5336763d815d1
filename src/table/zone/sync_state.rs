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

/// Milliseconds of a clock that is never set: the time since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicMillis(pub u64);

/// The sync of one namespace and shard with its store.
#[derive(Clone, Copy, Debug)]
pub struct SyncState<'m> {
    pub(crate) slot: &'m SyncSlot,
    /// The number of the slot.
    pub(crate) index: usize,
    /// The namespace.
    pub(crate) entry: &'m DirectoryEntry,
    pub(crate) line: &'m SyncLine,
    pub(crate) buffers: Buffers<'m>,
    /// The configuration that this is of.
    pub(crate) sync_generation: u64,
}

impl<'m> SyncState<'m> {
    /// Whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.entry.sync_generation.load(Acquire) != self.sync_generation
    }

    /// Returns the number of records of the sealed batch, which may be on its way; 0: there is
    /// none.
    pub fn sealed_records(&self) -> usize {
        BatchWord(self.slot.batch.load(Acquire)).count()
    }

    /// Returns the state of charges that the store made ahead.
    pub fn grants(&self) -> Grants {
        ModeWord(self.slot.mode.load(Acquire)).grants()
    }

    /// Notes what the store has charged ahead, where that was `before`, and not something else by now: whoever was
    /// stopped changes nothing.
    pub fn record_grants(&self, before: Grants, grants: Grants) {
        let (before, grants) = (ModeWord::pushing(before).0, ModeWord::pushing(grants).0);
        // AcqRel: who reads it sees nothing that was granted after it.
        let noted = self.slot.mode.compare_exchange(before, grants, AcqRel, Relaxed);
        fail_point!("grants.noted");
        // If it fails, it is noted already.
        let _ = noted;
    }

    /// Notes an exchange with the store, which took so many microseconds, for [`SyncState::stats`].
    pub fn count_exchange(&self, micros: u64) {
        self.line.exchanged(micros);
    }

    /// Notes that so many connections to the store were made.
    pub fn count_connects(&self, connects: u64) {
        add(&self.line.connects, connects);
    }

    /// Notes what came of a cycle, for [`SyncState::stats`].
    pub fn count_cycle(&self, cycle: &SyncCycle) {
        self.line.count(cycle);
    }

    /// Returns the results of all cycles so far, of all workers.
    pub fn stats(&self) -> SyncStats {
        self.line.stats()
    }

    /// Notes how many nodes live that share the store, for the namespace.
    pub fn record_nodes(&self, nodes: u64) {
        let nodes = nodes.clamp(1, MAX_NODES);
        // Above that is what `own_share` notes.
        let noted = |word: u64| Some(word & !u64::from(u32::MAX) | nodes);
        // Cannot fail.
        let _ = self.entry.nodes.fetch_update(Relaxed, Relaxed, noted);
    }

    /// Returns the number of living nodes, as far as known: this one at least.
    pub fn nodes(&self) -> u64 {
        let nodes = self.entry.nodes.load(Relaxed) as u32;
        u64::from(nodes).max(1)
    }

    /// Whether a sync of this node has ended well in this configuration.
    pub fn has_synced(&self) -> bool {
        self.slot.synced.load(Relaxed) != 0
    }

    /// Returns the milliseconds from the start of this node's last sync that ended well to `now`;
    /// `None`: none did in this configuration.
    pub fn since_sync(&self, now: MonotonicMillis) -> Option<u64> {
        match self.slot.synced.load(Relaxed) {
            0 => None,
            synced => Some(now.0.saturating_sub(synced)),
        }
    }
}
