//! The chain of a log: its entries but the newest, in blocks, which are slots of the table; and how it is walked.
//!
//! Blocks are numbered, and each leads to the next. The counter's slot leads to the base, with which the
//! chain begins (its *tail*), and, as a hint, to a block near the end. Both words and the meta of a
//! block have the block's number, and the meta has the owner's generation: who comes to another block than
//! it was led to looks at the counter again.
//!
//! Times and sums rise from entry to entry, so that a place is searched for ([`log_search`](super::log_search)), and
//! not walked to.

use super::log::{LogEntry, LogTime, newest};
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

#[cfg(all(test, not(loom)))]
std::thread_local! {
    /// Number of chain entries that this thread has looked at.
    pub(crate) static LOOKS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// The entries of a block; of one that leads back, one less.
pub(super) const ENTRIES: usize = if cfg!(loom) { 2 } else { 6 };

/// Each block of so many leads back: a power of two.
pub(super) const EVERY: u32 = 16;

pub(super) const NUMBER_BITS: u32 = 29;
pub(super) const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
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
pub(crate) struct LogPlace<'m> {
    pub(super) block: &'m Slot,
    /// Meta of the block when it was reached.
    pub(super) meta: Meta,
    /// Index of the entry in it.
    pub(super) offset: usize,
}

impl<'m> LogPlace<'m> {
    pub(crate) fn word(&self) -> Result<&'m AtomicU64, Lost> {
        self.block.words().get(self.offset).ok_or(Lost)
    }

    pub(super) fn number(&self) -> u32 {
        self.meta.block_number()
    }

    /// The entry; `None`: it is empty still.
    pub(crate) fn entry(&self) -> Result<Option<LogEntry>, Lost> {
        #[cfg(all(test, not(loom)))]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        // Acquire: who sees a word of the slot's next occupant sees that the meta has changed.
        let entry = LogEntry::from_bits(self.word()?.load(Acquire));
        if self.block.meta() != self.meta {
            return Err(Lost);
        }
        Ok(entry.is_marked().then_some(entry))
    }

    /// Returns the word of an entry before it is appended.
    pub(super) fn empty(&self) -> LogEntry {
        LogEntry::from_bits(LogEntry::empty(self.meta.generation()))
    }

    /// Returns the number of entries from `other` to this one.
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

    /// The first place for an entry in the block.
    pub(super) fn first_in_block(self) -> LogPlace<'m> {
        LogPlace { offset: first_offset(self.number()), ..self }
    }
}

/// Whether the block of this number leads back: not the first one, whose number is a multiple of [`EVERY`].
pub(super) fn leads_back(number: u32) -> bool {
    number % EVERY == EVERY - 1
}

/// Returns the offset of the first entry in the block of this number.
pub(super) fn first_offset(number: u32) -> usize {
    usize::from(leads_back(number))
}

/// Returns the number of blocks from `before` to `number`.
fn number_after(before: u32, number: u32) -> u32 {
    number.wrapping_sub(before) & NUMBER_MASK
}

/// Whether block `number` is before another one of its chain.
pub(super) fn is_before(number: u32, other: u32) -> bool {
    number_after(other, number) > NUMBER_MASK / 2
}

/// The number of the block with which the chain of the log in `slot` begins; `None` if it has no chain yet.
pub(super) fn tail_number(slot: &Slot) -> Option<u32> {
    let (_, number, _) = Cursor(tail_word(slot).load(Acquire)).parts()?;
    Some(number)
}

/// The end of a chain.
#[derive(Clone, Copy)]
pub(crate) struct End<'m> {
    /// The hint that led there.
    pub(super) hint: u64,
    /// The last entry, and where it is.
    pub(crate) last: LogEntry,
    pub(crate) at: LogPlace<'m>,
    /// Place of the next entry; `None`: it goes into another block.
    pub(super) free: Option<LogPlace<'m>>,
    /// The entries of the chain.
    pub(super) len: usize,
}

pub(super) fn tail_word(slot: &Slot) -> &AtomicU64 {
    let [word, _] = &slot.remote;
    word
}

/// An entry near the end. A hint.
pub(super) fn head_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.remote;
    word
}

/// The last block that leads back. A hint.
pub(super) fn index_word(slot: &Slot) -> &AtomicU64 {
    let [_, word] = &slot.local;
    word
}

/// Whether all hits of a log have left surely, since none was counted for so long: times come round again.
pub(crate) fn is_unused(occupant: Occupant<'_>, size: WindowSize, now: UnixMillis) -> bool {
    let used = Ticks(occupant.slot.used.load(Relaxed));
    let longest = size.millis().saturating_add(CLOCK_SKEW);
    used.is_over(Ticks::at(now.0), longest)
}

impl<'m> CounterTable<'m> {
    /// The word that leads to a place.
    pub(super) fn cursor(&self, place: &LogPlace<'_>) -> u64 {
        let index = (self.index_of(place.block) as u64).saturating_add(1);
        let number = u64::from(place.number()) << OFFSET_BITS;
        index << 32 | number | place.offset as u64
    }

    /// The place in the log of `occupant` that `word` leads to. `None`: to none, or to none any more.
    pub(super) fn place_of(&self, occupant: Occupant<'m>, word: u64) -> Option<LogPlace<'m>> {
        let (index, number, offset) = Cursor(word).parts()?;
        let place = self.block_at(occupant, index, number)?;
        Some(LogPlace { offset, ..place })
    }

    /// The block of this number in the log of `occupant`, if it is in that slot.
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

    /// The base of a log; `None` if it has no chain yet.
    pub(crate) fn tail(&self, occupant: Occupant<'m>) -> Result<Option<LogPlace<'m>>, Lost> {
        let word = tail_word(occupant.slot).load(Acquire);
        if Cursor(word).parts().is_none() {
            return Ok(None);
        }
        self.place_of(occupant, word).map(Some).ok_or(Lost)
    }

    /// The place after another one; `None` if that is in a block which is not there yet.
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
        // A block is linked when it is one: this was linked by who was stopped for long, when the slot
        // had another occupant.
        let extension = &place.block.extension;
        let _ = extension.compare_exchange(link, 0, AcqRel, Relaxed);
        Ok(None)
    }

    /// The end of a log's chain; `None` if it has none yet.
    pub(crate) fn end(&self, occupant: Occupant<'m>) -> Result<Option<End<'m>>, Lost> {
        let tail = self.tail(occupant)?;
        tail.map(|tail| self.end_after(occupant, tail)).transpose()
    }

    /// The end of a log's chain, as it begins with `base`.
    #[inline]
    pub(super) fn end_after(
        &self,
        occupant: Occupant<'m>,
        base: LogPlace<'m>,
    ) -> Result<End<'m>, Lost> {
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
                    return Ok(End { hint, last, at, free, len });
                }
            }
        }
    }

    /// The first place of a block near the end of a chain, after its tail, if the entry there is before
    /// `time`.
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

    /// Makes a hint lead to a block, unless it leads further.
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
        // Some of them have left, perhaps.
        let base = self.tail(occupant).ok().flatten();
        let base = base.and_then(|base| base.entry().ok().flatten());
        let first = LogEntry::first(occupant.meta.generation());
        entry.since(base.unwrap_or(first).sum()).max(1)
    }
}
