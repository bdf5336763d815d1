//! The functions of an algorithm, and helpers that all algorithms share.

use super::reading::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// The functions of one algorithm. Only [`Algorithm`](super::Algorithm) calls them; it documents what they return.
pub(super) trait Method {
    /// Stored state of a key.
    type Stored: From<Reading> + Into<Reading>;

    fn rate(size: WindowSize, stored: &Self::Stored) -> Hits;
    fn remaining(size: WindowSize, stored: &Self::Stored, limit: Hits) -> Hits {
        limit.minus(Self::rate(size, stored)).max(Hits::ZERO)
    }
    fn admits(size: WindowSize, stored: &Self::Stored, limit: Hits, cost: Hits) -> bool;
    fn start(size: WindowSize, stored: &Self::Stored) -> UnixMillis;
    fn reset(size: WindowSize, stored: &Self::Stored) -> u64;
    fn retry_after(size: WindowSize, stored: &Self::Stored, limit: Hits, cost: Hits)
    -> Option<u64>;
    fn delay(_: WindowSize, _: &Self::Stored, _most: Hits) -> u64 {
        0
    }
    fn window(size: WindowSize, _: &Self::Stored, _limit: Hits) -> Option<u64> {
        Some(size.millis())
    }
}

/// Whether `limit` has room for a hit of `cost` above a rate of `rate`.
#[inline]
pub(super) fn has_room(rate: Hits, limit: Hits, cost: Hits) -> bool {
    let left = headroom(rate, limit, cost);
    left > 0 || (left == 0 && cost != Hits::ZERO)
}

/// Returns `limit - rate - cost` in thousandths. All three have 48 bits, so the difference does not overflow.
#[inline]
pub(super) fn headroom(rate: Hits, limit: Hits, cost: Hits) -> i64 {
    let above_rate = limit.thousandths().wrapping_sub(rate.thousandths());
    above_rate.wrapping_sub(cost.thousandths())
}
