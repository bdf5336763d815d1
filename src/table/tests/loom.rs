//! Tests the table's own code with loom, which runs every interleaving of two processes' steps, up
//! to a number of preemptions, with every value that the memory model allows them to read.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features loom_tests`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::thread;

use crate::policy::algorithm::{Algorithm, ElasticCount, LevelKind, MovingCount, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::identity::{Identity, KeyHash, Mask};
use crate::table::words::meta::Meta;
use crate::table::words::slot::{Bucket, WAYS};
use crate::table::zone::events::{NamespaceLine, SharedLine, ZoneLine};
use crate::table::zone::layout::{DirectoryEntry, Parts};
use crate::table::zone::lease::HELD;
use crate::table::zone::sketch::Sketches;
use crate::table::*;

pub(super) const T: u64 = 1_700_000_000_000;
pub(super) const SIZE: u64 = 1000;

/// A clock that does not advance.
#[derive(Clone, Copy)]
pub(super) struct At(pub(super) u64);

impl Clock for At {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0)
    }

    fn fresh(&self) -> UnixMillis {
        UnixMillis(self.0)
    }
}

/// A table with buckets of two slots, and a counter in it.
#[derive(Clone, Copy)]
struct Fixture {
    table: &'static CounterTable<'static>,
    pub(super) counter: Counter,
}

fn fixture() -> Fixture {
    fixture_of(2)
}

/// Creates a table, and a counter in it.
pub(super) fn table_and_counter() -> (&'static CounterTable<'static>, Counter) {
    let Fixture { table, counter } = fixture();
    (table, counter)
}

pub(crate) fn leak<T: Default>(count: usize) -> &'static [T] {
    Box::leak((0..count).map(|_| T::default()).collect())
}

fn fixture_of(buckets: usize) -> Fixture {
    fixture_with(buckets, 0)
}

/// Creates a table with a directory, syncs of this number of namespaces, and one buffer for
/// batches.
fn fixture_with(buckets: usize, syncs: usize) -> Fixture {
    let namespaces = syncs.max(1);
    let parts = Parts {
        secret: [1, 2],
        configuration: &leak(1)[0],
        identity: &leak(1)[0],
        resets: &leak(1)[0],
        counted_sizes: &[],
        counted_rates: &[],
        directory: leak::<DirectoryEntry>(namespaces),
        namespace_lines: leak::<NamespaceLine>(namespaces),
        shared_lines: leak::<SharedLine>(namespaces),
        named: &[],
        zone_lines: leak::<ZoneLine>(1),
        sync_lines: leak(namespaces),
        sync_slots: leak(syncs),
        definitions: leak(1),
        buffers: leak(1),
        records: leak(2),
        near: leak(1),
        sketches: Sketches {
            heads: leak(1),
            hashes: leak(2),
            counts: leak(2),
            keys: leak(2),
            hints: leak(2),
        },
        tags: leak(buckets),
        dirty: leak(1),
        holders: leak(4),
        marks: leak(1),
        buckets: leak::<Bucket>(buckets),
    };
    let table: &'static CounterTable = Box::leak(Box::new(CounterTable::over(parts)));
    let size = WindowSize::from_millis(SIZE).unwrap();
    let (mask, namespace) = (Mask([0; 2]), NamespaceIndex(0));
    let counter = Counter {
        mask,
        namespace,
        size,
        kind: StoredKind::Windows,
        meta: Meta::counter(namespace, size, StoredKind::Windows),
        begins_with_hits: true,
        number_mask: u64::MAX,
        is_synced: false,
        early: EarlyShare::OFF,
        lines: 0,
    };
    Fixture { table, counter }
}

/// Creates a table, a synced counter in it, and its sync.
pub(super) fn synced() -> (&'static CounterTable<'static>, Counter, SyncState<'static>) {
    let (Fixture { table, counter }, [state, _], _) = syncs();
    (table, counter, state)
}

