//! A process that dies between any two writes leaves a table that others can use.

use std::collections::BTreeMap;

use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::words::fail;
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere, in_process, points_of};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;
/// Small enough to be filled.
const SMALL: usize = 7 * 4096;
const NEIGHBOURS: u64 = 200;
/// More keys than slots.
const CROWD: u64 = 5000;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
}

impl Fixture {
    fn new(len: usize) -> Fixture {
        let shared = SharedTable::new(len);
        let kind = StoredKind::Windows;
        let counter = shared.table.counter_in(b"default", kind, SIZE);
        Fixture { shared, counter }
    }

    fn add(&self, key: &str, at: u64) -> Counted<'_> {
        let table = &self.shared.table;
        let clock = TestClock::at(at);
        let hash = table.key(key.as_bytes());
        table.add(&self.counter, hash, &clock, Hits::ONE, Admission::Unconditional)
    }

    fn hit(&self, key: &str, at: u64) {
        self.add(key, at);
    }

    fn counts(&self, key: &str, at: u64) -> (i64, i64) {
        let table = &self.shared.table;
        let hash = table.key(key.as_bytes());
        let counts = table.read(&self.counter, hash, &TestClock::at(at)).windows();
        (counts.current.whole(), counts.previous.whole())
    }
}

/// Checks that the table accepts new keys, and keeps them apart.
fn assert_usable(fixture: &Fixture, at: u64) {
    for n in 0..NEIGHBOURS {
        assert_eq!(fixture.add(&format!("after {n}"), at).reading.windows().current, Hits::ONE);
    }
}

#[test]
fn dying_while_inserting() {
    let points = [
        "insert.claimed",
        "insert.cleared",
        "insert.dated",
        "insert.named",
        "insert.published",
        "insert.tagged",
    ];
    die_everywhere(
        || {
            let fixture = Fixture::new(1 << 20);
            for n in 0..NEIGHBOURS {
                fixture.add(&format!("neighbour {n}"), T);
            }
            fixture
        },
        |fixture| fixture.hit("new", T),
        &points,
        |fixture, point| {
            let counted = i64::from(point == "insert.published");
            assert_eq!(fixture.counts("new", T), (counted, 0));
            assert_eq!(fixture.add("new", T).reading.windows().current.whole(), counted + 1);
            assert_eq!(fixture.add("new", T).reading.windows().current.whole(), counted + 2);
            assert!((0..NEIGHBOURS).all(|n| fixture.counts(&format!("neighbour {n}"), T).0 == 1));
            assert_usable(fixture, T);
        },
    );
}

#[test]
fn dying_while_evicting() {
    let points = [
        "insert.claimed",
        "insert.cleared",
        "insert.dated",
        "insert.named",
        "insert.published",
        "insert.tagged",
    ];
    die_everywhere(
        || {
            let fixture = Fixture::new(SMALL);
            for n in 0..CROWD {
                fixture.add(&format!("crowd {n}"), T);
            }
            fixture
        },
        |fixture| fixture.hit("new", T),
        &points,
        |fixture, point| {
            let counted = i64::from(point == "insert.published");
            assert_eq!(fixture.counts("new", T), (counted, 0));
            assert_eq!(fixture.add("new", T).reading.windows().current.whole(), counted + 1);
            assert_eq!(fixture.add("new", T).reading.windows().current.whole(), counted + 2);
            // No key has hits of another one.
            assert!((0..CROWD).all(|n| fixture.counts(&format!("crowd {n}"), T).0 <= 1));
            assert_usable(fixture, T);
        },
    );
}

#[test]
fn dying_while_inserting_into_the_second_bucket() {
    // Keys with the same home, until one uses the second bucket.
    let prepare = || {
        let fixture = Fixture::new(SMALL);
        let passes_second = |n: &u64| {
            let key = format!("key {n}");
            points_of(|| fixture.hit(&key, T)).contains_key("insert.tagged.second")
        };
        (0..CROWD).find(passes_second).unwrap()
    };
    let last = prepare();
    let key = format!("key {last}");
    die_everywhere(
        || {
            let fixture = Fixture::new(SMALL);
            for n in 0..last {
                fixture.add(&format!("key {n}"), T);
            }
            fixture
        },
        |fixture| fixture.hit(&key, T),
        &[
            "insert.claimed",
            "insert.cleared",
            "insert.dated",
            "insert.named",
            "insert.published",
            "insert.tagged",
            "insert.tagged.second",
        ],
        |fixture, point| {
            let counted = i64::from(point == "insert.published");
            assert_eq!(fixture.counts(&key, T), (counted, 0));
            assert_eq!(fixture.add(&key, T).reading.windows().current.whole(), counted + 1);
            assert!((0..last).all(|n| fixture.counts(&format!("key {n}"), T).0 == 1));
            assert_usable(fixture, T);
        },
    );
}

