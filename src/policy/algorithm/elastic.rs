//! The elastic window: it starts with the first hit, and each hit extends it to its full size.

use super::level::Level;
use super::method::{Method, Reading, has_room, left_in_size};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};

pub(super) struct Elastic;

/// The count of a key's elastic window at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElasticCount {
    /// Start of the window, in whole seconds.
    pub first: UnixMillis,
    /// Hits in the window.
    pub hits: Hits,
    /// Milliseconds since the last extension; less than the window's size unless there are no hits.
    pub idle: u64,
}

impl ElasticCount {
    /// Returns the count of `level` at `now`.
    #[inline]
    pub(super) fn of(size: WindowSize, level: Level, now: UnixMillis) -> ElasticCount {
        if level.has_ended(size, now) {
            return ElasticCount { first: now, ..ElasticCount::default() };
        }
        ElasticCount { first: level.mark.millis(), hits: level.hits, idle: level.age(now) }
    }

    /// Returns the stored level that yields this reading at `now`.
    pub(super) fn level(self, now: UnixMillis) -> Level {
        Level {
            hits: self.hits,
            at: UnixMillis(now.0.saturating_sub(self.idle)),
            mark: UnixSeconds::of(self.first),
        }
    }

    /// Returns the stored level and the reading after a hit at `now`; `before` is the stored level until then.
    #[inline]
    pub(super) fn after_hit(
        self,
        size: WindowSize,
        before: Level,
        now: UnixMillis,
        counted: Hits,
    ) -> (Level, ElasticCount) {
        let level = Level {
            hits: self.hits.plus_value(counted),
            at: before.time_of_hit(now),
            mark: match before.has_ended(size, now) {
                true => UnixSeconds::of(now),
                false => before.mark,
            },
        };
        let count = ElasticCount { first: level.mark.millis(), hits: level.hits, idle: 0 };
        (level, count)
    }
}

impl Method for Elastic {
    type Stored = ElasticCount;

    fn left_of(size: WindowSize, _: &ElasticCount, charged: Hits, age: u64) -> Hits {
        // Without further hits, the window has ended after its size.
        left_in_size(size, charged, age)
    }

    fn rate(_: WindowSize, count: &ElasticCount) -> Hits {
        count.hits
    }

    #[inline]
    fn admits(_: WindowSize, count: &ElasticCount, limit: Hits, cost: Hits) -> bool {
        has_room(count.hits, limit, cost)
    }

    fn start(_: WindowSize, count: &ElasticCount) -> UnixMillis {
        count.first
    }

    fn reset(size: WindowSize, count: &ElasticCount) -> u64 {
        size.millis().saturating_sub(count.idle)
    }

    /// Returns 0 if there is room, else the milliseconds to the window's end.
    fn retry_after(size: WindowSize, count: &ElasticCount, limit: Hits, cost: Hits) -> Option<u64> {
        if has_room(count.hits, limit, cost) {
            return Some(0);
        }
        has_room(Hits::ZERO, limit, cost).then(|| Self::reset(size, count))
    }
}

impl From<ElasticCount> for Reading {
    #[inline]
    fn from(count: ElasticCount) -> Reading {
        Reading {
            start: count.first.0,
            hits: count.hits,
            previous: Hits::ZERO,
            elapsed: count.idle,
        }
    }
}

impl From<Reading> for ElasticCount {
    #[inline]
    fn from(reading: Reading) -> ElasticCount {
        ElasticCount { first: UnixMillis(reading.start), hits: reading.hits, idle: reading.elapsed }
    }
}
