//! The most rejected keys: exact counts are within a sketch's bounds, with concurrent processes,
//! and after a death at any point.

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::{ProptestConfig, prop, prop_assert, proptest};
use proptest::test_runner::RngSeed;

use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::*;
use crate::testing::table::{SharedTable, die_everywhere};

const T: u64 = 28_000_000 * MINUTE;
const MINUTE: u64 = 60_000;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
}

impl Fixture {
    fn new(len: usize) -> Fixture {
        let shared = SharedTable::new(len);
        let counter = counter_of(&shared.table, "api");
        Fixture { shared, counter }
    }

    fn reject(&self, key: &str, at: u64) {
        let table = &self.shared.table;
        table.count_rejected_key(&self.counter, table.key(key.as_bytes()), UnixMillis(at));
    }

    fn top(&self, at: u64) -> TopRejected {
        let table = &self.shared.table;
        table.top_rejected(self.counter.namespace(), UnixMillis(at))
    }
}

fn counter_of(table: &CounterTable<'_>, name: &str) -> Counter {
    let namespace = table.namespace(name.as_bytes()).unwrap();
    table.counter(namespace, name.as_bytes(), WindowSize::MIN)
}

/// Returns each key's count in a sketch, and the certain part of it.
fn bounds(top: &TopRejected) -> BTreeMap<String, (u64, u64)> {
    let name = |key: &RejectedKey| String::from_utf8(key.name.clone()).unwrap();
    let keys = top.keys.iter();
    let bounds: BTreeMap<_, _> =
        keys.map(|key| (name(key), (key.count - key.error, key.count))).collect();
    assert_eq!(bounds.len(), top.keys.len(), "a key has one entry");
    bounds
}

/// Checks that exact counts are within a sketch's bounds.
fn check_bounds(top: &TopRejected, exact: &BTreeMap<String, u64>) -> Result<(), String> {
    let bounds = bounds(top);
    let least = match bounds.len() < top.followed {
        true => 0,
        false => bounds.values().map(|(_, most)| *most).min().unwrap_or(0),
    };
    for (key, count) in exact {
        let (certain, most) = bounds.get(key).copied().unwrap_or((0, least));
        if !(certain..=most + top.missed).contains(count) {
            return Err(format!("{key}: {count}, not {certain} to {most} + {}", top.missed));
        }
    }
    Ok(())
}

/// Halves all counts at the start of a minute.
fn halve(exact: &mut BTreeMap<String, u64>) {
    exact.values_mut().for_each(|count| *count /= 2);
}

#[test]
fn the_keys_that_are_rejected_most_come_first() {
    let fixture = Fixture::new(8 << 20);
    let told = fixture.top(T);
    assert_eq!((told.keys.len(), told.followed), (0, 256));
    for (key, times) in [("a", 3), ("2001:db8::1", 5), ("b", 1)] {
        (0..times).for_each(|_| fixture.reject(key, T));
    }
    let key = |name: &str, count| RejectedKey { name: name.into(), count, error: 0 };
    let expected = [key("2001:db8::1", 5), key("a", 3), key("b", 1)];
    assert_eq!(fixture.top(T).keys, expected);
    // In the next minute, and in the one after that.
    let halved = [key("2001:db8::1", 2), key("a", 1), key("b", 0)];
    assert_eq!(fixture.top(T + MINUTE).keys, halved);
    fixture.reject("b", T + 2 * MINUTE);
    let halved = [key("2001:db8::1", 1), key("b", 1), key("a", 0)];
    assert_eq!(fixture.top(T + 2 * MINUTE).keys, halved);
    // A key without rejections for weeks or years does not come back.
    for days in [22, 23, 46, 366, 3660] {
        let counts = fixture.top(T + days * 24 * 60 * MINUTE).keys;
        assert!(counts.iter().all(|key| key.count == 0), "{days}: {counts:?}");
    }
    // A clock that was set back does not halve again.
    fixture.reject("b", T);
    fixture.reject("b", T + 2 * MINUTE);
    assert_eq!(fixture.top(T + 2 * MINUTE).keys[0], key("b", 3));
}

