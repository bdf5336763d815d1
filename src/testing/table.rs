//! Memory and time for tests.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::collections::BTreeMap;

use crate::policy::algorithm::{StoredKind, WindowCounts};
use crate::policy::hits::hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::words::fail;
use crate::table::{Admission, Counter, CounterTable, Key};

/// A table in zeroed memory that a `fork` shares.
pub(crate) struct SharedTable {
    region: NonNull<[u8]>,
    pub(crate) table: CounterTable<'static>,
}

impl SharedTable {
    pub(crate) fn new(len: usize) -> SharedTable {
        Self::with_secret(len, [1, 2])
    }

    pub(crate) fn with_secret(len: usize, secret: [u64; 2]) -> SharedTable {
        // SAFETY: a new mapping, whose result is checked.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let region = NonNull::slice_from_raw_parts(NonNull::new(start).unwrap().cast(), len);
        // SAFETY: the memory is unmapped with the table only, and not used otherwise.
        let table = unsafe { CounterTable::create(region, len, secret).unwrap() };
        SharedTable { region, table }
    }

    /// Opens the table once more, as another process sees it.
    pub(crate) fn open(&self) -> Result<CounterTable<'_>, crate::table::LayoutError> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { CounterTable::open(self.region, self.region.len()) }
    }

    /// All that is in it once more, as in a copy of the machine.
    pub(crate) fn cloned(&self) -> SharedTable {
        let clone = SharedTable::new(self.region.len());
        // SAFETY: two regions of one length, of which the new one is used by nobody yet; nobody writes
        // to the other in this moment.
        unsafe {
            let from = self.region.cast::<u8>().as_ptr();
            clone.region.cast::<u8>().as_ptr().copy_from(from, self.region.len());
        }
        // SAFETY: as in `new`.
        let table = unsafe { CounterTable::open(clone.region, clone.region.len()).unwrap() };
        let clone = core::mem::ManuallyDrop::new(clone);
        SharedTable { region: clone.region, table }
    }

    /// Overwrites a byte of the table.
    pub(crate) fn poke(&mut self, offset: usize, value: u8) {
        assert!(offset < self.region.len());
        // SAFETY: within the region, which nobody else has while it is borrowed mutably.
        unsafe { self.region.cast::<u8>().add(offset).write(value) }
    }
}

impl Drop for SharedTable {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; the table in it is not used any more.
        unsafe { libc::munmap(self.region.as_ptr().cast(), self.region.len()) };
    }
}

impl CounterTable<'_> {
    /// The counters of this namespace, of this kind and in windows of so many milliseconds.
    pub(crate) fn counter_in(&self, namespace: &[u8], kind: StoredKind, millis: u64) -> Counter {
        let index = self.namespace(namespace).unwrap();
        let size = WindowSize::from_millis(millis).unwrap();
        self.counter_of(index, namespace, kind, size)
    }

    /// Whether `key` has a counter, be it of windows that ended.
    pub(crate) fn has(&self, counter: &Counter, key: Key<'_>) -> bool {
        self.find(counter.identity(key)).is_some()
    }
}

/// A clock that stands where it is set, whose users may look at it late.
#[derive(Default)]
pub(crate) struct TestClock {
    /// Time that the user believes.
    pub(crate) seen: Cell<u64>,
    /// Time that the clock shows.
    pub(crate) real: Cell<u64>,
}

impl TestClock {
    pub(crate) fn at(millis: u64) -> TestClock {
        TestClock { seen: Cell::new(millis), real: Cell::new(millis) }
    }

    pub(crate) fn set(&self, millis: u64) {
        self.seen.set(millis);
        self.real.set(millis);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.seen.get())
    }

    fn fresh(&self) -> UnixMillis {
        self.seen.set(self.real.get());
        self.now()
    }
}

/// A table, one of its counters, and the time.
pub(crate) struct Fixture {
    pub(crate) shared: SharedTable,
    pub(crate) counter: Counter,
    pub(crate) clock: TestClock,
}

impl Fixture {
    /// With a counter of this namespace, in windows of so many milliseconds, `at` a time.
    pub(crate) fn of(shared: SharedTable, namespace: &[u8], millis: u64, at: u64) -> Fixture {
        let kind = StoredKind::Windows;
        Fixture {
            counter: shared.table.counter_in(namespace, kind, millis),
            shared,
            clock: TestClock::at(at),
        }
    }

    /// Adds so many hits, whatever there are, and returns the counts of the key then.
    pub(crate) fn add(&self, key: &(impl AsRef<[u8]> + ?Sized), value: i64) -> WindowCounts {
        let (table, admission) = (&self.shared.table, Admission::Unconditional);
        let key = table.key(key.as_ref());
        let counted = table.add(&self.counter, key, &self.clock, hits(value), admission);
        counted.reading.windows()
    }

