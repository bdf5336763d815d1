//! Names and changes of synced counters, and records of the store's hits.

mod lost_lease;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::key::MAX_NAME_LEN;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::words::fail;
use crate::table::words::meta::Meta;
use crate::table::zone::lease::HELD;
use crate::table::*;
use crate::testing::table::{Fixture, Process, SharedTable};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 1000;
const SMALL: usize = 7 * 4096;

impl Fixture {
    fn new(len: usize) -> Fixture {
        Fixture::over(SharedTable::new(len))
    }

    fn over(shared: SharedTable) -> Fixture {
        let fixture = Fixture::of(shared, b"api", SIZE, T);
        Fixture { counter: fixture.counter.synced(true), ..fixture }
    }

    fn current(&self, key: &[u8]) -> Hits {
        self.read(key).current
    }

    fn take(&self) -> Vec<Change> {
        let table = &self.shared.table;
        let mut changes = Vec::new();
        for group in 0..table.change_groups() {
            table.take_changes(group, self.counter.namespace(), self.clock.now(), |change| {
                changes.push(change);
            });
        }
        changes
    }

    /// Records hits that other nodes have counted in the current window, as a sync does.
    fn record_others(&self, key: &[u8], count: i64) {
        let (table, now) = (&self.shared.table, self.clock.now());
        let counter = table.make_room_for(&self.counter, table.key(key), &self.clock).unwrap();
        table.set_remote(counter, now.0 / SIZE, hits(count), now, HELD).unwrap();
    }
}

/// Returns a key of `len` bytes, different for each `n`.
fn long_key(n: usize, len: usize) -> Vec<u8> {
    let mut key = format!("{n}:").into_bytes();
    key.extend((key.len()..len).map(|i| (i * 7 + n) as u8));
    key
}

#[test]
fn a_change_names_its_key_whatever_its_length() {
    let fixture = Fixture::new(1 << 20);
    let lengths = [3, 8, 31, 32, 33, 79, 80, 81, 128, 200, MAX_NAME_LEN];
    let keys: Vec<_> = lengths.iter().enumerate().map(|(n, &len)| long_key(n, len)).collect();
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
        let window = WindowChange { number, local: hits(2), pushed: Hits::ZERO };
        assert_eq!(change.windows, [window]);
    }
    assert_eq!(changes.len(), keys.len());
}

#[test]
fn a_change_is_taken_once_until_the_next_one() {
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
    fixture.shared.table.record_again(changes[0].counter);
    assert_eq!(fixture.take().len(), 1);
}

#[test]
fn hits_that_the_store_has_are_no_change() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    let number = change.windows[0].number;
    for _ in 0..2 {
        table.advance_pushed(change.counter, number, (hits(0), hits(3)), HELD).unwrap();
    }
    table.record_again(change.counter);
    let left = fixture.take().remove(0).windows[0];
    assert_eq!((left.local, left.pushed), (hits(5), hits(3)));
    // A late answer changes nothing.
    table.advance_pushed(change.counter, number, (hits(0), hits(2)), HELD).unwrap();
    table.advance_pushed(change.counter, number, (hits(3), hits(5)), HELD).unwrap();
    table.record_again(change.counter);
    assert_eq!(fixture.take(), []);
    // Refunded after the push: the difference is negative.
    let admission = Admission::Unconditional;
    let counted = table.add(&fixture.counter, table.key(b"a"), &fixture.clock, hits(1), admission);
    assert_eq!(fixture.take().len(), 1);
    table.advance_pushed(change.counter, number, (hits(5), hits(6)), HELD).unwrap();
    table.refund(&fixture.counter, &counted.receipt.unwrap());
    let back = fixture.take().remove(0).windows[0];
    assert_eq!((back.local, back.pushed), (hits(5), hits(6)));
}

/// A worker is stopped just before it clears the bit of a changed counter, and killed just after
/// that. Meanwhile another one takes over.
#[test]
fn a_process_that_is_stopped_clears_no_bit_that_was_set_later() {
    let later = 1000 + LIFETIME;
    // The next holder takes the lease after the first one, or after the slot was released.
    for is_released in [false, true] {
        let fixture = Fixture::new(1 << 20);
        let (table, namespace) = (&fixture.shared.table, fixture.counter.namespace());
        let take = |lease: &Lease<'_>| {
            let (part, now) = (namespace.into(), fixture.clock.now());
            let mut taken = Vec::new();
            for group in 0..table.change_groups() {
                let is_held = || lease.is_held();
                table.take_changes_at((group, u64::MAX), part, now, &is_held, |change| {
                    taken.push(change.windows[0].local);
                })?;
            }
            Ok(taken)
        };
        let state = table.sync_states(namespace, 1).unwrap().remove(0);
        fixture.add(b"a", 5);
        let process = Process::start(|| {
            let lease = state.take_lease(MonotonicMillis(1000), LIFETIME).unwrap();
            fail::observe(Some(|point| {
                if point == "change.taken" {
                    std::process::abort();
                }
            }));
            fail::pause_at("change.taking", 1);
            assert_eq!(take(&lease), Err(LeaseLost));
        });
        assert!(process.wait_for_stop());
        if is_released {
            table.release_shards(namespace, 0);
        }
        let state = table.sync_states(namespace, 1).unwrap().remove(0);
        let lease = state.take_lease(MonotonicMillis(later), LIFETIME).unwrap();
        assert_eq!(lease.repair(), Repair::FindChanges);
        let (slots, now) = (0..table.slot_count(), fixture.clock.now());
        table.find_changes(slots, namespace, now, &|| lease.is_held()).unwrap();
        assert_eq!(take(&lease), Ok(vec![hits(5)]));
        fixture.add(b"a", 1);

        process.signal(libc::SIGCONT);
        // It notices that it has lost the lease, before it clears a bit.
        assert_eq!(process.wait(), None);
        assert_eq!(take(&lease), Ok(vec![hits(6)]));
    }
}

