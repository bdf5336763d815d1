//! Reserves: alone, with concurrent spenders, and after a process's death.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::zone::lease::HELD;
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere};

const SIZE: u64 = 1000;
const WINDOW: u64 = 1_700_000_000;
const T: u64 = WINDOW * SIZE;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
    reserves: Counter,
}

impl Fixture {
    fn new() -> Fixture {
        let shared = SharedTable::new(1 << 20);
        let namespace = shared.table.namespace(b"api").unwrap();
        let size = WindowSize::from_millis(SIZE).unwrap();
        Fixture {
            counter: shared.table.counter(namespace, b"api", size).synced(true),
            reserves: shared.table.reserves(namespace, b"api", size),
            shared,
        }
    }

    fn key(&self) -> Key<'static> {
        self.shared.table.key(b"k")
    }

    fn reserve(&self) -> Reserve {
        let table = &self.shared.table;
        table.reserve(&self.reserves, self.key(), hits(1000), Algorithm::Fixed)
    }

    fn grant(&self, value: i64, window: u64) -> bool {
        let (table, clock) = (&self.shared.table, TestClock::at(T));
        table.grant(&self.reserve(), hits(value), window, &clock)
    }

    fn spend(&self, cost: i64, at: u64) -> Option<Spent<'_>> {
        let table = &self.shared.table;
        table.spend(&self.reserve(), hits(cost), UnixMillis(at))
    }

    fn left(&self, window: u64) -> i64 {
        let table = &self.shared.table;
        let reserved = table.reserved(&self.reserve(), window, UnixMillis(T));
        reserved.left().whole()
    }

    fn drain(&self, window: u64) -> i64 {
        let table = &self.shared.table;
        table.drain(&self.reserve(), window, UnixMillis(T)).whole()
    }

    fn give_back(&self, value: i64, window: u64) -> bool {
        let (table, clock) = (&self.shared.table, TestClock::at(T));
        table.give_back(&self.counter, self.key(), window, hits(value), &clock)
    }

    /// Returns the differences that a sync would push, by window.
    fn diffs(&self) -> Vec<(u64, i64)> {
        let (table, mut diffs) = (&self.shared.table, Vec::new());
        let namespace = self.counter.namespace();
        for group in 0..table.change_groups() {
            table.take_changes(group, namespace, UnixMillis(T), |change| {
                assert_eq!(change.key, b"k");
                diffs.extend(change.windows.iter().map(|window| {
                    let diff = window.local.minus(window.pushed);
                    (window.number, diff.whole())
                }));
                table.record_again(change.counter);
            });
        }
        diffs
    }
}

#[test]
fn granted_hits_are_spent_in_their_window() {
    let fixture = Fixture::new();
    assert!(fixture.spend(1, T).is_none());
    assert!(fixture.grant(3, WINDOW));
    assert_eq!(fixture.spend(0, T).unwrap().left, hits(3));
    assert_eq!(fixture.spend(2, T + SIZE - 1).unwrap().left, hits(1));
    assert!(fixture.spend(2, T).is_none());
    assert!(fixture.grant(4, WINDOW));
    assert_eq!(fixture.left(WINDOW), 5);
    for at in [T - 1, T - SIZE, T + SIZE, T + 2 * SIZE, T + 100 * SIZE] {
        assert!(fixture.spend(0, at).is_none(), "{at}");
    }
    assert_eq!(fixture.spend(5, T).unwrap().left, Hits::ZERO);
    assert!(fixture.spend(0, T).is_none());
    // The rest does not belong to windows with the same stamp.
    assert!(fixture.grant(1, WINDOW));
    assert!(fixture.spend(1, T + (1 << 17) * SIZE).is_none());
}

#[test]
fn hits_that_are_put_back_can_be_spent_again() {
    let fixture = Fixture::new();
    let table = &fixture.shared.table;
    fixture.grant(3, WINDOW);
    let spent = fixture.spend(2, T).unwrap();
    assert!(table.put_back(&fixture.reserve(), &spent.receipt.unwrap()));
    assert_eq!(fixture.left(WINDOW), 3);
    // Not the hits of an earlier window.
    let spent = fixture.spend(2, T).unwrap();
    assert!(fixture.grant(3, WINDOW + 2));
    table.spend(&fixture.reserve(), hits(1), UnixMillis(T + 2 * SIZE)).unwrap();
    assert!(!table.put_back(&fixture.reserve(), &spent.receipt.unwrap()));
}

