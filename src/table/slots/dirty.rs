//! Dirty bits, which mark synced counters that changed since the last flush. A file of its own,
//! since the changes of all kinds of counters need them.

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::zone::counter_table::CounterTable;

impl<'m> CounterTable<'m> {
    /// Marks a synced counter as changed. To be called before the change and after it.
    ///
    /// The worker that takes the changes clears the bit and then reads the counter. Since the bit
    /// is set before the hit and checked after it, a hit that was not read leaves the bit set.
    #[inline]
    pub(crate) fn mark_dirty<T>(&self, part_of_slot: &T) {
        let (word, bit) = self.dirty_bit(self.index_of(part_of_slot));
        if let Some(word) = word {
            // SeqCst is not needed: the hit is an AcqRel operation, across which this load cannot
            // be reordered.
            if word.load(Acquire) & bit == 0 {
                word.fetch_or(bit, AcqRel);
                fail_point!("change.noted");
            }
        }
    }

    /// Returns the word and the bit of slot `index`.
    fn dirty_bit(&self, index: usize) -> (Option<&'m AtomicU64>, u64) {
        let words: &'m [AtomicU64] = self.parts.dirty;
        (words.get(index / 64), 1 << (index % 64))
    }

    /// Returns the number of groups in which changes are taken.
    pub fn change_groups(&self) -> usize {
        self.parts.dirty.len()
    }

    /// Sets the bit of slot `index`.
    pub(crate) fn set_dirty_bit(&self, index: usize) {
        if let (Some(word), bit) = self.dirty_bit(index) {
            word.fetch_or(bit, AcqRel);
        }
    }
}
