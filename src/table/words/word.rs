//! One window's column of one key, as one atomic word.
//!
//! ```text
//!  63                                16 15              0
//! +------------------------------------+-----------------+
//! | hits: signed thousandths           | stamp           |
//! +------------------------------------+-----------------+
//! ```
//!
//! The stamp identifies the window and the occupancy of the slot to which the hits belong. Since
//! one word contains both, a single compare-and-swap checks the window, turns an older column to
//! it, and counts. A word with another stamp than the expected one counts as 0.

use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;

const STAMP_BITS: u32 = 16;

/// The number of a slot's occupancy to which a word belongs. Successive occupancies differ by
/// [`Generation::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u16);

impl Generation {
    /// 2^16 divided by the golden ratio. Its multiples are far from each other, so that stamps of
    /// an older occupancy differ from those of nearby windows of this one: a stamp recurs only
    /// after 2^17 windows, after 2^16 occupancies, or after so many of both that their product is
    /// large.
    const STEP: u16 = 0x9e37;

    pub(crate) const fn from_bits(bits: u16) -> Generation {
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
    /// Makes a stamp of any 16 bits, for words with other kinds of stamps.
    pub(crate) const fn from_bits(bits: u16) -> Stamp {
        Stamp(bits)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the stamp of window `number` in an occupancy. Windows of one parity share a column,
    /// so the lowest bit is left out.
    #[inline]
    pub(crate) const fn new(number: u64, generation: Generation) -> Stamp {
        Stamp(((number >> 1) as u16).wrapping_add(generation.0))
    }

    /// Bits of the number of handovers by which a stamp is moved.
    pub(super) const HANDOVER_BITS: u32 = 13;
    /// Distance of two handovers. It is large, so that words of nearby windows and handovers
    /// differ. Its lowest bits are zero, so that the number of handovers wraps around after all
    /// multiples.
    const HANDOVER: u16 = 3393 << (16 - Self::HANDOVER_BITS);

    /// Returns the stamp of the same window after this number of handovers: see
    /// [`pushed`](crate::table::slots::pushed).
    #[inline]
    pub(crate) const fn moved(self, handovers: u16) -> Stamp {
        Stamp(self.0.wrapping_add(Self::HANDOVER.wrapping_mul(handovers)))
    }

    /// Inverts [`Stamp::moved`].
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

    /// Makes a word with a time instead of hits.
    #[inline]
    pub(crate) const fn of_time(stamp: Stamp, at: UnixMillis) -> WindowCount {
        let last = u64::MAX >> STAMP_BITS;
        let at = if at.0 > last { last } else { at.0 };
        WindowCount(at << STAMP_BITS | stamp.0 as u64)
    }

    /// Returns the time in a word.
    #[inline]
    pub(crate) const fn time(self) -> UnixMillis {
        UnixMillis(self.0 >> STAMP_BITS)
    }

    /// Returns the word of an empty column, before the first hit of an occupancy. Successive
    /// occupancies have different ones, so that a compare-and-swap prepared in an older one fails.
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

    /// Returns the hits if they belong to `stamp`, else zero.
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
        // The number of handovers wraps around.
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
