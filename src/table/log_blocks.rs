//! The chain of a log: its entries but the newest, in slots of the table, which are claimed as parts of
//! [names](super::names) are.
//!
//! Blocks are numbered, and each leads to the next. The counter's slot leads to the base, with which the
//! chain begins (its *tail*), and, as a hint, to a block near the end. Both words and the meta of a
//! block have the block's number, and the meta has the owner's generation: who comes to another block than
//! it was led to looks at the counter again.
//!
//! Nothing has to free a block. A block names the slot and the generation of its owner: it is free if the slot has
//! another generation by now, or if its number is before the tail's, which whoever claims a slot checks. The tail only
//! moves on, so that a free block never belongs to its owner again.

use super::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use super::claim::{Claim, ClaimCost};
use super::counter_table::CounterTable;
use super::fail::fail_point;
use super::identity::Identity;
use super::log::{LogEntry, LogTime, newest};
use super::meta::{Meta, Ticks};
use super::slot::{Lost, Occupant, Slot};
use super::word::Generation;
use crate::policy::window::Clock;

/// The entries of a block.
pub(super) const ENTRIES: usize = if cfg!(loom) { 2 } else { 6 };

/// How often a block is tried to be had: others that claim slots in the same moment are in the way of
/// one attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 16 };

/// How many blocks one request gives back at most. What is left belongs to nobody all the same.
const GIVEN_BACK_AT_ONCE: u32 = 8;

const NUMBER_BITS: u32 = 29;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
const OFFSET_BITS: u32 = 3;

/// A place in a chain, in one word: 32 bits of one more than the index of the block's slot, 29 of the block's
/// number, 3 of the entry in it. Without a slot: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(u64);

impl Cursor {
    fn parts(self) -> Option<(usize, u32, usize)> {
        let index = ((self.0 >> 32) as usize).checked_sub(1)?;
        let (number, offset) = (self.0 as u32 >> OFFSET_BITS, self.0 as usize & 7);
        Some((index, number, offset))
    }
}

/// A place in a chain: an entry, or where one is to be.
#[derive(Clone, Copy)]
pub(super) struct LogPlace<'m> {
    block: &'m Slot,
    /// That of the block when it was come to.
    meta: Meta,
    offset: usize,
}

impl<'m> LogPlace<'m> {
    pub(super) fn word(&self) -> Result<&'m AtomicU64, Lost> {
        self.block.words().get(self.offset).ok_or(Lost)
    }

    fn number(&self) -> u32 {
        self.meta.block_number()
    }

    /// The entry; `None`: it is empty still.
    pub(super) fn entry(&self) -> Result<Option<LogEntry>, Lost> {
        // Acquire: who sees a word of the slot's next occupant sees that the meta has changed.
        let entry = LogEntry::from_bits(self.word()?.load(Acquire));
        if self.block.meta() != self.meta {
            return Err(Lost);
        }
        Ok(entry.is_marked().then_some(entry))
    }

    /// What the word of an entry is before it is appended.
    pub(super) fn empty(&self) -> LogEntry {
        LogEntry::from_bits(LogEntry::empty(self.meta.generation()))
    }

    /// How many entries this is after `other`.
    pub(super) fn distance_from(&self, other: &LogPlace<'_>) -> usize {
        let blocks = number_after(other.number(), self.number()) as usize;
        let entries = blocks.saturating_mul(ENTRIES).saturating_add(self.offset);
        entries.saturating_sub(other.offset)
    }

    /// Whether this is after `other`, in a chain that has both.
    pub(super) fn is_after(&self, other: &LogPlace<'_>) -> bool {
        let blocks = number_after(other.number(), self.number());
        match blocks {
            0 => self.offset > other.offset,
            _ => blocks <= NUMBER_MASK / 2,
        }
    }

    fn first_in_block(self) -> LogPlace<'m> {
        LogPlace { offset: 0, ..self }
    }
}

/// How many blocks `number` is after `before`.
fn number_after(before: u32, number: u32) -> u32 {
    number.wrapping_sub(before) & NUMBER_MASK
}

/// The end of a chain.
#[derive(Clone, Copy)]
pub(super) struct End<'m> {
    /// The hint that led there.
    hint: u64,
    /// The last entry, and where it is.
    pub(super) last: LogEntry,
    pub(super) at: LogPlace<'m>,
    /// Where the next one goes; `None`: into another block.
    pub(super) free: Option<LogPlace<'m>>,
    /// The entries of the chain.
    pub(super) len: usize,
}