/// A worker that takes a lease over also finds changed counters of other leases, whose bits the
/// former holder may have cleared when they were put in the place of its own counters.
#[test]
fn a_worker_that_takes_over_finds_the_changes_of_others_too() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    assert_eq!(fixture.take().len(), 1);
    let (slots, other) = (0..table.slot_count(), table.namespace(b"other").unwrap());
    table.find_changes(slots, other, fixture.clock.now(), HELD).unwrap();
    assert_eq!(fixture.take().len(), 1);
}

/// The first part of a key's name is lost to another counter. A process that was about to remove
/// the link to it is stopped, while others give the key a name in the same slot, and push its hits.
#[test]
fn a_process_that_is_stopped_drops_no_name_that_came_later() {
    let mut is_same_slot = 0;
    for n in 0..20 {
        let fixture = Fixture::new(1 << 20);
        let (table, key) = (&fixture.shared.table, format!("{n}"));
        fixture.add(key.as_bytes(), 5);
        let reference = fixture.take().remove(0).counter;
        table.record_again(reference);
        let occupant = table.find(fixture.counter.identity(table.key(key.as_bytes()))).unwrap();
        let (first, meta) = table.first_part(occupant).unwrap();
        first.replace_meta(meta, Meta::free(meta.generation().next())).ok().unwrap();
        let process = Process::start(|| {
            fail::pause_at("name.dropping", 1);
            assert_eq!(fixture.take(), []);
        });
        assert!(process.wait_for_stop());
        fixture.shared.table.record_again(reference);
        assert_eq!(fixture.take(), [], "it has no name");
        fixture.add(key.as_bytes(), 1);
        let change = fixture.take().remove(0);
        let WindowChange { number, local, pushed } = change.windows[0];
        table.advance_pushed(change.counter, number, (pushed, local), HELD).unwrap();
        let (second, _) = table.first_part(occupant).unwrap();
        is_same_slot += usize::from(core::ptr::eq(first, second));

        process.signal(libc::SIGCONT);
        assert_eq!(process.wait(), None);
        fixture.add(key.as_bytes(), 1);
        let change = fixture.take().remove(0);
        assert_eq!(change.windows, [WindowChange { number, local: hits(7), pushed: local }]);
    }
    assert!(is_same_slot > 0, "another slot each time");
}

#[test]
fn hits_of_others_are_recorded_while_a_stopped_process_inserts_the_counter() {
    let fixture = Fixture::new(1 << 20);
    let process = Process::start(|| {
        fail::pause_at("insert.tagged", 1);
        fixture.add(b"a", 1);
    });
    assert!(process.wait_for_stop());
    fixture.record_others(b"a", 10);
    assert_eq!(fixture.current(b"a"), hits(10));
    process.signal(libc::SIGCONT);
    assert_eq!(process.wait(), None);
    assert_eq!(fixture.current(b"a"), hits(11));
}

#[test]
fn hits_of_others_are_recorded_after_a_process_died_that_inserted_the_counter() {
    let fixture = Fixture::new(1 << 20);
    let process = Process::start(|| {
        fail::arm("insert.tagged", 1);
        fixture.add(b"a", 1);
    });
    assert_eq!(process.wait(), Some(libc::SIGABRT));
    fixture.record_others(b"a", 10);
    assert_eq!(fixture.current(b"a"), hits(10));
}

#[test]
fn the_rest_of_the_cluster_counts_too() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    let number = change.windows[0].number;
    table.set_remote(change.counter, number, hits(10), fixture.clock.now(), HELD).unwrap();
    assert_eq!(fixture.current(b"a"), hits(15));
    table.set_remote(change.counter, number, hits(-2), fixture.clock.now(), HELD).unwrap();
    assert_eq!(fixture.current(b"a"), hits(3));
    table.set_remote(change.counter, number, hits(-20), fixture.clock.now(), HELD).unwrap();
    assert_eq!(fixture.current(b"a"), Hits::ZERO);
    // This is not a change of this node.
    assert_eq!(fixture.take(), []);
}

