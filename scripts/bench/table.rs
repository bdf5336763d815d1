//! Measures the counter table alone, in real time: the part of `scripts/bench.sh` that needs no
//! nginx.
//!
//!     cargo run --release --no-default-features --example table-bench [-- [--quick] [RESULTS]]
//!
//! RESULTS is written: a line for each row, in JSON.
//!
//! An operation is what one limit costs a request: hash the key, find its counter, count one hit if
//! a sliding limit allows it; the windows are of an hour, and the one before is not empty. What is
//! compared takes turns, repetition by repetition.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark ends by panicking, and has no large numbers"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::{black_box, spin_loop};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ngx_http_rate_limiting_module::policy::algorithm::Algorithm;
use ngx_http_rate_limiting_module::policy::hits::Hits;
use ngx_http_rate_limiting_module::policy::window::{Clock, UnixMillis, WindowSize};
use ngx_http_rate_limiting_module::table::{Admission, Counter, CounterTable, ZoneStats};
use serde_json::{Value, json};

const HOUR: u64 = 3_600_000;
/// nginx looks at the clock once per round of its event loop; in this benchmark, that is once in so
/// many operations.
const PER_LOOK: usize = 64;
/// The zone whose keys are counted, in bytes.
const CAPACITY: usize = 10 << 20;
/// Bytes of a zone for one key: a cell of 64 bytes, and its share of everything else.
const BYTES_PER_CELL: usize = 66;
/// Operations are spread over more keys than the caches hold, also when each repetition is short:
/// repetitions take different parts of so many.
const STREAM: usize = 1 << 22;

/// The amount of measuring.
#[derive(Clone, Copy)]
struct Effort {
    /// At least 5, for each figure.
    repetitions: usize,
    /// Operations in each.
    operations: usize,
}

fn main() {
    let mut effort = Effort { repetitions: 21, operations: 1 << 20 };
    let mut results = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => (effort.repetitions, effort.operations) = (5, 1 << 18),
            _ if results.is_none() && !argument.starts_with('-') => results = Some(argument),
            _ => panic!("usage: table-bench [--quick] [RESULTS]"),
        }
    }
    println!(
        "the counter table alone: medians of {} repetitions of {} operations, and where they are \
         with 95 %",
        effort.repetitions, effort.operations
    );

    let mut report = Report::default();
    report.heading("one process, random keys, ns", "at most");
    one_process(&mut report, effort, 1_000, Some(40.0));
    let million = one_process(&mut report, effort, 1_000_000, Some(230.0));
    report.heading("two processes, 1,000,000 random keys, M/s", "at least");
    two_processes(&mut report, effort, &million);
    report.heading("one key, two processes, ns for each", "at most");
    one_key(&mut report, effort);
    report.heading("a new key every time in a full zone, ns", "at most");
    new_keys(&mut report, effort, 10 << 20);
    new_keys(&mut report, effort, 64 << 20);
    report.heading("bytes for a key, in 10 MiB, keys of 32 bytes", "at most");
    capacity(&mut report, "local", Zone::new(CAPACITY), 128.0);
    let synced = |zone: Zone| Zone { counter: zone.counter.synced(true), ..zone };
    capacity(&mut report, "synced", synced(Zone::new(CAPACITY)), 192.0);
    for algorithm in [Algorithm::Elastic, Algorithm::Bucket, Algorithm::Moving] {
        let zone = Zone::counting(CAPACITY, algorithm);
        capacity(&mut report, algorithm.name(), zone, 128.0);
    }
    if let Some(file) = results {
        let lines = report.lines.iter().map(|line| format!("{line}\n"));
        std::fs::write(file, lines.collect::<String>()).expect("a file that can be written");
    }
}

/// The report that is printed and kept.
#[derive(Default)]
struct Report {
    section: &'static str,
    lines: Vec<Value>,
}

impl Report {
    fn heading(&mut self, section: &'static str, target: &str) {
        self.section = section;
        println!("\n{section:<44} {:>8} {:>16} {target:>9}", "median", "95 %");
    }

    /// A row of the median of some values.
    fn row(&mut self, name: &str, mut values: Vec<f64>, target: Option<f64>) {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        // By their order, for any distribution.
        let rank = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()).max(0.0) as usize;
        let (from, to) = (values[rank], values[count - 1 - rank]);
        let interval = match count {
            1 => String::new(),
            _ => format!("{from:.1} to {to:.1}"),
        };
        let text = target.map(|target| target.to_string()).unwrap_or_default();
        let line = format!("{name:<44} {median:>8.1} {interval:>16} {text:>9}");
        println!("{}", line.trim_end());
        self.lines.push(json!({
            "section": self.section, "name": name, "median": median,
            "median_interval": [from, to], "target": target,
        }));
    }
}