fn tail_word(slot: &Slot) -> &AtomicU64 {
    let [word, _] = &slot.remote;
    word
}

/// An entry near the end. A hint.
fn head_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.remote;
    word
}

/// The last entry that was in the way of a hit. A hint.
fn obstacle_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.local;
    word
}

impl<'m> CounterTable<'m> {
    fn cursor(&self, place: &LogPlace<'_>) -> Cursor {
        let index = (self.index_of(place.block) as u64).saturating_add(1);
        let number = u64::from(place.number()) << OFFSET_BITS;
        Cursor(index << 32 | number | place.offset as u64)
    }

    /// The place in the log of `occupant` that `word` leads to. `None`: to none, or to none any more.
    fn place_of(&self, occupant: Occupant<'m>, word: u64) -> Option<LogPlace<'m>> {
        let (index, number, offset) = Cursor(word).parts()?;
        let place = self.block_at(occupant, index, number)?;
        Some(LogPlace { offset, ..place })
    }

    /// The block of this number in the log of `occupant`, if it is in that slot.
    fn block_at(&self, occupant: Occupant<'m>, index: usize, number: u32) -> Option<LogPlace<'m>> {
        let block = self.slot_at(index)?;
        let meta = block.meta();
        let is_ours = meta.owner_and_number() == Some((occupant.meta.generation(), number))
            && block.used.load(Relaxed) as usize == self.index_of(occupant.slot);
        is_ours.then_some(LogPlace {
            block,
            meta,
            offset: 0,
        })
    }

    /// The base of a log; `None` if it has no chain yet.
    pub(super) fn tail(&self, occupant: Occupant<'m>) -> Result<Option<LogPlace<'m>>, Lost> {
        let word = tail_word(occupant.slot).load(Acquire);
        if Cursor(word).parts().is_none() {
            return Ok(None);
        }
        self.place_of(occupant, word).map(Some).ok_or(Lost)
    }

    /// The place after another one; `None` if that is in a block which is not there yet.
    pub(super) fn next_place(
        &self,
        occupant: Occupant<'m>,
        place: LogPlace<'m>,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        let offset = place.offset.wrapping_add(1);
        if offset < ENTRIES {
            return Ok(Some(LogPlace { offset, ..place }));
        }
        let link = place.block.extension.load(Acquire);
        let Some(index) = (link as usize).checked_sub(1) else {
            return if place.block.meta() == place.meta {
                Ok(None)
            } else {
                Err(Lost)
            };
        };
        let number = place.number().wrapping_add(1) & NUMBER_MASK;
        if let Some(next) = self.block_at(occupant, index, number) {
            return Ok(Some(next));
        }
        if place.block.meta() != place.meta {
            return Err(Lost);
        }
        // A block is linked when it is one: this was linked by who was stopped for long, when the slot
        // had another occupant.
        let extension = &place.block.extension;
        let _ = extension.compare_exchange(link, 0, AcqRel, Relaxed);
        Ok(None)
    }

    /// The end of a log's chain; `None` if it has none yet.
    pub(super) fn end(&self, occupant: Occupant<'m>) -> Result<Option<End<'m>>, Lost> {
        let tail = self.tail(occupant)?;
        tail.map(|tail| self.end_after(occupant, tail)).transpose()
    }

    /// The end of a log's chain, as it begins with `base`.
    #[inline]
    fn end_after(&self, occupant: Occupant<'m>, base: LogPlace<'m>) -> Result<End<'m>, Lost> {
        let hint = head_word(occupant.slot).load(Acquire);
        let near = self.place_of(occupant, hint);
        let mut at = near.filter(|near| near.is_after(&base)).unwrap_or(base);
        // Both lead to an entry.
        let mut last = at.entry()?.ok_or(Lost)?;
        loop {
            let free = self.next_place(occupant, at)?;
            match free.map_or(Ok(None), |place| place.entry())? {
                Some(entry) => (last, at) = (entry, free.unwrap_or(at)),
                None => {
                    let len = at.distance_from(&base).saturating_add(1);
                    return Ok(End {
                        hint,
                        last,
                        at,
                        free,
                        len,
                    });
                }
            }
        }
    }

    /// Sees to it that there is a place for the next entry, unless the chain, as it begins with `base`, has
    /// `most` entries, or no slot can be had. Returns the end; `None`: there is no place.
    #[inline(always)]
    pub(super) fn with_room(
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
            // What was lost, somebody else has.
            let _ = self.lengthen(occupant, end.map(|end| end.at), clock);
            end = self.end(occupant)?;
        }
    }

    /// Appends a closed entry, if that was not done, unless there is no place. Returns where it is. The end
    /// may be `known` since before the entry was closed.
    pub(super) fn append(
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
            // After the end was found: while the entry is the newest, it can be appended there alone.
            if newest(occupant.slot) != closed {
                return Err(Lost);
            }
            let appended = place.empty().replace(place.word()?, closed);
            fail_point!("log.appended");
            if appended.is_ok() {
                let (hint, new) = (head_word(occupant.slot), self.cursor(&place));
                // If this fails, another process has noted one that is further.
                let _ = hint.compare_exchange(end.hint, new.0, AcqRel, Relaxed);
                return Ok(Some(place));
            }
        }
    }

    /// Appends a closed entry if there is a place for it; returns whether there was.
    pub(super) fn append_at_hand(
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

    /// The first place of a block near the end of a chain, after its tail, if the entry there is before
    /// `time`.
    pub(super) fn head_before(
        &self,
        occupant: Occupant<'m>,
        tail: &LogPlace<'m>,
        time: LogTime,
    ) -> Option<LogPlace<'m>> {
        let hint = self.place_of(occupant, head_word(occupant.slot).load(Acquire));
        let hint = hint.map(LogPlace::first_in_block);
        let hint = hint.filter(|hint| hint.is_after(tail));
        hint.filter(|hint| matches!(hint.entry(), Ok(Some(it)) if it.time().is_before(time)))
    }

    /// Makes a hint lead to a block, unless it leads further.
    fn note(&self, occupant: Occupant<'m>, hint: &AtomicU64, place: &LogPlace<'m>) {
        let old = hint.load(Acquire);
        let before = self.place_of(occupant, old);
        if before.is_none_or(|before| place.is_after(&before)) {
            let new = self.cursor(&place.first_in_block());
            let _ = hint.compare_exchange(old, new.0, AcqRel, Relaxed);
        }
    }

    /// Where to begin to look for what is in the way of a hit, in a chain whose base this is: at the place
    /// that was noted last, if what was counted up to there is in the way, too.
    pub(super) fn obstacle(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
        is_in_the_way: impl Fn(LogEntry) -> bool,
    ) -> LogPlace<'m> {
        let noted = self.place_of(occupant, obstacle_word(occupant.slot).load(Acquire));
        let noted = noted.filter(|noted| noted.is_after(&base));
        let noted =
            noted.filter(|noted| matches!(noted.entry(), Ok(Some(it)) if is_in_the_way(it)));
        noted.unwrap_or(base)
    }

