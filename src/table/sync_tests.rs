//! What synced counters have beside their counts: names, changes, and what the store has and says.

use super::testing::{SharedTable, TestClock};
use super::*;
use crate::policy::window::Clock;

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;
const SMALL: usize = 7 * 4096;

fn hits(whole: i64) -> Hits {
    Hits::from_thousandths(whole * 1000)
}

struct Fixture {
    shared: SharedTable,
    counter: Counter,
    clock: TestClock,
}

impl Fixture {
    fn new(len: usize) -> Fixture {
        let shared = SharedTable::new(len);
        let namespace = shared.table.namespace(b"api").unwrap();
        let size = WindowSize::from_millis(SIZE).unwrap();
        let counter = shared.table.counter(namespace, b"api", size).synced(true);
        Fixture {
            shared,
            counter,
            clock: TestClock::at(T),
        }
    }

    fn add(&self, key: &[u8], value: i64) -> Counts {
        let table = &self.shared.table;
        let unconditional = Admission::Unconditional;
        table
            .add(
                &self.counter,
                table.key(key),
                &self.clock,
                hits(value),
                unconditional,
            )
            .counts
    }

    fn current(&self, key: &[u8]) -> Hits {
        let table = &self.shared.table;
        table
            .read(&self.counter, table.key(key), &self.clock)
            .current
    }

    fn take(&self) -> Vec<Change> {
        let table = &self.shared.table;
        let mut changes = Vec::new();
        for group in 0..table.change_groups() {
            table.take_changes(group, self.clock.now(), |change| changes.push(change));
        }
        changes
    }
}

/// A key of `len` bytes, different for each `n`.
fn long_key(n: usize, len: usize) -> Vec<u8> {
    let mut key = format!("{n}:").into_bytes();
    key.extend((key.len()..len).map(|i| (i * 7 + n) as u8));
    key
}

#[test]
fn a_change_names_its_key_whatever_its_length() {
    let fixture = Fixture::new(1 << 20);
    let lengths = [3, 8, 31, 32, 33, 79, 80, 81, 128, 1000, 20_000];
    let keys: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(n, &len)| long_key(n, len))
        .collect();
    for key in &keys {
        fixture.add(key, 1);
        fixture.add(key, 1);
    }
    let mut changes = fixture.take();
    changes.sort_by_key(|change| change.key.len());
    let number = T / SIZE;
    for (change, key) in changes.iter().zip(&keys) {
        assert_eq!(&change.key, key);
        assert_eq!(
            (change.namespace, change.size),
            (fixture.counter.namespace(), fixture.counter.size())
        );
        let window = WindowChange {
            number,
            local: hits(2),
            pushed: Hits::ZERO,
        };
        assert_eq!(change.windows, [window]);
    }
    assert_eq!(changes.len(), keys.len());
}

#[test]
fn a_change_is_taken_once_until_there_is_another() {
    let fixture = Fixture::new(1 << 20);
    fixture.add(b"a", 1);
    fixture.add(b"b", 1);
    let changes = fixture.take();
    assert_eq!(changes.len(), 2);
    assert_eq!(fixture.take(), []);
    fixture.add(b"a", 1);
    let again = fixture.take();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].windows[0].local, hits(2));
    fixture.shared.table.note_again(changes[0].counter);
    assert_eq!(fixture.take().len(), 1);
}

#[test]
fn what_the_store_has_is_not_a_change() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    let number = change.windows[0].number;
    for _ in 0..2 {
        table.set_pushed(change.counter, number, hits(3));
    }
    table.note_again(change.counter);
    let left = fixture.take().remove(0).windows[0];
    assert_eq!((left.local, left.pushed), (hits(5), hits(3)));
    table.set_pushed(change.counter, number, hits(5));
    table.note_again(change.counter);
    assert_eq!(fixture.take(), []);
    // Given back after it was pushed: the diff is negative.
    let admission = Admission::Unconditional;
    let counted = table.add(
        &fixture.counter,
        table.key(b"a"),
        &fixture.clock,
        hits(1),
        admission,
    );
    assert_eq!(fixture.take().len(), 1);
    table.set_pushed(change.counter, number, hits(6));
    table.give_back(&fixture.counter, &counted.receipt.unwrap());
    let back = fixture.take().remove(0).windows[0];
    assert_eq!((back.local, back.pushed), (hits(5), hits(6)));
}

#[test]
fn the_rest_of_the_cluster_counts_too() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    let number = change.windows[0].number;
    table.set_remote(change.counter, number, hits(10));
    assert_eq!(fixture.current(b"a"), hits(15));
    table.set_remote(change.counter, number, hits(-2));
    assert_eq!(fixture.current(b"a"), hits(3));
    table.set_remote(change.counter, number, hits(-20));
    assert_eq!(fixture.current(b"a"), Hits::ZERO);
    // It is no change of this node's.
    assert_eq!(fixture.take(), []);
}

