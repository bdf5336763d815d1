//! The moving window: exactly the hits of the last `size`. A hit that is `size` old still counts.

use super::method::{Method, Reading, has_room, left_in_size};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

pub(super) struct Moving;

/// The count of a key in the window that ends at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovingCount {
    /// Hits in the window.
    pub hits: Hits,
    /// Time of the oldest hit; the moment itself if there are none.
    pub oldest: UnixMillis,
    /// Milliseconds since the oldest hit; at most the window's size.
    pub age: u64,
    /// Milliseconds until there is room for the limit and cost of the query; only the reader of the log knows the times
    /// of all hits. 0 if there is room, or never will be.
    pub wait: u64,
}

impl MovingCount {
    /// The largest limit. It bounds the memory of a key, which grows with its hits.
    pub const MAX_LIMIT: Hits = Hits::from_thousandths(100_000_000);

    /// The largest count of a window in a store: more than any limit.
    pub const MOST: Hits = Hits::from_thousandths((1 << 27) - 1);

    /// Returns the maximum number of entries of a log with `limit` and `hits` counted. Up to the limit, it is one entry
    /// per thousandth of the limit, at most as many as the largest limit has hits. Above it, where rejected hits count,
    /// it is one entry per whole hit of the limit.
    pub fn most_entries(limit: Hits, hits: Hits) -> u64 {
        let limit = limit.clamp(Hits::ONE, MovingCount::MAX_LIMIT);
        let largest = MovingCount::MAX_LIMIT.whole();
        let entries = match hits <= limit {
            true => limit.thousandths().min(largest),
            false => limit.whole(),
        };
        entries.unsigned_abs()
    }

    /// Returns the hits that have to expire before `limit` has room for `cost`; `None` if there is room, or never will
    /// be.
    pub fn excess(&self, limit: Hits, cost: Hits) -> Option<Hits> {
        let limit = limit.min(MovingCount::MAX_LIMIT);
        // "Below" a limit is "at most" a thousandth less.
        let most = limit.minus(cost.max(Hits::from_thousandths(1)));
        let excess = self.hits.minus(most);
        (most >= Hits::ZERO && excess > Hits::ZERO).then_some(excess)
    }

    /// Returns the milliseconds until a hit made at `at` expires.
    pub fn time_until_left(size: WindowSize, at: UnixMillis, now: UnixMillis) -> u64 {
        let end = size.millis().saturating_add(1);
        end.saturating_sub(now.0.saturating_sub(at.0))
    }
}

impl Method for Moving {
    type Stored = MovingCount;

    fn left_of(size: WindowSize, _: &MovingCount, charged: Hits, age: u64) -> Hits {
        left_in_size(size, charged, age)
    }

    fn rate(_: WindowSize, count: &MovingCount) -> Hits {
        count.hits
    }

    fn admits(_: WindowSize, count: &MovingCount, limit: Hits, cost: Hits) -> bool {
        has_room(count.hits, limit.min(MovingCount::MAX_LIMIT), cost)
    }

    fn start(_: WindowSize, count: &MovingCount) -> UnixMillis {
        count.oldest
    }

    /// Returns the milliseconds until the oldest hit expires.
    fn reset(size: WindowSize, count: &MovingCount) -> u64 {
        let end = size.millis().saturating_add(1);
        end.saturating_sub(count.age)
    }

    /// Returns `wait`, which is exact for the limit and cost that the reading was made for. For others, it is the time
    /// until the hits that were in their way have expired.
    fn retry_after(_: WindowSize, count: &MovingCount, limit: Hits, cost: Hits) -> Option<u64> {
        let limit = limit.min(MovingCount::MAX_LIMIT);
        if has_room(count.hits, limit, cost) {
            return Some(0);
        }
        has_room(Hits::ZERO, limit, cost).then_some(count.wait)
    }
}