#[test]
fn reserves_of_other_limits_are_others() {
    let fixture = Fixture::new();
    let table = &fixture.shared.table;
    fixture.grant(3, WINDOW);
    for (limit, algorithm) in [
        (hits(1000), Algorithm::Sliding),
        (hits(999), Algorithm::Fixed),
        (Hits::from_thousandths(1_000_001), Algorithm::Fixed),
    ] {
        let other = table.reserve(&fixture.reserves, fixture.key(), limit, algorithm);
        assert_ne!(other.identity(), fixture.reserve().identity());
        assert!(table.spend(&other, Hits::ZERO, UnixMillis(T)).is_none());
    }
    let size = WindowSize::from_millis(SIZE).unwrap();
    assert_eq!(fixture.reserve().size(), size);
    // A counter is not a reserve.
    let counter = fixture.counter;
    assert!(!table.has(&counter, fixture.key()));
    assert_eq!(fixture.diffs(), []);
}

#[test]
fn the_rest_of_a_reserve_is_given_back_once() {
    let fixture = Fixture::new();
    fixture.grant(5, WINDOW);
    fixture.spend(2, T).unwrap();
    assert_eq!((fixture.drain(WINDOW), fixture.drain(WINDOW)), (3, 0));
    assert!(fixture.spend(1, T).is_none());
    // The next part is an ordinary one.
    fixture.grant(4, WINDOW);
    assert_eq!(fixture.left(WINDOW), 4);
    assert!(fixture.give_back(3, WINDOW));
    assert_eq!(fixture.diffs(), [(WINDOW, -3)]);
    assert!(fixture.give_back(1, WINDOW - 1));
    assert_eq!(fixture.diffs(), [(WINDOW - 1, -1), (WINDOW, -3)]);
    // A later window has the column now.
    assert!(!fixture.give_back(1, WINDOW - 2));
    assert!(!fixture.grant(1, WINDOW - 2));
    assert_eq!((fixture.drain(WINDOW - 2), fixture.left(WINDOW)), (0, 4));
}

#[test]
fn a_store_that_lost_everything_gets_nothing_back() {
    let fixture = Fixture::new();
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    let clock = TestClock::at(T);
    fixture.grant(5, WINDOW);
    fixture.spend(1, T).unwrap();
    fixture.give_back(3, WINDOW - 1);
    let counted = Admission::Unconditional;
    table.add(&fixture.counter, fixture.key(), &clock, hits(2), counted);
    table.void_reserves(namespace, HELD).unwrap();
    let slots = 0..table.slot_count();
    table.forget_charged(slots, namespace, UnixMillis(T), HELD).unwrap();
    assert_eq!(fixture.left(WINDOW), 0);
    assert!(fixture.spend(0, T).is_none());
    assert_eq!(fixture.drain(WINDOW), 0);
    assert_eq!(fixture.diffs(), [(WINDOW, 2)]);
    // Hits of a new grant can be spent.
    fixture.grant(2, WINDOW);
    assert_eq!(fixture.spend(2, T).unwrap().left, Hits::ZERO);
    // The hits of another namespace stay.
    fixture.grant(2, WINDOW);
    table.void_reserves(table.namespace(b"other").unwrap(), HELD).unwrap();
    assert_eq!(fixture.left(WINDOW), 2);
}

