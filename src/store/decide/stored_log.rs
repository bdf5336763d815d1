//! A datastore's state of a log: the hits are in the store, and this side has their sums.

use crate::policy::algorithm::{Algorithm, MovingCount};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::AskedLimit;

/// The log of a counter during questions that are decided at one moment.
///
/// Their charges have the time of that moment, and are thus newer than all stored hits; their
/// refunds remove the newest hits. So after the decisions, a store needs only two numbers: how many
/// of its hits it keeps, from the oldest on, and how many are added at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredLog {
    hits: Hits,
    kept: Hits,
    oldest: UnixMillis,
    wait: u64,
}

impl StoredLog {
    /// Creates the state with `hits` in the window that ends now, of which the oldest was counted
    /// at `oldest`.
    pub(super) fn new(hits: Hits, oldest: UnixMillis) -> StoredLog {
        let hits = hits.clamp(Hits::ZERO, MovingCount::MOST);
        StoredLog { hits, kept: hits, oldest, wait: 0 }
    }

    /// Returns the stored hits that the store keeps in the window.
    pub(crate) fn kept(&self) -> Hits {
        self.kept
    }

    /// Returns the hits to add at the moment of the questions.
    pub(crate) fn added(&self) -> Hits {
        self.hits.minus(self.kept)
    }

    /// Adds hits at `now`, or removes the newest ones.
    pub(super) fn charge(&mut self, charge: Hits, now: UnixMillis) {
        self.hits = self.hits.plus(charge).clamp(Hits::ZERO, MovingCount::MOST);
        self.kept = self.kept.min(self.hits);
        if self.kept == Hits::ZERO {
            self.oldest = now;
        }
        self.wait = 0;
    }

    /// Returns the hits that must leave until a limit has room for one more hit.
    pub(super) fn excess(&self, limit: &AskedLimit) -> Option<Hits> {
        let count = MovingCount { hits: self.hits, ..MovingCount::default() };
        let is_moving = limit.algorithm == Algorithm::Moving;
        let excess = is_moving.then(|| count.excess(limit.hits, limit.cost));
        excess.flatten()
    }

    /// Records that `excess` hits must leave. Returns them in thousandths if the store must find
    /// the time.
    pub(super) fn obstacle(&mut self, size: WindowSize, excess: Hits) -> Option<i64> {
        if excess <= self.kept {
            return Some(excess.thousandths());
        }
        // They were counted at this moment.
        self.wait = size.millis().saturating_add(1);
        None
    }

    /// Records that the obstacle was counted at `at`.
    pub(super) fn record_obstacle(&mut self, size: WindowSize, at: UnixMillis, now: UnixMillis) {
        self.wait = MovingCount::time_until_left(size, at, now);
    }

    /// Returns the reading of the log.
    pub(super) fn count(&self, now: UnixMillis) -> MovingCount {
        let oldest = match self.hits {
            Hits::ZERO => now,
            _ => self.oldest.min(now),
        };
        MovingCount {
            hits: self.hits,
            oldest,
            age: now.0.saturating_sub(oldest.0),
            wait: self.wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hits::hits;

    const SIZE: WindowSize = WindowSize::from_millis(1000).unwrap();
    const NOW: UnixMillis = UnixMillis(50_000);

    fn limit(limit: i64, cost: i64) -> AskedLimit {
        AskedLimit { counter: 0, algorithm: Algorithm::Moving, hits: hits(limit), cost: hits(cost) }
    }

    #[test]
    fn charged_hits_are_newer_than_stored_ones() {
        let mut log = StoredLog::new(hits(3), UnixMillis(49_500));
        for (charge, kept, added) in
            [(2, 3, 2), (-1, 3, 1), (-2, 2, 0), (4, 2, 4), (-9, 0, 0), (1, 0, 1)]
        {
            log.charge(hits(charge), NOW);
            assert_eq!((log.kept(), log.added()), (hits(kept), hits(added)));
            let count = log.count(NOW);
            assert_eq!(count.age, if kept > 0 { 500 } else { 0 });
            assert_eq!((count.hits, count.wait), (hits(kept + added), 0));
        }
        log.charge(Hits::MAX, NOW);
        assert_eq!(log.count(NOW).hits, MovingCount::MOST);
    }

    #[test]
    fn the_store_is_asked_for_the_hit_that_is_in_the_way_if_it_has_it() {
        let mut log = StoredLog::new(hits(3), UnixMillis(49_500));
        log.charge(hits(2), NOW);
        assert_eq!(log.excess(&limit(6, 1)), None);
        for (most, cost, excess) in [(5, 1, 1), (3, 1, 3), (1, 0, 4), (1, 1, 5)] {
            let cost_is_zero = Hits::from_thousandths(i64::from(cost == 0));
            let needed = log.excess(&limit(most, cost)).unwrap();
            assert_eq!(needed.minus(cost_is_zero), hits(excess));
            let obstacle = log.obstacle(SIZE, needed);
            match excess <= 3 {
                true => {
                    assert_eq!(obstacle, Some(excess * 1000));
                    log.record_obstacle(SIZE, UnixMillis(49_700), NOW);
                    assert_eq!(log.count(NOW).wait, 701);
                }
                false => assert_eq!((obstacle, log.count(NOW).wait), (None, 1001)),
            }
        }
    }
}
