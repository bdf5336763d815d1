//! Many concurrent processes: every hit is in the sum of its window exactly once.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::*;
use crate::testing::table::{Process, SharedTable, at_once, mapped};

const PROCESSES: u64 = 4;
const HITS: u64 = 10_000_000;
const HOT_KEYS: u64 = 32;
/// Windows turn every few milliseconds.
const SIZE: u64 = 5;
/// Windows that can be distinguished; more than pass during the test.
const WINDOWS: u64 = 1 << 16;

/// The real clock, read from time to time, as nginx does.
struct CachedClock(core::cell::Cell<u64>);

impl CachedClock {
    fn real() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
    }
}

impl Clock for CachedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.get())
    }

    fn fresh(&self) -> UnixMillis {
        self.0.set(Self::real());
        self.now()
    }
}

/// The answers to callers about one key in one window.
#[derive(Default)]
#[repr(C)]
struct Told {
    hits: AtomicU64,
    sum: AtomicU64,
    squares: AtomicU64,
    largest: AtomicU64,
}

/// Returns zeroed memory that a `fork` shares, and that lasts until the test process ends.
fn shared<T>(count: usize) -> &'static [T] {
    let memory = mapped(size_of::<T>() * count);
    // SAFETY: memory of this size that is never unmapped, and for which zero is a valid value.
    unsafe { core::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}

#[test]
#[cfg_attr(miri, ignore = "would take hours")]
fn every_window_of_a_busy_key_has_the_sum_of_its_hits() {
    let shared_table = SharedTable::new(8 << 20);
    let table = &shared_table.table;
    let counter = table.counter_in(b"default", StoredKind::Windows, SIZE);
    let told: &[Told] = shared((HOT_KEYS * WINDOWS) as usize);
    let start = CachedClock::real() / SIZE;

    let worker = |process: u64| {
        table.set_worker(process as usize);
        let clock = CachedClock(core::cell::Cell::new(CachedClock::real()));
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ process;
        for n in 0..HITS / PROCESSES {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if n % 64 == 0 {
                clock.fresh();
            }
            // One in eight is a cold key. Cold keys fill the table several times, but slowly enough
            // that there is always one with ended windows to evict.
            let is_hot = !random.is_multiple_of(8);
            let key = if is_hot { (random >> 8) % HOT_KEYS } else { random | 1 << 63 };
            let bytes = key.to_ne_bytes();
            let hash = table.key(&bytes);
            let counted = table.add(&counter, hash, &clock, Hits::ONE, Admission::Unconditional);
            if is_hot {
                let window = counted.reading.windows().window.checked_sub(start).unwrap();
                let told = &told[(key * WINDOWS + window % WINDOWS) as usize];
                let count = counted.reading.windows().current.whole() as u64;
                told.hits.fetch_add(1, SeqCst);
                told.sum.fetch_add(count, SeqCst);
                told.squares.fetch_add(count * count, SeqCst);
                told.largest.fetch_max(count, SeqCst);
            }
        }
    };
    at_once(PROCESSES, worker);

    // If n callers got a largest count of n, and counts whose sum and sum of squares are those of 1
    // to n, then they got 1 to n: no hit is missing or counted twice.
    let (mut windows, mut hits) = (0, 0);
    for (index, told) in told.iter().enumerate() {
        let n = told.hits.load(SeqCst);
        let (sum, squares) = (n * (n + 1) / 2, n * (n + 1) * (2 * n + 1) / 6);
        let seen = [&told.largest, &told.sum, &told.squares].map(|value| value.load(SeqCst));
        assert_eq!(seen, [n, sum, squares], "{n} hits at {index}");
        windows += u64::from(n > 0);
        hits += n;
    }
    let zone = table.zone_stats();
    println!("{windows} windows, {hits} hits in them, {zone:?}");
    assert!(windows > HOT_KEYS * 100);
    assert!(hits > HITS / 2);
    assert!(zone.evicted_ended > 100_000, "{zone:?}");
}

#[test]
fn a_limit_is_never_exceeded_and_fully_used_by_many_processes() {
    const LIMIT: i64 = if cfg!(miri) { 50 } else { 1000 };
    let shared_table = SharedTable::new(1 << 20);
    let table = &shared_table.table;
    let year = WindowSize::MAX_MILLIS;
    let counter = table.counter_in(b"default", StoredKind::Windows, year);
    let admitted: &[AtomicU64] = shared(1);

    let worker = |_| {
        let clock = CachedClock(core::cell::Cell::new(CachedClock::real()));
        let limit = Admission::Within(Hits::from_thousandths(LIMIT * 1000), Algorithm::Fixed);
        for n in 0..LIMIT {
            let counted = table.add(&counter, table.key(b"k"), &clock, Hits::ONE, limit);
            match counted.receipt {
                // Every third hit is refunded.
                Some(receipt) if n % 3 == 0 => drop(table.refund(&counter, &receipt)),
                Some(_) => drop(admitted[0].fetch_add(1, SeqCst)),
                None => {}
            }
        }
    };
    at_once(PROCESSES, worker);
    assert_eq!(admitted[0].load(SeqCst), LIMIT as u64);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn a_stopped_process_delays_nobody() {
    let shared_table = SharedTable::new(7 * 4096);
    let table = &shared_table.table;
    let counter = table.counter_in(b"default", StoredKind::Windows, 60_000);
    let insert_many = |name: &str, count: u32| {
        let clock = CachedClock(core::cell::Cell::new(CachedClock::real()));
        for n in 0..count {
            let key = format!("{name} {n}");
            let hash = table.key(key.as_bytes());
            table.add(&counter, hash, &clock, Hits::ONE, Admission::Unconditional);
        }
    };
    // A process is stopped at some instruction of an insertion, repeatedly; the others continue.
    let stopped = Process::start(|| insert_many("stopped", u32::MAX));
    for round in 0..200 {
        stopped.signal(libc::SIGSTOP);
        insert_many(&format!("round {round}"), 100);
        stopped.signal(libc::SIGCONT);
    }
    stopped.signal(libc::SIGKILL);
    assert_eq!(stopped.wait(), Some(libc::SIGKILL));
    insert_many("last", 1000);
}

#[test]
fn taking_the_changes_finds_every_synced_key() {
    const KEYS: u64 = if cfg!(miri) { 50 } else { 500 };
    const ROUNDS: u64 = if cfg!(miri) { 2 } else { 40 };
    for round in 0..ROUNDS {
        let shared_table = SharedTable::new(1 << 20);
        let table = &shared_table.table;
        let year = WindowSize::MAX_MILLIS;
        let counter = table.counter_in(b"default", StoredKind::Windows, year);
        let counter = counter.synced(true);
        // Neighbours in the table that are inserted at the same time.
        let worker = |process: u64| {
            let clock = CachedClock(core::cell::Cell::new(CachedClock::real()));
            for n in 0..KEYS {
                let key = format!("of process {process}, and long enough for two parts: {n}");
                let key = table.key(key.as_bytes());
                table.add(&counter, key, &clock, Hits::ONE, Admission::Unconditional);
            }
        };
        at_once(PROCESSES, worker);
        let mut found = 0;
        for group in 0..table.change_groups() {
            table.take_changes(group, counter.namespace(), UnixMillis(CachedClock::real()), |_| {
                found += 1
            });
        }
        assert_eq!(found, KEYS * PROCESSES, "round {round}, {:?}", table.zone_stats());
    }
}
