//! The sliding window: the previous window counts by the share of it that lies less than `size` ago.

use super::method::{Method, has_room, headroom};
use super::windows::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

pub(super) struct Sliding;

impl Method for Sliding {
    type Stored = WindowCounts;

    /// Returns `current + previous * (size - elapsed) / size`, rounded up.
    fn rate(size: WindowSize, counts: &WindowCounts) -> Hits {
        if counts.previous == Hits::ZERO {
            return counts.current;
        }
        let left = counts.left(size);
        let size = size.millis();
        let product = u64::try_from(counts.previous.thousandths())
            .ok()
            .and_then(|previous| previous.checked_mul(left));
        let weighted = match product {
            Some(product) => i64::try_from(product.div_ceil(size)),
            // The same in 128 bits, which is slower.
            None => {
                let size = i128::from(size);
                let rounded_up = weigh(counts.previous, left).saturating_add(size);
                i64::try_from(rounded_up.saturating_sub(1).div_euclid(size))
            }
        };
        // The weighted part is at most the previous window's count, so it fits.
        let weighted = weighted.unwrap_or(i64::MAX);
        counts.current.plus(Hits::from_thousandths(weighted))
    }

    #[inline]
    fn admits(size: WindowSize, counts: &WindowCounts, limit: Hits, cost: Hits) -> bool {
        if counts.previous == Hits::ZERO {
            return has_room(counts.current, limit, cost);
        }
        // Compares the rate with the limit, both multiplied by the size: exact, and without a division.
        let weight = weigh(counts.previous, counts.left(size));
        weight <= room(size, counts.current, limit, cost)
    }

    fn start(size: WindowSize, counts: &WindowCounts) -> UnixMillis {
        counts.start(size)
    }

    fn reset(size: WindowSize, counts: &WindowCounts) -> u64 {
        counts.left(size)
    }

    fn retry_after(
        size: WindowSize,
        counts: &WindowCounts,
        limit: Hits,
        cost: Hits,
    ) -> Option<u64> {
        let left = counts.left(size);
        let now = room(size, counts.current, limit, cost);
        if now >= 0 {
            // In this window, as soon as the previous one weighs little enough.
            return Some(left.saturating_sub(heaviest(counts.previous, now, size)));
        }
        // In the next window, in which the current one weighs as the previous one.
        let next = room(size, Hits::ZERO, limit, cost);
        if next < 0 {
            return None;
        }
        let heaviest = heaviest(counts.current, next, size);
        Some(left.saturating_add(size.millis().saturating_sub(heaviest)))
    }
}

/// Returns the most milliseconds of the previous window that may still count if its weight is to fit in `room`.
fn heaviest(previous: Hits, room: i128, size: WindowSize) -> u64 {
    if previous <= Hits::ZERO {
        return size.millis();
    }
    let part = room.checked_div(i128::from(previous.thousandths()));
    u64::try_from(part.unwrap_or(0)).map_or(size.millis(), |part| part.min(size.millis()))
}

/// Returns the greatest weight of the previous window, in thousandths times milliseconds, with
/// which a hit of `cost` is admitted on top of `current`.
#[inline]
fn room(size: WindowSize, current: Hits, limit: Hits, cost: Hits) -> i128 {
    // "Below" a limit is "at most" the next smaller number.
    let strictly = i128::from(cost == Hits::ZERO);
    i128::from(headroom(current, limit, cost))
        .wrapping_mul(i128::from(size.millis()))
        .wrapping_sub(strictly)
}

/// Returns `hits` times milliseconds: a product of 48 and 35 bits.
#[inline]
fn weigh(hits: Hits, millis: u64) -> i128 {
    i128::from(hits.thousandths()).wrapping_mul(i128::from(millis))
}
