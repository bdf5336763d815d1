//! Giving a new counter a slot: one that is free, or that of another counter.
//!
//! No lock is taken. A slot changes hands in steps, each of which leaves the table usable should
//! the process end after it:
//!
//! 1. *Claim* a slot: its meta becomes busy, with the next generation. From here on no process finds
//!    what was in it, and no word of its old occupancy counts any more.
//! 2. *Clear* its columns and write the identity. Hits that are known by then are written with
//!    them: they are counted when the slot is published, or not at all.
//! 3. *Tag* it. The tag word of the identity's first bucket is replaced if and only if it still
//!    has the value it had when the identity was not found: its version changes with every
//!    insertion of an identity whose first bucket it is, so that of two processes that insert the
//!    same identity one fails here, looks again, and finds the other's slot.
//! 4. *Publish*: its meta becomes that of a counter.
//!
//! A process that finds a busy slot with the wanted tag waits for a moment, then takes it over: it may
//! belong to a process that was stopped or killed between two steps. The one that lost it notices
//! with its next write, every one of which is a compare-and-swap prepared while it still owned
//! the slot, and begins anew.

use super::admission::Receipt;
use super::claim::{Claim, ClaimCost, has_local_hits};
use super::probe::{Home, Probe, SlotPosition, Tags};
use crate::policy::algorithm::{Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::table::words::atomic::Ordering::{AcqRel, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{Meta, SlotState, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot, WAYS};
use crate::table::words::stats::Evicted;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::Counter;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::event_lines::NamespaceLine;

/// Number of looks at an insertion under way before its slot is taken over.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 256 };

/// A slot that a counter has, or got.
pub(crate) enum Insertion<'m> {
    /// It has one, or got one in which nothing is counted yet.
    Found(Occupant<'m>),
    /// It got one with its first hits in it.
    Made(Reading, Receipt<'m>),
}

/// A counter that is to have a slot.
#[derive(Clone, Copy)]
struct NewCounter<'c> {
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
    /// A slot that was never used, which is the best there is: no need to touch the others.
    #[inline(always)]
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
        let (unused, is_home, way) =
            if is_second { (second, second_home, second_way) } else { (first, first_home, way) };
        let unused = is_home.then_some(way).into_iter().chain(unused);
        let mut positions = unused.map(|way| SlotPosition { in_second: is_second, way });
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
    #[inline(always)]
    fn tag(&self, seen: [Tags; 2], position: SlotPosition, claim: &Claim<'m>) -> Result<(), Lost> {
        let ([first, _], [first_word, second_word]) = (seen, self.tags);
        let mut next = first.touched();
        if position.in_second {
            // The tag first: a reader that sees the new version sees the tag too.
            claim.replace(second_word, |tags| Tags(tags).with(position.way, self.tag).0)?;
            fail_point!("insert.tagged.second");
        } else {
            next = first.with(position.way, self.tag);
        }
        first_word.compare_exchange(first.0, next.0, AcqRel, Relaxed).map_or(Err(Lost), |_| Ok(()))
    }
}

impl<'m> CounterTable<'m> {
    /// Finds the slot of `counter`, or gives it one in which `first` hits are counted. `None`: the table has
    /// no bucket for it; every table has two at least.
    #[inline(always)]
    pub(crate) fn find_or_insert(
        &self,
        counter: &Counter,
        id: Identity,
        first: Hits,
        clock: &impl Clock,
    ) -> Option<Insertion<'m>> {
        let home = Home::of(id, &self.parts)?;
        if let Some(occupant) = home.find(id) {
            return Some(Insertion::Found(occupant));
        }
        let new = NewCounter { counter, id, first };
        self.insert_where(home, new, clock, |_| true)
    }

    /// Finds the slot of `counter`, or gives it one that is not counted in: not one with hits of this
    /// node, in windows that matter. `None` if there is none such, or if it is contended.
    pub(crate) fn insert_gently(
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
        let (home, new) = (Home::of(id, &self.parts)?, NewCounter { counter, id, first });
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
        new: NewCounter<'_>,
        clock: &impl Clock,
        may_take: impl Fn(&Victim<'m>) -> bool,
    ) -> Option<Insertion<'m>> {
        let mut patience = PATIENCE;
        // A turn follows on another only while patience lasts, or if another process has changed the
        // buckets meanwhile, and so come to an end of its own insertion.
        loop {
            let seen = home.seen();
            let victim = match home.search(seen, new.id) {
                Probe::Found(occupant) => return Some(Insertion::Found(occupant)),
                Probe::Pending(..) if patience > 0 => {
                    patience = patience.saturating_sub(1);
                    relax();
                    continue;
                }
                Probe::Pending(position, slot, meta) => {
                    Victim { position, slot, meta, cost: ClaimCost::Busy }
                }
                Probe::Absent => match home.never_used(seen) {
                    Some(victim) => victim,
                    None => self.cheapest(home, clock)?,
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
        NewCounter { counter, id, first }: NewCounter<'_>,
        clock: &impl Clock,
    ) -> Result<Insertion<'m>, Lost> {
        let Victim { position, slot, meta, cost } = victim;
        let now = clock.now();
        let ticks = Ticks::at(now.0);
        let claim = self.claim(slot, meta, cost, ticks)?;
        let generation = claim.generation();
        fail_point!("insert.claimed");

        let at = counter.size.at(now);
        // All words of a level have one stamp then, and are of its first state: see `level`.
        let number = at.number & counter.number_mask;
        let stamp = Stamp::new(number, generation);
        let (column, other) = slot.local_columns(number);
        let [even, odd] = &slot.remote;
        let empty = WindowCount::empty(generation);
        // The column of this window has its stamp from the start: the process that counts in it next, which
        // may be the caller, need not turn it.
        let words =
            [(column, WindowCount::new(stamp, first)), (other, empty), (even, empty), (odd, empty)];
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
            // Another process inserted into the bucket, perhaps this very identity: look again.
            let _ = claim.publish(Meta::free(generation));
            return Err(lost);
        }
        fail_point!("insert.tagged");
        let occupant = Occupant { slot, meta: counter.meta(generation) };
        claim.publish(occupant.meta)?;
        fail_point!("insert.published");
        self.count(counter.lines, NamespaceLine::inserted);
        if first == Hits::ZERO {
            return Ok(Insertion::Found(occupant));
        }
        let reading = WindowCounts::of(at, first, Hits::ZERO).into();
        let receipt = Receipt { column, stamp, value: first };
        Ok(Insertion::Made(reading, receipt))
    }

    /// The slot that a new counter is to have where none is unused: of all that it can have the one that
    /// costs least.
    #[cold]
    #[inline(never)]
    fn cheapest(&self, home: Home<'m>, clock: &impl Clock) -> Option<Victim<'m>> {
        // By an old time, windows that others have just begun would be taken for ended.
        let now = clock.fresh();
        let positions = [false, true].into_iter().zip(home.ways);
        let positions = positions.flat_map(|(second, first)| {
            // From the home on.
            (0..WAYS).map(move |way| SlotPosition { in_second: second, way: way ^ first })
        });
        let victims = positions.filter_map(|position| {
            let slot = home.slot(position)?;
            let meta = slot.meta();
            Some(Victim { position, slot, meta, cost: self.cost_of(slot, meta, now) })
        });
        victims.min_by_key(|victim| victim.cost)
    }
}

/// Lets another process go on, before look number `look` at what it is about. Now and then, it gets this processor: it may
/// wait for one.
pub(crate) fn relax_before(look: u32) {
    #[cfg(not(loom))]
    if look.is_multiple_of(500) {
        return std::thread::yield_now();
    }
    let _ = look;
    relax();
}

/// Lets an insertion under way go on.
pub(crate) fn relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
