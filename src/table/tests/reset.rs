//! Resets: alone, with concurrent hits, and after a process's death.

use std::thread;

use crate::policy::algorithm::{Algorithm, LevelKind, StoredKind};
use crate::policy::hits::{Hits, hits};
use crate::policy::window::UnixMillis;
use crate::table::zone::lease::HELD;
use crate::table::*;
use crate::testing::table::{SharedTable, TestClock, die_everywhere};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;

struct Fixture {
    pub(super) shared: SharedTable,
    pub(super) counter: Counter,
    pub(super) clock: TestClock,
}

impl Fixture {
    fn new(kind: StoredKind, is_synced: bool) -> Fixture {
        let shared = SharedTable::new(1 << 20);
        let counter = shared.table.counter_in(b"api", kind, SIZE);
        Fixture { shared, counter: counter.synced(is_synced), clock: TestClock::at(T) }
    }

    fn synced() -> Fixture {
        Fixture::new(StoredKind::Windows, true)
    }

    fn key(&self) -> Key<'static> {
        self.shared.table.key(b"k")
    }

    fn add(&self, value: i64) -> Counted<'_> {
        let (table, admission) = (&self.shared.table, Admission::Unconditional);
        table.add(&self.counter, self.key(), &self.clock, hits(value), admission)
    }

    fn reset(&self) {
        let table = &self.shared.table;
        table.reset(&self.counter, self.key(), &self.clock);
    }

    /// Returns the rate that the limit sees, in whole hits.
    fn rate(&self) -> i64 {
        let table = &self.shared.table;
        let algorithm = match self.counter.kind() {
            StoredKind::Windows => Algorithm::Sliding,
            StoredKind::Log => Algorithm::Moving,
            StoredKind::Level(LevelKind::Elastic) => Algorithm::Elastic,
            StoredKind::Level(LevelKind::Bucket(_)) => Algorithm::Bucket,
            StoredKind::Holds => unreachable!("holds are not reset"),
        };
        let reading = table.read(&self.counter, self.key(), &self.clock);
        algorithm.rate(self.counter.size(), &reading).whole()
    }

    fn number(&self) -> u64 {
        T / SIZE
    }

    /// Records this number of other nodes' hits in the current window and the previous one.
    fn count_elsewhere(&self, current: i64, previous: i64) {
        let table = &self.shared.table;
        let counter = table.make_room_for(&self.counter, self.key(), &self.clock);
        let (counter, now) = (counter.unwrap(), self.clock.seen.get());
        let now = UnixMillis(now);
        table.set_remote(counter, self.number(), hits(current), now, HELD).unwrap();
        table.set_remote(counter, self.number() - 1, hits(previous), now, HELD).unwrap();
    }

    /// Returns the differences of the next flush, by window.
    fn diffs(&self) -> Vec<(u64, i64)> {
        let (table, mut diffs) = (&self.shared.table, Vec::new());
        let now = UnixMillis(self.clock.seen.get());
        for group in 0..table.change_groups() {
            table.take_changes(group, self.counter.namespace(), now, |change| {
                let windows = change.windows.iter();
                let diff = |it: &WindowChange| (it.number, it.local.minus(it.pushed).whole());
                diffs.extend(windows.map(diff));
            });
        }
        diffs
    }
}

const KINDS: [StoredKind; 4] = [
    StoredKind::Windows,
    StoredKind::Log,
    StoredKind::Level(LevelKind::Elastic),
    StoredKind::Level(LevelKind::Bucket(Hits::ONE)),
];

#[test]
fn a_key_starts_again_whatever_the_store_keeps_of_it() {
    for kind in KINDS {
        let fixture = Fixture::new(kind, false);
        fixture.reset();
        assert_eq!(fixture.rate(), 0);
        for time in [T - SIZE, T, T + 1] {
            fixture.clock.set(time);
            fixture.add(5);
        }
        assert!(fixture.rate() >= 10, "{kind:?}");
        let late = fixture.add(2);
        fixture.reset();
        assert_eq!(fixture.rate(), 0, "{kind:?}");
        // No hit of an earlier request is left to refund.
        let receipt = late.receipt.unwrap();
        fixture.add(1);
        fixture.shared.table.refund(&fixture.counter, &receipt);
        fixture.add(2);
        assert_eq!(fixture.rate(), 3, "{kind:?}");
    }
}

