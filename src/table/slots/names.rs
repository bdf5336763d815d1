//! Names: the bytes of a synced counter's key, by which a store knows the counter.
//!
//! A name is a chain of slots. The first part has 32 bytes, and the hits that the store has of the
//! counter; each further part has 48 bytes. So a name of any length fits wherever enough slots are
//! available, and local counters use no memory for names.
//!
//! No process has to free a name. A part contains its owner, and a process that looks for a slot or
//! a name checks whether that is still valid. A first part belongs to the counter that links to it,
//! if the counter still has the generation in the part; a further part belongs to the first part in
//! the same way. So a process may end between any two steps: the parts that it leaves belong to no
//! counter.

use super::columns::WindowColumns;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{Acquire, Relaxed};
use crate::table::words::slot::{Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

/// Bytes of a name in its first part.
pub(super) const FIRST: usize = 32;
/// Bytes of a name in each further part.
pub(super) const FURTHER: usize = 48;

/// Returns the words of a slot with bytes of a name. In a first part they exclude `local`, which
/// contains the hits that the store has.
pub(super) fn words(slot: &Slot, is_first: bool) -> impl Iterator<Item = &AtomicU64> {
    let local: &[AtomicU64] = if is_first { &[] } else { &slot.local };
    slot.id.iter().chain(&slot.remote).chain(local)
}

/// Returns the number of parts of a name of `len` bytes.
pub(super) fn parts_of(len: usize) -> usize {
    len.saturating_sub(FIRST).div_ceil(FURTHER).saturating_add(1)
}

impl<'m> CounterTable<'m> {
    /// Returns the name of a counter; `None` without a name, or if the counter is gone.
    pub(crate) fn name_of(&self, occupant: Occupant<'m>) -> Option<Vec<u8>> {
        let (first, meta) = self.first_part(occupant)?;
        let (_, len) = meta.owner_and_len()?;
        let len = usize::from(len);
        let mut name = Vec::with_capacity(len.saturating_add(FURTHER));
        let mut slot = first;
        for part in 0..parts_of(len) {
            if part > 0 {
                let (_, next) = self.next_of(slot)?;
                let (owner, _) = next.meta().owner_and_len()?;
                let is_ours = owner == meta.generation()
                    && next.used.load(Relaxed) as usize == self.index_of(first);
                if !is_ours {
                    return None;
                }
                slot = next;
            }
            for word in words(slot, part == 0) {
                name.extend_from_slice(&word.load(Acquire).to_le_bytes());
            }
        }
        name.truncate(len);
        // Parts are claimed only after their counter, so if the counter is still there, its parts
        // are, too.
        occupant.slot.meta().is_same_counter(occupant.meta).then_some(name)
    }

    /// Returns whether a synced counter has hits of current windows that the store has not.
    pub(crate) fn has_unsent(&self, occupant: Occupant<'m>, now: UnixMillis) -> bool {
        let Some(size) = occupant.meta.size().filter(|_| occupant.meta.is_synced()) else {
            return false;
        };
        WindowColumns::live(occupant, size, now)
            .any(|(number, local)| local != self.pushed(occupant, number))
    }

    /// Returns the unsent hits of the window in a synced counter's current column, if that is an
    /// earlier window, which is about to be replaced.
    pub(crate) fn unsent_before(
        &self,
        columns: &WindowColumns<'m>,
        occupant: Occupant<'m>,
    ) -> Hits {
        let word = columns.word;
        let is_former = word.stamp() != columns.stamp && word.hits() != Hits::ZERO;
        if !is_former || !occupant.meta.is_synced() {
            return Hits::ZERO;
        }
        // Of the same parity, and so of the same window if the stamps are equal.
        let pushed = self.pushed_word(occupant, columns.at.number);
        word.hits().minus(pushed.hits_of(word.stamp()))
    }
}