#[test]
fn windows_that_cannot_matter_are_no_change() {
    let fixture = Fixture::new(1 << 20);
    fixture.add(b"a", 1);
    fixture.clock.set(T + SIZE);
    fixture.add(b"a", 2);
    let changes = fixture.take();
    let numbers: Vec<_> = changes[0]
        .windows
        .iter()
        .map(|window| window.number)
        .collect();
    assert_eq!(numbers, [T / SIZE, T / SIZE + 1]);
    fixture.add(b"a", 1);
    fixture.clock.set(T + 5 * SIZE);
    assert_eq!(fixture.take(), []);
}

#[test]
fn a_reference_does_not_outlive_its_counter() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    for n in 0..5000 {
        fixture.add(&long_key(n, 20), 1);
        table.set_remote(change.counter, T / SIZE, hits(1000));
        table.set_pushed(change.counter, T / SIZE, hits(1000));
    }
    assert!(fixture.current(b"a") == Hits::ZERO || fixture.current(b"a") == hits(1005));
    assert!((0..5000).all(|n| fixture.current(&long_key(n, 20)) <= Hits::ONE));
}

#[test]
fn a_counter_becomes_synced_and_local_again() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    let local = fixture.counter.synced(false);
    let add = |counter: &Counter| {
        let admission = Admission::Unconditional;
        table
            .add(
                counter,
                table.key(b"a"),
                &fixture.clock,
                Hits::ONE,
                admission,
            )
            .counts
            .current
    };
    assert_eq!(add(&local), hits(1));
    assert_eq!(fixture.take(), []);
    assert_eq!(add(&fixture.counter), hits(2));
    assert_eq!(fixture.take().len(), 1);
    assert_eq!(add(&local), hits(3));
    assert_eq!(fixture.take(), []);
}

#[test]
fn keys_of_mixed_lengths_do_not_starve_each_other() {
    let fixture = Fixture::new(1 << 20);
    let lengths = [10, 40, 100, 500, 3000];
    for n in 0..20_000 {
        let key = long_key(n, lengths[n % lengths.len()]);
        assert_eq!(fixture.add(&key, 1).current, Hits::ONE);
        if n % 10 == 0 {
            fixture.add(b"busy", 1);
        }
        fixture.clock.set(T + n as u64 / 100);
    }
    assert_eq!(fixture.current(b"busy"), hits(2000));
    // The last keys of every length are there, with their names.
    let changes = fixture.take();
    for len in lengths {
        assert!(
            changes.iter().any(|change| change.key.len() == len),
            "{len}"
        );
    }
    for change in &changes {
        let known = change.key == b"busy" || {
            let n = std::str::from_utf8(change.key.split(|&byte| byte == b':').next().unwrap());
            let n: usize = n.unwrap().parse().unwrap();
            change.key == long_key(n, lengths[n % lengths.len()])
        };
        assert!(known, "{:?}", change.key);
    }
}

#[test]
fn a_full_table_counts_what_it_loses_unsent() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    for n in 0..1000 {
        fixture.add(&long_key(n, 20), 1);
    }
    let unsent = table.zone_stats();
    assert!(
        unsent.evicted_unsent > 500 && unsent.evicted_sent == 0,
        "{unsent:?}"
    );

    // What the store has goes before what it has not.
    for change in fixture.take() {
        table.set_pushed(
            change.counter,
            change.windows[0].number,
            change.windows[0].local,
        );
    }
    for n in 0..20 {
        fixture.add(&long_key(n, 21), 1);
    }
    let sent = table.zone_stats();
    assert!(sent.evicted_sent > 0, "{sent:?}");
    assert_eq!(sent.evicted_unsent, unsent.evicted_unsent);
}

#[test]
fn a_name_that_is_too_long_for_the_zone_is_not_kept_but_counted() {
    let fixture = Fixture::new(SMALL);
    let key = long_key(1, 65_535);
    assert_eq!(fixture.add(&key, 1).current, Hits::ONE);
    assert_eq!(fixture.add(&key, 1).current, hits(2));
    assert_eq!(fixture.take(), []);
    let large = Fixture::new(4 << 20);
    large.add(&key, 1);
    assert_eq!(large.take()[0].key, key);
}

#[test]
fn memory_per_key_is_bounded() {
    const LEN: usize = 10 << 20;
    for (is_synced, at_most) in [(false, 128), (true, 192)] {
        let mut fixture = Fixture::new(LEN);
        fixture.counter = fixture.counter.synced(is_synced);
        let mut n = 0;
        while fixture.shared.table.zone_stats() == ZoneStats::default() {
            fixture.add(&long_key(n, 32), 1);
            n += 1;
        }
        println!("synced: {is_synced}, {} bytes", LEN / n);
        assert!(LEN / n <= at_most, "{} bytes", LEN / n);
    }
}
