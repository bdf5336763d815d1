//! The chain of a log: all entries except the newest, in blocks, which are slots of the table.
//!
//! Blocks are numbered, and each links to the next one. The counter's slot links to the base, with
//! which the chain begins (its *tail*), and, as a hint, to a block near the end. Both links and the
//! meta of a block contain the block's number, and the meta contains the owner's generation: a
//! process that reaches another block than the link said reads the counter again.
//!
//! Times and sums increase from entry to entry, so a place can be found by a search
//! ([`log_search`](super::log_search)).

use super::log::{LogEntry, LogTime, newest};
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

#[cfg(all(test, not(loom)))]
std::thread_local! {
    /// Number of chain entries that this thread has read.
    pub(crate) static LOOKS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Entries in a block; a block with back links has one less.
pub(super) const ENTRIES: usize = if cfg!(loom) { 2 } else { 6 };

/// One of this many blocks has back links. A power of two.
pub(super) const EVERY: u32 = 16;

pub(super) const NUMBER_BITS: u32 = 29;
pub(super) const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
const OFFSET_BITS: u32 = 3;

/// A place in a chain, as a word: 32 bits of the block's slot index plus one, 29 bits of the
/// block's number, and 3 bits of the entry's index. A slot of 0 stands for no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor(u64);

impl Cursor {
    fn parts(self) -> Option<(usize, u32, usize)> {
        let index = ((self.0 >> 32) as usize).checked_sub(1)?;
        let (number, offset) = (self.0 as u32 >> OFFSET_BITS, self.0 as usize & 7);
        Some((index, number, offset))
    }
}

/// A place in a chain, for an entry that is there or not yet.
#[derive(Clone, Copy)]
pub(crate) struct LogPlace<'m> {
    pub(crate) block: &'m Slot,
    /// Meta of the block when the place was found.
    pub(super) meta: Meta,
    /// Index of the entry in the block.
    pub(super) offset: usize,
}

impl<'m> LogPlace<'m> {
    pub(crate) fn word(&self) -> Result<&'m AtomicU64, Lost> {
        self.block.words().get(self.offset).ok_or(Lost)
    }

    pub(super) fn number(&self) -> u32 {
        self.meta.block_number()
    }

    /// Returns the entry; `None` if the place is empty.
    pub(crate) fn entry(&self) -> Result<Option<LogEntry>, Lost> {
        #[cfg(all(test, not(loom)))]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        // Acquire: a reader of a word of the slot's next occupant also sees that the meta has
        // changed.
        let entry = LogEntry::from_bits(self.word()?.load(Acquire));
        if self.block.meta() != self.meta {
            return Err(Lost);
        }
        Ok(entry.is_marked().then_some(entry))
    }

    /// Returns the word of an entry that is not appended yet.
    pub(super) fn empty(&self) -> LogEntry {
        LogEntry::from_bits(LogEntry::empty(self.meta.generation()))
    }

    /// Returns the number of entries from `other` to this one.
    pub(super) fn distance_from(&self, other: &LogPlace<'_>) -> usize {
        let blocks = number_after(other.number(), self.number()) as usize;
        let entries = blocks.saturating_mul(ENTRIES).saturating_add(self.offset);
        entries.saturating_sub(other.offset)
    }

    /// Returns whether this is after `other` in the same chain.
    pub(super) fn is_after(&self, other: &LogPlace<'_>) -> bool {
        let blocks = number_after(other.number(), self.number());
        match blocks {
            0 => self.offset > other.offset,
            _ => blocks <= NUMBER_MASK / 2,
        }
    }

    /// Returns the first place for an entry in the block.
    pub(super) fn first_in_block(self) -> LogPlace<'m> {
        LogPlace { offset: first_offset(self.number()), ..self }
    }
}

/// Returns whether block `number` has back links: it is a multiple of [`EVERY`], and not the first.
pub(super) fn leads_back(number: u32) -> bool {
    number % EVERY == EVERY - 1
}

/// Returns the index of the first entry in block `number`.
pub(super) fn first_offset(number: u32) -> usize {
    usize::from(leads_back(number))
}

/// Returns the number of blocks from `before` to `number`.
fn number_after(before: u32, number: u32) -> u32 {
    number.wrapping_sub(before) & NUMBER_MASK
}

/// Returns whether block `number` is before block `other` of the same chain.
pub(super) fn is_before(number: u32, other: u32) -> bool {
    number_after(other, number) > NUMBER_MASK / 2
}

/// Returns the number of the first block of the log in `slot`; `None` without a chain.
pub(super) fn tail_number(slot: &Slot) -> Option<u32> {
    let (_, number, _) = Cursor(tail_word(slot).load(Acquire)).parts()?;
    Some(number)
}

/// The end of a chain.
#[derive(Clone, Copy)]
pub(crate) struct End<'m> {
    /// The hint by which the end was found.
    pub(super) hint: u64,
    /// The last entry, and its place.
    pub(crate) last: LogEntry,
    pub(crate) at: LogPlace<'m>,
    /// Place of the next entry; `None` if it needs another block.
    pub(crate) free: Option<LogPlace<'m>>,
    /// Number of entries in the chain.
    pub(super) len: usize,
}

pub(super) fn tail_word(slot: &Slot) -> &AtomicU64 {
    let [word, _] = &slot.remote;
    word
}

/// The word with an entry near the end. A hint.
pub(super) fn head_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.remote;
    word
}

/// The word with the last block with back links. A hint.
pub(super) fn index_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.local;
    word
}

