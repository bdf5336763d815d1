//! Tests elastic windows against their definition.

use proptest::prelude::*;

use crate::policy::algorithm::{Algorithm, ElasticCount, LevelKind, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::slots::admission::Receipt;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;
const LIMIT: i64 = 3;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
    pub(super) clock: TestClock,
}

impl Fixture {
    fn new() -> Fixture {
        let shared = SharedTable::new(1 << 18);
        let kind = StoredKind::Level(LevelKind::Elastic);
        Fixture {
            counter: shared.table.counter_in(b"default", kind, SIZE),
            shared,
            clock: TestClock::at(T),
        }
    }

    fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        self.shared.table.key(key)
    }

    fn at(&self, at: u64) -> &TestClock {
        self.clock.set(at);
        &self.clock
    }

    fn add(&self, key: &[u8], at: u64, admission: Admission) -> Counted<'_> {
        let (table, key) = (&self.shared.table, self.key(key));
        table.add(&self.counter, key, self.at(at), Hits::ONE, admission)
    }

    fn request(&self, key: &[u8], at: u64) -> Counted<'_> {
        self.add(key, at, within(LIMIT))
    }

    fn hits(&self, key: &[u8], at: u64) -> i64 {
        elastic(self.shared.table.read(&self.counter, self.key(key), self.at(at))).hits.whole()
    }
}

fn within(limit: i64) -> Admission {
    Admission::Within(Hits::from_thousandths(limit * 1000), Algorithm::Elastic)
}

fn elastic(reading: Reading) -> ElasticCount {
    reading.into()
}

#[test]
fn a_window_begins_with_a_hit_and_each_hit_extends_it() {
    let fixture = Fixture::new();
    for (at, admitted, hits) in [
        (T + 1, true, 1),
        (T + 999, true, 2),
        (T + 1998, true, 3),
        // Rejected hits extend the window, too.
        (T + 2997, false, 3),
        (T + 3996, false, 3),
        (T + 4996, true, 1),
    ] {
        let counted = fixture.request(b"a", at);
        assert_eq!((counted.admitted, elastic(counted.reading).hits.whole()), (admitted, hits));
        let first = if at < T + 4996 { T } else { T + 4000 };
        assert_eq!(elastic(counted.reading).first, UnixMillis(first), "whole seconds");
    }
    assert_eq!(fixture.hits(b"a", T + 5995), 1);
    assert_eq!(fixture.hits(b"a", T + 5996), 0);
    assert_eq!(fixture.hits(b"b", T), 0);
}

#[test]
fn a_hit_that_another_limit_refused_extends_and_does_not_count() {
    let fixture = Fixture::new();
    let refuse = |at| {
        let (table, key) = (&fixture.shared.table, fixture.key(b"a"));
        let (limit, cost) = (Hits::from_thousandths(LIMIT * 1000), Hits::ONE);
        let asked = AskedHit { limit, cost };
        elastic(table.refuse(&fixture.counter, key, asked, fixture.at(at))).hits.whole()
    };
    fixture.request(b"a", T);
    assert_eq!((refuse(T + 900), refuse(T + 1800)), (1, 1));
    assert_eq!((fixture.hits(b"a", T + 2799), refuse(T + 2800)), (1, 0));
}

#[test]
fn hits_are_given_back_to_the_window_that_they_were_counted_in() {
    let fixture = Fixture::new();
    let (table, counter) = (&fixture.shared.table, &fixture.counter);
    let receipts = [T, T + 500].map(|at| fixture.request(b"a", at).receipt.unwrap());
    assert!(table.refund(counter, &receipts[0]));
    assert_eq!(fixture.hits(b"a", T + 1499), 1);
    // The window has ended, and another one has begun.
    fixture.request(b"a", T + 1500);
    assert!(!table.refund(counter, &receipts[1]));
    assert_eq!(fixture.hits(b"a", T + 1500), 1);
}

#[test]
fn a_clock_that_is_set_back_blocks_nobody_for_longer_than_a_window() {
    let fixture = Fixture::new();
    (0..LIMIT).for_each(|_| assert!(fixture.request(b"a", T + 3_600_000).admitted));
    let blocked = fixture.request(b"a", T);
    assert!(!blocked.admitted && elastic(blocked.reading).idle == 0);
    assert!(fixture.request(b"a", T + SIZE).admitted);
}