#[test]
fn a_push_sets_a_synced_key_to_zero() {
    let fixture = Fixture::synced();
    let number = fixture.number();
    fixture.clock.set(T - SIZE);
    fixture.add(3);
    fixture.clock.set(T);
    fixture.count_elsewhere(20, 10);
    fixture.add(5);
    assert_eq!(fixture.rate(), 38);
    fixture.reset();
    assert_eq!(fixture.rate(), 0);
    assert_eq!(fixture.diffs(), [(number - 1, -10), (number, -20)]);
    fixture.add(2);
    assert_eq!(fixture.rate(), 2);
    assert_eq!(fixture.diffs(), [(number - 1, -10), (number, -18)]);
    // Hits that other nodes had not pushed.
    fixture.count_elsewhere(24, 11);
    assert_eq!(fixture.rate(), 7);
    fixture.reset();
    assert_eq!(fixture.rate(), 0);
}

#[test]
fn a_key_that_only_others_count_is_set_to_zero() {
    let fixture = Fixture::synced();
    fixture.count_elsewhere(20, 0);
    fixture.reset();
    assert_eq!(fixture.rate(), 0);
    // It has a name now, by which the store knows it.
    assert_eq!(fixture.diffs(), [(fixture.number(), -20)]);
}

#[test]
fn a_refund_takes_back_no_more_than_was_charged() {
    for (elsewhere, left) in [(0, 0), (7, 0)] {
        let fixture = Fixture::synced();
        fixture.count_elsewhere(elsewhere, 0);
        let before = fixture.add(1).receipt.unwrap();
        fixture.reset();
        let after = fixture.add(1).receipt.unwrap();
        let table = &fixture.shared.table;
        table.refund(&fixture.counter, &after);
        assert_eq!(fixture.rate(), left);
        table.refund(&fixture.counter, &before);
        fixture.add(1);
        assert_eq!(fixture.rate(), left + 1, "{elsewhere}");
    }
}

#[test]
fn hits_that_are_counted_meanwhile_are_kept_or_gone() {
    const HITS: i64 = 20_000;
    for kind in KINDS {
        for is_synced in [false, true] {
            let fixture = Fixture::new(kind, is_synced);
            if fixture.counter.kind() == StoredKind::Windows && is_synced {
                fixture.count_elsewhere(1000, 1000);
            }
            let shared = &fixture.shared;
            let tables: Vec<_> = (0..4).map(|_| shared.open().unwrap()).collect();
            let counter = fixture.counter;
            thread::scope(|scope| {
                for (number, table) in tables.into_iter().enumerate() {
                    scope.spawn(move || {
                        let (clock, key) = (TestClock::at(T), table.key(b"k"));
                        for nth in 0..HITS {
                            if number == 0 {
                                table.reset(&counter, key, &clock);
                                continue;
                            }
                            let admission = Admission::Unconditional;
                            let counted = table.add(&counter, key, &clock, Hits::ONE, admission);
                            let receipt = counted.receipt.filter(|_| nth % 3 == 0);
                            if let Some(receipt) = receipt {
                                table.refund(&counter, &receipt);
                            }
                        }
                    });
                }
            });
            let rate = fixture.rate();
            assert!((0..=3 * HITS).contains(&rate), "{kind:?}: {rate}");
            fixture.reset();
            assert_eq!(fixture.rate(), 0, "{kind:?}");
            fixture.add(3);
            assert_eq!(fixture.rate(), 3, "{kind:?}");
        }
    }
}

#[test]
fn dying_while_resetting() {
    for (is_synced, points) in
        [(true, &["change.noted", "reset.window"][..]), (false, &["reset.freed"])]
    {
        die_everywhere(
            || {
                let fixture = Fixture::new(StoredKind::Windows, is_synced);
                fixture.clock.set(T - SIZE);
                fixture.add(3);
                fixture.clock.set(T);
                if is_synced {
                    fixture.count_elsewhere(20, 10);
                }
                fixture.add(5);
                fixture.diffs();
                fixture
            },
            Fixture::reset,
            points,
            |fixture, point| {
                let before = if is_synced { 38 } else { 8 };
                assert!([0, 25, before].contains(&fixture.rate()), "{point}");
                // The change is pushed, whichever worker finds it.
                let is_changed = fixture.rate() != before;
                assert_eq!(is_synced && is_changed, is_changed && !fixture.diffs().is_empty());
                fixture.reset();
                assert_eq!(fixture.rate(), 0, "{point}");
                fixture.add(4);
                assert_eq!(fixture.rate(), 4, "{point}");
            },
        );
    }
}
