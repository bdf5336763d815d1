//! Dirty bits: which synced counters were hit since the last flush.

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::zone::counter_table::CounterTable;

impl<'m> CounterTable<'m> {
    /// Notes that a synced counter changes: to be called before the change, and after it.
    ///
    /// The worker that takes the changes clears the bit, then reads the counter. A bit that is set before a hit
    /// and looked at after it is set whenever a hit was not read.
    #[inline]
    pub(crate) fn mark_dirty<T>(&self, part_of_slot: &T) {
        let (word, bit) = self.dirty_bit(self.index_of(part_of_slot));
        if let Some(word) = word {
            // SeqCst would add nothing: the hit is an AcqRel operation, which this load cannot
            // pass in either direction.
            if word.load(Acquire) & bit == 0 {
                word.fetch_or(bit, AcqRel);
                fail_point!("change.noted");
            }
        }
    }

    /// The word and the bit of the slot number `index`.
    fn dirty_bit(&self, index: usize) -> (Option<&'m AtomicU64>, u64) {
        let words: &'m [AtomicU64] = self.parts.dirty;
        (words.get(index / 64), 1 << (index % 64))
    }

    /// The number of groups in which changes are taken.
    pub fn change_groups(&self) -> usize {
        self.parts.dirty.len()
    }

    /// Sets the bit of the slot number `index`.
    pub(crate) fn set_dirty_bit(&self, index: usize) {
        if let (Some(word), bit) = self.dirty_bit(index) {
            word.fetch_or(bit, AcqRel);
        }
    }
}