#[test]
fn dying_while_changing_loses_at_most_the_hit() {
    let points = ["level.changed", "level.prepared", "touch.dated"];
    die_everywhere(
        || {
            let fixture = Fixture::new();
            fixture.request(b"a", T);
            fixture
        },
        |fixture| {
            fixture.request(b"a", T + 900);
        },
        &points,
        |fixture, point| {
            let counted = i64::from(point != "level.prepared");
            assert_eq!(fixture.hits(b"a", T + 950), 1 + counted);
            // A prepared time does not extend the window.
            assert_eq!(fixture.hits(b"a", T + 1000), 2 * counted);
            let later = fixture.request(b"a", T + 950);
            assert_eq!(elastic(later.reading).hits.whole(), 2 + counted);
            assert_eq!(fixture.hits(b"a", T + 1949), 2 + counted);
            assert_eq!(fixture.hits(b"a", T + 1950), 0);
        },
    );
}

#[test]
fn workers_never_admit_one_too_many() {
    const WORKERS: usize = 4;
    const REQUESTS: usize = 20_000;
    let fixture = Fixture::new();
    let table = &fixture.shared.table;
    let limit = 10_000;
    let admitted: usize = std::thread::scope(|scope| {
        let worker = |n: usize| {
            let counter = &fixture.counter;
            move || {
                let clock = TestClock::at(T);
                let ask = |request: usize| {
                    // All clocks advance, but the window does not end.
                    clock.set(T + ((request + n) / 64) as u64);
                    let key = table.key(b"a");
                    table.add(counter, key, &clock, Hits::ONE, within(limit)).admitted
                };
                (0..REQUESTS).filter(|request| ask(*request)).count()
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(worker(n))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, limit as usize);
    assert_eq!(fixture.hits(b"a", T + 300), limit);
}

/// A key's elastic window by its definition.
#[derive(Clone, Copy, Default)]
struct Model {
    hits: i64,
    last: Option<u64>,
}

impl Model {
    fn hits(&self, now: u64) -> i64 {
        let is_live = self.last.is_some_and(|last| now < last + SIZE);
        if is_live { self.hits } else { 0 }
    }

    fn hit(&mut self, now: u64, cost: i64, limit: Option<i64>) -> bool {
        let hits = self.hits(now);
        let admitted = limit.is_none_or(|limit| hits + cost <= limit);
        self.hits = if admitted { hits + cost } else { hits };
        self.last = Some(now);
        admitted
    }
}

/// Checks the words that a process leaves if it is stopped between reading a time and replacing it,
/// until the slot has another occupant with the same word.
#[test]
fn a_counter_whose_words_are_no_state_begins_anew() {
    let fixture = Fixture::new();
    let table = &fixture.shared.table;
    let spoil = |receipt: &Receipt<'_>| {
        let slot = table.slot_at(table.index_of(receipt.column)).unwrap();
        for time in &slot.remote {
            time.fetch_xor(0x5555, Relaxed);
        }
    };
    for at in [T, T + 1, T + 2] {
        let counted = fixture.request(b"k", at);
        spoil(&counted.receipt.unwrap());
        let counted = fixture.request(b"k", at);
        assert_eq!(elastic(counted.reading).hits, Hits::ONE);
        let receipt = counted.receipt.unwrap();
        spoil(&receipt);
        table.refund(&fixture.counter, &receipt);
        assert_eq!(fixture.hits(b"k", at), 0);
    }
}

proptest! {
    #[test]
    fn the_table_counts_as_the_model_does(
        requests in prop::collection::vec(
            (0..3_u8, 0..1500_u64, 1..4000_i64, prop::option::of(0..9000_i64)),
            1..200,
        ),
    ) {
        let fixture = Fixture::new();
        let (table, counter) = (&fixture.shared.table, &fixture.counter);
        let mut models = [Model::default(); 3];
        let mut now = T;
        for (key, passed, cost, limit) in requests {
            // Half of the requests arrive in the same millisecond as the previous one.
            now += passed.saturating_sub(750);
            let model = &mut models[usize::from(key)];
            let admission = limit.map_or(Admission::Unconditional, |limit| {
                Admission::Within(Hits::from_thousandths(limit), Algorithm::Elastic)
            });
            let (name, cost) = ([key], Hits::from_thousandths(cost));
            let counted = table.add(counter, fixture.key(&name), fixture.at(now), cost, admission);
            prop_assert_eq!(counted.admitted, model.hit(now, cost.thousandths(), limit));
            let hits = elastic(counted.reading).hits.thousandths();
            prop_assert_eq!(hits, model.hits(now));
        }
    }
}
