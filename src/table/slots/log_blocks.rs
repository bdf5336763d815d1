//! The blocks of a log's [chain](super::log_chain). They are slots of the table, claimed like the
//! parts of [names](super::names), linked to the end of the chain, and released at its beginning.
//!
//! No process has to free a block. A block contains the slot and the generation of its owner. It is
//! free if the slot has another generation by now, or if its number is before the tail's, which a
//! process that claims slots checks. The tail only advances, so a free block never belongs to its
//! owner again.

use super::claim::{Claim, ClaimCost};
use super::log::{LogEntry, newest};
use super::log_chain::{
    ENTRIES, End, LogPlace, NUMBER_BITS, NUMBER_MASK, first_offset, head_word, index_word,
    leads_back, tail_word,
};
use crate::policy::window::Clock;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::words::word::Generation;
use crate::table::zone::counter_table::CounterTable;

/// Attempts to get a block. Each process that claims slots at the same time can spoil one attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 16 };

/// Most blocks that one request releases. The others then belong to no log.
const GIVEN_BACK_AT_ONCE: u32 = 8;

impl<'m> CounterTable<'m> {
    /// Provides a place for the next entry, unless the chain from `base` on has `most` entries, or
    /// no slot is available. Returns the end; `None` without a place.
    #[inline(always)]
    pub(crate) fn with_room(
        &self,
        occupant: Occupant<'m>,
        base: Option<LogPlace<'m>>,
        most: usize,
        clock: &impl Clock,
    ) -> Result<Option<End<'m>>, Lost> {
        let mut end = match base {
            Some(base) => Some(self.end_after(occupant, base)?),
            None => self.end(occupant)?,
        };
        let mut attempts = ATTEMPTS;
        loop {
            match end {
                Some(end) if end.len >= most => return Ok(None),
                Some(end) if end.free.is_some() => return Ok(Some(end)),
                _ => {}
            }
            if !occupant.is_there() {
                return Err(Lost);
            }
            if attempts == 0 {
                return Ok(None);
            }
            attempts = attempts.saturating_sub(1);
            // If it is lost, another process has extended the chain.
            let _ = self.lengthen(occupant, end.map(|end| end.at), clock);
            end = self.end(occupant)?;
        }
    }

    /// Appends a closed entry, if no process has done so and there is a place. Returns its place.
    /// The end may be `known` from before the entry was closed.
    pub(crate) fn append(
        &self,
        occupant: Occupant<'m>,
        closed: LogEntry,
        mut known: Option<End<'m>>,
        most: usize,
        clock: &impl Clock,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        let is_done = |end: &End<'m>| end.last.time() == closed.time();
        let is_of_use = |end: &End<'m>| is_done(end) || end.free.is_some();
        loop {
            let end = match known.take() {
                Some(end) => Some(end),
                None => self.end(occupant)?,
            };
            let end = match end.filter(is_of_use) {
                Some(end) => Some(end),
                None => self.with_room(occupant, None, most, clock)?,
            };
            let Some(end) = end else {
                return Ok(None);
            };
            if is_done(&end) {
                return Ok(Some(end.at));
            }
            let place = end.free.ok_or(Lost)?;
            // Checked after the end was found: while the entry is the newest one, it can be
            // appended only there.
            if newest(occupant.slot) != closed {
                return Err(Lost);
            }
            let appended = place.empty().replace(place.word()?, closed);
            fail_point!("log.appended");
            if appended.is_ok() {
                let (hint, new) = (head_word(occupant.slot), self.cursor(&place));
                // If the exchange fails, another process has set a later end.
                let _ = hint.compare_exchange(end.hint, new, AcqRel, Relaxed);
                if leads_back(place.number()) && place.offset == first_offset(place.number()) {
                    fail_point!("log.unindexed");
                    self.note(occupant, index_word(occupant.slot), &place);
                }
                return Ok(Some(place));
            }
        }
    }

    /// Appends a closed entry if there is a place without another block. Returns whether it did.
    pub(crate) fn append_at_hand(
        &self,
        occupant: Occupant<'m>,
        closed: LogEntry,
    ) -> Result<bool, Lost> {
        let free = self.end(occupant)?.and_then(|end| end.free);
        let Some(place) = free else {
            return Ok(false);
        };
        // As in `append`.
        if newest(occupant.slot) != closed {
            return Err(Lost);
        }
        let _ = place.empty().replace(place.word()?, closed);
        Ok(true)
    }

    /// Makes `base` the base, unless that or a later one is the base already. Releases the blocks
    /// before it.
    pub(crate) fn advance(&self, occupant: Occupant<'m>, base: &LogPlace<'m>, clock: &impl Clock) {
        let word = tail_word(occupant.slot);
        let old = word.load(Acquire);
        let Some(mut place) = self.place_of(occupant, old) else {
            return;
        };
        if !base.is_after(&place) {
            return;
        }
        let new = self.cursor(base);
        let advanced = word.compare_exchange(old, new, AcqRel, Relaxed);
        fail_point!("log.advanced");
        let mut left = if advanced.is_ok() { GIVEN_BACK_AT_ONCE } else { 0 };
        while left > 0 && place.number() != base.number() {
            left = left.saturating_sub(1);
            let last = LogPlace { offset: ENTRIES.wrapping_sub(1), ..place };
            let next = self.next_place(occupant, last);
            self.give_block_back(occupant, place, clock);
            match next {
                Ok(Some(next)) => place = next,
                Ok(None) | Err(Lost) => return,
            }
        }
    }

    /// Keeps a released block for the log's next one, if none is kept yet; otherwise frees it.
    fn give_block_back(&self, occupant: Occupant<'m>, place: LogPlace<'m>, clock: &impl Clock) {
        let spare = &occupant.slot.extension;
        let index = u32::try_from(self.index_of(place.block).saturating_add(1));
        let is_kept = spare.load(Relaxed) == 0
            && index.is_ok_and(|index| spare.compare_exchange(0, index, AcqRel, Relaxed).is_ok());
        fail_point!("log.spared");
        if !is_kept {
            // If the exchange fails, another process has freed it.
            let _ = self.free_block(place.block, place.meta, clock);
        }
    }

    pub(super) fn free_block(
        &self,
        block: &'m Slot,
        meta: Meta,
        clock: &impl Clock,
    ) -> Result<(), Lost> {
        let ticks = Ticks::at(clock.now().0);
        let claim = self.claim(block, meta, ClaimCost::Abandoned, ticks)?;
        fail_point!("log.freeing");
        self.untag(&claim)?;
        claim.publish(Meta::free(claim.generation()))
    }

    /// Creates a block and links it to the end of a chain, or makes it the first one.
    #[cold]
    #[inline(never)]
    fn lengthen(
        &self,
        occupant: Occupant<'m>,
        end: Option<LogPlace<'m>>,
        clock: &impl Clock,
    ) -> Result<(), Lost> {
        let generation = occupant.meta.generation();
        let number = match end {
            Some(end) => end.number().wrapping_add(1) & NUMBER_MASK,
            // Far from the numbers of former occupants, so that their cursors are invalid in this
            // log.
            None => u32::from(generation.bits()) << (NUMBER_BITS - 16),
        };
        let claim = self.claim_block(occupant, number, clock)?;
        fail_point!("log.claimed");
        // The content of the first word, unless it is a later entry.
        let first = match end {
            None => Ok(Some(LogEntry::first(generation).marked().bits())),
            Some(_) if leads_back(number) => self.links_back(occupant, number).map(Some),
            Some(_) => Ok(None),
        };
        let place = first.and_then(|first| self.write_block(occupant, &claim, number, first));
        let place = match place {
            Ok(place) => place,
            Err(Lost) => {
                let _ = claim.publish(Meta::free(claim.generation()));
                return Err(Lost);
            }
        };
        fail_point!("log.published");
        let is_linked = match end {
            Some(end) => {
                let link = self.link_to(self.index_of(place.block), place.meta.generation());
                let extension = &end.block.extension;
                link.is_some_and(|it| extension.compare_exchange(0, it, AcqRel, Relaxed).is_ok())
            }
            None => {
                let none = u64::from(generation.bits());
                let (word, first) = (tail_word(occupant.slot), self.cursor(&place));
                word.compare_exchange(none, first, AcqRel, Relaxed).is_ok()
            }
        };
        fail_point!("log.linked");
        if !is_linked {
            // Another process was first.
            return self.free_block(place.block, place.meta, clock);
        }
        Ok(())
    }

    /// Claims a slot for block `number`: the one that the log keeps, or the cheapest one.
    fn claim_block(
        &self,
        occupant: Occupant<'m>,
        number: u32,
        clock: &impl Clock,
    ) -> Result<Claim<'m>, Lost> {
        let ticks = Ticks::at(clock.now().0);
        let spare = occupant.slot.extension.load(Acquire);
        let kept = (spare as usize).checked_sub(1).and_then(|index| self.slot_at(index));
        if let Some(slot) = kept {
            let extension = &occupant.slot.extension;
            let is_taken = extension.compare_exchange(spare, 0, AcqRel, Relaxed).is_ok();
            fail_point!("log.taken");
            let meta = slot.meta();
            // Another process, or this log, may use it again by now.
            let is_left = meta.owner_and_number().is_some() && self.owner_of(slot, meta).is_none();
            if is_taken && is_left {
                return self.claim(slot, meta, ClaimCost::Abandoned, ticks);
            }
        }
        let [one, two] = &occupant.slot.id;
        let id = Identity([one.load(Relaxed), two.load(Relaxed)]);
        self.claim_part(occupant, id, u64::from(number), clock.fresh(), ticks)
    }

    fn write_block(
        &self,
        occupant: Occupant<'m>,
        claim: &Claim<'m>,
        number: u32,
        first: Option<u64>,
    ) -> Result<LogPlace<'m>, Lost> {
        let (slot, generation): (_, Generation) = (claim.slot, claim.generation());
        let owner = u32::try_from(self.index_of(occupant.slot)).map_err(|_| Lost)?;
        let meta = Meta::block(generation, occupant.meta.generation(), number);
        let place = LogPlace { block: slot, meta, offset: 0 };
        for offset in 0..ENTRIES {
            let first = first.filter(|_| offset == 0);
            let word = first.unwrap_or(LogEntry::empty(generation));
            claim.replace(LogPlace { offset, ..place }.word()?, |_| word)?;
        }
        fail_point!("log.written");
        claim.set(&slot.used, owner)?;
        claim.set(&slot.extension, 0)?;
        claim.publish(meta)?;
        Ok(place)
    }
}