#[test]
fn a_key_keeps_its_entry_until_no_other_is_unused_or_older() {
    let fixture = Fixture::new(1 << 20);
    let followed = u64::try_from(fixture.top(T).followed).unwrap();
    let at = |number: u64| T + number * 2 * MINUTE;
    // Each count is 0 when the next key comes.
    (0..=followed).for_each(|number| fixture.reject(&format!("k{number}"), at(number)));
    let top = fixture.top(at(followed + 1));
    let kept: BTreeMap<_, _> = bounds(&top);
    assert_eq!(kept.len(), top.followed);
    assert!(kept.values().all(|bounds| *bounds == (0, 0)));
    assert!(!kept.contains_key("k0") && kept.contains_key("k1"));
}

#[test]
fn each_namespace_has_its_own_keys_as_far_as_there_is_room() {
    // Four sketches with about forty keys each.
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    let followed = fixture.top(T).followed;
    assert!((30..40).contains(&followed), "{followed}");
    let counters: Vec<_> = (0..9).map(|n| counter_of(table, &format!("n{n}"))).collect();
    for (number, counter) in counters.iter().enumerate() {
        for _ in 0..=number {
            table.count_rejected_key(counter, table.key(b"k"), UnixMillis(T));
        }
    }
    let counts = counters.iter().map(|counter| {
        let top = table.top_rejected(counter.namespace(), UnixMillis(T));
        (top.keys.first().map_or(0, |key| key.count), top.followed)
    });
    let counts: Vec<_> = counts.collect();
    let expected: Vec<_> = (1..5).map(|count| (count, followed)).collect();
    assert_eq!(counts[..4], expected);
    assert_eq!(counts[4], (0, 0));
    // The smallest zones have no sketches.
    let small = Fixture::new(64 << 10);
    small.reject("k", T);
    assert_eq!(small.top(T), TopRejected::default());
}

/// Rejects a key of as many new namespaces as have an entry, under a new configuration. Returns the number of those that
/// have a sketch.
fn followed_in_new_namespaces(shared: &SharedTable, generation: usize, at: u64) -> usize {
    let table = &shared.table;
    table.begin_configuration(core::iter::empty());
    let room = ZoneRoom::of(1 << 20).namespaces + 64;
    let namespaces = (0..room).map(|number| {
        let counter = counter_of(table, &format!("g{generation}-{number}"));
        table.count_rejected_key(&counter, table.key(b"k"), UnixMillis(at));
        table.top_rejected(counter.namespace(), UnixMillis(at)).keys.len()
    });
    namespaces.sum()
}

#[test]
fn a_namespace_that_is_gone_gives_its_keys_back() {
    let shared = SharedTable::new(1 << 20);
    assert_eq!(followed_in_new_namespaces(&shared, 0, T), 4);
    assert_eq!(followed_in_new_namespaces(&shared, 1, T), 4);
}

#[test]
fn dying_while_a_namespace_gives_its_keys_back() {
    let prepare = || {
        let shared = SharedTable::new(1 << 20);
        followed_in_new_namespaces(&shared, 0, T);
        shared
    };
    // The least recent one has a sketch.
    let scenario = |shared: &SharedTable| {
        shared.table.begin_configuration(core::iter::empty());
        counter_of(&shared.table, "new");
    };
    die_everywhere(prepare, scenario, &["namespace.retired", "sketch.cleared"], |shared, point| {
        // The lock of the dead process has expired.
        assert_eq!(followed_in_new_namespaces(shared, 2, T + 1000), 4, "{point}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(17),
        ..ProptestConfig::default()
    })]

    /// Few keys that arrive often, and many that do not, over some minutes.
    #[test]
    fn exact_counts_are_within_the_bounds(
        steps in prop::collection::vec((0..4_u32, 0..400_u32, 0..300_u32), 1..4000),
    ) {
        let fixture = Fixture::new(1 << 20);
        let (mut exact, mut now) = (BTreeMap::new(), T);
        for (kind, rare, minute) in steps {
            let key = match kind {
                0 => format!("rare {rare}"),
                _ => format!("often {}", rare % 7),
            };
            fixture.reject(&key, now);
            *exact.entry(key).or_insert(0) += 1;
            if minute == 0 {
                now += MINUTE;
                halve(&mut exact);
            }
        }
        let top = fixture.top(now);
        prop_assert!(top.missed == 0);
        let told = check_bounds(&top, &exact);
        prop_assert!(told.is_ok(), "{told:?}");
    }
}

