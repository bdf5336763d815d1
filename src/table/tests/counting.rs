//! Tests the table with one caller at a time. Time is simulated.

use crate::policy::algorithm::{Algorithm, WindowCounts};
use crate::policy::hits::{Hits, hits};
use crate::policy::window::WindowSize;
use crate::table::*;
use crate::testing::table::{Fixture, SharedTable};

const T: u64 = 1_700_000_000_000;

/// Creates a table of 1 MiB with a counter in windows of `millis`, at the start of a window.
fn fixture(millis: u64) -> Fixture {
    let start = T / millis * millis;
    Fixture::of(SharedTable::new(1 << 20), b"default", millis, start)
}

impl Fixture {
    fn later(&self, millis: u64) {
        self.clock.set(self.clock.real.get() + millis);
    }
}

fn current_previous(counts: WindowCounts) -> (i64, i64) {
    (counts.current.whole(), counts.previous.whole())
}

#[test]
fn counts_by_key_and_window() {
    let fixture = fixture(1000);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 0));
    assert_eq!(current_previous(fixture.add("a", 2)), (3, 0));
    assert_eq!(current_previous(fixture.add("b", 5)), (5, 0));
    fixture.later(1500);
    assert_eq!(current_previous(fixture.read("a")), (0, 3));
    assert_eq!(fixture.read("a").elapsed, 500);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 3));
    fixture.later(1000);
    assert_eq!(current_previous(fixture.read("a")), (0, 1));
    assert_eq!(current_previous(fixture.read("b")), (0, 0));
    fixture.later(5000);
    assert_eq!(current_previous(fixture.add("a", 7)), (7, 0));
}

#[test]
fn a_key_that_was_never_seen_reads_as_zeros() {
    let fixture = fixture(1000);
    assert_eq!(current_previous(fixture.read("a")), (0, 0));
    assert_eq!(fixture.shared.table.namespace_stats(fixture.counter.namespace()).keys(), 0);
}

#[test]
fn namespaces_and_sizes_are_counted_apart() {
    let fixture = fixture(1000);
    let table = &fixture.shared.table;
    let second = WindowSize::from_millis(1000).unwrap();
    let other = table.counter(table.namespace(b"other").unwrap(), b"other", second);
    let minute = WindowSize::from_millis(60_000).unwrap();
    let longer = table.counter(fixture.counter.namespace(), b"default", minute);
    fixture.add("a", 1);
    for counter in [other, longer] {
        assert_eq!(
            table.read(&counter, table.key(b"a"), &fixture.clock).windows().current,
            Hits::ZERO
        );
    }
}

#[test]
fn a_limit_is_checked_by_the_same_step_that_counts() {
    let fixture = fixture(1000);
    let table = &fixture.shared.table;
    let admission = Admission::Within(hits(3), Algorithm::Fixed);
    let add = || table.add(&fixture.counter, table.key(b"a"), &fixture.clock, Hits::ONE, admission);
    for _ in 0..3 {
        assert!(add().receipt.is_some());
    }
    let refused = add();
    assert!(refused.receipt.is_none());
    assert_eq!(refused.reading.windows().current, hits(3));
    assert_eq!(fixture.read("a").current, hits(3));
}

#[test]
fn hits_are_given_back_to_the_window_they_came_from() {
    let fixture = fixture(1000);
    let table = &fixture.shared.table;
    let add = |value| {
        let admission = Admission::Unconditional;
        let key = table.key(b"a");
        table.add(&fixture.counter, key, &fixture.clock, hits(value), admission).receipt.unwrap()
    };
    let (one, two) = (add(1), add(2));
    table.refund(&fixture.counter, &one);
    assert_eq!(fixture.read("a").current, hits(2));
    fixture.later(1000);
    table.refund(&fixture.counter, &two);
    assert_eq!(fixture.read("a").previous, Hits::ZERO);
    let three = add(3);
    fixture.later(2000);
    fixture.add("a", 10);
    table.refund(&fixture.counter, &three);
    assert_eq!(fixture.read("a").current, hits(10));
}