#[test]
fn windows_that_cannot_matter_are_no_change() {
    let fixture = Fixture::new(1 << 20);
    fixture.add(b"a", 1);
    fixture.clock.set(T + SIZE);
    fixture.add(b"a", 2);
    let changes = fixture.take();
    let numbers: Vec<_> = changes[0].windows.iter().map(|window| window.number).collect();
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
        table.set_remote(change.counter, T / SIZE, hits(1000), fixture.clock.now(), HELD).unwrap();
        table.advance_pushed(change.counter, T / SIZE, (hits(0), hits(1000)), HELD).unwrap();
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
            .add(counter, table.key(b"a"), &fixture.clock, Hits::ONE, admission)
            .reading
            .windows()
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
    let lengths = [10, 40, 100, 200, MAX_NAME_LEN];
    for n in 0..20_000 {
        let key = long_key(n, lengths[n % lengths.len()]);
        assert_eq!(fixture.add(&key, 1).current, Hits::ONE);
        if n % 10 == 0 {
            fixture.add(b"busy", 1);
        }
        fixture.clock.set(T + n as u64 / 100);
    }
    assert_eq!(fixture.current(b"busy"), hits(2000));
    // The last keys of every length exist, with their names.
    let changes = fixture.take();
    for len in lengths {
        assert!(changes.iter().any(|change| change.key.len() == len), "{len}");
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
fn a_full_table_counts_lost_unsent_hits() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    for n in 0..1000 {
        fixture.add(&long_key(n, 20), 1);
    }
    let unsent = table.zone_stats();
    assert!(unsent.evicted_unsent > 500 && unsent.evicted_sent == 0, "{unsent:?}");

    // A counter whose hits the store has is evicted before others.
    for change in fixture.take() {
        let WindowChange { number, local, .. } = change.windows[0];
        table.advance_pushed(change.counter, number, (hits(0), local), HELD).unwrap();
    }
    for n in 0..20 {
        fixture.add(&long_key(n, 21), 1);
    }
    let sent = table.zone_stats();
    assert!(sent.evicted_sent > 0, "{sent:?}");
    assert_eq!(sent.evicted_unsent, unsent.evicted_unsent);
}

#[test]
fn the_longest_name_fits_in_the_smallest_zone_and_a_longer_one_is_not_kept() {
    let fixture = Fixture::new(SMALL);
    let (longest, longer) = (long_key(1, MAX_NAME_LEN), long_key(1, MAX_NAME_LEN + 1));
    for key in [&longest, &longer] {
        assert_eq!(fixture.add(key, 1).current, Hits::ONE);
        assert_eq!(fixture.add(key, 1).current, hits(2));
    }
    let changes = fixture.take();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].key, longest);
}

#[test]
fn counts_saturate_and_nobody_is_admitted_by_that() {
    let fixture = Fixture::new(1 << 20);
    let (table, number) = (&fixture.shared.table, T / SIZE);
    let add = |value, admission| {
        let key = table.key(b"a");
        table.add(&fixture.counter, key, &fixture.clock, value, admission)
    };
    let is_refused = || {
        let algorithm = Algorithm::Sliding;
        let limits = [Hits::ONE, Hits::MAX];
        limits.iter().all(|limit| {
            let counted = add(Hits::ONE, Admission::Within(*limit, algorithm));
            !counted.admitted && counted.reading.windows().current == Hits::MAX
        })
    };
    let admitted = add(Hits::ONE, Admission::Within(Hits::MAX, Algorithm::Sliding));
    for _ in 0..3 {
        let counted = add(Hits::MAX, Admission::Unconditional);
        assert_eq!(counted.reading.windows().current, Hits::MAX);
        assert!(is_refused());
    }
    let change = fixture.take().remove(0);
    let pushed = WindowChange { number, local: Hits::MAX, pushed: Hits::ZERO };
    assert_eq!(change.windows, [pushed]);
    table.advance_pushed(change.counter, number, (Hits::ZERO, Hits::MAX), HELD).unwrap();
    // Other nodes' hits by the store's total, which saturates, too.
    for others in [Hits::ZERO, Hits::ONE, Hits::MAX] {
        table.set_remote(change.counter, number, others, fixture.clock.now(), HELD).unwrap();
        assert!(is_refused(), "{others}");
        // There is nothing left to push.
        add(Hits::MAX, Admission::Unconditional);
        assert!(fixture.take().iter().all(|it| it.windows.is_empty()));
    }
    // A refund is limited to the hits that were counted.
    table.set_remote(change.counter, number, Hits::ZERO, fixture.clock.now(), HELD).unwrap();
    table.refund(&fixture.counter, &admitted.receipt.unwrap());
    assert_eq!(fixture.current(b"a"), Hits::MAX.minus(Hits::ONE));
    assert!(!add(Hits::ONE, Admission::Within(hits(9), Algorithm::Sliding)).admitted);
}

