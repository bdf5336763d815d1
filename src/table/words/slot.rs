//! A slot: 64 bytes with one key's counter, or a part of a name or a log; and an occupant, as read
//! from a slot.

use core::mem::offset_of;
use core::ptr;

use super::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use super::identity::Identity;
use super::meta::Meta;

/// Number of slots in a bucket.
#[cfg(not(loom))]
pub(crate) const WAYS: usize = 8;
/// Fewer slots, so that loom can explore full buckets.
#[cfg(loom)]
pub(crate) const WAYS: usize = 2;

/// Number of slots that share a word of dirty bits.
pub(crate) const GROUP: usize = 48;

/// Returns the group of slot `index`, and its bit there.
#[inline(always)]
pub(crate) const fn group_of(index: usize) -> (usize, u64) {
    (index / GROUP, 1 << (index % GROUP))
}

/// One key's counter: two windows, by the parity of their numbers.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The identity of the counter. Changes only while the slot is busy.
    pub(crate) id: [AtomicU64; 2],
    /// Counts of this node. A `WindowCount` each.
    pub(crate) local: [AtomicU64; 2],
    /// Counts of the other nodes: a store's total minus this node's part of it. A `WindowCount`
    /// each.
    pub(crate) remote: [AtomicU64; 2],
    /// Occupant of the slot. A `Meta`.
    pub(crate) meta: AtomicU64,
    /// Time of the counter's last use, in ticks.
    pub(crate) used: AtomicU32,
    /// In a counter, the link to the first part of its name (`link_to`); 0 without a name. In a
    /// part of a name, the link to the next part. See `names`.
    pub(crate) extension: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

/// The slots of one tag word.
pub(crate) type Bucket = [Slot; WAYS];

/// A counter in its slot, as it was found.
#[derive(Clone, Copy)]
pub(crate) struct Occupant<'m> {
    pub(crate) slot: &'m Slot,
    /// The slot's meta when the counter was found. The counter is the same while the meta is.
    pub(crate) meta: Meta,
}

/// The error that a slot has another occupant by now, or that another process has claimed it.
pub(crate) struct Lost;

impl<'m> Occupant<'m> {
    /// Returns the current occupant of `slot`.
    #[inline]
    pub(crate) fn of(slot: &'m Slot) -> Occupant<'m> {
        Occupant { slot, meta: slot.meta() }
    }

    /// Returns whether the counter is still in its slot, synced or not.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.slot.meta().is_same_counter(self.meta)
    }
}

impl Slot {
    /// Returns the slot's occupant. Acquire: pairs with the release in `Claim::publish`, before
    /// which the identity was written.
    #[inline]
    pub(crate) fn meta(&self) -> Meta {
        Meta::from_bits(self.meta.load(Acquire))
    }

    /// Replaces the meta that was read as `old`.
    pub(crate) fn replace_meta(&self, old: Meta, new: Meta) -> Result<(), Lost> {
        // Acquire: this process sees the writes of the former owner, which cannot write any more.
        self.meta
            .compare_exchange(old.bits(), new.bits(), AcqRel, Relaxed)
            .map_or(Err(Lost), |_| Ok(()))
    }

    /// Returns whether the slot's counter has the identity `id`. An identity is replaced only while
    /// the slot is busy, and the meta differs afterwards, so a process that changes an occupant's
    /// word notices that.
    #[inline]
    pub(crate) fn has_identity(&self, id: Identity) -> bool {
        let ([own_one, own_two], [one, two]) = (&self.id, id.0);
        own_one.load(Relaxed) == one && own_two.load(Relaxed) == two
    }

    /// Returns the words of a slot that is a log's block.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64; 6] {
        const {
            assert!(offset_of!(Slot, id) == 0);
            assert!(offset_of!(Slot, local) == size_of::<[AtomicU64; 2]>());
            assert!(offset_of!(Slot, remote) == size_of::<[AtomicU64; 4]>());
        }
        // SAFETY: as asserted above, a slot begins with three adjacent pairs of words. They live as
        // long as the slot, and are only changed atomically.
        unsafe { &*ptr::from_ref(self).cast::<[AtomicU64; 6]>() }
    }

    /// Returns the column of window `number`, and the other column.
    #[inline]
    pub(crate) fn local_columns(&self, number: u64) -> (&AtomicU64, &AtomicU64) {
        by_parity(&self.local, number)
    }

    #[inline]
    pub(crate) fn remote_columns(&self, number: u64) -> (&AtomicU64, &AtomicU64) {
        by_parity(&self.remote, number)
    }

    /// Prefetches the slot.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: x86-64 has SSE; a prefetch is a hint and accesses no memory.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(ptr::from_ref(self).cast());
        }
    }
}

#[inline]
fn by_parity([even, odd]: &[AtomicU64; 2], number: u64) -> (&AtomicU64, &AtomicU64) {
    if number & 1 == 0 { (even, odd) } else { (odd, even) }
}
