//! Dirty bits, which mark synced counters that changed since the last flush. A file of its own,
//! since the changes of all kinds of counters need them.
//!
//! A word has the bits of a group of slots, and a stamp. The holder of a
//! [lease](crate::table::zone::lease) clears a bit by a compare-and-swap of the whole word, and a
//! worker that takes over changes the stamps before it looks for lost changes. So a holder that was
//! stopped just before it clears a bit, and continues later, clears none.

use core::ops::Range;

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::fail::fail_point;
use crate::table::words::slot::{GROUP, group_of};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// The bits of a group's slots, which are the lower part of its word.
const BITS: u64 = (1 << GROUP) - 1;
/// The lowest bit of the stamp, which is the upper part. It wraps around after 65,536 changes.
const STAMP: u64 = 1 << GROUP;

/// Returns the bits in a group's word.
pub(crate) fn bits_of(word: &AtomicU64) -> u64 {
    word.load(Acquire) & BITS
}

/// Returns the index of the slot with the lowest of these bits of a group.
pub(crate) fn slot_of(group: usize, bits: u64) -> usize {
    group.saturating_mul(GROUP).saturating_add(bits.trailing_zeros() as usize)
}

/// Clears a bit while the lease is held. Returns whether it was set.
///
/// # Errors
///
/// [`LeaseLost`].
pub(crate) fn clear(word: &AtomicU64, bit: u64, is_held: IsHeld<'_>) -> Result<bool, LeaseLost> {
    let mut old = word.load(Acquire);
    while old & bit != 0 {
        // After the load, so that a worker that takes over from here on changes the word.
        confirm(is_held)?;
        fail_point!("change.taking");
        match word.compare_exchange(old, old & !bit, AcqRel, Acquire) {
            Ok(_) => {
                fail_point!("change.taken");
                return Ok(true);
            }
            // Another counter of the group has changed, or another worker takes a change.
            Err(other) => old = other,
        }
    }
    Ok(false)
}

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
        let (group, bit) = group_of(index);
        (words.get(group), bit)
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

    /// Makes all pending [`clear`]s of bits in these slots fail. Needs no lease, since they are
    /// repeated.
    pub(crate) fn restamp_dirty(&self, slots: Range<usize>) {
        let groups = slots.start / GROUP..slots.end.div_ceil(GROUP);
        for word in self.parts.dirty.get(groups).into_iter().flatten() {
            word.fetch_add(STAMP, AcqRel);
            fail_point!("change.restamped");
        }
    }
}
