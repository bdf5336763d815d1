//! A datastore's state of a counter, and its change by questions, for deciders that compute here.

use super::stored_log::StoredLog;
use crate::policy::algorithm::{Level, LevelKind, Reading, StoredKind, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};
use crate::store::contract::decision::{AskedCounter, Few, Question};

/// The stored state of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredCount {
    /// Thousandths in the current and the previous window, which may exceed the range of hits.
    Windows { current: i64, previous: i64 },
    /// A level, and the time of its last change.
    Level(Level),
    /// The hits of the last `size`, with their times.
    Log(StoredLog),
}

/// Returns whether each limit of a question admits it. `counts` has the state of its counters at
/// the indexes `slots`.
pub(crate) fn admitted(
    question: &Question,
    slots: &[usize],
    counts: &[StoredCount],
    now: UnixMillis,
) -> Few<bool> {
    let admits = question.limits.iter().map(|limit| {
        let (counter, slot) = (question.counters.get(limit.counter), slots.get(limit.counter));
        let count = slot.and_then(|slot| counts.get(*slot));
        // A limit without a counter admits nothing.
        counter.zip(count).is_some_and(|(counter, count)| {
            if let (StoredCount::Windows { current, .. }, true) = (count, question.is_repair()) {
                return *current <= limit.hits.thousandths();
            }
            let reading = count.at_least_zero().reading(counter, now);
            let (size, hits, cost) = (counter.size, limit.hits, limit.cost);
            limit.algorithm.admits(size, &reading, hits, cost)
        })
    });
    admits.collect()
}

impl StoredCount {
    /// Returns the state of a counter that the store does not have.
    pub(crate) fn none(kind: StoredKind) -> StoredCount {
        match kind {
            // No store is asked about holds.
            StoredKind::Windows | StoredKind::Holds => StoredCount::windows(0, 0),
            StoredKind::Level(_) => StoredCount::Level(Level::default()),
            StoredKind::Log => StoredCount::Log(StoredLog::default()),
        }
    }

    /// Creates the state of windows, in thousandths.
    pub(crate) fn windows(current: i64, previous: i64) -> StoredCount {
        StoredCount::Windows { current, previous }
    }

    /// Creates the state of a level: thousandths, and in milliseconds of Unix time its last change
    /// and its beginning, which a bucket ignores.
    pub(crate) fn level(hits: i64, at: i64, first: i64) -> StoredCount {
        StoredCount::Level(Level {
            hits: Hits::from_thousandths(hits).max(Hits::ZERO),
            at: millis(at),
            mark: UnixSeconds::of(millis(first)),
        })
    }

    /// Creates the state of a log: the thousandths in the window that ends now, and the time of the
    /// oldest hit in milliseconds of Unix time.
    pub(crate) fn log(hits: i64, oldest: i64) -> StoredCount {
        StoredCount::Log(StoredLog::new(Hits::from_thousandths(hits), millis(oldest)))
    }

    /// Returns the state that limits read, in which negative windows count as zero. They can be
    /// negative if the store has lost hits that were given back.
    fn at_least_zero(self) -> StoredCount {
        match self {
            StoredCount::Windows { current, previous } => {
                StoredCount::windows(current.max(0), previous.max(0))
            }
            StoredCount::Level(_) | StoredCount::Log(_) => self,
        }
    }

    /// Applies a question that was decided at `now` to its counter with this index.
    pub(crate) fn ask(
        &mut self,
        question: &Question,
        counter: usize,
        is_charged: bool,
        now: UnixMillis,
    ) {
        let Some(asked) = question.counters.get(counter) else {
            return;
        };
        let charge = if is_charged { asked.cost } else { Hits::ZERO };
        match self {
            StoredCount::Windows { current, .. } => {
                let thousandths = charge.thousandths();
                let sum = current.saturating_add(thousandths);
                *current = match thousandths {
                    _ if question.is_repair() => sum,
                    0 => *current,
                    1.. => sum.max(thousandths),
                    // A refund makes no count negative.
                    _ => sum.max(0).min(*current),
                };
            }
            StoredCount::Level(level) => {
                let most = question.filled_to(counter);
                *level = after_question(asked, *level, (charge, most), now);
            }
            StoredCount::Log(log) => log.charge(charge, now),
        }
    }

    /// Returns how many thousandths of the store's hits, from the oldest on, must leave a log until
    /// there is room for one more hit under the question's moving limits of this counter. The store
    /// finds the hit with which they have left, and its time is passed to
    /// [`StoredCount::record_obstacle`].
    ///
    /// `None` if there is room, if there never will be, or if the obstacle was counted just now;
    /// also for other states.
    pub(crate) fn obstacle(&mut self, question: &Question, counter: usize) -> Option<i64> {
        let StoredCount::Log(log) = self else {
            return None;
        };
        let asked = question.counters.get(counter)?;
        let limits = question.limits.iter();
        let excess = limits
            .filter(|limit| limit.counter == counter)
            .filter_map(|limit| log.excess(limit))
            .max();
        log.obstacle(asked.size, excess?)
    }