#[test]
fn counts_are_exact_to_a_thousandth_and_saturate() {
    let fixture = fixture(1000);
    let table = &fixture.shared.table;
    let key = table.key(b"a");
    let add = |thousandths| {
        let value = Hits::from_thousandths(thousandths);
        table
            .add(&fixture.counter, key, &fixture.clock, value, Admission::Unconditional)
            .reading
            .windows()
    };
    for n in 1..=1000 {
        assert_eq!(add(1).current.thousandths(), n);
    }
    assert_eq!(add(100_000_000_000_000).current.thousandths(), 100_000_000_001_000);
    assert_eq!(add(100_000_000_000_000).current, Hits::MAX);
    assert_eq!(add(1).current, Hits::MAX);
}

#[test]
fn a_clock_a_little_behind_counts_in_the_newer_window() {
    let fixture = fixture(1000);
    fixture.later(1000);
    fixture.add("a", 1);
    fixture.clock.set(T + 950);
    let counts = fixture.add("a", 1);
    assert_eq!((counts.current, counts.elapsed), (hits(2), 0));
}

#[test]
fn a_worker_with_an_old_time_reads_the_clock_before_it_turns_a_window() {
    let fixture = fixture(1000);
    fixture.later(1000);
    fixture.add("a", 1);
    fixture.clock.seen.set(T);
    assert_eq!(current_previous(fixture.add("a", 1)), (2, 0));
}

#[test]
fn a_clock_set_back_blocks_nobody_for_longer_than_a_window() {
    let fixture = fixture(1000);
    fixture.add("a", 5);
    fixture.later(1000);
    fixture.add("a", 100);
    // Most of a window back: its hits still count, and the next window starts at zero.
    fixture.clock.set(T + 10);
    assert_eq!(current_previous(fixture.add("a", 1)), (6, 0));
    fixture.clock.set(T + 1000);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 6));
}

#[test]
fn a_clock_set_back_into_the_end_of_a_window_does_not_wait_for_the_next() {
    let fixture = fixture(1000);
    fixture.later(1000);
    fixture.add("a", 1);
    fixture.later(1000);
    fixture.add("a", 1);
    fixture.clock.set(T + 950);
    assert_eq!(current_previous(fixture.add("a", 1)), (2, 0));
}

#[test]
fn hits_that_are_given_back_late_leave_no_debt() {
    let fixture = fixture(1000);
    let table = &fixture.shared.table;
    let admission = Admission::Unconditional;
    fixture.later(1000);
    let late = table.add(&fixture.counter, table.key(b"a"), &fixture.clock, hits(100), admission);
    // The window is cleared, and its time comes again.
    fixture.clock.set(T);
    fixture.add("a", 1);
    fixture.clock.set(T + 1000);
    fixture.add("a", 1);
    table.refund(&fixture.counter, &late.receipt.unwrap());
    assert_eq!(fixture.read("a").current, Hits::ZERO);
    assert_eq!(fixture.add("a", 1).current, Hits::ONE);
}

#[test]
fn a_clock_set_back_further_starts_anew() {
    let fixture = fixture(1000);
    fixture.later(3_600_000);
    fixture.add("a", 100);
    fixture.clock.set(T);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 0));
    assert_eq!(current_previous(fixture.add("a", 1)), (2, 0));
    fixture.later(1000);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 2));
}

#[test]
fn a_worker_that_stood_still_does_not_wipe_out_a_newer_window() {
    let fixture = fixture(1000);
    fixture.later(2000);
    fixture.add("a", 5);
    // This worker's time is two windows old, in the same column.
    fixture.clock.seen.set(T);
    assert_eq!(current_previous(fixture.add("a", 1)), (6, 0));
}

#[test]
fn a_stamp_that_came_round_again_is_not_mistaken() {
    for columns_used in [1, 2] {
        let fixture = fixture(1);
        for _ in 0..columns_used {
            fixture.add("a", 5);
            fixture.later(1);
        }
        // The window and its neighbours have the same stamps after 2^17 windows.
        fixture.clock.set(T + (1 << 17));
        assert_eq!(current_previous(fixture.read("a")), (0, 0));
        assert_eq!(current_previous(fixture.add("a", 1)), (1, 0));
        fixture.later(1);
        assert_eq!(current_previous(fixture.add("a", 1)), (1, 1));
    }
}

