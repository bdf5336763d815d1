//! The occupant of a slot, as one atomic word: a compare-and-swap of it reassigns the slot.
//!
//! ```text
//!  63                                19 18              3 2     0
//! +------------------------------------+-----------------+-------+
//! | detail, by state                   | generation      | state |
//! +------------------------------------+-----------------+-------+
//! counter:  35 bits of window size in milliseconds (0 for holds), 10 bits of namespace
//! busy:     32 bits of the time (ticks) at which the slot was claimed
//! name:     16 bits of the owner's generation, 16 bits of the name's length in bytes; of a first part,
//!           13 bits of the handovers of its words
//! block:    16 bits of the owner's generation, 29 bits of the block's number
//! ```
//!
//! The generation changes with every occupancy, so a value of the word recurs only after 2^16
//! occupancies.

use super::word::{Generation, Stamp};
use crate::policy::algorithm::StoredKind;
use crate::policy::window::WindowSize;

/// A namespace's index in a zone's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceIndex(pub(crate) u16);

impl NamespaceIndex {
    pub(crate) const BITS: u32 = 10;

    /// Returns the index, counted from 0.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// Coarse time in units of 128 ms, modulo 2^32. Two times compare correctly if they are less than
/// eight years apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks(pub(crate) u32);

impl Ticks {
    const MILLIS: u64 = 128;

    #[inline]
    pub(crate) const fn at(millis: u64) -> Ticks {
        Ticks((millis / Self::MILLIS) as u32)
    }

    /// Returns the ticks from `self` to `now`; 0 if `self` is in the future, as after the clock was
    /// set back.
    #[inline]
    pub(crate) const fn until(self, now: Ticks) -> u32 {
        let ticks = now.0.wrapping_sub(self.0);
        if ticks > u32::MAX / 2 { 0 } else { ticks }
    }

    /// Returns whether `self` is later than `now`, as after the clock was set back, or for a
    /// process with an old time.
    #[inline]
    pub(crate) const fn is_after(self, now: Ticks) -> bool {
        self.until(now) == 0 && self.0 != now.0
    }

    /// Returns whether certainly more than `millis` milliseconds have passed from `self` to `now`.
    #[inline]
    pub(crate) const fn is_over(self, now: Ticks, millis: u64) -> bool {
        let ticks = self.until(now) as u64;
        ticks > 0 && ticks.saturating_sub(1).saturating_mul(Self::MILLIS) >= millis
    }
}

/// The value of a slot's `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(u64);

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Unused. All-zero memory is a free slot.
    Free,
    /// A process is changing its use since this time.
    Busy(Ticks),
    /// A key's counter.
    Counter,
    /// A part of a counter's name.
    Name,
    /// Entries of a log.
    Block,
}

const FREE: u64 = 0;
const BUSY: u64 = 1;
/// The bit of all counters. The lowest bit of window counters says whether they are synced.
const COUNTER: u64 = 2;
const SYNCED_COUNTER: u64 = COUNTER | SYNCED;
const SYNCED: u64 = 1;
/// The bit of slots that belong to a counter in another slot. The lowest bit is their kind.
const NAME: u64 = 4;
const BLOCK: u64 = NAME | 1;
/// A level, which is never synced.
const LEVEL_COUNTER: u64 = COUNTER | 1 << 2;
/// A log, or a counter of holds, both of which have blocks and are never synced. Only a counter of holds has no size.
const LOG_COUNTER: u64 = LEVEL_COUNTER | 1;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const STATE_BITS: u32 = 3;
const GENERATION_BITS: u32 = 16;
const DETAIL: u32 = STATE_BITS + GENERATION_BITS;
const SIZE_BITS: u32 = 64 - DETAIL - NamespaceIndex::BITS;
/// Position of the handovers in a name's first part, which use all remaining bits.
const HANDOVERS: u32 = DETAIL + 2 * GENERATION_BITS;
const _: () = assert!(WindowSize::BITS <= SIZE_BITS);
const _: () = assert!(64 - HANDOVERS == Stamp::HANDOVER_BITS);