#[test]
fn memory_per_key_is_bounded() {
    const LEN: usize = 10 << 20;
    // The key at which the first eviction happens is random.
    const TABLES: u64 = 8;
    for (is_synced, at_most) in [(false, 128), (true, 200)] {
        let mut keys = 0;
        for secret in 0..TABLES {
            let shared = SharedTable::with_secret(LEN, [secret, 7]);
            let mut fixture = Fixture::over(shared);
            fixture.counter = fixture.counter.synced(is_synced);
            let evicted = || fixture.shared.table.zone_stats() != ZoneStats::default();
            let mut added = (0..).take_while(|&n| {
                fixture.add(&long_key(n, 32), 1);
                !evicted()
            });
            keys += added.by_ref().count();
        }
        let bytes = LEN * TABLES as usize / keys;
        println!("synced: {is_synced}, {bytes} bytes");
        assert!(bytes <= at_most, "{bytes} bytes");
    }
}

const LIFETIME: u64 = 3000;

fn lease<'m>(fixture: &'m Fixture, now: u64) -> Option<Lease<'m>> {
    let table = &fixture.shared.table;
    let states = table.sync_states(fixture.counter.namespace(), 1).unwrap();
    states[0].take_lease(MonotonicMillis(now), LIFETIME)
}

/// Returns the changes as records of a batch that sends them completely.
fn records(changes: &[Change]) -> Vec<BatchRecord> {
    let windows = changes.iter().flat_map(|change| {
        change.windows.iter().map(|window| BatchRecord {
            counter: change.counter,
            window: window.number,
            up_to: window.local,
            diff: window.local.minus(window.pushed),
        })
    });
    windows.collect()
}

#[test]
fn a_lease_has_one_holder_until_it_ends_or_is_given_back() {
    let fixture = Fixture::new(1 << 20);
    let first = lease(&fixture, 1000).unwrap();
    assert_eq!(first.repair(), Repair::None);
    assert!(lease(&fixture, 1000 + LIFETIME - 1).is_none());
    first.renew(MonotonicMillis(2000), LIFETIME).unwrap();
    assert!(lease(&fixture, 2000 + LIFETIME - 1).is_none());

    // The lease was not released, so the next holder must check all counters.
    let second = lease(&fixture, 2000 + LIFETIME).unwrap();
    assert_eq!(second.repair(), Repair::FindChanges);
    assert_eq!(first.renew(MonotonicMillis(9000), LIFETIME), Err(LeaseLost));
    assert_eq!(first.set_position(Some([5, 0])), Err(LeaseLost));
    second.repaired().unwrap();
    second.release();
    assert_eq!(lease(&fixture, 2001).unwrap().repair(), Repair::None);
}

#[test]
fn progress_recorded_without_the_lease_has_everything_fetched_anew() {
    let fixture = Fixture::new(1 << 20);
    let first = lease(&fixture, 1000).unwrap();
    first.set_position(Some([4, 0])).unwrap();
    let second = lease(&fixture, 1000 + LIFETIME).unwrap();
    second.repaired().unwrap();
    // The second holder fetches the changes after its position, while the first one continues and
    // records old totals.
    second.fetch_anew_if_due().unwrap();
    assert_eq!(second.position(), Some([4, 0]));
    assert_eq!(first.confirm_applied(), Err(LeaseLost));
    second.set_position(Some([5, 0])).unwrap();
    second.repaired().unwrap();
    second.release();

    let third = lease(&fixture, 2000 + LIFETIME).unwrap();
    third.fetch_anew_if_due().unwrap();
    assert_eq!(third.position(), None);
    third.set_position(Some([6, 0])).unwrap();
    third.fetch_anew_if_due().unwrap();
    assert_eq!(third.position(), Some([6, 0]), "once");
}

#[test]
fn a_store_that_only_removed_the_node_has_the_charges_of_its_reserves() {
    let fixture = Fixture::new(1 << 20);
    let lease = lease(&fixture, 1000).unwrap();
    for is_lost in [true, false] {
        lease.enter_epoch(7).unwrap();
        assert_eq!(lease.repair(), Repair::SendAnew { is_lost });
        lease.repaired().unwrap();
    }
}

#[test]
fn namespaces_and_shards_have_leases_of_their_own() {
    let fixture = Fixture::new(2 << 20);
    let table = &fixture.shared.table;
    let states = table.sync_states(fixture.counter.namespace(), 2).unwrap();
    let take = |state: &SyncState<'static>| state.take_lease(MonotonicMillis(1000), LIFETIME);
    let (one, two) = (take(&states[0]).unwrap(), take(&states[1]).unwrap());
    one.set_position(Some([7, 0])).unwrap();
    assert_eq!((one.position(), two.position()), (Some([7, 0]), None));
    assert!(take(&states[1]).is_none());
}