#[test]
fn a_store_that_lost_its_charges_gets_no_refund_of_unpushed_hits() {
    let fixture = Fixture::new();
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    let clock = TestClock::at(T);
    fixture.grant(5, WINDOW);
    fixture.give_back(3, WINDOW);
    // The store has these hits.
    let mut pushed = None;
    for group in 0..table.change_groups() {
        table.take_changes(group, namespace, UnixMillis(T), |change| {
            pushed = Some(change.counter);
        });
    }
    let pushed = table.advance_pushed(pushed.unwrap(), WINDOW, (Hits::ZERO, hits(-3)), HELD);
    pushed.unwrap();
    fixture.give_back(4, WINDOW);
    assert_eq!(fixture.left(WINDOW), 5);
    table.void_reserves(namespace, HELD).unwrap();
    table.withhold_given_back(namespace, HELD).unwrap();
    assert_eq!((fixture.left(WINDOW), fixture.drain(WINDOW)), (0, 0));
    assert_eq!(fixture.diffs(), []);
    let counted = Admission::Unconditional;
    table.add(&fixture.counter, fixture.key(), &clock, hits(2), counted);
    assert_eq!(fixture.diffs(), [(WINDOW, 2)]);
    // The reserves of another namespace stay.
    fixture.grant(2, WINDOW);
    let other = table.namespace(b"other").unwrap();
    table.void_reserves(other, HELD).unwrap();
    assert_eq!(fixture.left(WINDOW), 2);
}

#[test]
fn giving_back_hits_of_an_evicted_counter_makes_no_room() {
    let fixture = Fixture::new();
    let (table, clock) = (&fixture.shared.table, TestClock::at(T));
    for window in [WINDOW - 1, WINDOW] {
        assert!(fixture.give_back(7, window));
    }
    let within = Admission::Within(hits(3), Algorithm::Sliding);
    let add = || table.add(&fixture.counter, fixture.key(), &clock, hits(1), within);
    assert_eq!((0..20).filter(|_| add().admitted).count(), 3);
}

#[test]
fn many_spend_no_more_than_was_granted() {
    const THREADS: i64 = 4;
    let fixture = Fixture::new();
    let (spent, drained, granted) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
    let address = core::ptr::from_ref(&fixture) as usize;
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (spent, drained, granted) = (&spent, &drained, &granted);
            scope.spawn(move || {
                // SAFETY: the fixture outlives the scope, and any thread may use its table.
                let fixture = unsafe { &*(address as *const Fixture) };
                for round in 0..2000 {
                    if round % 7 == number {
                        assert!(fixture.grant(5, WINDOW));
                        granted.fetch_add(5, Relaxed);
                    }
                    let before = fixture.spend(2, T);
                    spent.fetch_add(if before.is_some() { 2 } else { 0 }, Relaxed);
                    if let (0, Some(before)) = (round % 3, before) {
                        let receipt = before.receipt.unwrap();
                        let table = &fixture.shared.table;
                        assert!(table.put_back(&fixture.reserve(), &receipt));
                        spent.fetch_sub(2, Relaxed);
                    }
                    if round % 31 == 0 {
                        drained.fetch_add(fixture.drain(WINDOW), Relaxed);
                    }
                }
            });
        }
    });
    let [spent, drained, granted] = [&spent, &drained, &granted].map(|it| it.load(Relaxed));
    assert!(spent > 0 && drained > 0);
    assert_eq!(spent + drained + fixture.left(WINDOW), granted);
}

#[test]
fn dying_with_a_reserve_admits_nothing_twice() {
    die_everywhere(
        || {
            let fixture = Fixture::new();
            assert!(fixture.grant(4, WINDOW));
            fixture
        },
        |fixture| {
            fixture.spend(1, T).unwrap();
            fixture.grant(2, WINDOW);
            let left = fixture.drain(WINDOW);
            fixture.give_back(left, WINDOW);
        },
        &[
            "reserve.spent",
            "reserve.granted",
            "reserve.drained",
            "reserve.noted",
            "reserve.given_back",
        ],
        |fixture, point| {
            let given_back: i64 = fixture.diffs().iter().map(|(_, diff)| -diff).sum();
            let left = fixture.left(WINDOW);
            assert!(left + given_back <= 5, "{point}");
            let of_point = match point {
                "reserve.spent" => Some((3, 0)),
                "reserve.granted" => Some((5, 0)),
                // The hits stay charged.
                "reserve.drained" => Some((0, 0)),
                "reserve.given_back" => Some((0, 5)),
                _ => None,
            };
            assert_eq!(of_point.unwrap_or((left, given_back)), (left, given_back), "{point}");
            assert_eq!(fixture.drain(WINDOW), left);
            assert!(fixture.spend(1, T).is_none());
        },
    );
}