#[test]
fn an_old_count_does_not_return_when_the_clock_moves() {
    let fixture = fixture(1);
    fixture.add("a", 5);
    // Two windows after those with the same stamps: the column still has the old word.
    fixture.clock.set(T + (1 << 17) + 2);
    let table = &fixture.shared.table;
    let nothing = Admission::Within(Hits::ZERO, Algorithm::Fixed);
    table.add(&fixture.counter, table.key(b"a"), &fixture.clock, Hits::ONE, nothing);
    fixture.clock.set(T + (1 << 17) + 1);
    assert_eq!(current_previous(fixture.add("a", 1)), (1, 0));
}

#[test]
fn the_longest_and_the_shortest_windows_count() {
    for millis in [1, 366 * 86_400_000] {
        let fixture = fixture(millis);
        fixture.add("a", 1);
        fixture.later(millis - 1);
        assert_eq!(current_previous(fixture.add("a", 1)), (2, 0));
        fixture.later(1);
        assert_eq!(current_previous(fixture.add("a", 1)), (1, 2));
    }
}

#[test]
fn a_full_table_takes_every_key() {
    let fixture = fixture(1000);
    for n in 0..100_000 {
        assert_eq!(fixture.add(&format!("key {n}"), 1).current, Hits::ONE);
    }
    let table = &fixture.shared.table;
    let (zone, namespace) =
        (table.zone_stats(), table.namespace_stats(fixture.counter.namespace()));
    assert_eq!(zone.evicted_ended + zone.evicted_unsent, 0);
    assert_eq!(zone.evicted_sent + namespace.keys(), 100_000);
    // Nearly all of the memory, except for namespaces and cells, has keys.
    assert!(namespace.keys() * 90 > 1 << 20, "{}", namespace.keys());
}

#[test]
fn ended_windows_give_way_first_then_the_least_recently_used() {
    let fixture = fixture(10_000);
    let capacity = 16_000;
    for n in 0..capacity {
        fixture.add(&format!("ended {n}"), 1);
    }
    fixture.later(20_000);
    for n in 0..100 {
        fixture.add(&format!("live {n}"), 1);
    }
    let before = fixture.shared.table.zone_stats();
    for n in 0..3000 {
        fixture.add(&format!("new {n}"), 1);
    }
    let after = fixture.shared.table.zone_stats();
    assert_eq!(before.evicted_sent, after.evicted_sent);
    assert!((0..100).all(|n| fixture.read(&format!("live {n}")).current == Hits::ONE));

    // A busy key stays, however many others arrive.
    for n in 0..50_000 {
        fixture.later(20 * u64::from(n % 10 == 0) / 10);
        fixture.add(&format!("flood {n}"), 1);
        if n % 100 == 0 {
            fixture.add("busy", 1);
        }
    }
    assert!(fixture.read("busy").current.whole() + fixture.read("busy").previous.whole() >= 490);
}

#[test]
fn a_table_is_found_again_but_not_mistaken() {
    let mut fixture = fixture(1000);
    fixture.add("a", 5);
    let again = fixture.shared.open().ok().unwrap();
    let namespace = again.namespace(b"default").unwrap();
    assert_eq!(namespace, fixture.counter.namespace());
    let counter = again.counter(namespace, b"default", fixture.counter.size());
    assert_eq!(again.read(&counter, again.key(b"a"), &fixture.clock).windows().current, hits(5));

    const VERSION_OFFSET: usize = 8;
    fixture.shared.poke(VERSION_OFFSET, 99);
    assert_eq!(fixture.shared.open().err(), Some(LayoutError::OtherLayout));
    fixture.shared.poke(0, 0);
    assert_eq!(fixture.shared.open().err(), Some(LayoutError::NotATable));
}

#[test]
fn events_of_all_workers_are_summed() {
    let fixture = fixture(1000);
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    for worker in [0, 1, 2, 17, 1000] {
        table.set_worker(worker);
        table.count_outcome(&fixture.counter, Outcome::Passed);
        table.count_decided(&fixture.counter, Outcome::Rejected, hits(1));
        fixture.add("a", 1);
    }
    let stats = table.namespace_stats(namespace);
    assert_eq!((stats.outcomes, stats.hits, stats.keys()), ([5, 5, 0], 5_000, 1));
}
