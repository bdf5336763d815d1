//! Tables on the heap and in files: sharing, errors, and the files of killed processes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::policy::hits::hits;
use crate::policy::window::WindowSize;
use crate::table::words::fail;
use crate::table::zone::memory::setups;
use crate::table::*;
use crate::testing::table::{Process, TestClock, points_of};

const T: u64 = 1_700_000_000_000;
const BYTES: usize = 256 << 10;

/// The path of a file that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ratelimit-{}-{number}", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    fn open(&self, bytes: usize) -> Result<TableMemory, MemoryError> {
        TableMemory::in_file(file(&self.0), bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

fn counter(memory: &TableMemory) -> Counter {
    let table = memory.table();
    let namespace = memory.set_up(|| table.namespace(b"api")).unwrap().unwrap();
    table.counter(namespace, b"api", WindowSize::from_millis(60_000).unwrap())
}

fn add(memory: &TableMemory, key: &str) -> i64 {
    let (table, clock) = (memory.table(), TestClock::at(T));
    let key = table.key(key.as_bytes());
    let admission = Admission::Unconditional;
    let counted = table.add(&counter(memory), key, &clock, hits(1), admission);
    counted.reading.windows().current.whole()
}

fn count(memory: &TableMemory, key: &str) -> i64 {
    let table = memory.table();
    let key = table.key(key.as_bytes());
    let reading = table.read(&counter(memory), key, &TestClock::at(T));
    reading.windows().current.whole()
}

/// Starts a process that may set memory up; no thread was doing so when it was forked.
fn process(child: impl FnOnce()) -> Process {
    let turn = setups();
    Process::start(move || {
        drop(turn);
        child();
    })
}

#[test]
fn a_heap_is_counted_in() {
    let memory = TableMemory::heap(BYTES).unwrap();
    assert!(memory.file().is_none());
    assert_eq!([add(&memory, "k"), add(&memory, "k")], [1, 2]);
    for bytes in [0, 1, 4096] {
        let error = TableMemory::heap(bytes).unwrap_err();
        assert!(matches!(error, MemoryError::TooSmall), "{error}");
    }
    let error = TableMemory::heap(usize::MAX).unwrap_err();
    assert!(matches!(error, MemoryError::System(_)), "{error}");
}

#[test]
fn processes_that_open_a_file_share_it() {
    let place = Place::new();
    let one = place.open(BYTES).unwrap();
    let other = place.open(BYTES).unwrap();
    assert_eq!([add(&one, "k"), add(&other, "k")], [1, 2]);
    drop(one);
    assert_eq!(add(&other, "k"), 3);
    drop(other);
    // The file survives its users, until the machine restarts.
    assert_eq!(count(&place.open(BYTES).unwrap(), "k"), 3);
    const BOOT: u64 = 24;
    file(&place.0).write_all_at(&[1; 8], BOOT).unwrap();
    assert_eq!(count(&place.open(BYTES).unwrap(), "k"), 0);
}

#[test]
fn a_file_with_other_content_is_left_alone() {
    let place = Place::new();
    let refused = |bytes| place.open(bytes).unwrap_err();
    assert!(matches!(refused(4096), MemoryError::TooSmall));
    assert_eq!(std::fs::metadata(&place.0).unwrap().len(), 0);
    for content in [&b"x"[..], &[b'x'; 8192]] {
        std::fs::write(&place.0, content).unwrap();
        assert!(matches!(refused(BYTES), MemoryError::NotATable));
        assert_eq!(std::fs::read(&place.0).unwrap(), content);
    }
    std::fs::remove_file(&place.0).unwrap();
    add(&place.open(BYTES).unwrap(), "k");
    let error = refused(2 * BYTES);
    assert!(matches!(error, MemoryError::OtherSize(size) if size == BYTES as u64));
    assert_eq!(count(&place.open(BYTES).unwrap(), "k"), 1);
    const VERSION: u64 = 8;
    file(&place.0).write_all_at(&[9; 8], VERSION).unwrap();
    assert!(matches!(refused(BYTES), MemoryError::OtherVersion));
    let null = file(Path::new("/dev/null"));
    let error = TableMemory::in_file(null, BYTES).unwrap_err();
    assert!(matches!(error, MemoryError::NotAFile), "{error}");
}

#[test]
fn a_file_without_a_name_is_given_to_another_process() {
    let memory = TableMemory::memory_file(BYTES).unwrap();
    assert_eq!(add(&memory, "k"), 1);
    let fd = memory.file().unwrap();
    assert!(fd.set_len(0).is_err(), "its memory could be taken away");
    let other = process(|| {
        let memory = TableMemory::in_file_of_another(fd.try_clone().unwrap()).unwrap();
        assert_eq!(add(&memory, "k"), 2);
    });
    assert_eq!(other.wait(), None);
    assert_eq!(add(&memory, "k"), 3);
    let place = Place::new();
    let error = TableMemory::in_file_of_another(file(&place.0)).unwrap_err();
    assert!(matches!(error, MemoryError::TooSmall), "{error}");
}

#[test]
fn processes_count_every_hit_in_one_file() {
    const PROCESSES: usize = 4;
    const HITS: usize = 2000;
    const KEYS: usize = 10;
    let place = Place::new();
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            process(|| {
                let memory = place.open(BYTES).unwrap();
                let counter = counter(&memory);
                let (table, clock) = (memory.table(), TestClock::at(T));
                for n in 0..HITS {
                    let key = format!("key {}", n % KEYS);
                    let key = table.key(key.as_bytes());
                    let admission = Admission::Unconditional;
                    table.add(&counter, key, &clock, hits(1), admission);
                }
            })
        })
        .collect();
    for process in processes {
        assert_eq!(process.wait(), None);
    }
    let memory = place.open(BYTES).unwrap();
    for n in 0..KEYS {
        let all = (PROCESSES * HITS / KEYS) as i64;
        assert_eq!(count(&memory, &format!("key {n}")), all);
    }
}

