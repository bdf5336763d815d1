//! A level: hits with the time of their last change, which time decreases. A file beside `windows`, since
//! two algorithms share it.

use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, UnixSeconds, WindowSize};

/// The state of a key for an algorithm with a [`LevelKind`](super::LevelKind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The hits.
    pub hits: Hits,
    /// Time of the last change.
    pub at: UnixMillis,
    /// Start of an elastic window, or a time by which a bucket is empty.
    pub mark: UnixSeconds,
}

impl Level {
    /// Returns the milliseconds since the last change; 0 if it is in the future.
    #[inline]
    pub(super) fn age(&self, now: UnixMillis) -> u64 {
        now.0.saturating_sub(self.at.0)
    }

    /// Whether the hits changed at least `size` ago.
    #[inline]
    pub fn has_ended(&self, size: WindowSize, now: UnixMillis) -> bool {
        self.age(now) >= size.millis()
    }

    /// Whether the hits have no effect any more, whatever the [`LevelKind`](super::LevelKind).
    pub fn is_over(&self, size: WindowSize, now: UnixMillis) -> bool {
        let mark = self.mark.millis();
        match mark > self.at {
            true => mark <= now,
            false => self.has_ended(size, now),
        }
    }

    /// Returns the time at which a hit at `now` changes the level: never before the last change, unless the clock was
    /// set back.
    #[inline]
    pub(super) fn time_of_hit(&self, now: UnixMillis) -> UnixMillis {
        let is_skewed = self.at > now && self.at.0.saturating_sub(now.0) <= CLOCK_SKEW;
        if is_skewed { self.at } else { now }
    }
}
