//! A worker without the lease, or that was stopped until another one had it, changes no counter.

use super::*;
use crate::table::zone::lease::IsHeld;

const NUMBER: u64 = T / SIZE;

/// Counts hits of a key, and returns the counter and the receipt.
fn count(fixture: &Fixture, value: i64) -> (CounterRef, Receipt<'_>) {
    let (table, admission) = (&fixture.shared.table, Admission::Unconditional);
    let key = table.key(b"a");
    let counted = table.add(&fixture.counter, key, &fixture.clock, hits(value), admission);
    (fixture.take().remove(0).counter, counted.receipt.unwrap())
}

fn hand_over(fixture: &Fixture, is_held: IsHeld<'_>) {
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    let slots = 0..table.slot_count();
    table.find_changes(slots, namespace, fixture.clock.now(), is_held).unwrap();
}

#[test]
fn no_record_is_written_without_the_lease() {
    const LOST: IsHeld<'static> = &|| false;
    let fixture = Fixture::new(1 << 20);
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    let (now, slots) = (fixture.clock.now(), || 0..table.slot_count());
    let (counter, _) = count(&fixture, 5);
    // Two hits were given back since.
    table.advance_pushed(counter, NUMBER, (hits(0), hits(7)), HELD).unwrap();
    table.set_remote(counter, NUMBER, hits(10), now, HELD).unwrap();
    let written = [
        table.advance_pushed(counter, NUMBER, (hits(7), hits(5)), LOST),
        table.set_remote(counter, NUMBER, hits(20), now, LOST),
        table.withhold_given_back(namespace, LOST),
        table.find_changes(slots(), namespace, now, LOST),
        table.forget_pushed(slots(), namespace, now, LOST),
        table.forget_charged(slots(), namespace, now, LOST),
    ];
    assert_eq!(written, [Err(LeaseLost); 6]);
    assert_eq!(table.pushed_of(counter, NUMBER), hits(7));
    assert_eq!(fixture.current(b"a"), hits(15));
}

/// Another worker pushes the same hits, and that they were given back, so that the record has the
/// value again that the stopped worker is about to replace.
#[test]
fn a_stopped_worker_records_no_hits_that_were_given_back_meanwhile() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    count(&fixture, 1);
    let (counter, receipt) = count(&fixture, 2);
    let record = |from, up_to, lease: &Lease<'_>| {
        let pushed = (hits(from), hits(up_to));
        table.advance_pushed(counter, NUMBER, pushed, &|| lease.is_held())
    };
    let first = lease(&fixture, 1000).unwrap();
    record(0, 1, &first).unwrap();
    let process = Process::start(|| {
        fail::pause_at("pushed.advancing", 1);
        assert_eq!(record(1, 3, &first), Err(LeaseLost));
    });
    assert!(process.wait_for_stop());
    let second = lease(&fixture, 1000 + LIFETIME).unwrap();
    hand_over(&fixture, &|| second.is_held());
    record(1, 3, &second).unwrap();
    table.refund(&fixture.counter, &receipt);
    record(3, 1, &second).unwrap();

    process.signal(libc::SIGCONT);
    assert_eq!(process.wait(), None);
    assert_eq!(table.pushed_of(counter, NUMBER), hits(1));
    table.record_again(counter);
    assert_eq!(fixture.take(), []);
}

#[test]
fn hits_that_were_given_back_are_withheld_after_a_handover_too() {
    let fixture = Fixture::new(1 << 20);
    let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
    count(&fixture, 3);
    let (counter, receipt) = count(&fixture, 2);
    table.advance_pushed(counter, NUMBER, (hits(0), hits(5)), HELD).unwrap();
    hand_over(&fixture, HELD);
    table.refund(&fixture.counter, &receipt);
    table.withhold_given_back(namespace, HELD).unwrap();
    assert_eq!(table.pushed_of(counter, NUMBER), hits(3));
    assert_eq!(fixture.take(), []);
}