/// Creates a table with levels.
fn fixture_of_levels() -> Fixture {
    let Fixture { table, counter } = fixture();
    let kind = StoredKind::Level(LevelKind::Elastic);
    Fixture {
        table,
        counter: Counter {
            kind,
            meta: Meta::counter(counter.namespace, counter.size, kind),
            begins_with_hits: false,
            number_mask: 0,
            ..counter
        },
    }
}

/// Creates a table with logs, and slots for their blocks.
fn fixture_of_logs() -> Fixture {
    let Fixture { table, counter } = fixture_of(4);
    let kind = StoredKind::Log;
    Fixture {
        table,
        counter: Counter {
            kind,
            meta: Meta::counter(counter.namespace, counter.size, kind),
            begins_with_hits: false,
            number_mask: 0,
            ..counter
        },
    }
}

/// Returns keys with the same first bucket, its first slot as their home, and the same tag.
pub(super) fn key(n: u64) -> Key<'static> {
    Key { bytes: b"key", hash: KeyHash([n, 0]) }
}

impl Fixture {
    fn add(&self, key: Key<'_>, at: u64) -> Counted<'static> {
        self.add_if(key, at, Admission::Unconditional)
    }

    fn add_if(&self, key: Key<'_>, at: u64, admission: Admission) -> Counted<'static> {
        let clock = At(at);
        self.table.add(&self.counter, key, &clock, Hits::ONE, admission)
    }

    fn counts(&self, key: Key<'_>, at: u64) -> (i64, i64) {
        let counts = self.table.read(&self.counter, key, &At(at)).windows();
        (counts.current.whole(), counts.previous.whole())
    }

    /// Returns the number of slots with the counter of `key`.
    fn slots_of(&self, key: Key<'_>) -> usize {
        let Identity(id) = self.counter.identity(key);
        let slots = self.table.parts.buckets.iter().flatten();
        slots
            .filter(|slot| {
                Meta::from_bits(slot.meta.load(Relaxed)).is_counter()
                    && slot.id.iter().map(|word| word.load(Relaxed)).eq(id)
            })
            .count()
    }
}

/// Runs every interleaving with at most this number of preemptions.
pub(crate) fn explore(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(scenario);
}

/// Runs both concurrently.
pub(super) fn both<A: 'static, B: 'static>(
    one: impl FnOnce() -> A + 'static,
    two: impl FnOnce() -> B + 'static,
) -> (A, B) {
    let other = thread::spawn(two);
    let here = one();
    (here, other.join().unwrap())
}

#[test]
fn two_hits_of_a_known_key_are_two() {
    explore(3, || {
        let fixture = fixture();
        fixture.add(key(1), T);
        both(move || fixture.add(key(1), T), move || fixture.add(key(1), T));
        assert_eq!(fixture.counts(key(1), T), (3, 0));
    });
}

#[test]
fn two_processes_that_insert_one_key_make_one_cell() {
    explore(3, || {
        let fixture = fixture();
        both(move || fixture.add(key(1), T), move || fixture.add(key(1), T));
        assert_eq!(fixture.slots_of(key(1)), 1);
        assert_eq!(fixture.counts(key(1), T), (2, 0));
    });
}

#[test]
fn two_processes_insert_two_keys_into_one_bucket() {
    explore(2, || {
        let fixture = fixture();
        both(move || fixture.add(key(1), T), move || fixture.add(key(2), T));
        assert_eq!(fixture.counts(key(1), T), (1, 0));
        assert_eq!(fixture.counts(key(2), T), (1, 0));
    });
}

#[test]
fn one_key_goes_to_the_second_bucket_from_two_processes_once() {
    explore(3, || {
        let fixture = fixture();
        for n in 0..WAYS as u64 {
            fixture.add(key(10 + n), T);
        }
        both(move || fixture.add(key(1), T), move || fixture.add(key(1), T));
        assert_eq!(fixture.slots_of(key(1)), 1);
        assert_eq!(fixture.counts(key(1), T), (2, 0));
        assert_eq!(fixture.counts(key(10), T), (1, 0));
    });
}

#[test]
fn a_window_is_turned_once() {
    explore(3, || {
        let fixture = fixture();
        for at in [T, T + SIZE] {
            fixture.add(key(1), at);
        }
        let later = T + 2 * SIZE;
        both(move || fixture.add(key(1), later), move || fixture.add(key(1), later));
        assert_eq!(fixture.counts(key(1), later), (2, 1));
    });
}

#[test]
fn two_processes_wake_an_old_counter() {
    explore(2, || {
        let fixture = fixture();
        for _ in 0..3 {
            fixture.add(key(1), T);
        }
        // The window with the same stamp.
        let later = T + (1 << 17) * SIZE;
        both(move || fixture.add(key(1), later), move || fixture.add(key(1), later));
        assert_eq!(fixture.counts(key(1), later), (2, 0));
    });
}

#[test]
fn a_hit_at_the_end_of_a_window_is_in_one_of_the_two() {
    explore(3, || {
        let fixture = fixture();
        let end = T + SIZE - 1;
        fixture.add(key(1), end);
        both(move || fixture.add(key(1), end), move || fixture.add(key(1), T + SIZE));
        let (current, previous) = fixture.counts(key(1), T + SIZE);
        assert_eq!(current + previous, 3);
        assert!(current >= 1 && previous >= 1);
    });
}

#[test]
fn a_hit_of_a_key_that_is_being_evicted_is_not_counted_for_another() {
    let within = Admission::Within(Hits::MAX, Algorithm::Sliding);
    for admission in [Admission::Unconditional, within] {
        explore(1, move || {
            let fixture = fixture();
            for n in 0..2 * WAYS as u64 {
                fixture.add(key(10 + n), T);
            }
            let (old, new) = both(
                move || {
                    let counted = fixture.add_if(key(10), T, admission);
                    counted.reading.windows().current.whole()
                },
                move || fixture.add(key(1), T).reading.windows().current.whole(),
            );
            // Counted before the eviction, or again after it.
            assert!(old == 2 || old == 1, "{old}");
            assert_eq!(new, 1);
            assert!(fixture.counts(key(1), T).0 <= 1);
            assert!(fixture.slots_of(key(1)) <= 1 && fixture.slots_of(key(10)) <= 1);
        });
    }
}

#[test]
fn three_hits_of_two_processes_within_a_limit_are_three() {
    explore(3, || {
        let fixture = fixture();
        let within = Admission::Within(Hits::MAX, Algorithm::Sliding);
        fixture.add(key(1), T);
        both(
            move || fixture.add_if(key(1), T, within),
            move || [(); 2].map(|()| fixture.add_if(key(1), T, within)),
        );
        assert_eq!(fixture.counts(key(1), T), (4, 0));
    });
}

#[test]
fn two_processes_evict_for_two_keys() {
    explore(1, || {
        let fixture = fixture();
        for n in 0..2 * WAYS as u64 {
            fixture.add(key(10 + n), T);
        }
        let counts = both(
            move || fixture.add(key(1), T).reading.windows().current.whole(),
            move || fixture.add(key(2), T).reading.windows().current.whole(),
        );
        assert_eq!(counts, (1, 1));
        for n in [1, 2] {
            assert!(fixture.slots_of(key(n)) <= 1);
            assert!(fixture.counts(key(n), T).0 <= 1);
        }
    });
}

#[test]
fn a_limit_holds_and_refunded_hits_can_be_admitted_again() {
    explore(3, || {
        let fixture = fixture();
        fixture.add(key(1), T);
        let take = move || {
            let one_more = Admission::Within(Hits::from_thousandths(2000), Algorithm::Fixed);
            fixture.table.add(&fixture.counter, key(1), &At(T), Hits::ONE, one_more).receipt
        };
        let (mine, other) = both(take, move || {
            let receipt = take();
            if let Some(receipt) = &receipt {
                fixture.table.refund(&fixture.counter, receipt);
            }
            receipt.is_some()
        });
        assert!(mine.is_some() || other);
        assert_eq!(fixture.counts(key(1), T), (1 + i64::from(mine.is_some()), 0));
    });
}

#[test]
fn two_keys_that_are_synced_are_both_found() {
    explore(2, || {
        // A name takes at most a sixteenth of the table.
        let mut fixture = fixture_of(8);
        fixture.counter = fixture.counter.synced(true);
        both(move || fixture.add(key(1), T), move || fixture.add(key(2), T));
        let mut found = 0;
        let now = UnixMillis(T);
        fixture.table.take_changes(0, NamespaceIndex(0), now, |change| {
            found += change.windows.len();
        });
        assert_eq!(found, 2);
    });
}

#[test]
fn a_hit_that_meets_a_reset_is_counted_or_gone() {
    explore(2, || {
        let mut fixture = fixture_of(8);
        fixture.counter = fixture.counter.synced(true);
        let Fixture { table, counter } = fixture;
        fixture.add(key(1), T);
        let place = table.make_room_for(&counter, key(1), &At(T)).unwrap();
        table.set_remote(place, T / SIZE, Hits::ONE, UnixMillis(T), HELD).unwrap();
        both(move || fixture.add(key(1), T), move || table.reset(&counter, key(1), &At(T)));
        let (rate, _) = fixture.counts(key(1), T);
        assert!([0, 1].contains(&rate), "{rate}");
        // The pushed difference, if any.
        let mut diff = 0;
        table.take_changes(0, NamespaceIndex(0), UnixMillis(T), |change| {
            diff = change.windows.iter().map(|it| it.local.whole()).sum();
        });
        assert_eq!(diff, rate - 1);
    });
}

#[test]
fn a_refund_that_meets_a_reset_takes_no_more_than_there_is() {
    explore(2, || {
        let mut fixture = fixture_of(8);
        fixture.counter = fixture.counter.synced(true);
        let Fixture { table, counter } = fixture;
        let receipt = fixture.add(key(1), T).receipt.unwrap();
        let place = table.make_room_for(&counter, key(1), &At(T)).unwrap();
        table.set_remote(place, T / SIZE, Hits::ONE, UnixMillis(T), HELD).unwrap();
        both(
            move || table.refund(&counter, &receipt),
            move || table.reset(&counter, key(1), &At(T)),
        );
        fixture.add(key(1), T);
        assert_eq!(fixture.counts(key(1), T).0, 1);
    });
}

#[test]
fn a_rejection_that_meets_another_keys_is_counted_or_recorded_as_missed() {
    explore(2, || {
        // Two entries, for two keys.
        let Fixture { table, counter } = fixture();
        let reject = move |name: &'static [u8], hash| {
            let key = Key { bytes: name, hash: KeyHash([hash, 0]) };
            table.count_rejected_key(&counter, key, UnixMillis(T));
        };
        reject(b"one", 1);
        reject(b"two", 2);
        both(move || reject(b"one", 1), move || reject(b"new", 3));
        let top = table.top_rejected(NamespaceIndex(0), UnixMillis(T));
        let total: u64 = top.keys.iter().map(|key| key.count).sum();
        assert_eq!((top.keys.len(), total + top.missed), (2, 4));
        for (name, exact) in [(&b"one"[..], 2), (b"two", 1), (b"new", 1)] {
            if let Some(key) = top.keys.iter().find(|key| key.name == name) {
                assert!(key.count - key.error <= exact && exact <= key.count + top.missed);
            }
        }
    });
}

/// Returns a synced counter whose hits the store has, and the term of a lease.
fn pushed_counter() -> (Fixture, CounterRef, &'static AtomicU64) {
    let mut fixture = fixture_of(8);
    fixture.counter = fixture.counter.synced(true);
    fixture.add(key(1), T);
    let Fixture { table, counter } = fixture;
    let place = table.make_room_for(&counter, key(1), &At(T)).unwrap();
    let all = (Hits::ZERO, Hits::ONE);
    table.advance_pushed(place, T / SIZE, all, HELD).unwrap();
    let [term] = leak(1) else { panic!() };
    (fixture, place, term)
}

/// Takes the lease with the term 0, and all counters from its holder.
fn take_over(table: &CounterTable<'static>, term: &AtomicU64) {
    term.store(1, Release);
    let (namespace, now) = (NamespaceIndex(0), UnixMillis(T));
    table.find_changes(0..16, namespace, now, HELD).unwrap();
}

#[test]
fn a_holder_that_lost_the_lease_forgets_nothing_that_was_pushed_since() {
    explore(2, || {
        let (Fixture { table, .. }, place, term) = pushed_counter();
        let (namespace, now) = (NamespaceIndex(0), UnixMillis(T));
        both(
            move || {
                let is_held = || term.load(Acquire) == 0;
                let _ = table.forget_pushed(0..16, namespace, now, &is_held);
            },
            move || {
                take_over(table, term);
                // The word has the same value again.
                table.forget_pushed(0..16, namespace, now, HELD).unwrap();
                let all = (Hits::ZERO, Hits::ONE);
                table.advance_pushed(place, T / SIZE, all, HELD).unwrap();
            },
        );
        assert_eq!(table.pushed_of(place, T / SIZE), Hits::ONE);
    });
}

#[test]
fn a_holder_that_lost_the_lease_notes_no_push_that_was_forgotten_since() {
    explore(2, || {
        let (Fixture { table, .. }, place, term) = pushed_counter();
        let (namespace, now) = (NamespaceIndex(0), UnixMillis(T));
        let two = Hits::ONE.plus(Hits::ONE);
        both(
            move || {
                let is_held = || term.load(Acquire) == 0;
                let _ = table.advance_pushed(place, T / SIZE, (Hits::ONE, two), &is_held);
            },
            move || {
                take_over(table, term);
                table.forget_pushed(0..16, namespace, now, HELD).unwrap();
                let all = (Hits::ZERO, Hits::ONE);
                table.advance_pushed(place, T / SIZE, all, HELD).unwrap();
            },
        );
        assert_eq!(table.pushed_of(place, T / SIZE), Hits::ONE);
    });
}

#[test]
fn a_pushed_count_is_read_while_it_is_handed_over() {
    explore(2, || {
        let (Fixture { table, .. }, place, term) = pushed_counter();
        both(
            move || take_over(table, term),
            move || assert_eq!(table.pushed_of(place, T / SIZE), Hits::ONE),
        );
        assert_eq!(table.pushed_of(place, T / SIZE), Hits::ONE);
    });
}

/// Returns two syncs that share a buffer of two records, and the records of a batch.
fn syncs() -> (Fixture, [SyncState<'static>; 2], [BatchRecord; 2]) {
    let mut fixture = fixture_with(8, 2);
    fixture.counter = fixture.counter.synced(true);
    let table = fixture.table;
    let states = [&b"one"[..], b"two"].map(|name| {
        let namespace = table.namespace(name).unwrap();
        table.sync_states(namespace, 1).unwrap()[0]
    });
    fixture.add(key(1), T);
    let mut counter = None;
    table.take_changes(0, NamespaceIndex(0), UnixMillis(T), |change| {
        counter = Some(change.counter);
    });
    let record = |window| BatchRecord {
        counter: counter.unwrap(),
        window,
        up_to: Hits::ONE,
        diff: Hits::ONE,
    };
    (fixture, states, [1, 2].map(record))
}

const LIFETIME: u64 = 100;

fn leased(state: SyncState<'static>, now: u64) -> Lease<'static> {
    state.take_lease(MonotonicMillis(now), LIFETIME).unwrap()
}

/// Seals as much of a batch as fits. Returns its length, unless the lease was lost.
fn sealed(lease: &Lease<'static>, records: &[BatchRecord]) -> Option<usize> {
    let capacity = lease.batch_capacity().ok()?;
    lease.seal(&records[..capacity], 7).ok()?;
    Some(capacity)
}

#[test]
fn one_of_two_syncs_gets_the_last_buffer() {
    explore(3, || {
        let (_, states, _) = syncs();
        let room = states.map(|state| {
            move || {
                let lease = leased(state, 1);
                lease.batch_capacity().unwrap()
            }
        });
        let [one, two] = room;
        let (one, two) = both(one, two);
        assert_eq!(one + two, 3);
    });
}

#[test]
fn a_buffer_that_is_given_back_is_the_next_ones_alone() {
    explore(2, || {
        let (fixture, [one, two], records) = syncs();
        let first = leased(one, 1);
        assert_eq!(sealed(&first, &records), Some(2));
        let reversed = [records[1], records[0]];
        let (ours, (theirs, second)) = both(
            move || {
                first.acknowledge(1, UnixMillis(T)).unwrap();
                // It needs a buffer again.
                (sealed(&first, &records).unwrap(), first)
            },
            move || {
                let second = leased(two, 1);
                (sealed(&second, &reversed).unwrap(), second)
            },
        );
        let (ours, first) = ours;
        assert!(ours + theirs <= 3);
        for (lease, written) in [(first, &records[..ours]), (second, &reversed[..theirs])] {
            let (_, batch) = lease.sealed(fixture.table).unwrap();
            assert_eq!(batch, written);
        }
    });
}

#[test]
fn a_worker_that_lost_its_lease_writes_into_no_other_batch() {
    explore(2, || {
        let (fixture, [one, two], records) = syncs();
        let late = leased(one, 1);
        assert_eq!(late.batch_capacity().unwrap(), 2);
        let reversed = [records[1], records[0]];
        let (was_sealed, (heir, other, capacity)) = both(
            move || sealed(&late, &records),
            move || {
                let heir = leased(one, 2 * LIFETIME);
                let other = leased(two, 1);
                let capacity = sealed(&other, &reversed).unwrap();
                (heir, other, capacity)
            },
        );
        let (_, batch) = other.sealed(fixture.table).unwrap();
        assert_eq!(batch, reversed[..capacity]);
        // The new holder sends the batch that was sealed before, as it was written.
        let left = heir.sealed(fixture.table).map(|(_, batch)| batch);
        assert_eq!(left.as_deref(), was_sealed.map(|count| &records[..count]));
        assert!(left.is_none() || capacity == 1);
    });
}

/// Two processes read the clock one after another, before the window ends and after it.
fn race_for_a_level(times: [u64; 2], hits_before: i64, limit: i64) {
    loom::model(move || {
        let fixture = fixture_of_levels();
        (0..hits_before).for_each(|_| drop(fixture.add(key(0), T)));
        let limit = Hits::from_thousandths(limit * 1000);
        let ask = move |at| {
            let admission = Admission::Within(limit, Algorithm::Elastic);
            fixture.add_if(key(0), at, admission).admitted
        };
        let [mine, others] = times;
        let other = thread::spawn(move || ask(others));
        let admitted = [ask(mine), other.join().unwrap()];
        let reading = fixture.table.read(&fixture.counter, key(0), &At(T + 2));
        let ElasticCount { hits, idle, .. } = reading.into();
        let count = admitted.iter().filter(|it| **it).count() as i64;
        assert_eq!((count, hits.whole()), (limit.whole() - hits_before, limit.whole()));
        // Both extend the window.
        assert_eq!(Some(T + 2 - idle), times.into_iter().max());
    });
}

#[test]
fn one_of_two_processes_gets_the_last_hit_of_an_elastic_window() {
    race_for_a_level([T, T], 1, 2);
    race_for_a_level([T + 1, T + 2], 1, 2);
}

#[test]
fn two_that_race_for_a_level_are_both_counted() {
    race_for_a_level([T + 1, T + 2], 1, 3);
}

/// One process is stopped while it reads the words, and the other one changes the counter
/// repeatedly.
#[test]
fn a_slow_reader_of_a_level_spoils_no_later_state() {
    explore(4, || {
        let fixture = fixture_of_levels();
        drop(fixture.add(key(0), T));
        let add = move |at: u64| drop(fixture.add(key(0), at));
        both(move || add(T), move || (1..=4).for_each(|n| add(T + n)));
        let reading = fixture.table.read(&fixture.counter, key(0), &At(T + 4));
        let ElasticCount { hits, idle, .. } = reading.into();
        assert_eq!((hits.whole(), idle), (6, 0));
    });
}

/// Returns a log with this number of hits, each in its own millisecond. A block has two entries;
/// the first one of all is the base.
fn fixture_of_hits(hits: u64) -> Fixture {
    let fixture = fixture_of_logs();
    (0..hits).for_each(|n| drop(fixture.add(key(0), T + n)));
    fixture
}

impl Fixture {
    fn moving_hits(&self, at: u64) -> i64 {
        let reading = self.table.read(&self.counter, key(0), &At(at));
        MovingCount::from(reading).hits.whole()
    }
}

/// Two processes ask at these times, after this number of hits, of which the first may have left.
fn race_for_a_log(preemptions: usize, hits: u64, times: [u64; 2], limit: i64, admitted: usize) {
    explore(preemptions, move || {
        let fixture = fixture_of_hits(hits);
        let limit = Hits::from_thousandths(limit * 1000);
        let ask = move |at| {
            let admission = Admission::Within(limit, Algorithm::Moving);
            fixture.add_if(key(0), at, admission).admitted
        };
        let [mine, others] = times;
        let (one, two) = both(move || ask(mine), move || ask(others));
        assert_eq!([one, two].iter().filter(|it| **it).count(), admitted);
        // Earlier hits have left, unless both processes blocked each other from a block: then they
        // leave with the next hit. A hit counts at the other's time if that is later.
        let (first, last) = (mine.min(others), mine.max(others));
        let left = fixture.moving_hits(first + SIZE) - admitted as i64;
        assert!(left == 0 || (left > 0 && left <= 1 && hits < 3), "{left}");
        assert_eq!(fixture.moving_hits(last + SIZE + 2), 0);
    });
}

#[test]
fn one_of_two_processes_gets_the_last_hit_of_a_log() {
    race_for_a_log(2, 3, [T + 10, T + 10], 4, 1);
    race_for_a_log(1, 3, [T + 10, T + 11], 4, 1);
}

#[test]
fn two_that_append_to_a_log_are_both_counted() {
    race_for_a_log(2, 3, [T + 10, T + 10], 9, 2);
    race_for_a_log(1, 3, [T + 10, T + 11], 9, 2);
}

#[test]
fn two_that_need_another_block_are_both_counted() {
    race_for_a_log(1, 1, [T + 10, T + 10], 9, 2);
    race_for_a_log(1, 2, [T + 10, T + 11], 9, 2);
}

#[test]
fn two_that_move_a_window_on_are_both_counted() {
    race_for_a_log(2, 3, [T + SIZE + 2, T + SIZE + 3], 9, 2);
}

#[test]
fn a_refund_and_an_append_are_both_seen() {
    for refunded in [T + 5, T + 10] {
        explore(2, move || {
            let fixture = fixture_of_hits(1);
            let receipt = fixture.add(key(0), refunded).receipt.unwrap();
            let (is_refunded, counted) = both(
                move || fixture.table.refund(&fixture.counter, &receipt),
                move || fixture.add(key(0), T + 10),
            );
            assert!(is_refunded && counted.admitted);
            assert_eq!(fixture.moving_hits(T + 10), 2);
            // The hit that is left is the other process's.
            assert_eq!(fixture.moving_hits(T + SIZE + 6), 1);
            assert_eq!(fixture.moving_hits(T + SIZE + 12), 0);
        });
    }
}

#[test]
fn a_hit_of_a_log_that_is_evicted_is_counted_in_another_or_gone() {
    explore(2, || {
        let fixture = fixture_of_hits(2);
        both(
            move || fixture.add(key(0), T + 10),
            move || {
                let slots = fixture.table.parts.buckets.iter().flatten();
                let block = slots.map(|slot| (slot, slot.meta()));
                let block = block.filter(|(_, meta)| meta.owner_and_number().is_some());
                for (slot, meta) in block {
                    let cost = fixture.table.cost_of(slot, meta, UnixMillis(T + 10));
                    let ticks = crate::table::words::meta::Ticks::at(T + 10);
                    drop(fixture.table.claim(slot, meta, cost, ticks));
                }
            },
        );
        let hits = fixture.moving_hits(T + 10);
        assert!((0..=3).contains(&hits), "{hits}");
        assert!(fixture.add(key(0), T + 20).admitted);
        assert_eq!(fixture.moving_hits(T + 20), hits + 1);
    });
}