#[test]
fn a_batch_has_a_buffer_while_it_is_sealed_and_else_a_record_of_its_own() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    for n in 0..64 {
        fixture.add(&long_key(n, 20), 1);
    }
    let sent = records(&fixture.take());
    let states = table.sync_states(fixture.counter.namespace(), 64).unwrap();
    let now = MonotonicMillis(1000);
    let leases: Vec<_> =
        states.iter().map(|state| state.take_lease(now, LIFETIME).unwrap()).collect();
    // Each shard has a batch in flight to a store that is down; the late ones have a small one.
    let mut sizes = Vec::new();
    for (lease, first) in leases.iter().zip(0..) {
        let size = lease.batch_capacity().unwrap();
        assert_eq!(lease.batch_capacity(), Ok(size), "once more");
        assert_eq!(lease.seal(&sent[first..first + 1], 7), Ok(name(1, 7)));
        sizes.push(size);
    }
    let buffers = sizes.iter().take_while(|size| **size > 1).count();
    assert!((16..40).contains(&buffers), "{sizes:?}");
    assert!(sizes[buffers..].iter().all(|size| *size == 1), "{sizes:?}");
    for (lease, first) in leases.iter().zip(0..) {
        let sealed = sent[first..first + 1].to_vec();
        assert_eq!(lease.sealed(table), Some((name(1, 7), sealed)));
    }
    // The next holder has the batch, whatever is claimed meanwhile.
    let later = MonotonicMillis(1000 + LIFETIME);
    let successor = states[0].take_lease(later, LIFETIME).unwrap();
    assert_eq!(successor.sealed(table), Some((name(1, 7), sent[..1].to_vec())));
    // A buffer that one does not need any more goes to the next one.
    let late = &leases[63];
    assert_eq!(late.acknowledge(1, UnixMillis(0)), Ok(()));
    assert_eq!(late.batch_capacity(), Ok(1));
    successor.acknowledge(1, UnixMillis(0)).unwrap();
    assert_eq!(successor.sealed(table), None);
    let later = MonotonicMillis(1000 + 2 * LIFETIME);
    let late = states[63].take_lease(later, LIFETIME).unwrap();
    assert_eq!(late.batch_capacity(), Ok(sizes[0]));
    assert_eq!(late.seal(&sent[..sizes[0]], 8), Ok(name(2, 8)));
    assert_eq!(late.sealed(table), Some((name(2, 8), sent[..sizes[0]].to_vec())));
    // A buffer that was claimed and not used is released.
    late.acknowledge(2, UnixMillis(0)).unwrap();
    assert_eq!(late.batch_capacity(), Ok(sizes[0]));
    late.release();
    let again = states[0].take_lease(MonotonicMillis(1000 + 3 * LIFETIME), LIFETIME);
    assert_eq!(again.unwrap().batch_capacity(), Ok(sizes[0]));
}

#[test]
fn a_buffer_is_claimed_from_one_that_died_unless_its_batch_is_sealed() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let sent = records(&fixture.take());
    let states = table.sync_states(fixture.counter.namespace(), 2).unwrap();
    let take = |shard: usize, at| states[shard].take_lease(MonotonicMillis(at), LIFETIME);
    // A zone of this size has one buffer.
    let dead = take(0, 1000).unwrap();
    assert_eq!(dead.batch_capacity(), Ok(8));
    let other = take(1, 1000).unwrap();
    assert_eq!(other.batch_capacity(), Ok(1));
    other.release();
    // Until another worker has the lease, the first one may only be slow.
    let other = take(1, 8000).unwrap();
    assert_eq!(other.batch_capacity(), Ok(1));
    other.release();
    let successor = take(0, 8000).unwrap();
    let other = take(1, 8000).unwrap();
    assert_eq!(other.batch_capacity(), Ok(8));
    assert_eq!(other.seal(&sent, 9), Ok(name(1, 9)));
    // It continues, and changes nothing.
    assert_eq!(dead.seal(&sent, 9), Err(LeaseLost));
    assert_eq!(successor.batch_capacity(), Ok(1));
    assert_eq!(other.sealed(table), Some((name(1, 9), sent.clone())));
    // A new epoch does not need it.
    other.enter_epoch(7).unwrap();
    successor.release();
    let successor = take(0, 8000).unwrap();
    assert_eq!(successor.batch_capacity(), Ok(8));
}

#[test]
fn a_node_has_an_id_that_lasts() {
    let fixture = Fixture::new(1 << 20);
    let node = fixture.shared.table.node();
    assert_eq!(fixture.shared.open().unwrap().node(), node);
    assert_ne!(node, [0, 0]);
}

/// Returns the name of a batch that a test has sealed.
fn name(number: u64, nonce: u32) -> BatchName {
    BatchName { number, nonce }
}

#[test]
fn a_sealed_batch_is_sent_again_by_whoever_takes_over() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    fixture.add(b"b", 7);
    let sent = records(&fixture.take());
    let first = lease(&fixture, 1000).unwrap();
    assert_eq!(first.sealed(table), None);
    assert_eq!(first.acknowledged(), BatchName::default());
    assert_eq!(first.seal(&sent, 0xff12_3456), Ok(name(1, 0x12_3456)));
    fixture.add(b"a", 1);

    let second = lease(&fixture, 9000).unwrap();
    assert_eq!(second.sealed(table), Some((name(1, 0x12_3456), sent.clone())));
    for record in &sent {
        let from = record.up_to.minus(record.diff);
        table.advance_pushed(record.counter, record.window, (from, record.up_to), HELD).unwrap();
    }
    second.acknowledge(1, UnixMillis(50_000)).unwrap();
    second.acknowledge(1, UnixMillis(50_000)).unwrap();
    assert_eq!(second.sealed(table), None);
    assert_eq!(second.acknowledged(), name(1, 0x12_3456));

    // The first one continues, and can seal nothing.
    assert_eq!(first.seal(&sent, 9), Err(LeaseLost));
    assert_eq!(first.acknowledge(2, UnixMillis(0)), Err(LeaseLost));
    let left = records(&fixture.take());
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].up_to, left[0].diff), (hits(6), hits(1)));
    assert_eq!(second.seal(&left, 3), Ok(name(2, 3)));
    assert_eq!(second.sealed(table), Some((name(2, 3), left)));
    assert_eq!(second.acknowledged(), name(1, 0x12_3456));
    // A shorter life does not shorten a longer one.
    second.acknowledge(2, UnixMillis(40_000)).unwrap();
    assert_eq!((second.acknowledged(), second.known_until()), (name(2, 3), UnixMillis(50_000)));
}