/// A key of 11 to 15 bytes, as compact as can be: reading them in order costs next to nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    len: u8,
    text: [u8; 15],
}

impl Key {
    fn bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    /// Cheap, and spreads the keys evenly enough.
    fn scatter(&self, below: usize) -> usize {
        let text = &self.text;
        let [high, low] = [&text[..8], &text[3..11]]
            .map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        let bits = (high ^ low.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(bits) * below as u128) >> 64) as usize
    }
}

/// Different IPv4 addresses.
fn addresses() -> impl Iterator<Item = Key> {
    (0..u32::MAX).filter_map(|n| {
        // An odd factor, so that no two numbers have the same product.
        let [a, b, c, d] = n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let address = format!("{a}.{b}.{c}.{d}");
        let len = address.len();
        let mut text = [0; 15];
        text[..len].copy_from_slice(address.as_bytes());
        (len >= 11).then_some(Key { len: len as u8, text })
    })
}

/// `STREAM` random ones of `keys`.
fn draws(keys: &[Key]) -> Vec<Key> {
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut draw = || {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        keys[(random >> 11) as usize % keys.len()]
    };
    (0..STREAM).map(|_| draw()).collect()
}

/// The part of a stream that the repetition `number` takes.
fn part(stream: &[Key], number: usize, effort: Effort) -> &[Key] {
    let parts = stream.len() / effort.operations;
    &stream[number % parts * effort.operations..][..effort.operations]
}

/// The real clock, looked at once in a while.
struct CachedClock {
    seen: Cell<u64>,
    /// Time by which it is behind, to fill earlier windows.
    behind: u64,
}

impl CachedClock {
    fn new(behind: u64) -> CachedClock {
        let clock = CachedClock { seen: Cell::new(0), behind };
        clock.fresh();
        clock
    }
}

impl Clock for CachedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.seen.get())
    }

    fn fresh(&self) -> UnixMillis {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.seen.set(now.expect("after 1970").as_millis() as u64 - self.behind);
        self.now()
    }
}

/// A table with one counter for each key.
struct Zone {
    table: CounterTable<'static>,
    counter: Counter,
    algorithm: Algorithm,
}

impl Zone {
    fn new(len: usize) -> Zone {
        Zone::counting(len, Algorithm::Sliding)
    }

    fn counting(len: usize, algorithm: Algorithm) -> Zone {
        let region = map(len);
        // SAFETY: the memory is all zero, stays until the process ends, and only this table uses
        // it.
        let table = unsafe { CounterTable::create(region, region.len(), [0x0123, 0x4567]) }
            .expect("a table");
        let namespace = table.namespace(b"default").expect("a namespace");
        let size = WindowSize::from_millis(HOUR).expect("a window");
        let kind = algorithm.kind().at_rate(Hits::ONE);
        let counter = table.counter_of(namespace, b"default", kind, size);
        Zone { table, counter, algorithm }
    }

    /// A zone that has counted `keys` in this window and in the one before.
    fn of(keys: &[Key], cells: usize) -> Zone {
        let zone = Zone::new(cells * BYTES_PER_CELL);
        for behind in [HOUR, 0] {
            let clock = CachedClock::new(behind);
            keys.iter().for_each(|key| zone.add(key.bytes(), &clock));
        }
        zone
    }

    #[inline]
    fn add(&self, key: &[u8], clock: &CachedClock) {
        let limit = Admission::Within(Hits::MAX, self.algorithm);
        let hash = self.table.key(key);
        let counted = self.table.add(&self.counter, hash, clock, Hits::ONE, limit);
        assert!(counted.receipt.is_some());
    }

    fn add_all(&self, keys: &[Key], clock: &CachedClock) {
        clock.fresh();
        keys.iter().for_each(|key| self.add(key.bytes(), clock));
    }

    fn keys(&self) -> u64 {
        self.table.namespace_stats(self.counter.namespace()).keys()
    }

    fn evicted_alive(&self) -> u64 {
        let ZoneStats { evicted_sent, evicted_unsent, .. } = self.table.zone_stats();
        evicted_sent + evicted_unsent
    }
}

