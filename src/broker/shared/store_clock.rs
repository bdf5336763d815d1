//! A store's clock, as a word of shared memory, for the time between exchanges.
//!
//! The word is the difference to the machine's monotonic clock, which is never set. The broker
//! computes it from each answer. An answer takes some time to arrive, so the computed time is
//! slightly early, never late. Of the answers of some seconds, the fastest is the most precise.

use core::time::Duration;

use crate::policy::window::UnixMillis;
use crate::table::MonotonicMillis;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::Relaxed;

/// The clock of a decider's store.
#[derive(Clone, Copy, Debug)]
pub struct StoreClock<'m> {
    /// Difference to the monotonic clock in milliseconds; 0 if unknown.
    offset: &'m AtomicU64,
}

impl<'m> StoreClock<'m> {
    /// Returns the clock in this word, which must be zero at first.
    pub fn over(offset: &'m AtomicU64) -> StoreClock<'m> {
        StoreClock { offset }
    }

    /// Returns the store's time at `now`; `None` while it is unknown.
    pub fn at(self, now: MonotonicMillis) -> Option<UnixMillis> {
        // Relaxed, as in all methods: the word orders no other memory.
        match self.offset.load(Relaxed) {
            0 => None,
            offset => Some(UnixMillis(now.0.wrapping_add(offset))),
        }
    }

    /// Sets the difference.
    pub fn set(self, offset: u64) {
        // Only written if it changes, since all workers read it all the time.
        if self.offset.load(Relaxed) != offset {
            self.offset.store(offset, Relaxed);
        }
    }
}

/// The broker's estimate of a store's clock.
#[derive(Debug, Default)]
pub(crate) struct LearnedClock {
    /// The largest difference since `since`, and in the period before that.
    largest: Option<u64>,
    before: Option<u64>,
    since: Duration,
}

impl LearnedClock {
    /// Shortest time for which an answer is used. Clocks run at slightly different speeds.
    const MEMORY: Duration = Duration::from_secs(5);
    /// Difference between two answers, in milliseconds, which shows that a clock was set, or that
    /// another store answers.
    const STEP: u64 = 500;

    /// Updates the estimate: the store's time was `store` just before `now`. Returns the
    /// difference.
    pub(crate) fn learn(&mut self, store: UnixMillis, now: Duration) -> u64 {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let offset = store.0.saturating_sub(millis);
        let is_set = |known: Option<u64>| known.is_some_and(|it| it.abs_diff(offset) > Self::STEP);
        if is_set(self.largest) || is_set(self.before) {
            (self.largest, self.before) = (None, None);
        }
        if now.saturating_sub(self.since) > Self::MEMORY {
            (self.before, self.since) = (self.largest.take(), now);
        }
        self.largest = self.largest.max(Some(offset));
        self.largest.max(self.before).unwrap_or(offset)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_continues_while_the_store_is_not_asked() {
        let word = AtomicU64::new(0);
        let clock = StoreClock::over(&word);
        assert_eq!(clock.at(MonotonicMillis(5)), None);
        clock.set(1000);
        assert_eq!(clock.at(MonotonicMillis(5)), Some(UnixMillis(1005)));
    }

    #[test]
    fn the_fastest_answer_counts_most() {
        let mut learned = LearnedClock::default();
        let mut learn = |at: u64, store: u64| {
            learned.learn(UnixMillis(1_000_000 + store), Duration::from_millis(at))
        };
        // (time, the store's time, the difference)
        for (at, store, offset) in [
            (100, 100, 0),
            (200, 195, 0),
            (300, 302, 2),
            (6000, 5990, 2),
            // The fast answer is not used any more.
            (11_100, 11_090, 0),
            (11_200, 11_195, 0),
            (17_000, 16_990, 0),
        ] {
            let learned = learn(at, store);
            assert!(learned >= 1_000_000 + store - at, "{at}");
            if at < 10_000 {
                assert_eq!(learned, 1_000_000 + offset, "{at}");
            }
        }
        // A clock was set.
        assert_eq!(learn(17_100, 27_000), 1_009_900);
        assert_eq!(learn(17_200, 17_190), 999_990);
    }
}
