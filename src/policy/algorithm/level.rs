//! A level: hits that changed last at a moment, and that mean less as time passes.

use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, UnixSeconds, WindowSize};

/// The state of a key for an algorithm with a [`LevelKind`](super::LevelKind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The hits.
    pub hits: Hits,
    /// Time of the last change.
    pub at: UnixMillis,
    /// Another moment: when an elastic window began, or by when a bucket is empty.
    pub mark: UnixSeconds,
}

impl Level {
    /// Milliseconds since the hits changed. None of a time in the future.
    #[inline]
    pub(super) fn age(&self, now: UnixMillis) -> u64 {
        now.0.saturating_sub(self.at.0)
    }

    /// Whether the hits changed at least `size` ago.
    #[inline]
    pub fn has_ended(&self, size: WindowSize, now: UnixMillis) -> bool {
        self.age(now) >= size.millis()
    }

    /// Whether nothing of the hits matters any more, whatever the [`LevelKind`](super::LevelKind).
    pub fn is_over(&self, size: WindowSize, now: UnixMillis) -> bool {
        let mark = self.mark.millis();
        match mark > self.at {
            true => mark <= now,
            false => self.has_ended(size, now),
        }
    }

    /// Returns the time at which a hit at `now` changes the level: not before the last change,
    /// unless the clock was set back.
    #[inline]
    pub(super) fn time_of_hit(&self, now: UnixMillis) -> UnixMillis {
        let is_skewed = self.at > now && self.at.0.saturating_sub(now.0) <= CLOCK_SKEW;
        if is_skewed { self.at } else { now }
    }
}