impl From<MovingCount> for Reading {
    fn from(count: MovingCount) -> Reading {
        let wait = i64::try_from(count.wait).unwrap_or(i64::MAX);
        Reading {
            start: count.oldest.0,
            hits: count.hits,
            previous: Hits::from_thousandths(wait),
            elapsed: count.age,
        }
    }
}

impl From<Reading> for MovingCount {
    fn from(reading: Reading) -> MovingCount {
        MovingCount {
            hits: reading.hits,
            oldest: UnixMillis(reading.start),
            age: reading.elapsed,
            wait: reading.previous.thousandths().unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::algorithm::Algorithm;
    use crate::policy::hits::hits;

    #[test]
    fn a_window_ends_when_its_oldest_hit_leaves() {
        let size = WindowSize::from_millis(1000).unwrap();
        let count = MovingCount { hits: hits(3), oldest: UnixMillis(5_000), age: 400, wait: 250 };
        let reading = Reading::from(count);
        assert_eq!(MovingCount::from(reading), count);
        let moving = Algorithm::Moving;
        assert_eq!(moving.start(size, &reading), UnixMillis(5_000));
        assert_eq!(moving.reset(size, &reading), 601);
        assert_eq!(moving.rate(size, &reading), hits(3));
        let retry_after = |limit, cost| moving.retry_after(size, &reading, hits(limit), hits(cost));
        assert_eq!(retry_after(4, 1), Some(0));
        assert_eq!(retry_after(3, 1), Some(250));
        assert_eq!(retry_after(3, 0), Some(250));
        assert_eq!(retry_after(3, 4), None);
        assert_eq!(retry_after(0, 0), None);
    }

    #[test]
    fn enough_hits_must_leave_before_one_is_admitted() {
        let size = WindowSize::from_millis(1000).unwrap();
        for (count, limit, cost) in
            [(3, 3, 1), (3, 4, 1), (9, 3, 2), (5, 5, 0), (4, 5, 0), (1, 2, 3)]
        {
            let count = MovingCount { hits: hits(count), ..MovingCount::default() };
            let admits = |left: Hits| {
                let reading = MovingCount { hits: count.hits.minus(left), ..count };
                let reading = reading.into();
                Algorithm::Moving.admits(size, &reading, hits(limit), hits(cost))
            };
            let least = Hits::from_thousandths(1);
            match count.excess(hits(limit), hits(cost)) {
                Some(excess) => assert!(admits(excess) && !admits(excess.minus(least))),
                None => assert!(admits(Hits::ZERO) || !admits(count.hits)),
            }
        }
        for (now, wait) in [(5_000, 1001), (4_999, 1001), (5_400, 601), (6_001, 0), (9_000, 0)] {
            let at = UnixMillis(5_000);
            assert_eq!(MovingCount::time_until_left(size, at, UnixMillis(now)), wait);
        }
    }

    #[test]
    fn memory_grows_with_the_limit() {
        for (limit, within, above) in [
            (500, 1000, 1),
            (1000, 1000, 1),
            (60_500, 60_500, 60),
            (7_000_000, 100_000, 7000),
            (100_000_000, 100_000, 100_000),
            (Hits::MAX.thousandths(), 100_000, 100_000),
        ] {
            let limit = Hits::from_thousandths(limit);
            let full = limit.clamp(Hits::ONE, MovingCount::MAX_LIMIT);
            let more = full.plus(Hits::from_thousandths(1));
            let most = |hits| MovingCount::most_entries(limit, hits);
            assert_eq!((most(full), most(more)), (within, above));
        }
    }

    #[test]
    fn a_limit_is_at_most_the_entries_that_memory_is_kept_for() {
        let size = WindowSize::from_millis(1000).unwrap();
        let count =
            |whole| Reading::from(MovingCount { hits: hits(whole), ..MovingCount::default() });
        let admits = |whole| Algorithm::Moving.admits(size, &count(whole), Hits::MAX, Hits::ONE);
        assert!(admits(99_999) && !admits(100_000));
    }
}