    /// Notes such a place.
    pub(super) fn note_obstacle(&self, occupant: Occupant<'m>, place: &LogPlace<'m>) {
        self.note(occupant, obstacle_word(occupant.slot), place);
    }

    /// Makes `base` the base, unless it is already, or one after it. Blocks before it are given back.
    pub(super) fn advance(&self, occupant: Occupant<'m>, base: &LogPlace<'m>, clock: &impl Clock) {
        let word = tail_word(occupant.slot);
        let old = word.load(Acquire);
        let Some(mut place) = self.place_of(occupant, old) else {
            return;
        };
        if !base.is_after(&place) {
            return;
        }
        let new = self.cursor(base);
        let advanced = word.compare_exchange(old, new.0, AcqRel, Relaxed);
        fail_point!("log.advanced");
        let mut left = if advanced.is_ok() {
            GIVEN_BACK_AT_ONCE
        } else {
            0
        };
        while left > 0 && place.number() != base.number() {
            left = left.saturating_sub(1);
            let last = LogPlace {
                offset: ENTRIES.wrapping_sub(1),
                ..place
            };
            let next = self.next_place(occupant, last);
            self.give_block_back(occupant, place, clock);
            match next {
                Ok(Some(next)) => place = next,
                Ok(None) | Err(Lost) => return,
            }
        }
    }

    /// Keeps a block that is before the tail for the log's next one, if there is none, or frees it.
    fn give_block_back(&self, occupant: Occupant<'m>, place: LogPlace<'m>, clock: &impl Clock) {
        let spare = &occupant.slot.extension;
        let index = u32::try_from(self.index_of(place.block).saturating_add(1));
        let is_kept = spare.load(Relaxed) == 0
            && index.is_ok_and(|index| spare.compare_exchange(0, index, AcqRel, Relaxed).is_ok());
        fail_point!("log.spared");
        if !is_kept {
            // If this fails, somebody else has it.
            let _ = self.free_block(place.block, place.meta, clock);
        }
    }