/// The floor: as many cache lines as a zone has cells, one of which every key adds to.
struct Lines(&'static [AtomicU64]);

impl Lines {
    const WORDS: usize = 8;

    fn new(count: usize) -> Lines {
        let lines = Lines(words(count * Lines::WORDS));
        // Pages that were never written have no memory.
        lines.0.iter().for_each(|word| word.store(1, Release));
        lines
    }

    fn add_all(&self, keys: &[Key], zone: &Zone) {
        let nothing = zone.table.key(b"");
        for key in keys {
            // The address depends on the hash, as in the table.
            let different = usize::from(zone.table.key(key.bytes()) == nothing);
            let line = key.scatter(self.0.len() / Lines::WORDS) ^ different;
            self.0[line * Lines::WORDS].fetch_add(1, AcqRel);
        }
    }
}

/// A mutex of the system that processes share, and what it is for.
struct Locked {
    mutex: *mut libc::pthread_mutex_t,
    count: &'static AtomicU64,
}

impl Locked {
    fn new() -> Locked {
        let mutex: *mut libc::pthread_mutex_t =
            map(size_of::<libc::pthread_mutex_t>()).as_ptr().cast();
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialized before their use; the mutex has memory of its own,
        // which lasts until the process ends, and is not in use yet.
        let results = unsafe {
            [
                libc::pthread_mutexattr_init(attributes.as_mut_ptr()),
                libc::pthread_mutexattr_setpshared(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_PROCESS_SHARED,
                ),
                libc::pthread_mutex_init(mutex, attributes.as_ptr()),
            ]
        };
        assert_eq!(results, [0; 3], "a mutex");
        let count = &words(1)[0];
        Locked { mutex, count }
    }

    fn add_all(&self, keys: &[Key], zone: &Zone) {
        for key in keys {
            black_box(zone.table.key(key.bytes()));
            // SAFETY: the mutex is initialized, and the thread that unlocks it has locked it.
            unsafe {
                assert_eq!(libc::pthread_mutex_lock(self.mutex), 0, "a lock");
                self.count.store(self.count.load(Relaxed) + 1, Relaxed);
                libc::pthread_mutex_unlock(self.mutex);
            }
        }
    }
}

/// The keys of one process, prepared for two.
struct Prepared {
    stream: Vec<Key>,
    zone: Zone,
    lines: Lines,
}

fn one_process(report: &mut Report, effort: Effort, count: usize, target: Option<f64>) -> Prepared {
    let keys: Vec<Key> = addresses().take(count).collect();
    let stream = draws(&keys);
    let zone = Zone::of(&keys, count * 2);
    let full_zone = Zone::of(&keys, count * 11 / 10);
    let lines = Lines::new(count * 2);
    let map = keys.iter().map(|&key| (key, [1_u64; 2]));
    let map: Mutex<BTreeMap<Key, [u64; 2]>> = Mutex::new(map.collect());
    let evicted = full_zone.evicted_alive();

    let clock = CachedClock::new(0);
    let looks = |number| part(&stream, number, effort).chunks(PER_LOOK);
    let hash_alone = |keys: &[Key]| {
        clock.fresh();
        for key in keys {
            black_box(zone.table.key(key.bytes()));
        }
    };
    let map_add = |keys: &[Key]| {
        clock.fresh();
        for key in keys {
            let mut map = map.lock().expect("a lock");
            map.get_mut(key).expect("a key")[0] += 1;
        }
    };
    let contestants: [(&str, &dyn Fn(usize)); 5] = [
        ("loop and hash alone", &|n| looks(n).for_each(hash_alone)),
        ("hash, add to one cache line", &|n| {
            looks(n).for_each(|keys| lines.add_all(keys, &zone));
        }),
        ("table, 2 cells for each key", &|n| {
            looks(n).for_each(|keys| zone.add_all(keys, &clock));
        }),
        ("table, 1.1 cells for each key", &|n| {
            looks(n).for_each(|keys| full_zone.add_all(keys, &clock));
        }),
        ("mutex and BTreeMap", &|n| looks(n).for_each(map_add)),
    ];
    let mut nanos = vec![Vec::new(); contestants.len()];
    for repetition in 0..effort.repetitions {
        for ((_, run), nanos) in contestants.iter().zip(&mut nanos) {
            // Not timed: the caches contain the others' data.
            run(2 * repetition);
            let start = Instant::now();
            run(2 * repetition + 1);
            nanos.push(start.elapsed().as_nanos() as f64 / effort.operations as f64);
        }
    }
    for ((name, _), nanos) in contestants.iter().zip(nanos) {
        let target = target.filter(|_| name.starts_with("table"));
        report.row(&format!("{}: {name}", thousands(count)), nanos, target);
    }
    let evicted = full_zone.evicted_alive() - evicted;
    let share = evicted as f64 / (2 * effort.repetitions * effort.operations) as f64;
    println!(
        "  (with 1.1 cells, {:.2} % were keys without a place, which evicted others)",
        share * 100.0
    );

    Prepared { stream, zone, lines }
}

fn two_processes(report: &mut Report, effort: Effort, prepared: &Prepared) {
    let Prepared { stream, zone, lines } = prepared;
    let clock = CachedClock::new(0);
    let looks = |process, round| part(stream, 2 * round + process, effort).chunks(PER_LOOK);
    let contestants: [&Contestant<'_>; 2] = [
        &|process, round, lap| lap.run(looks(process, round), |keys| lines.add_all(keys, zone)),
        &|process, round, lap| lap.run(looks(process, round), |keys| zone.add_all(keys, &clock)),
    ];
    let [floor, table] = race(effort, contestants, &zone.table).map(|rounds| {
        let rate = |[one, two]: [f64; 2]| 1e3 / one + 1e3 / two;
        rounds.into_iter().map(rate).collect()
    });
    report.row("hash, add to one cache line", floor, None);
    report.row("table, 2 cells for each key", table, Some(6.0));
}

fn one_key(report: &mut Report, effort: Effort) {
    let keys: Vec<Key> = addresses().take(1).collect();
    let zone = Zone::of(&keys, 1000);
    let word = &words(1)[0];
    let line = Lines::new(1);
    let clock = CachedClock::new(0);
    let same = vec![keys[0]; PER_LOOK];
    // More than elsewhere: a short lap may end before the other process has begun its own.
    let looks = || std::iter::repeat_n(&same[..], 4 * effort.operations / PER_LOOK);
    // The distance of the processors, which the host of a virtual machine may change.
    let to_and_fro = &words(1)[0];
    let passes = || std::iter::repeat_n(&same[..], effort.operations / PER_LOOK / 8);
    let locked = Locked::new();
    let contestants: [&Contestant<'_>; 5] = [
        &|process, _, lap| {
            let is_over = lap.is_over;
            let is_mine = || to_and_fro.load(Acquire) % 2 == process as u64;
            lap.run(passes(), |keys| {
                for _ in keys {
                    while !is_mine() && is_over.load(Acquire) == 0 {
                        spin_loop();
                    }
                    to_and_fro.fetch_add(1, AcqRel);
                }
            })
        },
        &|_, _, lap| {
            lap.run(looks(), |keys| {
                for _ in keys {
                    word.fetch_add(1, AcqRel);
                }
            })
        },
        &|_, _, lap| lap.run(looks(), |keys| line.add_all(keys, &zone)),
        &|_, _, lap| lap.run(looks(), |keys| zone.add_all(keys, &clock)),
        &|_, _, lap| lap.run(looks(), |keys| locked.add_all(keys, &zone)),
    ];
    let [to_and_fro, atomic, floor, table, mutex] = race(effort, contestants, &zone.table)
        .map(|rounds| rounds.into_iter().flatten().collect::<Vec<_>>());
    let one_way = to_and_fro.into_iter().map(|nanos| nanos / 2.0).collect();
    report.row("a word passed to and fro, one way", one_way, None);
    report.row("fetch_add alone", atomic, None);
    report.row("hash, add to one cache line", floor, None);
    report.row("table", table, Some(60.0));
    report.row("hash, mutex, and add", mutex, None);
}

/// Times the insertion of keys into a zone that is full of others, all of them alive.
fn new_keys(report: &mut Report, effort: Effort, len: usize) {
    let zone = Zone::new(len);
    let stream: Vec<Key> = addresses().take(STREAM).collect();
    let clock = CachedClock::new(0);
    let add = |keys: &[Key]| {
        let keys = keys.chunks(PER_LOOK);
        keys.for_each(|keys| zone.add_all(keys, &clock));
    };
    add(&stream);

    let before = zone.evicted_alive();
    let nanos = (0..effort.repetitions).map(|repetition| {
        let start = Instant::now();
        add(part(&stream, repetition, effort));
        start.elapsed().as_nanos() as f64 / effort.operations as f64
    });
    let nanos = nanos.collect();
    report.row(&format!("table of {} MiB", len >> 20), nanos, None);
    let evicted = zone.evicted_alive() - before;
    let share = evicted as f64 / (effort.operations * effort.repetitions) as f64;
    if share < 0.99 {
        println!("  (only {:.1} % evicted another key)", share * 100.0);
    }
}

/// Measures the number of keys that a zone holds until it first evicts a living one, and in the
/// end.
fn capacity(report: &mut Report, what: &str, zone: Zone, target: f64) {
    let clock = CachedClock::new(0);
    let mut count = |name: String| {
        let bytes = CAPACITY as f64 / zone.keys() as f64;
        report.row(&format!("{what}, {name}"), vec![bytes], Some(target));
    };
    let mut is_full = false;
    for n in 0..2 * CAPACITY / 64 {
        zone.add(format!("{n:032x}").as_bytes(), &clock);
        if !is_full && zone.evicted_alive() > 0 {
            is_full = true;
            count(format!("first eviction, {} keys", thousands(n)));
        }
    }
    count(format!("after {} keys", thousands(2 * CAPACITY / 64)));
}

/// The work of one process in one round: returns nanoseconds per operation.
type Contestant<'a> = dyn Fn(usize, usize, Lap<'_>) -> f64 + 'a;

