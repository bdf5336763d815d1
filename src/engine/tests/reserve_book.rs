//! Parts of a limit that a worker asks for: the time, the size, and when it gives the rest back.

use core::time::Duration;
use std::sync::Arc;

use smallvec::smallvec;

use crate::engine::namespace::Namespace;
use crate::engine::request::bound_limit::BoundLimit;
use crate::engine::request::reserve_book::{PartQuestion, ReserveBook};
use crate::engine::request::spending::spend;
use crate::engine::request::synchronous::{Deciders, LimitCheck};
use crate::engine::sync::shard_sync::record_decided;
use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock as _, UnixMillis, WindowSize};
use crate::store::contract::decision::{Answer, Certainty, Few};
use crate::table::{Key, MonotonicMillis};
use crate::testing::table::{SharedTable, TestClock};

/// Start of a window.
const T: u64 = 1_700_000_040_000;
const MINUTE: u64 = 60_000;
const LIMIT: i64 = 100_000;

/// A worker, with a limit whose hits are reserved.
struct Worker<'m> {
    book: ReserveBook<'m>,
    bound: BoundLimit<'m>,
    key: Key<'m>,
    clock: TestClock,
    /// Milliseconds since T.
    passed: u64,
}

impl<'m> Worker<'m> {
    /// Creates worker 0 or 1 of two.
    fn new(shared: &'m SharedTable, namespace: &Namespace<'m>, number: u64) -> Worker<'m> {
        let limit = Limit {
            name: "limit".into(),
            size: WindowSize::from_millis(MINUTE).unwrap(),
            algorithm: Algorithm::Fixed,
            burst: Burst::default(),
            of_rule: None,
        };
        let worker = Worker {
            book: ReserveBook::new(number, 2),
            bound: BoundLimit::new(limit, namespace, []).reserving(namespace),
            key: shared.table.key(b"a"),
            clock: TestClock::at(T),
            passed: 0,
        };
        worker.note();
        worker
    }

    /// Records that the store was asked about a request of the key.
    fn note(&self) {
        let (table, window) = (self.bound.table(), self.clock.now().0 / MINUTE);
        let counter = &self.bound.counter;
        record_decided(table, counter, self.key, (window, Hits::ONE), None, &self.clock);
    }

    fn now(&self) -> (Duration, UnixMillis) {
        let now = Duration::from_secs(100) + Duration::from_millis(self.passed);
        (now, UnixMillis(T + self.passed))
    }

    fn wait(&mut self, millis: u64) {
        self.passed += millis;
        self.clock.set(T + self.passed);
    }

    fn check<'c>(
        bound: &'c BoundLimit<'m>,
        key: &'c Key<'m>,
        cost: i64,
    ) -> [LimitCheck<'c, 'm>; 1] {
        [LimitCheck {
            bound,
            hits: hits(LIMIT),
            key,
            cost: hits(cost),
            store: Some(Deciders { first: 0, shards: 1 }),
            trial: None,
        }]
    }

    /// Returns the question for a part with a request that must ask.
    fn ask_along(&mut self) -> Option<PartQuestion> {
        let (now, time) = self.now();
        let checks = Self::check(&self.bound, &self.key, 1);
        let asked = self.book.ask_along(&checks, |_| Some(time), now, &self.clock);
        one(asked)
    }

    /// Spends the cost of a request from the reserve. Returns the question for the next part.
    fn spend(&mut self, cost: i64) -> Option<PartQuestion> {
        let (now, time) = self.now();
        let checks = Self::check(&self.bound, &self.key, cost);
        let spending = spend(&checks, |_| Some(time)).expect("so much in reserve");
        let asked = self.book.ask_again(&checks, &spending, |_| Some(time), now, &self.clock);
        one(asked)
    }

    /// Returns the hits in reserve.
    fn left(&self) -> Hits {
        let (_, time) = self.now();
        let reserve = self.bound.reserve(self.key, hits(LIMIT)).unwrap();
        let window = reserve.size().at(time).number;
        let table = self.bound.table();
        table.reserved(&reserve, window, time).left()
    }

    /// Answers a question as a store with this number of hits, including the charge.
    fn answer(&mut self, asked: &PartQuestion, admitted: bool, counted: i64) {
        let (_, UnixMillis(time)) = self.now();
        let counts = WindowCounts {
            window: time / MINUTE,
            current: hits(counted),
            previous: Hits::ZERO,
            elapsed: time % MINUTE,
        };
        let answer = Answer {
            admitted: smallvec![admitted],
            readings: smallvec![Reading::from(counts)],
            certainty: Certainty::Settled,
        };
        self.book.take(asked.id, Some(&answer), &self.clock);
    }

    /// Checks the reserves. Returns the namespaces with hits that were given back.
    fn look(&mut self) -> Vec<Arc<str>> {
        let (now, time) = self.now();
        let mut given_back = Few::new();
        self.book.look(|_| Some(time), now, &self.clock, &mut given_back);
        given_back.into_iter().collect()
    }

    /// Returns the hits of the current window that the next push contains.
    fn unsent(&self) -> Hits {
        let (_, UnixMillis(time)) = self.now();
        let (table, counter) = (self.bound.table(), &self.bound.counter);
        table.unsent(counter, self.key, time / MINUTE, &self.clock)
    }
}

