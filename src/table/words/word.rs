//! One column of one window of one key, in one atomic word.
//!
//! ```text
//!  63                                16 15              0
//! +------------------------------------+-----------------+
//! | hits: signed thousandths           | stamp           |
//! +------------------------------------+-----------------+
//! ```
//!
//! The stamp says what the hits belong to: a window, and one occupancy of the slot. Because both
//! sit in one word, a single compare-and-swap checks the window, turns the column to it where it
//! holds an older one, and counts. A word with another stamp than the expected one reads as 0.

use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;

const STAMP_BITS: u32 = 16;

/// The number of a slot's occupancy to which a word belongs. Successive occupancies are
/// [`Generation::next`] apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u16);

impl Generation {
    /// 2^16 divided by the golden ratio. Multiples of it stay far from each other, so that an
    /// older occupancy's stamps differ from those of nearby windows of this one: a stamp repeats
    /// only after 2^17 windows, 2^16 occupancies, or so many of both that their product is large.
    const STEP: u16 = 0x9e37;

    pub(super) const fn from_bits(bits: u16) -> Generation {
        Generation(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    pub(crate) const fn next(self) -> Generation {
        Generation(self.0.wrapping_add(Self::STEP))
    }
}

/// The stamp of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u16);

impl Stamp {
    /// Any 16 bits, for words that are stamped otherwise.
    pub(crate) const fn from_bits(bits: u16) -> Stamp {
        Stamp(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// The stamp of the window `number` in an occupancy. Windows of one parity share a column, so
    /// that the lowest bit need not be kept.
    #[inline]
    pub(crate) const fn new(number: u64, generation: Generation) -> Stamp {
        Stamp(((number >> 1) as u16).wrapping_add(generation.0))
    }

    /// The bits of a number of handovers by which a stamp can be moved.
    pub(super) const HANDOVER_BITS: u32 = 13;
    /// The distance of two handovers: far from small ones, so that words of nearby windows and handovers differ.
    /// The lowest bits are zero: the count of handovers begins again when all multiples were used.
    const HANDOVER: u16 = 3393 << (16 - Self::HANDOVER_BITS);

    /// The stamp of the same window after so many handovers: see [`pushed`](crate::table::slots::pushed).
    #[inline]
    pub(crate) const fn moved(self, handovers: u16) -> Stamp {
        Stamp(self.0.wrapping_add(Self::HANDOVER.wrapping_mul(handovers)))
    }

    /// The stamp that was moved so.
    #[inline]
    pub(crate) const fn moved_back(self, handovers: u16) -> Stamp {
        Stamp(self.0.wrapping_sub(Self::HANDOVER.wrapping_mul(handovers)))
    }
}

/// The value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowCount(u64);

impl WindowCount {
    #[inline]
    pub(crate) const fn new(stamp: Stamp, hits: Hits) -> WindowCount {
        WindowCount(hits.to_upper_bits() | stamp.0 as u64)
    }

    /// A word that holds a time instead of hits.
    #[inline]
    pub(crate) const fn of_time(stamp: Stamp, at: UnixMillis) -> WindowCount {
        let last = u64::MAX >> STAMP_BITS;
        let at = if at.0 > last { last } else { at.0 };
        WindowCount(at << STAMP_BITS | stamp.0 as u64)
    }

    /// The time that a word holds.
    #[inline]
    pub(crate) const fn time(self) -> UnixMillis {
        UnixMillis(self.0 >> STAMP_BITS)
    }

    /// No hits in an occupancy: what a column holds before the first hit. No two occupancies
    /// that follow each other have the same, so that a compare-and-swap that was prepared in an
    /// older one fails.
    pub(crate) const fn empty(generation: Generation) -> WindowCount {
        WindowCount(generation.0 as u64)
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> WindowCount {
        WindowCount(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn stamp(self) -> Stamp {
        Stamp(self.0 as u16)
    }

    #[inline]
    pub(crate) const fn hits(self) -> Hits {
        Hits::from_upper_bits(self.0)
    }

    /// The hits if they belong to `stamp`, else none.
    #[inline]
    pub(crate) fn hits_of(self, stamp: Stamp) -> Hits {
        if self.stamp() == stamp { self.hits() } else { Hits::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_parts() {
        let generation = Generation(0xbeef);
        for thousandths in [0, 1, -1, Hits::MAX.thousandths(), -Hits::MAX.thousandths()] {
            let stamp = Stamp::new(12_345_678, generation);
            let word = WindowCount::new(stamp, Hits::from_thousandths(thousandths));
            assert_eq!(word.stamp(), stamp);
            assert_eq!(word.hits().thousandths(), thousandths);
        }
    }

    #[test]
    fn windows_that_share_a_column_have_different_stamps() {
        let generation = Generation(0);
        let start = 1_000_000;
        let repeat =
            (1..).find(|n| Stamp::new(start, generation) == Stamp::new(start + 2 * n, generation));
        assert_eq!(repeat.map(|n| 2 * n), Some(1 << 17));
    }

    #[test]
    fn nearby_windows_and_handovers_have_different_stamps() {
        let stamp = Stamp::new(1_000_000, Generation(7));
        for handovers in 1..64 {
            for number in 1_000_000 - 800..1_000_000 + 800 {
                let moved = Stamp::new(number, Generation(7)).moved(handovers);
                assert_ne!(moved, stamp);
                assert_eq!(moved.moved_back(handovers), Stamp::new(number, Generation(7)));
            }
        }
        // The count begins again.
        assert_eq!(stamp.moved(1 << Stamp::HANDOVER_BITS), stamp);
        assert_eq!(stamp.moved_back(0_u16.wrapping_sub(1)), stamp.moved(1));
    }

    #[test]
    fn nearby_windows_and_occupancies_have_different_stamps() {
        let stamp = Stamp::new(1_000_000, Generation(0));
        let mut generation = Generation(0);
        for _ in 0..64 {
            generation = generation.next();
            for number in 1_000_000 - 800..1_000_000 + 800 {
                assert_ne!(Stamp::new(number, generation), stamp);
            }
        }
    }
}
