//! The bytes of keys, of counters that a store has to know by name: synced ones.
//!
//! A counter's name is a chain of slots: the first part holds 32 bytes, and what the store has of
//! the counter; each further one 48. So names of all lengths fit wherever enough slots can be had,
//! and take no memory where keys need no names.
//!
//! Nothing frees a name: a part says whose it is, and whatever looks for a slot (or for a name) sees
//! whether that is still so. A first part belongs to the counter that leads to it, if the generation that
//! it remembers is still the counter's; a further part to the first one, likewise. So a process
//! may end between any two steps, and what it leaves behind is found to belong to no counter.

use super::columns::WindowColumns;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{Acquire, Relaxed};
use crate::table::words::slot::{Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

/// The bytes of a name in its first part.
pub(super) const FIRST: usize = 32;
/// The bytes of a name in each further part.
pub(super) const FURTHER: usize = 48;

/// The words of a slot that hold the bytes of a name. Those of a first part leave `local` out, which
/// holds what the store has.
pub(super) fn words(slot: &Slot, is_first: bool) -> impl Iterator<Item = &AtomicU64> {
    let local: &[AtomicU64] = if is_first { &[] } else { &slot.local };
    slot.id.iter().chain(&slot.remote).chain(local)
}

/// The parts that a name of `len` bytes has.
pub(super) fn parts_of(len: usize) -> usize {
    len.saturating_sub(FIRST).div_ceil(FURTHER).saturating_add(1)
}

impl<'m> CounterTable<'m> {
    /// The name of a counter; `None` if it has none, or is no counter any more.
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
        // Parts are taken only after the counter was: if it is still there, so were they.
        occupant.slot.meta().is_same_counter(occupant.meta).then_some(name)
    }

    /// Whether a synced counter has hits of live windows that the store has not.
    pub(crate) fn has_unsent(&self, occupant: Occupant<'m>, now: UnixMillis) -> bool {
        let Some(size) = occupant.meta.size().filter(|_| occupant.meta.is_synced()) else {
            return false;
        };
        WindowColumns::live(occupant, size, now)
            .any(|(number, local)| local != self.pushed(occupant, number))
    }

    /// Returns the unsent hits of the window in a synced counter's current column, if that is a
    /// former window, which is about to give way.
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
        // Of the same parity, and so of the same window if the stamp is the same.
        let pushed = self.pushed_word(occupant, columns.at.number);
        word.hits().minus(pushed.hits_of(word.stamp()))
    }
}