#[test]
fn records_keep_their_amounts() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let counter = fixture.take()[0].counter;
    let records: Vec<_> = [
        (0, Hits::ZERO, Hits::ZERO),
        (1 << 40, Hits::MAX, Hits::MAX),
        (7, hits(3), Hits::from_thousandths(-1)),
        (T, Hits::ZERO, Hits::ZERO.minus(Hits::MAX)),
    ]
    .map(|(window, up_to, diff)| BatchRecord { counter, window, up_to, diff })
    .into();
    let lease = lease(&fixture, 1000).unwrap();
    lease.seal(&records, 7).unwrap();
    assert_eq!(lease.sealed(table), Some((name(1, 7), records)));
}

#[test]
fn a_counter_that_left_the_table_leaves_a_sealed_batch() {
    let fixture = Fixture::new(SMALL);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let lease = lease(&fixture, 1000).unwrap();
    lease.seal(&records(&fixture.take()), 7).unwrap();
    for n in 0..5000 {
        fixture.add(&long_key(n, 20), 9);
    }
    assert_eq!(lease.sealed(table), Some((name(1, 7), vec![])));
}

#[test]
fn changes_that_were_taken_and_lost_are_found() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    fixture.add(b"b", 7);
    let changes = fixture.take();
    let a = &changes[0];
    let WindowChange { number, local, .. } = a.windows[0];
    table.advance_pushed(a.counter, number, (hits(0), local), HELD).unwrap();
    assert_eq!(fixture.take(), []);
    table
        .find_changes(0..usize::MAX, fixture.counter.namespace(), fixture.clock.now(), HELD)
        .unwrap();
    assert_eq!(fixture.take(), changes[1..]);
}

#[test]
fn in_a_new_epoch_everything_is_sent_anew() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let changes = fixture.take();
    let WindowChange { number, local, .. } = changes[0].windows[0];
    table.advance_pushed(changes[0].counter, number, (hits(0), local), HELD).unwrap();
    let lease = lease(&fixture, 1000).unwrap();
    lease.set_position(Some([9, 1])).unwrap();
    lease.seal(&records(&changes), 7).unwrap();
    lease.acknowledge(1, UnixMillis(0)).unwrap();

    lease.enter_epoch(77).unwrap();
    assert_eq!((lease.epoch(), lease.acknowledged()), (77, name(0, 0)));
    assert_eq!((lease.position(), lease.sealed(table)), (None, None));
    assert_eq!(lease.repair(), Repair::SendAnew { is_lost: true });
    table
        .forget_pushed(0..usize::MAX, fixture.counter.namespace(), fixture.clock.now(), HELD)
        .unwrap();
    lease.repaired().unwrap();
    assert_eq!(lease.repair(), Repair::None);
    assert_eq!(fixture.take(), changes);
}

#[test]
fn epochs_in_which_something_was_pushed_are_remembered() {
    let fixture = Fixture::new(1 << 20);
    fixture.add(b"a", 5);
    let records = records(&fixture.take());
    let lease = lease(&fixture, 1000).unwrap();
    for epoch in 1..=6 {
        lease.enter_epoch(epoch).unwrap();
        // Not the last one, whose outcome is unknown.
        assert!(!lease.has_left(epoch));
        lease.seal(&records, 7).unwrap();
        if epoch != 5 {
            lease.acknowledge(1, UnixMillis(0)).unwrap();
        }
        // The same epoch, with other numbers.
        lease.enter_epoch(epoch).unwrap();
        assert!(!lease.has_left(epoch));
        assert_eq!(lease.may_have_left_more(), epoch > 3);
        lease.seal(&records, 7).unwrap();
    }
    lease.enter_epoch(7).unwrap();
    let left: Vec<_> = (1..=7).filter(|epoch| lease.has_left(*epoch)).collect();
    assert_eq!(left, [4, 5, 6]);
    lease.enter_epoch(8).unwrap();
    assert!(!lease.has_left(7), "nothing was pushed in it");
}