fn one(asked: Few<PartQuestion>) -> Option<PartQuestion> {
    assert!(asked.len() <= 1);
    asked.into_iter().next()
}

/// Returns the size of the part in a question.
fn part(asked: &PartQuestion) -> i64 {
    asked.question.counters[0].cost.whole()
}

fn with_worker(test: impl for<'m> FnOnce(Worker<'m>, &Namespace<'m>, &'m SharedTable)) {
    with_shards(1, |worker, namespace, shared| {
        sync(namespace, 0);
        test(worker, namespace, shared);
    });
}

/// Calls `test` with a store of this number of shards, of which none was synced.
fn with_shards(
    shards: u16,
    test: impl for<'m> FnOnce(Worker<'m>, &Namespace<'m>, &'m SharedTable),
) {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let namespace = namespace.synced(shards).unwrap();
    test(Worker::new(&shared, &namespace, 0), &namespace, &shared);
}

/// Records that a sync of a shard has succeeded.
fn sync(namespace: &Namespace<'_>, shard: usize) {
    let now = MonotonicMillis(1);
    let lease = namespace.sync_states()[shard].take_lease(now, 1000);
    lease.expect("the lease").record_synced(now);
}

/// Makes a worker get its first part.
fn granted(worker: &mut Worker<'_>) -> i64 {
    let asked = worker.ask_along().expect("a question");
    worker.answer(&asked, true, part(&asked));
    part(&asked)
}

#[test]
fn nothing_is_charged_ahead_before_all_shards_were_synced() {
    with_shards(2, |mut worker, namespace, _| {
        for shard in 0..2 {
            assert!(worker.ask_along().is_none(), "{shard}");
            sync(namespace, shard);
        }
        assert!(worker.ask_along().is_some());
    });
}

#[test]
fn parts_grow_until_they_last_for_about_a_second() {
    with_worker(|mut worker, _, _| {
        let first = granted(&mut worker);
        assert_eq!((first, worker.left()), (16, hits(16)));
        let mut counted = first;
        let (mut parts, mut can_wait) = (Vec::new(), Vec::new());
        // The time in which half of each part is spent.
        for lasts in [100, 249, 250, 500, 2000, 2001, 100] {
            worker.wait(lasts);
            let last = parts.last().copied().unwrap_or(first);
            let cost = worker.left().whole() - last / 2;
            assert!(worker.spend(cost - 1).is_none());
            let asked = worker.spend(1).expect("half of the part is used");
            parts.push(part(&asked));
            can_wait.push(asked.can_wait);
            counted += part(&asked);
            worker.answer(&asked, true, counted);
        }
        assert_eq!(parts, [32, 64, 128, 128, 128, 64, 128]);
        assert_eq!(can_wait, [false, false, true, true, true, true, false]);
    });
}