    /// Records that the obstacle was counted at `at`, in milliseconds of Unix time.
    pub(crate) fn record_obstacle(&mut self, size: WindowSize, at: i64, now: UnixMillis) {
        if let StoredCount::Log(log) = self {
            log.record_obstacle(size, millis(at), now);
        }
    }

    /// Returns the thousandths to add to `before` in the current window; zero if the state is
    /// replaced instead.
    pub(crate) fn charged_since(&self, before: &StoredCount) -> i64 {
        match (self, before) {
            (
                StoredCount::Windows { current, .. },
                StoredCount::Windows { current: before, .. },
            ) => current.saturating_sub(*before),
            _ => 0,
        }
    }

    /// Returns the reading of `asked` at `now`.
    pub(crate) fn reading(&self, asked: &AskedCounter, now: UnixMillis) -> Reading {
        let size = asked.size;
        match *self {
            StoredCount::Windows { current, previous } => {
                let [current, previous] = [current, previous].map(Hits::from_thousandths);
                WindowCounts::of(size.at(now), current, previous).into()
            }
            StoredCount::Level(level) => level_kind(asked).reading(size, level, now),
            StoredCount::Log(log) => log.count(now).into(),
        }
    }
}

fn millis(millis: i64) -> UnixMillis {
    UnixMillis(u64::try_from(millis).unwrap_or_default())
}

/// Returns the kind of a level.
fn level_kind(asked: &AskedCounter) -> LevelKind {
    match asked.kind {
        StoredKind::Level(kind) => kind,
        // Does not occur, since the stored state has the kind of the question.
        StoredKind::Windows | StoredKind::Log | StoredKind::Holds => LevelKind::Elastic,
    }
}

/// Returns the level after a question that was decided at `now`. It charges `charge`, but fills a
/// bucket only to `most`, if that is known.
fn after_question(
    asked: &AskedCounter,
    level: Level,
    (charge, most): (Hits, Option<Hits>),
    now: UnixMillis,
) -> Level {
    let (kind, size) = (level_kind(asked), asked.size);
    if asked.cost > Hits::ZERO {
        let read = kind.reading(size, level, now);
        let charge = most.map_or(charge, |most| kind.filling(&read, most, charge));
        return kind.after_hit_on(size, level, read, now, charge).0;
    }
    Level { hits: level.hits.plus(charge).max(Hits::ZERO), ..level }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::policy::algorithm::{Algorithm, MovingCount};
    use crate::policy::hits::hits;
    use crate::store::contract::decision::AskedLimit;
    use crate::store::contract::strategy::Shard;

    const NOW: UnixMillis = UnixMillis(50_000);

    fn question(kind: StoredKind, limits: &[(Algorithm, i64)]) -> Question {
        let shard = Shard { namespace: "api".into(), number: 0 };
        let counter = AskedCounter {
            shard,
            key: b"k"[..].into(),
            kind,
            size: WindowSize::from_millis(1000).unwrap(),
            cost: Hits::ONE,
        };
        let limits = limits.iter().map(|(algorithm, most)| AskedLimit {
            counter: 0,
            algorithm: *algorithm,
            hits: hits(*most),
            cost: Hits::ONE,
        });
        Question { counters: smallvec![counter], limits: limits.collect(), counts_rejected: false }
    }

    #[test]
    fn a_bucket_leaks_at_the_rate_that_is_asked_for() {
        for (rate, left) in [(1, 4500), (2, 4000), (100, 1000)] {
            let question = question(StoredKind::Level(LevelKind::Bucket(hits(rate))), &[]);
            let [asked] = &question.counters[..] else { unreachable!() };
            let mut count = StoredCount::level(4000, 49_500, 0);
            count.ask(&question, 0, true, NOW);
            let hits = Algorithm::Bucket.rate(asked.size, &count.reading(asked, NOW));
            assert_eq!(hits.thousandths(), left);
        }
    }

    #[test]
    fn a_log_is_in_the_way_of_its_strictest_limit() {
        let log = StoredKind::Log;
        for (limits, obstacle) in [
            (&[(Algorithm::Moving, 5)][..], None),
            (&[(Algorithm::Moving, 4), (Algorithm::Moving, 3)], Some(2000)),
            (&[(Algorithm::Moving, 1)], None),
        ] {
            let question = question(log, limits);
            let [asked] = &question.counters[..] else { unreachable!() };
            let mut count = StoredCount::log(3000, 49_400);
            count.ask(&question, 0, true, NOW);
            assert_eq!(count.obstacle(&question, 0), obstacle);
            if obstacle.is_some() {
                count.record_obstacle(asked.size, 49_600, NOW);
            }
            let read = MovingCount::from(count.reading(asked, NOW));
            assert_eq!((read.hits, read.age), (hits(4), 600));
            let wait = match (limits, obstacle) {
                (_, Some(_)) => 601,
                ([(_, 1)], None) => 1001,
                _ => 0,
            };
            assert_eq!(read.wait, wait);
        }
    }
}