    pub(crate) fn read(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> WindowCounts {
        let table = &self.shared.table;
        let key = table.key(key.as_ref());
        table.read(&self.counter, key, &self.clock).windows()
    }
}

/// Runs `child` in a process of its own, which shares the tables; returns the signal that ended
/// it, if one did.
pub(crate) fn in_process(child: impl FnOnce()) -> Option<i32> {
    Process::start(child).wait()
}

/// A process that runs a part of a test.
pub(crate) struct Process(libc::pid_t);

impl Process {
    pub(crate) fn start(child: impl FnOnce()) -> Process {
        // SAFETY: the child has one thread, and uses nothing that another thread of its parent may
        // have left locked but the memory allocator, which libc repairs.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                // SAFETY: ends the process, without the handlers of its parent.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            pid => Process(pid),
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// Waits until the process has stopped, or ended. Returns whether it has stopped.
    pub(crate) fn wait_for_stop(&self) -> bool {
        let id = self.0 as libc::id_t;
        // SAFETY: all-zero is a valid value.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: a child that was not waited for. Its end, if it has ended, is left for `wait`.
        let seen = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, options) };
        assert_eq!(seen, 0);
        info.si_code == libc::CLD_STOPPED
    }

    /// Waits for the end; a child that panicked fails the test.
    pub(crate) fn wait(self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        if libc::WIFSIGNALED(status) {
            return Some(libc::WTERMSIG(status));
        }
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child panicked");
        None
    }
}

thread_local! {
    static SEEN: RefCell<BTreeMap<&'static str, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the fail points that `scenario` passes, and how often.
pub(crate) fn points_of(scenario: impl FnOnce()) -> BTreeMap<&'static str, u32> {
    SEEN.take();
    fail::observe(Some(|point| SEEN.with_borrow_mut(|seen| *seen.entry(point).or_default() += 1)));
    scenario();
    fail::observe(None);
    SEEN.take()
}

/// Runs `scenario` on what `prepare` made: first to its end, to see which fail points it passes (at
/// least the `expected` ones) and how often; then once for each of these, in a process that dies
/// there. `check` is told where.
pub(crate) fn die_everywhere<S>(
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    expected: &[&str],
    check: impl Fn(&S, &'static str),
) {
    let state = prepare();
    let points = points_of(|| scenario(&state));
    // At least these; in which bucket a key ends up depends on its hash.
    for point in expected {
        assert!(points.contains_key(point), "{point} is not in {points:?}");
    }
    for (point, times) in points {
        for nth in 1..=times {
            let state = prepare();
            let signal = in_process(|| {
                fail::arm(point, nth);
                scenario(&state);
            });
            assert_eq!(signal, Some(libc::SIGABRT), "{point} {nth}");
            check(&state, point);
        }
    }
}

/// Runs `scenario` on what `prepare` made as [`die_everywhere`] does, in processes that are stopped at a fail point, go
/// on after `meanwhile`, and run to their end: at each point, once where it is passed for the first time, once for the last.
/// `meanwhile` and `check` are told which.
pub(crate) fn pause_everywhere<S>(
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    expected: &[&str],
    meanwhile: impl Fn(&S, Pass),
    check: impl Fn(&S),
) {
    let state = prepare();
    let points = points_of(|| scenario(&state));
    for point in expected {
        assert!(points.contains_key(point), "{point} is not in {points:?}");
    }
    pause_at(points, prepare, scenario, meanwhile, check);
}

/// Runs `scenario` as [`pause_everywhere`] does, stopped at these points, each with the number of times that it is passed.
pub(crate) fn pause_at<S>(
    points: impl IntoIterator<Item = (&'static str, u32)>,
    prepare: impl Fn() -> S,
    scenario: impl Fn(&S),
    meanwhile: impl Fn(&S, Pass),
    check: impl Fn(&S),
) {
    for (point, times) in points {
        for (pass, nth) in [(Pass::First, 1), (Pass::Last, times)] {
            // For the log of a test that fails.
            eprintln!("stopped at {point} {nth}");
            let state = prepare();
            let process = Process::start(|| {
                fail::pause_at(point, nth);
                scenario(&state);
            });
            assert!(process.wait_for_stop(), "{point} {nth}");
            meanwhile(&state, pass);
            process.signal(libc::SIGCONT);
            assert_eq!(process.wait(), None, "{point} {nth}");
            check(&state);
        }
    }
}

/// A pass at which a process is stopped at a fail point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    First,
    Last,
}
