//! Bans: the counts of two windows tell when a key was banned, and so until when.
//!
//! A window is as long as a ban. Each ban adds [`BanCounts::UNIT`] thousandths and the time at which it began, so that
//! bans are pushed, added up and restored like any hits. Several nodes that ban a key at once add up too: the key is
//! banned from the mean of their times.

use super::method::{Method, Reading};
use super::windows::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};

pub(super) struct Banned;

/// The counts of a key's bans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanCounts(WindowCounts);

impl BanCounts {
    /// Bits of a time, which is in steps, modulo 2^26: more than eight times as long as a ban.
    const TIME_BITS: u32 = 26;
    /// Thousandths of one ban, without its time. The times of up to 1024 bans add up to less, and 2047 bans are within
    /// the range of hits.
    const UNIT: i64 = 1 << (Self::TIME_BITS + 10);

    /// Returns the milliseconds of a step: at most a 2^22nd of a ban, or one millisecond.
    const fn step(size: WindowSize) -> u64 {
        (size.millis() >> 22).saturating_add(1)
    }

    /// Returns the hits that record a ban of `size` from `now` on.
    pub fn hits(size: WindowSize, now: UnixMillis) -> Hits {
        let steps = now.0.checked_div(Self::step(size)).unwrap_or_default();
        let time = steps & ((1 << Self::TIME_BITS) - 1);
        Hits::from_thousandths(Self::UNIT.saturating_add_unsigned(time))
    }

    /// Returns the milliseconds until the ban ends; `None` without a ban.
    // Never inlined: the limits of nearly all requests are others, whose code then keeps its registers.
    #[cold]
    #[inline(never)]
    pub fn left(&self, size: WindowSize) -> Option<u64> {
        let WindowCounts { current, previous, .. } = self.0;
        let (current, previous) = (self.left_of(size, current), self.left_of(size, previous));
        current.max(previous)
    }

    /// Returns the milliseconds until the ban that `hits` record ends.
    fn left_of(&self, size: WindowSize, hits: Hits) -> Option<u64> {
        let (bans, times) = (hits.thousandths() / Self::UNIT, hits.thousandths() % Self::UNIT);
        let began = times.checked_div(bans).filter(|_| bans > 0)?.cast_unsigned();
        // The clock of the node that banned may be ahead: the ban has just begun.
        let UnixMillis(now) = self.0.moment(size);
        let ahead = (size.millis() / 10).max(CLOCK_SKEW);
        let latest = now.saturating_add(ahead);
        let step = Self::step(size);
        let steps = latest.checked_div(step)?.wrapping_sub(began) & ((1 << Self::TIME_BITS) - 1);
        let age = steps.saturating_mul(step).saturating_sub(ahead);
        let left = size.millis().saturating_sub(age);
        Some(left).filter(|left| *left > 0)
    }
}

impl Method for Banned {
    type Stored = BanCounts;

    fn rate(_: WindowSize, _: &BanCounts) -> Hits {
        Hits::ZERO
    }

    fn remaining(size: WindowSize, counts: &BanCounts, limit: Hits) -> Hits {
        if counts.left(size).is_some() { Hits::ZERO } else { limit }
    }

    fn admits(size: WindowSize, counts: &BanCounts, _: Hits, _: Hits) -> bool {
        counts.left(size).is_none()
    }

    fn start(size: WindowSize, counts: &BanCounts) -> UnixMillis {
        counts.0.moment(size)
    }

    fn reset(size: WindowSize, counts: &BanCounts) -> u64 {
        counts.left(size).unwrap_or(0)
    }

    fn retry_after(size: WindowSize, counts: &BanCounts, _: Hits, _: Hits) -> Option<u64> {
        Some(Self::reset(size, counts))
    }

    /// A ban is not as long as the window of its limit, which the limit knows.
    fn window(_: WindowSize, _: &BanCounts, _: Hits) -> Option<u64> {
        None
    }
}

impl From<Reading> for BanCounts {
    fn from(reading: Reading) -> Self {
        BanCounts(reading.into())
    }
}

impl From<BanCounts> for Reading {
    fn from(counts: BanCounts) -> Self {
        counts.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_000_123;

    fn at(size: WindowSize, now: u64, current: Hits, previous: Hits) -> BanCounts {
        BanCounts(WindowCounts::of(size.at(UnixMillis(now)), current, previous))
    }

    #[test]
    fn a_ban_lasts_for_its_time_whatever_windows_begin_meanwhile() {
        for millis in [1, 500, 10_000, 600_000, 86_400_000, WindowSize::MAX_MILLIS] {
            let size = WindowSize::from_millis(millis).unwrap();
            let precision = millis >> 22;
            for began in [T, T - T % millis, T - T % millis + millis - 1] {
                let hits = BanCounts::hits(size, UnixMillis(began));
                let window = began / millis;
                for age in [0, 1, millis / 3, millis - 1, millis, millis * 3 / 2, millis * 2 - 1] {
                    let now = began + age;
                    let counts = match now / millis - window {
                        0 => at(size, now, hits, Hits::ZERO),
                        1 => at(size, now, Hits::ZERO, hits),
                        _ => continue,
                    };
                    let left = counts.left(size).unwrap_or(0);
                    let expected = millis.saturating_sub(age);
                    assert!(left.abs_diff(expected) <= precision, "{millis} {age}: {left}");
                }
            }
        }
    }

    #[test]
    fn bans_at_once_are_one_from_the_mean_of_their_times() {
        let size = WindowSize::from_millis(600_000).unwrap();
        // Also where the time recurs.
        let recurs = (T >> BanCounts::TIME_BITS) << BanCounts::TIME_BITS;
        for began in [T, recurs] {
            for bans in [1, 2, 10, 1000] {
                let all = (0..bans).map(|ban| BanCounts::hits(size, UnixMillis(began + ban % 10)));
                let sum = all.fold(Hits::ZERO, Hits::plus);
                let left = at(size, began + 1000, sum, Hits::ZERO).left(size).unwrap();
                assert!(left.abs_diff(599_000) <= 10, "{bans}: {left}");
            }
        }
    }

    #[test]
    fn a_lifted_ban_and_counts_of_others_ban_nobody() {
        let size = WindowSize::from_millis(600_000).unwrap();
        let hits = BanCounts::hits(size, UnixMillis(T));
        for lifted in [Hits::ZERO, Hits::ONE, Hits::ZERO.minus(hits), hits.minus(hits)] {
            assert_eq!(at(size, T, lifted, lifted).left(size), None);
        }
        // A clock that is set back by more than a tenth of it ends it.
        assert_eq!(at(size, T - 61_000, hits, Hits::ZERO).left(size), None);
    }

    #[test]
    fn a_node_whose_clock_is_behind_by_a_tenth_knows_a_ban_and_never_longer_than_the_ban() {
        for (millis, behind) in
            [(500, 500), (10_000, 1_000), (600_000, 59_000), (2_592_000_000, 7_200_000)]
        {
            let size = WindowSize::from_millis(millis).unwrap();
            let hits = BanCounts::hits(size, UnixMillis(T));
            let left = at(size, T - behind, hits, Hits::ZERO).left(size);
            assert_eq!(left, Some(millis), "{millis}");
        }
    }
}
