//! Memory and time for tests and fuzz targets.

#[cfg(test)]
mod processes;

use core::cell::Cell;
use core::num::NonZeroU64;
use core::ptr::NonNull;
use core::time::Duration;

use crate::engine::Env;
use crate::policy::algorithm::{StoredKind, WindowCounts};
use crate::policy::hits::hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::{Admission, Counter, CounterTable, Key};

#[cfg(test)]
pub(crate) use processes::*;

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
        // Miri takes half a minute for a larger one.
        let len = if cfg!(miri) { len.min(1 << 16) } else { len };
        let region = mapped(len);
        // SAFETY: the memory is unmapped with the table only, and not used otherwise.
        let table = unsafe { CounterTable::create(region, len, secret).unwrap() };
        SharedTable { region, table }
    }

    /// Opens the table in memory with this content; `None` if there is none.
    #[cfg(fuzzing)]
    pub(crate) fn of_image(image: &[u8]) -> Option<SharedTable> {
        let region = mapped(image.len());
        // SAFETY: the region has this length, and nobody uses it yet.
        unsafe { region.cast::<u8>().as_ptr().copy_from(image.as_ptr(), image.len()) };
        // SAFETY: as in `with_secret`; a region without a table is unmapped at once.
        match unsafe { CounterTable::open(region, image.len()) } {
            Ok(table) => Some(SharedTable { region, table }),
            Err(_) => {
                // SAFETY: the mapping above, which nobody uses.
                unsafe { libc::munmap(region.as_ptr().cast(), image.len()) };
                None
            }
        }
    }

    /// Returns the content of its memory.
    #[cfg(fuzzing)]
    pub(crate) fn image(&self) -> Vec<u8> {
        // SAFETY: the region is mapped while `self` lives; nobody writes to it at this moment.
        unsafe { self.region.as_ref().to_vec() }
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

/// Maps zeroed memory that a `fork` shares.
pub(crate) fn mapped(len: usize) -> NonNull<[u8]> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // Miri, which has no fork, maps private memory only.
    let sharing = if cfg!(miri) { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
    let flags = sharing | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, whose result is checked.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), len, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    NonNull::slice_from_raw_parts(NonNull::new(start).unwrap().cast(), len)
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

/// A node's time and random numbers.
pub(crate) struct Time {
    pub(crate) unix: TestClock,
    pub(crate) monotonic: Cell<u64>,
    pub(crate) random: Cell<u64>,
}

impl Time {
    /// Creates the time `millis`, with random numbers that follow from `seed`.
    pub(crate) fn at(millis: u64, seed: u64) -> Time {
        Time { unix: TestClock::at(millis), monotonic: Cell::new(1000), random: Cell::new(seed) }
    }
}

impl Clock for Time {
    fn now(&self) -> UnixMillis {
        self.unix.now()
    }

    fn fresh(&self) -> UnixMillis {
        self.unix.fresh()
    }
}

impl Env for Time {
    fn uptime(&self) -> Duration {
        Duration::from_millis(self.monotonic.get())
    }

    fn process(&self) -> u32 {
        1
    }

    fn random(&self) -> NonZeroU64 {
        self.random.set(self.random.get() + 1);
        // Fibonacci hashing: successive numbers differ like random ones.
        let mixed = self.random.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        NonZeroU64::new(mixed).unwrap()
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
