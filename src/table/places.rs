//! Where a counter's slot is: finding it, and making room for a new one.
//!
//! An identity has two buckets, and in each of them a home slot. The first home is compared first:
//! most counters are there. While its cache line is on its way, so is that of the second home,
//! where most others are: what takes time is to wait for memory, and both are waited for at once.
//! Only if a counter is in neither the tags of both buckets are read, which tell the few slots that
//! are worth a look.
//!
//! No lock is taken. A slot changes hands in steps, each of which leaves the table usable should
//! the process end after it:
//!
//! 1. *Claim* a slot: its meta becomes busy, with the next generation. From here on nobody finds what
//!    was in it, and no word of its old occupancy counts any more.
//! 2. *Clear* its columns and write the identity. Hits that are known by then are written with
//!    them: they are counted when the slot is published, or not at all.
//! 3. *Tag* it. The tag word of the identity's first bucket is replaced if and only if it still
//!    has the value it had when the identity was not found: its version changes with every
//!    insertion of an identity whose first bucket it is, so that of two processes that insert the
//!    same identity one fails here, looks again, and finds the other's slot.
//! 4. *Publish*: its meta becomes that of a counter.
//!
//! Who finds a busy slot with the wanted tag waits for a moment, then takes the slot over: it may
//! belong to a process that was stopped or killed between two steps. The one that lost it notices
//! with its next write, every one of which is a compare-and-swap prepared while it still owned
//! the slot, and begins anew.