#[test]
fn a_node_with_another_identity_sends_the_sealed_batch_as_its_first() {
    let fixture = Fixture::new(2 << 20);
    let table = &fixture.shared.table;
    fixture.add(b"a", 5);
    let records = records(&fixture.take());
    let states = table.sync_states(fixture.counter.namespace(), 2).unwrap();
    let take = |shard: usize| states[shard].take_lease(MonotonicMillis(1000), LIFETIME);
    let (one, two) = (take(0).unwrap(), take(1).unwrap());
    one.seal(&records, 7).unwrap();
    one.acknowledge(1, UnixMillis(0)).unwrap();
    one.seal(&records, 8).unwrap();
    let first = table.node();
    assert!(!table.record_identity());

    one.take_identity(table, 77).unwrap();
    let second = table.node();
    assert_ne!(second, first);
    assert_eq!((one.node(table), two.node(table)), (second, first));
    assert_eq!(one.acknowledged(), BatchName::default());
    assert_eq!(one.sealed(table).unwrap().0.number, 1);
    assert_eq!(one.sealed(table).unwrap().1, records);
    assert_eq!([table.record_identity(), table.record_identity()], [true, false]);
    // The other sync notices it later.
    two.take_identity(table, 78).unwrap();
    assert_eq!((table.node(), two.node(table)), (second, second));
    two.take_identity(table, 79).unwrap();
    assert_ne!(two.node(table), second);
    assert!(table.record_identity());
}

#[test]
fn changes_are_taken_by_namespace() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    let other = table.namespace(b"other").unwrap();
    let counter = table.counter(other, b"other", fixture.counter.size());
    let counter = counter.synced(true);
    fixture.add(b"a", 5);
    let admission = Admission::Unconditional;
    table.add(&counter, table.key(b"a"), &fixture.clock, hits(3), admission);
    assert_eq!(fixture.take().len(), 1);
    assert_eq!(fixture.take(), []);
    let mut others = Vec::new();
    for group in 0..table.change_groups() {
        let now = fixture.clock.now();
        table.take_changes(group, other, now, |change| others.push(change));
    }
    assert_eq!(others.len(), 1);
    assert_eq!(others[0].windows[0].local, hits(3));
}

#[test]
fn changes_are_divided_by_key_and_only_the_part_that_is_asked_for_is_taken() {
    let fixture = Fixture::new(1 << 20);
    let table = &fixture.shared.table;
    let (namespace, now) = (fixture.counter.namespace(), fixture.clock.now());
    for n in 0..200 {
        fixture.add(&[n], 1);
    }
    let shard_of = |key: &[u8]| u16::from(key[0] % 3);
    let divided = table.divide_changes(namespace, 3, shard_of);
    assert_eq!(divided.len(), 3);
    // In other places, nothing is taken.
    for (shard, other) in [(0, 1), (1, 1), (2, 2), (0, 0)] {
        let has_key = |key: &[u8]| shard_of(key) == shard;
        let part = Part { namespace, has_key: Some(&has_key) };
        let mut keys = Vec::new();
        for occupant in &divided[other] {
            table
                .take_changes_at(*occupant, part, now, HELD, |change| keys.push(change.key[0]))
                .unwrap();
        }
        keys.sort();
        let expected = (0..200).filter(|n| usize::from(shard) == other && n % 3 == other as u8);
        assert_eq!(keys, expected.collect::<Vec<_>>());
    }
    assert_eq!(fixture.take(), []);
    let divided = table.divide_changes(namespace, 3, shard_of);
    assert!(divided.iter().all(Vec::is_empty));

    // What the store lost of one part, it did not lose of another.
    let has_key = |key: &[u8]| shard_of(key) == 1;
    let part = Part { namespace, has_key: Some(&has_key) };
    let counted = |change: &Change| change.windows[0].local;
    for n in 0..200 {
        fixture.add(&[n], 1);
    }
    for change in fixture.take() {
        let window = change.windows[0].number;
        table.advance_pushed(change.counter, window, (Hits::ZERO, counted(&change)), HELD).unwrap();
    }
    table.forget_pushed(0..usize::MAX, part, now, HELD).unwrap();
    let changes = fixture.take();
    assert_eq!(changes.len(), (0..200).filter(|n| n % 3 == 1).count());
    assert!(changes.iter().all(|change| shard_of(&change.key) == 1));
}

#[test]
fn keys_of_the_store_have_a_place_but_push_out_none_that_count_here() {
    let fixture = Fixture::new(SMALL);
    let (table, counter, clock) = (&fixture.shared.table, &fixture.counter, &fixture.clock);
    let number = T / SIZE;
    let note = |key: &[u8]| {
        let occupant = table.make_room_for(counter, table.key(key), clock);
        occupant
            .map(|counter| table.set_remote(counter, number, hits(3), clock.now(), HELD).unwrap())
    };
    assert!(note(b"remote").is_some());
    assert_eq!(fixture.current(b"remote"), hits(3));
    assert_eq!(fixture.add(b"remote", 1).current, hits(4));

    // More than fit: some do not, and those that count here stay.
    for n in 0..250 {
        fixture.add(&long_key(n, 20), 1);
    }
    let local = || -> Vec<_> { (0..250).map(|n| fixture.current(&long_key(n, 20))).collect() };
    let (before, evicted) = (local(), table.zone_stats().evicted_unsent);
    let keys = (0..5000).map(|n| long_key(n, 21));
    let placed = keys.filter(|key| note(key).is_some()).count();
    assert!((1..5000).contains(&placed), "{placed}");
    assert_eq!(local(), before);
    assert_eq!(table.zone_stats().evicted_unsent, evicted);
}

