//! Inserts a new counter into a slot, which is free or belonged to another counter.
//!
//! There is no lock. A slot changes hands in four steps. If the process ends after any of them, the
//! table stays usable:
//!
//! 1. *Claim*: the slot's meta becomes busy, with the next generation. From here on no process
//!    finds the old occupant, and no word of the old occupancy counts any more.
//! 2. *Clear* the columns and write the identity, and the first hits if they are known. The hits
//!    count when the slot is published, or not at all.
//! 3. *Tag*: the tag word of the identity's first bucket is replaced, but only if it still has the
//!    value of the unsuccessful search. Its version changes with every insertion of an identity with
//!    this first bucket. So of two processes that insert the same identity, one fails here, searches
//!    again, and finds the other's slot.
//! 4. *Publish*: the meta becomes that of a counter.
//!
//! A process that finds a busy slot with the wanted tag waits for a moment and then takes the slot
//! over, since it may belong to a process that was stopped or killed between two steps. That
//! process notices at its next write, which is a compare-and-swap prepared while it owned the slot,
//! and starts again.

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
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::Counter;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::event_lines::Evicted;
use crate::table::zone::events::NamespaceLine;

/// Reads of a slot during its insertion, after which the slot is taken over.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 256 };

/// The slot of a counter, and how it got it.
pub(crate) enum Insertion<'m> {
    /// The counter had a slot, or got one without hits.
    Found(Occupant<'m>),
    /// The counter got a slot with its first hits.
    Made(Reading, Receipt<'m>),
}

/// A counter that needs a slot.
#[derive(Clone, Copy)]
struct NewCounter<'c> {
    counter: &'c Counter,
    id: Identity,
    /// The hits with which the counter begins.
    first: Hits,
}

/// A slot for a new counter, and its cost.
struct Victim<'m> {
    position: SlotPosition,
    slot: &'m Slot,
    meta: Meta,
    cost: ClaimCost,
}

impl<'m> Home<'m> {
    /// Returns a slot that was never used, which is the cheapest, without reading the others.
    #[inline(always)]
    fn never_used(&self, seen: [Tags; 2]) -> Option<Victim<'m>> {
        let [first, second] = seen.map(|tags| tags.ways_with(0));
        // If one bucket is much fuller, the emptier one, so that both fill at the same rate;
        // otherwise the first one whose home is free. In the bucket, the home if possible.
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

    /// Tags a claimed slot, unless the first bucket has changed since its tags were `seen`.
    #[inline(always)]
    fn tag(&self, seen: [Tags; 2], position: SlotPosition, claim: &Claim<'m>) -> Result<(), Lost> {
        let ([first, _], [first_word, second_word]) = (seen, self.tags);
        let mut next = first.touched();
        if position.in_second {
            // The tag comes first: a reader that sees the new version also sees the tag.
            claim.replace(second_word, |tags| Tags(tags).with(position.way, self.tag).0)?;
            fail_point!("insert.tagged.second");
        } else {
            next = first.with(position.way, self.tag);
        }
        first_word.compare_exchange(first.0, next.0, AcqRel, Relaxed).map_or(Err(Lost), |_| Ok(()))
    }
}

impl<'m> CounterTable<'m> {
    /// Finds the slot of `counter`, or inserts it with its `first` hits. `None` only without
    /// buckets; every table has at least two.
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

    /// Finds the slot of `counter`, or inserts it without hits, but not in place of a counter with
    /// hits of this node in windows that matter. `None` if there is no such slot.
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
            // It may be this counter's, of a process that was stopped or killed.
            ClaimCost::Busy => true,
            ClaimCost::Evicted(Evicted::Unsent, ..) => false,
        };
        let first = Hits::ZERO;
        let (home, new) = (Home::of(id, &self.parts)?, NewCounter { counter, id, first });
        match self.insert_where(home, new, clock, may_take)? {
            Insertion::Found(occupant) => Some(occupant),
            // Only with first hits.
            Insertion::Made(..) => None,
        }
    }

    /// Finds the slot of a counter, or inserts it into the cheapest one, if `may_take` allows that.
    #[inline(always)]
    fn insert_where(
        &self,
        home: Home<'m>,
        new: NewCounter<'_>,
        clock: &impl Clock,
        may_take: impl Fn(&Victim<'m>) -> bool,
    ) -> Option<Insertion<'m>> {
        let mut patience = PATIENCE;
        // A further turn follows only while the patience lasts, or if another process has changed
        // the buckets meanwhile, and so has finished its own insertion.
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

    /// Inserts a counter, which was not found when the tags were `seen`, into the slot of `victim`.
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
        // All words of a level have the same stamp, that of its first state: see `level`.
        let number = at.number & counter.number_mask;
        let stamp = Stamp::new(number, generation);
        let (column, other) = slot.local_columns(number);
        let [even, odd] = &slot.remote;
        let empty = WindowCount::empty(generation);
        // The current window's column gets its stamp here, so that the next process that counts in
        // it, maybe this one, need not turn it.
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
            // Another process inserted into the bucket, maybe this identity, so the search starts
            // again.
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

    /// Returns the cheapest slot for a new counter, if none is unused.
    #[cold]
    #[inline(never)]
    fn cheapest(&self, home: Home<'m>, clock: &impl Clock) -> Option<Victim<'m>> {
        // With an old time, windows that have just begun would look ended.
        let now = clock.fresh();
        let positions = [false, true].into_iter().zip(home.ways);
        let positions = positions.flat_map(|(second, first)| {
            // Starting with the home.
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

/// Lets another process continue before check number `look` of its work. From time to time yields
/// the processor, for which the other process may be waiting.
pub(crate) fn relax_before(look: u32) {
    #[cfg(not(loom))]
    if look.is_multiple_of(500) {
        return std::thread::yield_now();
    }
    let _ = look;
    relax();
}

/// Lets an insertion in progress continue.
pub(crate) fn relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