#[test]
fn exact_counts_are_within_the_bounds_whoever_counts() {
    const THREADS: u64 = 4;
    const TIMES: u64 = 50_000;
    let fixture = Fixture::new(1 << 20);
    let key = |n: u64| match n % 3 {
        // Some keys arrive often; the others take entries from each other all the time.
        0 => format!("rare {}", (n * n) % 5003),
        _ => format!("often {}", n % 11),
    };
    thread::scope(|scope| {
        for number in 0..THREADS {
            let table = fixture.shared.open().unwrap();
            let counter = fixture.counter;
            scope.spawn(move || {
                for n in 0..TIMES {
                    let name = key(n * THREADS + number);
                    let key = table.key(name.as_bytes());
                    table.count_rejected_key(&counter, key, UnixMillis(T));
                }
            });
        }
    });
    let mut exact = BTreeMap::new();
    (0..THREADS * TIMES).for_each(|n| *exact.entry(key(n)).or_insert(0) += 1);
    let top = fixture.top(T);
    check_bounds(&top, &exact).unwrap();
    let first = bounds(&TopRejected { keys: top.keys[..11].to_vec(), ..top });
    assert!(first.keys().all(|key| key.starts_with("often")), "{first:?}");
}

#[test]
fn dying_while_counting_a_rejection() {
    let crowd = |fixture: &Fixture, exact: &mut BTreeMap<String, u64>, at| {
        for n in 0..200_u64 {
            for key in [format!("often {}", n % 5), format!("rare {n}")] {
                fixture.reject(&key, at);
                *exact.entry(key).or_insert(0) += 1;
            }
        }
    };
    let points = [
        "sketch.counted",
        "sketch.locked",
        "sketch.replaced",
        "sketch.taken",
        "sketch.unlocked",
        "sketch.written",
    ];
    die_everywhere(
        || {
            let fixture = Fixture::new(1 << 20);
            crowd(&fixture, &mut BTreeMap::new(), T);
            fixture
        },
        |fixture| {
            fixture.reject("often 1", T);
            fixture.reject("new", T);
        },
        &points,
        |fixture, point| {
            let mut exact = BTreeMap::new();
            crowd(&Fixture::new(1 << 20), &mut exact, T);
            let before = fixture.top(T);
            assert!(before.keys.len() + 1 >= before.followed, "{point}");
            // The lock of the dead process has expired. Its last rejections may be counted, or not.
            crowd(fixture, &mut exact, T + 1000);
            fixture.reject("new", T + 1000);
            let top = fixture.top(T + 1000);
            assert_eq!((top.keys.len(), top.missed), (top.followed, 0), "{point}");
            for (key, least) in [("often 1", 80), ("new", 1)] {
                let (certain, most) = bounds(&top)[key];
                assert!(certain <= least + 1 && most >= least, "{point}: {key} {certain} {most}");
                exact.remove(key);
            }
            check_bounds(&top, &exact).unwrap_or_else(|error| panic!("{point}: {error}"));
        },
    );
}

#[test]
fn dying_at_the_first_rejection() {
    die_everywhere(
        || Fixture::new(1 << 20),
        |fixture| fixture.reject("k", T),
        &["sketch.claimed", "sketch.noted", "sketch.taken"],
        |fixture, point| {
            let table = &fixture.shared.table;
            for _ in 0..3 {
                fixture.reject("k", T + 1000);
            }
            let (certain, most) = bounds(&fixture.top(T + 1000))["k"];
            assert!(certain <= 4 && most >= 3, "{point}");
            // No sketch is lost: three are left.
            let told = (0..4).filter(|n| {
                let counter = counter_of(table, &format!("n{n}"));
                table.count_rejected_key(&counter, table.key(b"k"), UnixMillis(T + 1000));
                let top = table.top_rejected(counter.namespace(), UnixMillis(T + 1000));
                top.keys.len() == 1
            });
            assert_eq!(told.count(), 3, "{point}");
        },
    );
}