#[test]
fn a_part_that_is_asked_for_late_cannot_wait() {
    with_worker(|mut worker, _, _| {
        granted(&mut worker);
        worker.wait(1000);
        // Less than a quarter is left.
        let asked = worker.spend(13).expect("half of it is used");
        assert!(!asked.can_wait);
    });
}

#[test]
fn one_worker_asks_for_the_next_part() {
    with_worker(|mut worker, namespace, shared| {
        granted(&mut worker);
        let mut other = Worker::new(shared, namespace, 1);
        // It has not asked for any part so far.
        assert!(other.spend(9).is_none());
        // The first half was spent before.
        assert!(worker.spend(1).is_none());
        assert_eq!(worker.left(), hits(6));
    });
}

#[test]
fn a_part_is_not_asked_for_again_before_the_answer_is_lost() {
    with_worker(|mut worker, _, _| {
        let lost = worker.ask_along().expect("a question");
        worker.wait(1999);
        assert!(worker.ask_along().is_none(), "not used lately, and asked");
        worker.wait(1);
        worker.note();
        let asked = worker.ask_along().expect("another question");
        assert_eq!(asked.id, lost.id + 2);
        // The answer is late: the part does not count any more, but the store's count is recorded.
        worker.answer(&lost, true, 16);
        assert_eq!(worker.left(), Hits::ZERO);
        worker.answer(&asked, true, 32);
        assert_eq!(worker.left(), hits(part(&asked)));
    });
}

#[test]
fn a_part_that_was_refused_is_not_there() {
    with_worker(|mut worker, _, _| {
        let asked = worker.ask_along().expect("a question");
        worker.answer(&asked, false, LIMIT);
        assert_eq!(worker.left(), Hits::ZERO);
        // The limit is used up, as is known now.
        assert!(worker.ask_along().is_none());
    });
}

#[test]
fn a_store_that_failed_is_asked_by_the_next_request() {
    with_worker(|mut worker, _, _| {
        let asked = worker.ask_along().expect("a question");
        worker.book.take(asked.id, None, &worker.clock);
        assert!(worker.ask_along().is_some());
    });
}

#[test]
fn unspent_hits_are_given_back() {
    with_worker(|mut worker, _, _| {
        granted(&mut worker);
        worker.spend(3);
        let mut given_back = Vec::new();
        for _ in 0..4 {
            worker.wait(200);
            given_back.push(worker.look().len());
        }
        // First the spending is seen, and then twice that nothing more was spent.
        assert_eq!(given_back, [0, 0, 1, 0]);
        assert_eq!((worker.left(), worker.unsent()), (Hits::ZERO, hits(-13)));
        assert!(worker.book.is_empty());
    });
}

#[test]
fn the_reserve_of_an_ended_window_is_given_back() {
    with_worker(|mut worker, _, _| {
        worker.wait(MINUTE - 100);
        worker.note();
        granted(&mut worker);
        assert_eq!(worker.left(), hits(16));
        worker.wait(200);
        let _ = worker.look();
        let (table, counter) = (worker.bound.table(), &worker.bound.counter);
        let unsent = table.unsent(counter, worker.key, T / MINUTE, &worker.clock);
        assert_eq!(unsent, hits(-16));
        assert!(!worker.book.is_empty());
    });
}

#[test]
fn a_worker_that_ends_gives_all_back() {
    with_worker(|mut worker, _, _| {
        granted(&mut worker);
        worker.spend(1);
        let (_, time) = worker.now();
        worker.book.give_all_back(|_| Some(time), &worker.clock);
        assert!(worker.book.is_empty());
        assert_eq!((worker.left(), worker.unsent()), (Hits::ZERO, hits(-15)));
    });
}
