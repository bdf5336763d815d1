//! The processes that hold requests, by number; and the marks of the slots that may have counters of holds.
//!
//! A process that holds requests claims a number: a word with its process id and start time, by which others find out
//! that it has ended. A process of a previous configuration keeps its number until it ends.
//!
//! A mark is a bit, so that a look at all holds need not read all slots. It is set before the first hold in a slot, and
//! removed when the slot is found with another occupant. A word has the marks of 32 slots, and the number of times that
//! one was set: so a process that was stopped before it removes a mark cannot remove a newer one.

use super::counter_table::CounterTable;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::held::{HolderNumber, MARKS};
use crate::table::words::slot::Slot;
#[cfg(not(loom))]
use crate::table::words::system::{ProcessId, forks};

impl<'m> CounterTable<'m> {
    /// Returns this process's number, which is claimed for the first hold. `None` if all numbers are taken.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn holder(&self) -> Option<HolderNumber> {
        let word = self.holder.load(Relaxed);
        // A child of this process needs a number of its own.
        match (word as u16).checked_sub(1) {
            Some(number) if word >> 16 == forks() => Some(HolderNumber(number)),
            _ => self.claim_holder(),
        }
    }

    /// Returns no number: the tests with loom name one for each thread.
    #[cfg(loom)]
    pub(crate) fn holder(&self) -> Option<HolderNumber> {
        None
    }

    #[cfg(not(loom))]
    #[cold]
    fn claim_holder(&self) -> Option<HolderNumber> {
        let generation = forks();
        let own = ProcessId::current()?.bits();
        let words = self.parts.holders;
        let known = words.iter().position(|word| word.load(Acquire) == own);
        let claimed = known.or_else(|| {
            words.iter().position(|word| {
                word.load(Relaxed) == 0 && word.compare_exchange(0, own, AcqRel, Relaxed).is_ok()
            })
        })?;
        fail_point!("holder.claimed");
        let number = u16::try_from(claimed).ok()?;
        self.holder.store(generation << 16 | u64::from(number.saturating_add(1)), Relaxed);
        Some(HolderNumber(number))
    }

    /// Marks a slot, before the first hold in it.
    #[cold]
    pub(crate) fn mark(&self, slot: &Slot) {
        let index = self.index_of(slot);
        let Some(word) = self.parts.marks.get(index / MARKS) else { return };
        let bit = 1 << (index % MARKS);
        let mut old = word.load(Relaxed);
        loop {
            let new = (old | bit).wrapping_add(1 << MARKS);
            match word.compare_exchange(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(changed) => old = changed,
            }
        }
        fail_point!("hold.marked");
    }

    /// Removes the mark of slot `index`, in a word that was read as `seen` before the slot was found with another
    /// occupant. Returns the word's new value; `None` if it has changed, so that the mark may be of a new hold.
    pub(crate) fn unmark(&self, index: usize, seen: u64) -> Option<u64> {
        let word = self.parts.marks.get(index / MARKS)?;
        let new = seen & !(1 << (index % MARKS));
        let swapped = word.compare_exchange(seen, new, AcqRel, Relaxed);
        fail_point!("hold.unmarked");
        swapped.ok().map(|_| new)
    }

    /// Returns the words of the marks from number `from` on.
    pub(crate) fn marks_from(&self, from: usize) -> &'m [AtomicU64] {
        let marks: &'m [AtomicU64] = self.parts.marks;
        marks.get(from..).unwrap_or_default()
    }
}