#[test]
fn a_key_that_only_others_count_stays_in_use() {
    let fixture = Fixture::new(1 << 20);
    let (table, clock) = (&fixture.shared.table, &fixture.clock);
    let remote = table.make_room_for(&fixture.counter, table.key(b"a"), clock).unwrap();
    for n in 0..10 {
        clock.set(T + n * SIZE);
        table.set_remote(remote, T / SIZE + n, hits(5), clock.now(), HELD).unwrap();
    }
    assert_eq!(fixture.current(b"a"), hits(5));
    assert_eq!(fixture.add(b"a", 1).previous, hits(5));
    // Not used for long: all is forgotten before anything is noted.
    clock.set(T + 1000 * SIZE);
    table.set_remote(remote, T / SIZE + 1000, hits(1), clock.now(), HELD).unwrap();
    assert_eq!(fixture.current(b"a"), hits(1));
}

#[test]
fn hits_whose_window_ends_unsent_are_counted_as_dropped() {
    let fixture = Fixture::new(1 << 20);
    let (table, clock) = (&fixture.shared.table, &fixture.clock);
    let dropped = || table.namespace_stats(fixture.counter.namespace()).dropped;
    fixture.add(b"a", 5);
    let change = fixture.take().remove(0);
    table
        .advance_pushed(change.counter, change.windows[0].number, (hits(0), hits(2)), HELD)
        .unwrap();
    clock.set(T + SIZE);
    fixture.add(b"a", 7);
    assert_eq!(dropped(), 0);
    clock.set(T + 2 * SIZE);
    fixture.add(b"a", 1);
    assert_eq!(dropped(), 3000);
    clock.set(T + 3 * SIZE);
    fixture.add(b"a", 1);
    assert_eq!(dropped(), 10_000);
}

#[test]
fn few_pending_counters_are_counted_and_many_estimated() {
    let fixture = Fixture::new(8 << 20);
    let (table, clock) = (&fixture.shared.table, &fixture.clock);
    let other = table.namespace(b"other").unwrap();
    let of_other = table.counter(other, b"other", fixture.counter.size());
    let of_other = of_other.synced(true);
    let add_to_other = |n| {
        let key = long_key(n, 20);
        table.add(&of_other, table.key(&key), clock, hits(1), Admission::Unconditional);
    };
    let pending = || {
        let pending = table.pending(clock.now(), LookedAt::BOUNDED);
        [fixture.counter.namespace(), other].map(|namespace| pending.of(namespace))
    };
    assert_eq!(pending(), [0, 0]);
    for n in 0..500 {
        fixture.add(&long_key(n, 20), 1);
    }
    (0..500).for_each(add_to_other);
    assert_eq!(pending(), [500, 500]);
    // Hits that were given back again are nothing that the store lacks.
    fixture.add(&long_key(0, 20), -1);
    assert_eq!(pending(), [499, 500]);
    for n in 500..4000 {
        fixture.add(&long_key(n, 20), 1);
    }
    (500..16_000).for_each(add_to_other);
    // A sample of 1024 of 20,000: three standard deviations are some 20 %.
    let [few, many] = pending();
    assert!((3000..5000).contains(&few), "{few}");
    assert!((15_000..17_000).contains(&many), "{many}");
}

#[test]
fn one_bounded_look_finds_pending_counters_of_all_namespaces() {
    let fixture = Fixture::new(32 << 20);
    let (table, clock) = (&fixture.shared.table, &fixture.clock);
    for n in 0..100_usize {
        let name = format!("namespace {n}");
        let namespace = table.namespace(name.as_bytes()).unwrap();
        let counter = table.counter(namespace, name.as_bytes(), fixture.counter.size());
        for key in 0..1000 {
            let admission = Admission::Unconditional;
            let key = long_key(key, 20);
            let key = table.key(&key);
            table.add(&counter.synced(true), key, clock, hits(1), admission);
        }
    }
    let bounded = LookedAt { groups: 2000, counters: 5000 };
    assert!(table.change_groups() > 3 * bounded.groups);
    let sum = |pending: &Pending| pending.counters.iter().sum::<u64>();
    // Whichever part is looked at.
    for second in 0..5 {
        let now = UnixMillis(clock.now().0 + second);
        let pending = table.pending(now, bounded);
        assert_eq!(pending.looked_at, bounded);
        assert!((90_000..110_000).contains(&sum(&pending)), "{pending:?}");
    }
    let all = LookedAt { groups: usize::MAX, counters: usize::MAX };
    let pending = table.pending(clock.now(), all);
    assert_eq!(pending.looked_at.counters, 100_000);
    assert_eq!(pending.looked_at.groups, table.change_groups());
    assert_eq!(sum(&pending), 100_000);
}
