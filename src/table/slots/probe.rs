//! Probing: finds the slot of a counter.
//!
//! An identity has two buckets, and a home slot in each. The first home is compared first, since
//! most counters are there. Meanwhile the cache line of the second home, where most others are, is
//! fetched, so that both accesses to memory overlap. Only if a counter is in neither, the tags of
//! both buckets are read, which select the few slots that can have it.

use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{Meta, SlotState};
use crate::table::words::slot::{Bucket, Occupant, Slot, WAYS};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::layout::Parts;

/// The slots that an identity can have.
#[derive(Clone, Copy)]
pub(super) struct Home<'m> {
    pub(super) buckets: [&'m Bucket; 2],
    /// The tag words of both buckets.
    pub(super) tags: [&'m AtomicU64; 2],
    /// The home's way in each bucket.
    pub(super) ways: [usize; 2],
    pub(super) tag: u8,
}

/// The position of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotPosition {
    /// Whether the slot is in the second bucket of the identity.
    pub(super) in_second: bool,
    pub(super) way: usize,
}

/// The result of probing for an identity.
pub(super) enum Probe<'m> {
    Found(Occupant<'m>),
    /// The identity may be in a slot that is being changed.
    Pending(SlotPosition, &'m Slot, Meta),
    Absent,
}

impl<'m> Home<'m> {
    /// Returns the home of an identity; `None` only if the table has fewer than two buckets.
    #[inline]
    pub(super) fn of(id: Identity, parts: &Parts<'m>) -> Option<Home<'m>> {
        let (buckets, tags) = (parts.buckets, parts.tags);
        let [one, two] = id.0;
        let (first, mut second) = (scale(one, buckets.len()), scale(two, buckets.len()));
        if second == first {
            second = if first == 0 { 1 } else { first.wrapping_sub(1) };
        }
        Some(Home {
            buckets: [buckets.get(first)?, buckets.get(second)?],
            tags: [tags.get(first)?, tags.get(second)?],
            ways: [home_way(two), home_way(one)],
            tag: tag_of(two),
        })
    }

    /// Finds the slot of `id` if it is one of the homes.
    #[inline(always)]
    pub(super) fn find(&self, id: Identity) -> Option<Occupant<'m>> {
        let ([first, second], [way, second_way]) = (self.buckets, self.ways);
        let (first, second) = (first.get(way)?, second.get(second_way)?);
        // Before the first home is compared, so that both accesses overlap.
        second.prefetch();
        let occupant = |slot: &'m Slot| Occupant { slot, meta: slot.meta() };
        let found = |home: &Occupant<'m>| home.meta.is_counter() && home.slot.has_identity(id);
        let at_first = Some(occupant(first)).filter(found);
        at_first.or_else(|| Some(occupant(second)).filter(found))
    }

    /// Finds the slot of `id` by its tag.
    #[cold]
    fn find_elsewhere(&self, id: Identity) -> Option<Occupant<'m>> {
        match self.search(self.seen(), id) {
            Probe::Found(occupant) => Some(occupant),
            Probe::Pending(..) | Probe::Absent => None,
        }
    }

    #[inline]
    pub(super) fn seen(&self) -> [Tags; 2] {
        // The first bucket before the second: an insertion into the second writes them in the
        // reverse order. Acquire: pairs with the release in `tag`.
        self.tags.map(|tags| Tags(tags.load(Acquire)))
    }

    #[inline]
    pub(super) fn slot(&self, position: SlotPosition) -> Option<&'m Slot> {
        let [first, second] = self.buckets;
        let bucket = if position.in_second { second } else { first };
        bucket.get(position.way)
    }

    /// Looks for `id` in the slots with its tag.
    #[inline]
    pub(super) fn search(&self, seen: [Tags; 2], id: Identity) -> Probe<'m> {
        let mut pending = None;
        for (second, tags) in [false, true].into_iter().zip(seen) {
            for way in tags.ways_with(self.tag) {
                let position = SlotPosition { in_second: second, way };
                let Some(slot) = self.slot(position) else {
                    continue;
                };
                // One load decides: between two loads, an insertion could end and be missed by
                // both.
                let meta = slot.meta();
                match meta.state() {
                    SlotState::Counter if slot.has_identity(id) => {
                        return Probe::Found(Occupant { slot, meta });
                    }
                    SlotState::Busy(_) => pending = Some((position, slot, meta)),
                    _ => {}
                }
            }
        }
        match pending {
            Some((position, slot, meta)) => Probe::Pending(position, slot, meta),
            None => Probe::Absent,
        }
    }
}

