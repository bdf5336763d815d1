//! The parts that all algorithms share: the functions of an algorithm, the readings that they interpret, and helpers.
//!
//! A table or a store makes a reading of its stored state. All other code passes it on, together with the algorithm
//! that interprets it.

use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};

/// The stored state of a key at a moment: four words, which only its algorithm interprets.
///
/// Each algorithm's file has a type that converts to and from a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Start of the count, or time of the last hit.
    pub(super) start: u64,
    /// The count that one more charge increases.
    pub(super) hits: Hits,
    /// The previous count, or the part of the count that expires.
    pub(super) previous: Hits,
    /// Milliseconds since a moment that the algorithm defines, or parts of them.
    pub(super) elapsed: u64,
}

impl Reading {
    /// Returns the reading after a charge of `hits`, which must not be negative.
    #[inline]
    pub fn plus(self, hits: Hits) -> Reading {
        let hits = self.hits.plus_value(hits);
        Reading { hits, ..self }
    }

    /// Returns the reading after a refund of `hits`; at least zero.
    #[inline]
    pub fn minus(self, hits: Hits) -> Reading {
        let hits = self.hits.minus(hits).max(Hits::ZERO);
        Reading { hits, ..self }
    }

    /// Encodes the reading for messages between processes of one build.
    pub fn to_words(self) -> [u64; 4] {
        let Reading { start, hits, previous, elapsed } = self;
        let [hits, previous] = [hits, previous].map(|it| it.thousandths().cast_unsigned());
        [start, hits, previous, elapsed]
    }

    /// Decodes the words of [`Reading::to_words`].
    pub fn from_words([start, hits, previous, elapsed]: [u64; 4]) -> Reading {
        let [hits, previous] = [hits, previous].map(|it| Hits::from_thousandths(it.cast_signed()));
        Reading { start, hits, previous, elapsed }
    }
}

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
    fn left_of(_: WindowSize, _: &Self::Stored, charged: Hits, _age: u64) -> Hits {
        charged
    }
    fn window(size: WindowSize, _: &Self::Stored, _limit: Hits) -> Option<u64> {
        Some(size.millis())
    }
}

/// Returns how many of `charged` hits certainly still count if they do so for `size`. The clocks of two processes
/// differ.
pub(super) fn left_in_size(size: WindowSize, charged: Hits, age: u64) -> Hits {
    match age.saturating_add(CLOCK_SKEW) < size.millis() {
        true => charged,
        false => Hits::ZERO,
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