#[test]
fn dying_while_turning_and_charging() {
    die_everywhere(
        || {
            let fixture = Fixture::new(1 << 20);
            for at in [T, T, T + SIZE, T + SIZE, T + SIZE] {
                fixture.add("k", at);
            }
            fixture
        },
        |fixture| fixture.hit("k", T + 2 * SIZE),
        &["add.counted", "touch.dated", "turn.verified"],
        |fixture, point| {
            let counted = i64::from(point == "add.counted");
            assert_eq!(fixture.counts("k", T + 2 * SIZE), (counted, 3));
            let counts = fixture.add("k", T + 2 * SIZE).reading.windows();
            assert_eq!((counts.current.whole(), counts.previous.whole()), (counted + 1, 3));
        },
    );
}

#[test]
fn dying_while_an_old_counter_is_cleared() {
    let period = 1 << 17;
    let later = T + period * SIZE;
    die_everywhere(
        || {
            let fixture = Fixture::new(1 << 20);
            for at in [T, T, T + SIZE] {
                fixture.add("k", at);
            }
            fixture
        },
        |fixture| fixture.hit("k", later),
        &["add.counted", "forget.cleared", "touch.dated", "turn.verified"],
        |fixture, point| {
            let counted = i64::from(point == "add.counted");
            if point != "touch.dated" {
                assert_eq!(fixture.counts("k", later), (counted, 0));
            }
            assert_eq!(fixture.add("k", later).reading.windows().current.whole(), counted + 1);
            assert_eq!(fixture.counts("k", later + SIZE), (0, counted + 1));
        },
    );
}

#[test]
fn dying_while_giving_back() {
    die_everywhere(
        || {
            let fixture = Fixture::new(1 << 20);
            fixture.add("k", T);
            fixture
        },
        |fixture| {
            let receipt = fixture.add("k", T).receipt.unwrap();
            fixture.shared.table.refund(&fixture.counter, &receipt);
        },
        &["add.counted", "refund.counted"],
        |fixture, point| {
            // At most the hit that was being counted is left.
            let left = i64::from(point == "add.counted");
            assert_eq!(fixture.counts("k", T), (1 + left, 0));
            assert_eq!(fixture.add("k", T).reading.windows().current.whole(), 2 + left);
        },
    );
}

#[test]
fn dying_while_naming_a_counter() {
    let points = [
        "add.counted",
        "insert.claimed",
        "insert.cleared",
        "insert.dated",
        "insert.named",
        "insert.published",
        "insert.tagged",
        "name.attached",
        "name.claimed",
        "name.published",
        "name.written",
    ];
    let key = "a key of 200 bytes".repeat(200 / 18 + 1);
    for len in [1 << 20, SMALL] {
        die_everywhere(
            || {
                let mut fixture = Fixture::new(len);
                fixture.counter = fixture.counter.synced(true);
                // Fills the small table with named counters.
                for n in 0..NEIGHBOURS {
                    fixture.add(&format!("neighbour {n}"), T);
                }
                fixture
            },
            |fixture| fixture.hit(&key, T),
            &points,
            |fixture, point| {
                let counted = i64::from(point == "add.counted");
                assert_eq!(fixture.counts(&key, T), (counted, 0));
                // The dead process's slots are claimed for a moment.
                let later = T + SIZE - 1;
                for n in 1..=3 {
                    let current = fixture.add(&key, later).reading.windows().current;
                    assert_eq!(current.whole(), counted + n);
                }
                let mut changes = BTreeMap::new();
                for group in 0..fixture.shared.table.change_groups() {
                    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
                    table.take_changes(group, namespace, UnixMillis(later), |change| {
                        changes.insert(change.key, change.windows[0].local.whole());
                    });
                }
                assert_eq!(changes.remove(key.as_bytes()), Some(counted + 3));
                for (name, hits) in changes {
                    assert!(name.starts_with(b"neighbour ") && hits == 1, "{name:?}");
                }
            },
        );
    }
}

#[test]
fn places_that_the_dead_held_are_used_again() {
    let fixture = Fixture::new(SMALL);
    // More deaths than slots.
    for n in 0..400 {
        let signal = in_process(|| {
            fail::arm("insert.claimed", 1);
            fixture.add(&format!("dead {n}"), T);
        });
        assert_eq!(signal, Some(libc::SIGABRT));
    }
    let later = T + 2000;
    for n in 0..CROWD {
        assert_eq!(fixture.add(&format!("alive {n}"), later).reading.windows().current, Hits::ONE);
    }
    let alive =
        (0..CROWD).filter(|n| fixture.counts(&format!("alive {n}"), later).0 == 1).count() as u64;
    let capacity = fixture.shared.table.capacity();
    assert!(alive * 3 > capacity * 2, "{alive} of {capacity}");
}