/// Maps 64 uniform bits to a uniform number below `buckets`.
#[inline]
pub(super) fn scale(bits: u64, buckets: usize) -> usize {
    // The high half of the product.
    (u128::from(bits).wrapping_mul(buckets as u128) >> 64) as usize
}

#[inline]
fn home_way(bits: u64) -> usize {
    bits as usize % WAYS
}

/// A tag word: WAYS tags from the lowest bits on, and the version in the highest eight bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tags(pub(super) u64);

const TAG_BITS: u32 = 7;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const VERSION_ONE: u64 = 1 << 56;
const _: () = assert!(WAYS * TAG_BITS as usize <= 56);

/// Returns the tag of an identity, from 1 to 126.
fn tag_of(bits: u64) -> u8 {
    // These bits choose neither the way nor, with up to 2^48 buckets, the bucket.
    match (bits >> 3) & TAG_MASK {
        0 => 1,
        127 => 126,
        bits => bits as u8,
    }
}

/// The lowest bit of each tag.
const ONES: u64 = {
    let mut ones = 0;
    let mut way = 0;
    while way < WAYS {
        ones |= 1 << (way * TAG_BITS as usize);
        way += 1;
    }
    ones
};

impl Tags {
    /// Returns the ways with `tag`, all of which are compared at once.
    pub(super) fn ways_with(self, tag: u8) -> Ways {
        const HIGH: u64 = ONES << (TAG_BITS - 1);
        const LOW: u64 = HIGH.wrapping_sub(ONES);
        let different = (self.0 ^ ONES.wrapping_mul(u64::from(tag))) & (HIGH | LOW);
        // The high bit of each lane that is not zero. No lane carries into the next.
        let not_zero = ((different & LOW).wrapping_add(LOW) | different) & HIGH;
        Ways(not_zero ^ HIGH)
    }

    /// Returns the word with the tag of `way` replaced, and the next version.
    pub(super) fn with(self, way: usize, tag: u8) -> Tags {
        let shift = (way as u32).wrapping_mul(TAG_BITS);
        Tags((self.0 & !(TAG_MASK << shift)) | u64::from(tag) << shift).touched()
    }

    /// Returns the word with the next version.
    pub(super) fn touched(self) -> Tags {
        Tags(self.0.wrapping_add(VERSION_ONE))
    }
}

/// A set of ways, as the highest bits of their tags. Iterates from the lowest.
#[derive(Clone, Copy)]
pub(super) struct Ways(u64);

impl Ways {
    pub(super) fn count(self) -> u64 {
        const HIGHEST_LANE: usize = (WAYS - 1) * TAG_BITS as usize;
        // One for each way, in the lowest bit of its lane; the multiplication adds them in the
        // highest lane.
        let ones = self.0 >> (TAG_BITS - 1);
        ones.wrapping_mul(ONES) >> HIGHEST_LANE & TAG_MASK
    }

    pub(super) fn contains(self, way: usize) -> bool {
        self.0 & (1 << (TAG_BITS - 1)) << (way as u32).wrapping_mul(TAG_BITS) != 0
    }
}

impl Iterator for Ways {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let way = (self.0.trailing_zeros() / TAG_BITS) as usize;
        self.0 &= self.0.wrapping_sub(1);
        (way < WAYS).then_some(way)
    }
}

impl<'m> CounterTable<'m> {
    /// Finds the slot of `id`.
    #[inline]
    pub(crate) fn find(&self, id: Identity) -> Option<Occupant<'m>> {
        let home = Home::of(id, &self.parts)?;
        home.find(id).or_else(|| home.find_elsewhere(id))
    }

    /// Returns the first home of `id`, whatever it contains, and prefetches the second.
    #[inline(always)]
    pub(crate) fn home(&self, id: Identity) -> Option<Occupant<'m>> {
        let [one, two] = id.0;
        let buckets: &'m [Bucket] = self.parts.buckets;
        let (first, second) = (scale(one, buckets.len()), scale(two, buckets.len()));
        // Before the first home is compared, so that both accesses overlap.
        buckets.get(second)?.get(home_way(one))?.prefetch();
        let slot = buckets.get(first)?.get(home_way(two))?;
        let meta = slot.meta();
        Some(Occupant { slot, meta })
    }
}
