//! A datastore's state of a log: its hits are in the store, and their sums here.

use crate::policy::algorithm::{Algorithm, MovingCount};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::AskedLimit;

/// The log of a counter, as questions that are decided at one moment find it and change it.
///
/// What they charge is of that moment, and so newer than all that the store has; what they give back is of
/// the newest hits. So a store is to write two numbers, when all are decided: how much it keeps of what it
/// had, from the oldest hit on, and how much is added at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredLog {
    hits: Hits,
    kept: Hits,
    oldest: UnixMillis,
    wait: u64,
}

impl StoredLog {
    /// Creates the state of so many hits in the window that ends now, the oldest of them counted at
    /// this moment.
    pub(super) fn new(hits: Hits, oldest: UnixMillis) -> StoredLog {
        let hits = hits.clamp(Hits::ZERO, MovingCount::MOST);
        StoredLog { hits, kept: hits, oldest, wait: 0 }
    }

    /// Returns the stored hits in the window that the store keeps.
    pub(crate) fn kept(&self) -> Hits {
        self.kept
    }

    /// Returns the hits to be added at the moment of the questions.
    pub(crate) fn added(&self) -> Hits {
        self.hits.minus(self.kept)
    }

    /// Adds hits at `now`, or takes the newest away.
    pub(super) fn charge(&mut self, charge: Hits, now: UnixMillis) {
        self.hits = self.hits.plus(charge).clamp(Hits::ZERO, MovingCount::MOST);
        self.kept = self.kept.min(self.hits);
        if self.kept == Hits::ZERO {
            self.oldest = now;
        }
        self.wait = 0;
    }

    /// Returns the hits that have to leave until a limit has room for one more hit.
    pub(super) fn excess(&self, limit: &AskedLimit) -> Option<Hits> {
        let count = MovingCount { hits: self.hits, ..MovingCount::default() };
        let is_moving = limit.algorithm == Algorithm::Moving;
        let excess = is_moving.then(|| count.excess(limit.hits, limit.cost));
        excess.flatten()
    }

    /// Until so much has left, there is no room. Returns that in thousandths, if the store has to be asked
    /// when it will have left.
    pub(super) fn obstacle(&mut self, size: WindowSize, excess: Hits) -> Option<i64> {
        if excess <= self.kept {
            return Some(excess.thousandths());
        }
        // Of this moment.
        self.wait = size.millis().saturating_add(1);
        None
    }

    /// The hit in the way is of this moment.
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
    fn what_is_charged_is_newer_than_what_the_store_has() {
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