use super::admission::Receipt;
use super::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use super::claim::{Claim, ClaimCost, has_local_hits};
use super::counter::Counter;
use super::counter_table::CounterTable;
use super::fail::fail_point;
use super::identity::Identity;
use super::layout::Parts;
use super::meta::{Meta, SlotState, Ticks};
use super::slot::{Bucket, Lost, Occupant, Slot, WAYS};
use super::stats::{Evicted, NamespaceLine};
use super::word::{Stamp, WindowCount};
use crate::policy::algorithm::{Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::Clock;

/// How often to look again for an insertion under way before taking its slot over.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 256 };

/// A slot that a counter has, or got.
pub(super) enum Insertion<'m> {
    /// It has one, or got one in which nothing is counted yet.
    Found(Occupant<'m>),
    /// It got one with its first hits in it.
    Made(Reading, Receipt<'m>),
}

/// The slots that an identity can have.
#[derive(Clone, Copy)]
struct Home<'m> {
    buckets: [&'m Bucket; 2],
    /// The tag words of both.
    tags: [&'m AtomicU64; 2],
    /// The way of the home in each of them.
    ways: [usize; 2],
    tag: u8,
}

/// A slot by its position.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SlotPosition {
    /// Which of the identity's two buckets.
    in_second: bool,
    way: usize,
}

/// What a look for an identity in its buckets brought.
enum Probe<'m> {
    Found(Occupant<'m>),
    /// It may be in a slot that is being changed.
    Pending(SlotPosition, &'m Slot, Meta),
    Absent,
}

/// A counter that is to have a slot.
#[derive(Clone, Copy)]
struct New<'c> {
    counter: &'c Counter,
    id: Identity,
    /// The hits that are counted in it from the start.
    first: Hits,
}

/// A slot that is to be given to a new counter, and what that costs.
struct Victim<'m> {
    position: SlotPosition,
    slot: &'m Slot,
    meta: Meta,
    cost: ClaimCost,
}

impl<'m> Home<'m> {
    /// `None`: the table has less than two buckets, which none has.
    #[inline]
    fn of(id: Identity, parts: &Parts<'m>) -> Option<Home<'m>> {
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
    fn find(&self, id: Identity) -> Option<Occupant<'m>> {
        let ([first, second], [way, second_way]) = (self.buckets, self.ways);
        let (first, second) = (first.get(way)?, second.get(second_way)?);
        // Before the first home is there to be compared: see above.
        second.prefetch();
        let occupant = |slot: &'m Slot| Occupant {
            slot,
            meta: slot.meta(),
        };
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
    fn seen(&self) -> [Tags; 2] {
        // The first before the second: who inserts into the second writes them the other way
        // round. Acquire: pairs with the release of `tag`.
        self.tags.map(|tags| Tags(tags.load(Acquire)))
    }

    #[inline]
    fn slot(&self, position: SlotPosition) -> Option<&'m Slot> {
        let [first, second] = self.buckets;
        let bucket = if position.in_second { second } else { first };
        bucket.get(position.way)
    }

    /// Looks for `id` in the slots that have its tag.
    #[inline]
    fn search(&self, seen: [Tags; 2], id: Identity) -> Probe<'m> {
        let mut pending = None;
        for (second, tags) in [false, true].into_iter().zip(seen) {
            for way in tags.ways_with(self.tag) {
                let position = SlotPosition {
                    in_second: second,
                    way,
                };
                let Some(slot) = self.slot(position) else {
                    continue;
                };
                // One look decides: between two, an insertion may end and be missed by both.
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

    /// A slot that was never used, which is the best there is: no need to touch the others.
    #[inline]
    fn never_used(&self, seen: [Tags; 2]) -> Option<Victim<'m>> {
        let [first, second] = seen.map(|tags| tags.ways_with(0));
        // The emptier bucket if one is crowded, so that neither is full long before the other; else
        // the first one whose home can be had. In the bucket, the home if possible.
        let (in_first, in_second) = (first.count(), second.count());
        let [way, second_way] = self.ways;
        let (first_home, second_home) = (first.contains(way), second.contains(second_way));
        let is_second = if in_first.min(in_second) <= 3 && in_first != in_second {
            in_second > in_first
        } else {
            second_home && !first_home
        };
        let (unused, is_home, way) = if is_second {
            (second, second_home, second_way)
        } else {
            (first, first_home, way)
        };
        let unused = is_home.then_some(way).into_iter().chain(unused);
        let mut positions = unused.map(|way| SlotPosition {
            in_second: is_second,
            way,
        });
        positions.find_map(|position| {
            let slot = self.slot(position)?;
            let meta = slot.meta();
            (meta.state() == SlotState::Free).then_some(Victim {
                position,
                slot,
                meta,
                cost: ClaimCost::Free,
            })
        })
    }

    /// Tags a claimed slot, unless the first bucket changed since its tags were `seen`.
    #[inline]
    fn tag(&self, seen: [Tags; 2], position: SlotPosition, claim: &Claim<'m>) -> Result<(), Lost> {
        let ([first, _], [first_word, second_word]) = (seen, self.tags);
        let mut next = first.touched();
        if position.in_second {
            // The tag first: who sees the new version sees the tag too.
            claim.replace(second_word, |tags| {
                Tags(tags).with(position.way, self.tag).0
            })?;
            fail_point!("insert.tagged.second");
        } else {
            next = first.with(position.way, self.tag);
        }
        first_word
            .compare_exchange(first.0, next.0, AcqRel, Relaxed)
            .map_or(Err(Lost), |_| Ok(()))
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

/// A tag word: WAYS tags from the lowest bits on, the version in the highest eight.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tags(u64);

const TAG_BITS: u32 = 7;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const VERSION_ONE: u64 = 1 << 56;
const _: () = assert!(WAYS * TAG_BITS as usize <= 56);

/// The tag of a part of a name. A slot that was never used has the tag 0.
const NAME_TAG: u8 = 127;

/// The tag of an identity, 1 to 126.
fn tag_of(bits: u64) -> u8 {
    // Bits that decide on neither the way nor (unless there are more than 2^48) the bucket.
    match (bits >> 3) & TAG_MASK {
        0 => 1,
        127 => 126,
        bits => bits as u8,
    }
}

/// A one in the lowest bit of each tag of a word.
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
    /// The ways that have `tag`. All are compared at once.
    fn ways_with(self, tag: u8) -> Ways {
        const HIGH: u64 = ONES << (TAG_BITS - 1);
        const LOW: u64 = HIGH.wrapping_sub(ONES);
        let different = (self.0 ^ ONES.wrapping_mul(u64::from(tag))) & (HIGH | LOW);
        // The high bit of each lane that is not zero: no lane carries into the next.
        let not_zero = ((different & LOW).wrapping_add(LOW) | different) & HIGH;
        Ways(not_zero ^ HIGH)
    }

    /// The word with the tag of `way` replaced, and the next version.
    fn with(self, way: usize, tag: u8) -> Tags {
        let shift = (way as u32).wrapping_mul(TAG_BITS);
        Tags((self.0 & !(TAG_MASK << shift)) | u64::from(tag) << shift).touched()
    }

    /// The word with the next version.
    fn touched(self) -> Tags {
        Tags(self.0.wrapping_add(VERSION_ONE))
    }
}

/// Some of the ways of a bucket, the lowest first: the highest bits of their tags.
#[derive(Clone, Copy)]
struct Ways(u64);

impl Ways {
    fn count(self) -> u64 {
        const HIGHEST_LANE: usize = (WAYS - 1) * TAG_BITS as usize;
        // One for each way, in the lowest bit of its lane; all of them summed up in the highest.
        let ones = self.0 >> (TAG_BITS - 1);
        ones.wrapping_mul(ONES) >> HIGHEST_LANE & TAG_MASK
    }

    fn contains(self, way: usize) -> bool {
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
    pub(super) fn find(&self, id: Identity) -> Option<Occupant<'m>> {
        let home = Home::of(id, &self.parts)?;
        home.find(id).or_else(|| home.find_elsewhere(id))
    }

    /// The first home of `id`, whatever is there; the second is being fetched meanwhile.
    #[inline(always)]
    pub(super) fn home(&self, id: Identity) -> Option<Occupant<'m>> {
        let [one, two] = id.0;
        let buckets: &'m [Bucket] = self.parts.buckets;
        let (first, second) = (scale(one, buckets.len()), scale(two, buckets.len()));
        // Before the first home is there to be compared: see above.
        buckets.get(second)?.get(home_way(one))?.prefetch();
        let slot = buckets.get(first)?.get(home_way(two))?;
        let meta = slot.meta();
        Some(Occupant { slot, meta })
    }

    /// Finds the slot of `counter`, or gives it one in which `first` hits are counted.
    #[inline(always)]
    pub(super) fn find_or_insert(
        &self,
        counter: &Counter,
        id: Identity,
        first: Hits,
        clock: &impl Clock,
    ) -> Insertion<'m> {
        loop {
            let Some(home) = Home::of(id, &self.parts) else {
                continue;
            };
            if let Some(occupant) = home.find(id) {
                return Insertion::Found(occupant);
            }
            let new = New { counter, id, first };
            if let Some(inserted) = self.insert_where(home, new, clock, |_| true) {
                return inserted;
            }
        }
    }

    /// Finds the slot of `counter`, or gives it one that nobody counts in: not one with hits of this
    /// node, in windows that matter. `None` if there is none such, or if it is contended.
    pub(super) fn insert_gently(
        &self,
        counter: &Counter,
        id: Identity,
        clock: &impl Clock,
    ) -> Option<Occupant<'m>> {
        let may_take = |victim: &Victim<'m>| match victim.cost {
            ClaimCost::Free | ClaimCost::Abandoned | ClaimCost::Evicted(Evicted::Ended, ..) => true,
            ClaimCost::Evicted(Evicted::Sent, ..) => {
                !has_local_hits(victim.slot, victim.meta, clock.now())
            }
            ClaimCost::Evicted(Evicted::Unsent, ..) | ClaimCost::Busy => false,
        };
        let first = Hits::ZERO;
        let (home, new) = (Home::of(id, &self.parts)?, New { counter, id, first });
        match self.insert_where(home, new, clock, may_take)? {
            Insertion::Found(occupant) => Some(occupant),
            // Only with hits.
            Insertion::Made(..) => None,
        }
    }

    /// Finds the slot of a counter, or gives it that which costs least, if `may_take` allows it.
    #[inline(always)]
    fn insert_where(
        &self,
        home: Home<'m>,
        new: New<'_>,
        clock: &impl Clock,
        may_take: impl Fn(&Victim<'m>) -> bool,
    ) -> Option<Insertion<'m>> {
        let mut patience = PATIENCE;
        loop {
            let seen = home.seen();
            let victim = match home.search(seen, new.id) {
                Probe::Found(occupant) => return Some(Insertion::Found(occupant)),
                Probe::Pending(..) if patience > 0 => {
                    patience = patience.saturating_sub(1);
                    relax();
                    continue;
                }
                Probe::Pending(position, slot, meta) => Victim {
                    position,
                    slot,
                    meta,
                    cost: ClaimCost::Busy,
                },
                Probe::Absent => match home.never_used(seen) {
                    Some(victim) => victim,
                    None => match self.cheapest(home, clock) {
                        Some(victim) => victim,
                        None => continue,
                    },
                },
            };
            if !may_take(&victim) {
                return None;
            }
            if let Ok(inserted) = self.occupy(&home, seen, victim, new, clock) {
                return Some(inserted);
            }
        }
    }

    /// Gives the slot of `victim` to a counter that was not found when the tags were `seen`.
    #[inline(always)]
    fn occupy(
        &self,
        home: &Home<'m>,
        seen: [Tags; 2],
        victim: Victim<'m>,
        New { counter, id, first }: New<'_>,
        clock: &impl Clock,
    ) -> Result<Insertion<'m>, Lost> {
        let Victim {
            position,
            slot,
            meta,
            cost,
        } = victim;
        let now = clock.now();
        let ticks = Ticks::at(now.0);
        let claim = self.claim(slot, meta, cost, ticks)?;
        let generation = claim.generation();
        fail_point!("insert.claimed");

        let at = counter.size.at(now);
        let stamp = Stamp::new(at.number, generation);
        let (column, other) = slot.local_columns(at.number);
        let [even, odd] = &slot.remote;
        let empty = WindowCount::empty(generation);
        // The column of this window has its stamp from the start: whoever counts in it next, which
        // may be the caller, need not turn it.
        let words = [
            (column, WindowCount::new(stamp, first)),
            (other, empty),
            (even, empty),
            (odd, empty),
        ];
        for (column, word) in words {
            claim.replace(column, |_| word.bits())?;
            fail_point!("insert.cleared");
        }
        for (word, half) in slot.id.iter().zip(id.0) {
            claim.replace(word, |_| half)?;
            fail_point!("insert.named");
        }
        claim.set(&slot.used, ticks.0)?;
        claim.set(&slot.extension, 0)?;
        fail_point!("insert.dated");

        if let Err(lost) = home.tag(seen, position, &claim) {
            // Somebody inserted into the bucket, perhaps this very identity: look again.
            let _ = claim.publish(Meta::free(generation));
            return Err(lost);
        }
        fail_point!("insert.tagged");
        let occupant = Occupant {
            slot,
            meta: counter.meta(generation),
        };
        claim.publish(occupant.meta)?;
        fail_point!("insert.published");
        self.count(counter.lines, NamespaceLine::inserted);
        if first == Hits::ZERO {
            return Ok(Insertion::Found(occupant));
        }
        let reading = WindowCounts::of(at, first, Hits::ZERO).into();
        let receipt = Receipt {
            column,
            stamp,
            value: first,
        };
        Ok(Insertion::Made(reading, receipt))
    }

    /// Tags a slot that was claimed for a part of a name.
    pub(super) fn tag_name(&self, claim: &Claim<'m>) -> Result<(), Lost> {
        let index = self.index_of(claim.slot);
        let word = self.parts.tags.get(index / WAYS).ok_or(Lost)?;
        claim.replace(word, |tags| Tags(tags).with(index % WAYS, NAME_TAG).0)?;
        Ok(())
    }

    /// The slot that a new counter is to have where none is unused: of all that it can have the one that
    /// costs least.
    #[cold]
    #[inline(never)]
    fn cheapest(&self, home: Home<'m>, clock: &impl Clock) -> Option<Victim<'m>> {
        // Who remembers an old time takes windows that others have just begun for ended.
        let now = clock.fresh();
        let positions = [false, true].into_iter().zip(home.ways);
        let positions = positions.flat_map(|(second, first)| {
            // From the home on.
            (0..WAYS).map(move |way| SlotPosition {
                in_second: second,
                way: way ^ first,
            })
        });
        let victims = positions.filter_map(|position| {
            let slot = home.slot(position)?;
            let meta = slot.meta();
            Some(Victim {
                position,
                slot,
                meta,
                cost: self.cost_of(slot, meta, now),
            })
        });
        victims.min_by_key(|victim| victim.cost)
    }
}

/// Lets an insertion under way go on.
fn relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