/// Returns whether a log was unused for so long that all hits have left. Times recur.
pub(crate) fn is_unused(occupant: Occupant<'_>, size: WindowSize, now: UnixMillis) -> bool {
    let used = Ticks(occupant.slot.used.load(Relaxed));
    let longest = size.millis().saturating_add(CLOCK_SKEW);
    used.is_over(Ticks::at(now.0), longest)
}

impl<'m> CounterTable<'m> {
    /// Returns the word that links to a place.
    pub(super) fn cursor(&self, place: &LogPlace<'_>) -> u64 {
        let index = (self.index_of(place.block) as u64).saturating_add(1);
        let number = u64::from(place.number()) << OFFSET_BITS;
        index << 32 | number | place.offset as u64
    }

    /// Returns the place that `word` links to in the log of `occupant`. `None` without a link, or
    /// if the place is not the log's any more.
    pub(super) fn place_of(&self, occupant: Occupant<'m>, word: u64) -> Option<LogPlace<'m>> {
        let (index, number, offset) = Cursor(word).parts()?;
        let place = self.block_at(occupant, index, number)?;
        Some(LogPlace { offset, ..place })
    }

    /// Returns block `number` of the log of `occupant`, if it is still in that slot.
    pub(super) fn block_at(
        &self,
        occupant: Occupant<'m>,
        index: usize,
        number: u32,
    ) -> Option<LogPlace<'m>> {
        let block = self.slot_at(index)?;
        let meta = block.meta();
        let is_ours = meta.owner_and_number() == Some((occupant.meta.generation(), number))
            && block.used.load(Relaxed) as usize == self.index_of(occupant.slot);
        is_ours.then_some(LogPlace { block, meta, offset: 0 })
    }

    /// Returns the base of a log; `None` without a chain.
    pub(crate) fn tail(&self, occupant: Occupant<'m>) -> Result<Option<LogPlace<'m>>, Lost> {
        let word = tail_word(occupant.slot).load(Acquire);
        if Cursor(word).parts().is_none() {
            return Ok(None);
        }
        self.place_of(occupant, word).map(Some).ok_or(Lost)
    }

    /// Returns the place after another one; `None` if its block does not exist yet.
    pub(crate) fn next_place(
        &self,
        occupant: Occupant<'m>,
        place: LogPlace<'m>,
    ) -> Result<Option<LogPlace<'m>>, Lost> {
        let offset = place.offset.wrapping_add(1);
        if offset < ENTRIES {
            return Ok(Some(LogPlace { offset, ..place }));
        }
        let link = place.block.extension.load(Acquire);
        let Some(index) = self.index_of_link(link) else {
            return if place.block.meta() == place.meta { Ok(None) } else { Err(Lost) };
        };
        let number = place.number().wrapping_add(1) & NUMBER_MASK;
        if let Some(next) = self.block_at(occupant, index, number) {
            return Ok(Some(next.first_in_block()));
        }
        if place.block.meta() != place.meta {
            return Err(Lost);
        }
        // The block is not this log's: a process that was stopped for long linked it, when the slot
        // had another occupant.
        let extension = &place.block.extension;
        let _ = extension.compare_exchange(link, 0, AcqRel, Relaxed);
        Ok(None)
    }

    /// Returns the end of a log's chain; `None` without a chain.
    pub(crate) fn end(&self, occupant: Occupant<'m>) -> Result<Option<End<'m>>, Lost> {
        let tail = self.tail(occupant)?;
        tail.map(|tail| self.end_after(occupant, tail)).transpose()
    }

    /// Returns the end of a log's chain that begins with `base`.
    #[inline]
    pub(super) fn end_after(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
    ) -> Result<End<'m>, Lost> {
        let hint = head_word(occupant.slot).load(Acquire);
        let near = self.place_of(occupant, hint);
        let mut at = near.filter(|near| near.is_after(&base)).unwrap_or(base);
        // Both links lead to an entry.
        let mut last = at.entry()?.ok_or(Lost)?;
        loop {
            let free = self.next_place(occupant, at)?;
            match free.map_or(Ok(None), |place| place.entry())? {
                Some(entry) => (last, at) = (entry, free.unwrap_or(at)),
                None => {
                    let len = at.distance_from(&base).saturating_add(1);
                    return Ok(End { hint, last, at, free, len });
                }
            }
        }
    }

    /// Returns the first place of a block near the end of the chain, after its tail, if the entry
    /// there is before `time`.
    pub(crate) fn head_before(
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

    /// Sets a hint to a block, unless it is at a later one.
    pub(super) fn note(&self, occupant: Occupant<'m>, hint: &AtomicU64, place: &LogPlace<'m>) {
        let old = hint.load(Acquire);
        let before = self.place_of(occupant, old);
        if before.is_none_or(|before| place.is_after(&before)) {
            let new = self.cursor(&place.first_in_block());
            let _ = hint.compare_exchange(old, new, AcqRel, Relaxed);
        }
    }

    /// Returns the hits of a log at `now`, in thousandths.
    pub(super) fn live_hits_of_log(
        &self,
        occupant: Occupant<'m>,
        size: WindowSize,
        now: UnixMillis,
    ) -> u64 {
        let entry = newest(occupant.slot);
        if is_unused(occupant, size, now) || entry.has_left(size, now) {
            return 0;
        }
        // Some of the hits may have left.
        let base = self.tail(occupant).ok().flatten();
        let base = base.and_then(|base| base.entry().ok().flatten());
        let first = LogEntry::first(occupant.meta.generation());
        entry.since(base.unwrap_or(first).sum()).max(1)
    }
}