impl Meta {
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Meta {
        Meta(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn free(generation: Generation) -> Meta {
        Meta(FREE | (generation.bits() as u64) << STATE_BITS)
    }

    pub(crate) const fn busy(generation: Generation, since: Ticks) -> Meta {
        Meta(BUSY | (generation.bits() as u64) << STATE_BITS | (since.0 as u64) << DETAIL)
    }

    /// Creates the meta of a counter that is not synced, with generation 0.
    pub(crate) const fn counter(
        namespace: NamespaceIndex,
        size: WindowSize,
        kind: StoredKind,
    ) -> Meta {
        let state = match kind {
            StoredKind::Windows => COUNTER,
            StoredKind::Level(_) => LEVEL_COUNTER,
            StoredKind::Log | StoredKind::Holds => LOG_COUNTER,
        };
        let size = match kind {
            StoredKind::Holds => 0,
            _ => size.bits(),
        };
        let detail = size | (namespace.0 as u64) << SIZE_BITS;
        Meta(state | detail << DETAIL)
    }

    /// Returns the meta with this generation; its own must be 0.
    #[inline]
    pub(crate) const fn of_generation(self, generation: Generation) -> Meta {
        Meta(self.0 | (generation.bits() as u64) << STATE_BITS)
    }

    /// Creates the meta of a name's part. `owner` is the generation of the counter (for the first
    /// part) or of the first part (for further ones); `len` is the length of the whole name.
    pub(crate) const fn name(generation: Generation, owner: Generation, len: u16) -> Meta {
        let detail = owner.bits() as u64 | (len as u64) << GENERATION_BITS;
        Meta(NAME | (generation.bits() as u64) << STATE_BITS | detail << DETAIL)
    }

    /// Returns the number of handovers of the words in a name's first part: see
    /// [`pushed`](crate::table::slots::pushed).
    #[inline]
    pub(crate) const fn handovers(self) -> u16 {
        (self.0 >> HANDOVERS) as u16
    }

    /// Returns the meta of the same part after `times` more handovers.
    #[inline]
    pub(crate) const fn handed_over(self, times: u16) -> Meta {
        // Wraps around in the highest bits, as intended.
        Meta(self.0.wrapping_add((times as u64) << HANDOVERS))
    }

    /// Creates the meta of a log's block, with the generation of the log's counter, and the number
    /// of the block.
    pub(crate) const fn block(generation: Generation, owner: Generation, number: u32) -> Meta {
        let detail = owner.bits() as u64 | (number as u64) << GENERATION_BITS;
        Meta(BLOCK | (generation.bits() as u64) << STATE_BITS | detail << DETAIL)
    }

    #[inline]
    pub(crate) const fn state(self) -> SlotState {
        match self.0 & STATE_MASK {
            COUNTER | SYNCED_COUNTER | LEVEL_COUNTER | LOG_COUNTER => SlotState::Counter,
            BUSY => SlotState::Busy(Ticks((self.0 >> DETAIL) as u32)),
            NAME => SlotState::Name,
            BLOCK => SlotState::Block,
            _ => SlotState::Free,
        }
    }

    #[inline]
    pub(crate) const fn is_counter(self) -> bool {
        self.0 & COUNTER != 0
    }

    /// Returns whether this is a level.
    #[inline]
    pub(crate) const fn is_level(self) -> bool {
        self.0 & STATE_MASK == LEVEL_COUNTER
    }

    /// Returns whether this is a log or a counter of holds.
    #[inline]
    pub(crate) const fn is_log(self) -> bool {
        self.0 & STATE_MASK == LOG_COUNTER
    }

    /// Returns whether this is a counter of holds.
    #[inline]
    pub(crate) const fn is_of_holds(self) -> bool {
        self.is_log() && (self.0 >> DETAIL) & ((1 << SIZE_BITS) - 1) == 0
    }

    /// Returns whether this belongs to a counter in another slot.
    #[inline]
    pub(crate) const fn is_part(self) -> bool {
        self.0 & (STATE_MASK & !1) == NAME
    }

    /// Returns whether this is a window counter that is not synced.
    #[inline]
    pub(crate) const fn is_local_counter(self) -> bool {
        self.0 & STATE_MASK == COUNTER
    }

    /// Returns whether the counter is synced.
    #[inline]
    pub(crate) const fn is_synced(self) -> bool {
        self.0 & STATE_MASK == SYNCED_COUNTER
    }

    /// Returns the meta of the same counter, synced or not.
    pub(crate) const fn with_synced(self, is_synced: bool) -> Meta {
        Meta(if is_synced { self.0 | SYNCED } else { self.0 & !SYNCED })
    }

    /// Returns whether both are the same occupancy of one counter, synced or not.
    #[inline]
    pub(crate) const fn is_same_counter(self, other: Meta) -> bool {
        (self.0 ^ other.0) & !SYNCED == 0
    }

    /// Returns the generation of a name's owner, and the length of the name; `None` for other
    /// slots.
    pub(crate) const fn owner_and_len(self) -> Option<(Generation, u16)> {
        if self.0 & STATE_MASK != NAME {
            return None;
        }
        Some((
            Generation::from_bits((self.0 >> DETAIL) as u16),
            (self.0 >> (DETAIL + GENERATION_BITS)) as u16,
        ))
    }

    /// Returns the generation of a block's owner, and the number of the block; `None` for other
    /// slots.
    pub(crate) const fn owner_and_number(self) -> Option<(Generation, u32)> {
        if self.0 & STATE_MASK != BLOCK {
            return None;
        }
        Some((Generation::from_bits((self.0 >> DETAIL) as u16), self.block_number()))
    }

    /// Returns the number of a block.
    #[inline]
    pub(crate) const fn block_number(self) -> u32 {
        (self.0 >> (DETAIL + GENERATION_BITS)) as u32
    }

    #[inline]
    pub(crate) const fn generation(self) -> Generation {
        Generation::from_bits((self.0 >> STATE_BITS) as u16)
    }

    /// Returns the window size of a counter; `None` for other slots, and for holds.
    pub(crate) fn size(self) -> Option<WindowSize> {
        if !self.is_counter() {
            return None;
        }
        WindowSize::from_bits((self.0 >> DETAIL) & ((1 << SIZE_BITS) - 1))
    }

    /// Returns the namespace of a counter.
    pub(crate) const fn namespace(self) -> NamespaceIndex {
        NamespaceIndex((self.0 >> (DETAIL + SIZE_BITS)) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::algorithm::LevelKind;

    #[test]
    fn a_meta_keeps_its_parts() {
        let generation = Generation::from_bits(0xabcd);
        for millis in [1, 60_000, WindowSize::MAX_MILLIS] {
            for namespace in [0, 1, 1023] {
                let size = WindowSize::from_millis(millis).unwrap();
                let meta = Meta::counter(NamespaceIndex(namespace), size, StoredKind::Windows);
                let meta = meta.of_generation(generation);
                assert_eq!(meta.state(), SlotState::Counter);
                assert_eq!(meta.generation(), generation);
                assert_eq!(meta.size(), Some(size));
                assert_eq!(meta.namespace(), NamespaceIndex(namespace));
            }
        }
        let name = Meta::name(generation, Generation::from_bits(0x1234), 65_535);
        assert_eq!((name.state(), name.generation()), (SlotState::Name, generation));
        assert_eq!(name.owner_and_len(), Some((Generation::from_bits(0x1234), 65_535)));
        let handed_over = name.handed_over(2);
        assert_eq!((name.handovers(), handed_over.handovers()), (0, 2));
        assert_eq!(handed_over.owner_and_len(), name.owner_and_len());
        assert_eq!(handed_over.handed_over(8190), name);
        let block = Meta::block(generation, Generation::from_bits(0x1234), (1 << 29) - 1);
        assert_eq!(
            (block.state(), block.generation(), block.owner_and_len()),
            (SlotState::Block, generation, None)
        );
        let owner = Generation::from_bits(0x1234);
        assert_eq!(block.owner_and_number(), Some((owner, (1 << 29) - 1)));
        assert!(block.is_part() && name.is_part() && !block.is_counter());
        let busy = Meta::busy(generation, Ticks(u32::MAX));
        assert_eq!(
            (busy.state(), busy.generation(), busy.size()),
            (SlotState::Busy(Ticks(u32::MAX)), generation, None)
        );
        assert_eq!(Meta::free(generation).state(), SlotState::Free);
        assert_eq!(Meta::from_bits(0), Meta::free(Generation::from_bits(0)));
    }

    #[test]
    fn a_counter_stays_the_same_when_it_is_synced() {
        let size = WindowSize::from_millis(1000).unwrap();
        let counter = |generation| {
            let meta = Meta::counter(NamespaceIndex(3), size, StoredKind::Windows);
            meta.of_generation(Generation::from_bits(generation))
        };
        let synced = counter(7).with_synced(true);
        assert!(synced.is_synced() && !counter(7).is_synced());
        assert!(synced.is_counter() && synced.is_same_counter(counter(7)));
        assert!(!synced.is_same_counter(counter(8)));
        assert_eq!(synced.with_synced(false), counter(7));
        assert_eq!((synced.size(), synced.namespace()), (Some(size), NamespaceIndex(3)));
    }

    #[test]
    fn a_level_is_a_counter_that_is_not_synced() {
        let size = WindowSize::from_millis(1000).unwrap();
        let meta = Meta::counter(NamespaceIndex(3), size, StoredKind::Level(LevelKind::Elastic));
        assert_eq!((meta.state(), meta.size()), (SlotState::Counter, Some(size)));
        assert!(
            meta.is_counter() && meta.is_level() && !meta.is_local_counter() && !meta.is_synced()
        );
        assert!(!Meta::counter(NamespaceIndex(3), size, StoredKind::Windows).is_level());
    }

    #[test]
    fn a_log_is_a_counter_that_is_neither_synced_nor_a_level() {
        let size = WindowSize::from_millis(1000).unwrap();
        let meta = Meta::counter(NamespaceIndex(3), size, StoredKind::Log);
        assert_eq!((meta.state(), meta.size()), (SlotState::Counter, Some(size)));
        assert!(meta.is_log() && meta.is_counter() && !meta.is_level() && !meta.is_part());
        assert!(!meta.is_local_counter() && !meta.is_synced());
    }

    #[test]
    fn a_counter_of_holds_is_a_counter_without_a_size() {
        let size = WindowSize::from_millis(1000).unwrap();
        let meta = Meta::counter(NamespaceIndex(3), size, StoredKind::Holds);
        assert_eq!((meta.state(), meta.size()), (SlotState::Counter, None));
        assert!(meta.is_of_holds() && meta.is_counter() && !meta.is_level() && !meta.is_part());
        assert_eq!(meta.namespace(), NamespaceIndex(3));
        assert!(!Meta::counter(NamespaceIndex(3), size, StoredKind::Log).is_of_holds());
    }

    #[test]
    fn ticks_survive_their_wrapping_and_a_clock_set_back() {
        assert_eq!(Ticks(u32::MAX).until(Ticks(1)), 2);
        assert_eq!(Ticks(5).until(Ticks(4)), 0);
        assert!(Ticks(0).is_over(Ticks(2), 16));
        assert!(!Ticks(0).is_over(Ticks(1), 1));
        assert!(!Ticks(0).is_over(Ticks(0), 0));
    }
}