/// Two processes that run at the same time.
struct Lap<'a> {
    is_over: &'a AtomicU64,
}

impl Lap<'_> {
    /// Runs until one of the processes has done all its work, so that no part of it is done by one
    /// alone.
    fn run<'k>(self, looks: impl Iterator<Item = &'k [Key]>, mut work: impl FnMut(&[Key])) -> f64 {
        let start = Instant::now();
        let mut operations = 0;
        for keys in looks {
            work(keys);
            operations += keys.len();
            if self.is_over.load(Acquire) > 0 {
                break;
            }
        }
        let elapsed = start.elapsed();
        self.is_over.store(1, Release);
        elapsed.as_nanos() as f64 / operations as f64
    }
}

/// Has two processes run the contestants in turn; returns, by contestant and round, what both
/// measured. They live through all rounds: a new process finds no page of a zone mapped.
fn race<const N: usize>(
    effort: Effort,
    contestants: [&Contestant<'_>; N],
    table: &CounterTable<'_>,
) -> [Vec<[f64; 2]>; N] {
    let rounds = effort.repetitions + 1;
    let laps = words(rounds * N);
    let results = words(rounds * N * 2);
    let arrived = &words(1)[0];

    let run = |process: usize| {
        table.set_worker(process);
        for lap in 0..rounds * N {
            arrived.fetch_add(1, AcqRel);
            let start = Instant::now();
            while arrived.load(Acquire) < 2 * (lap as u64 + 1) {
                assert!(start.elapsed() < Duration::from_secs(60), "the other is gone");
                spin_loop();
            }
            let is_over = &laps[lap];
            let nanos = contestants[lap % N](process, lap / N, Lap { is_over });
            results[lap * 2 + process].store(nanos.to_bits(), Release);
        }
    };
    let processes = [0, 1].map(|process| start_process(|| run(process)));
    processes.into_iter().for_each(wait_for);

    let result =
        |lap: usize| [0, 1].map(|process| f64::from_bits(results[lap * 2 + process].load(Acquire)));
    // The first round warms up.
    std::array::from_fn(|contestant| {
        (1..rounds).map(|round| result(round * N + contestant)).collect()
    })
}

fn start_process(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the process, without its parent's handlers.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        pid => pid,
    }
}

fn wait_for(process: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child was not waited for; `status` outlives the call.
    let pid = unsafe { libc::waitpid(process, &mut status, 0) };
    assert_eq!((pid, status), (process, 0), "a process failed");
}

/// Zeroed memory that a `fork` shares, and that lasts until the process ends.
fn map(len: usize) -> NonNull<[u8]> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, whose result is checked.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "mmap");
    NonNull::slice_from_raw_parts(NonNull::new(start).expect("not null").cast(), len)
}

fn words(count: usize) -> &'static [AtomicU64] {
    let region = map(count * size_of::<AtomicU64>());
    // SAFETY: as many bytes as the words need, all zero, page-aligned, used for nothing else, and
    // never unmapped.
    unsafe { std::slice::from_raw_parts(region.cast().as_ptr(), count) }
}

fn thousands(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}