    fn free_block(&self, block: &'m Slot, meta: Meta, clock: &impl Clock) -> Result<(), Lost> {
        let ticks = Ticks::at(clock.now().0);
        let claim = self.claim(block, meta, ClaimCost::Abandoned, ticks)?;
        fail_point!("log.freeing");
        self.untag(&claim)?;
        claim.publish(Meta::free(claim.generation()))
    }

    /// Makes a block, and links it to the end of a chain (or makes it the first of one).
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
            // Far from those of former occupants: a cursor of theirs is none of this log.
            None => u32::from(generation.bits()) << (NUMBER_BITS - 16),
        };
        let claim = self.claim_block(occupant, number, clock)?;
        fail_point!("log.claimed");
        let base = end.is_none().then(|| LogEntry::first(generation).marked());
        let place = match self.write_block(occupant, &claim, number, base) {
            Ok(place) => place,
            Err(Lost) => {
                let _ = claim.publish(Meta::free(claim.generation()));
                return Err(Lost);
            }
        };
        fail_point!("log.published");
        let is_linked = match end {
            Some(end) => {
                let link = u32::try_from(self.index_of(place.block).saturating_add(1));
                let extension = &end.block.extension;
                link.is_ok_and(|link| extension.compare_exchange(0, link, AcqRel, Relaxed).is_ok())
            }
            None => {
                let none = u64::from(generation.bits());
                let (word, first) = (tail_word(occupant.slot), self.cursor(&place));
                word.compare_exchange(none, first.0, AcqRel, Relaxed)
                    .is_ok()
            }
        };
        fail_point!("log.linked");
        if !is_linked {
            // Another process was first.
            return self.free_block(place.block, place.meta, clock);
        }
        Ok(())
    }

    /// Claims a slot for block `number`: the one that the log keeps, or that which costs least.
    fn claim_block(
        &self,
        occupant: Occupant<'m>,
        number: u32,
        clock: &impl Clock,
    ) -> Result<Claim<'m>, Lost> {
        let ticks = Ticks::at(clock.now().0);
        let spare = occupant.slot.extension.load(Acquire);
        let kept = (spare as usize)
            .checked_sub(1)
            .and_then(|index| self.slot_at(index));
        if let Some(slot) = kept {
            let extension = &occupant.slot.extension;
            let is_taken = extension
                .compare_exchange(spare, 0, AcqRel, Relaxed)
                .is_ok();
            fail_point!("log.taken");
            let meta = slot.meta();
            // Somebody else may have it by now, or the log itself.
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
        first: Option<LogEntry>,
    ) -> Result<LogPlace<'m>, Lost> {
        let (slot, generation): (_, Generation) = (claim.slot, claim.generation());
        let owner = u32::try_from(self.index_of(occupant.slot)).map_err(|_| Lost)?;
        let meta = Meta::block(generation, occupant.meta.generation(), number);
        let place = LogPlace {
            block: slot,
            meta,
            offset: 0,
        };
        for offset in 0..ENTRIES {
            let entry = first.filter(|_| offset == 0);
            let word = entry.map_or(LogEntry::empty(generation), LogEntry::bits);
            claim.replace(LogPlace { offset, ..place }.word()?, |_| word)?;
        }
        fail_point!("log.written");
        claim.set(&slot.used, owner)?;
        claim.set(&slot.extension, 0)?;
        claim.publish(meta)?;
        Ok(place)
    }

    /// The counter that the block in `slot` belongs to, if to any: see [`CounterTable::owner_of`].
    pub(super) fn owner_of_block(
        &self,
        slot: &Slot,
        generation: Generation,
        number: u32,
    ) -> Option<(&'m Slot, Meta)> {
        let owner = self.slot_at(slot.used.load(Relaxed) as usize)?;
        let meta = owner.meta();
        if !meta.is_log() || meta.generation() != generation {
            return None;
        }
        // Before there is a chain, its first block is about to be linked.
        let tail = Cursor(tail_word(owner).load(Acquire)).parts();
        let is_left = tail.is_some_and(|(_, tail, _)| number_after(tail, number) > NUMBER_MASK / 2);
        (!is_left).then_some((owner, meta))
    }

    /// Whether the block with this meta in `slot` is of the log of `occupant`.
    pub(super) fn is_block_of(&self, occupant: Occupant<'_>, slot: &Slot, meta: Meta) -> bool {
        meta.owner_and_number().is_some()
            && self
                .owner_of(slot, meta)
                .is_some_and(|(owner, _)| core::ptr::eq(owner, occupant.slot))
    }
}