/// Opens a file, which may be new, and counts in it.
fn use_once(place: &Place) {
    let memory = place.open(BYTES).unwrap();
    for _ in 0..3 {
        add(&memory, "k");
    }
}

#[test]
fn a_file_is_whole_wherever_a_process_was_killed() {
    let place = Place::new();
    let points = points_of(|| use_once(&place));
    for point in [
        "file.named",
        "file.long",
        "file.reserved",
        "file.cleared",
        "file.laid_out",
        "file.dated",
        "file.ready",
        "namespace.named",
        "insert.claimed",
    ] {
        assert!(points.contains_key(point), "{point} is not in {points:?}");
    }
    for (point, times) in points {
        for nth in 1..=times {
            let place = Place::new();
            let killed = process(|| {
                fail::arm(point, nth);
                use_once(&place);
            });
            assert_eq!(killed.wait(), Some(libc::SIGABRT), "{point} {nth}");
            let memory = place.open(BYTES).unwrap();
            let left = count(&memory, "k");
            assert!((0..=3).contains(&left), "{point} {nth}: {left}");
            assert_eq!(add(&memory, "k"), left + 1, "{point} {nth}");
            assert_eq!(add(&memory, "new"), 1, "{point} {nth}");
        }
    }
}

#[test]
fn a_process_that_joins_a_sync_leaves_it_to_the_others() {
    let place = Place::new();
    let (one, other) = (place.open(BYTES).unwrap(), place.open(BYTES).unwrap());
    let join = |memory: &TableMemory, shards: u16| {
        let table = memory.table();
        let join = || table.join_sync(table.namespace(b"api").unwrap(), shards);
        let states = memory.set_up(join).unwrap().unwrap();
        assert_eq!(states.len(), usize::from(shards));
        states.iter().all(|state| !state.is_superseded())
    };
    assert!(join(&one, 2) && join(&other, 2));
    let index = one.table().namespace(b"api").unwrap();
    let first = one.table().join_sync(index, 2).unwrap();
    assert!(join(&other, 2) && !first[0].is_superseded());
    // Another store has another number of shards.
    assert!(join(&other, 3) && first[0].is_superseded());
}
