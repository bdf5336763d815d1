//! The counter table: one per zone, in memory that all workers of the node share.
//!
//! Counters are found and changed without a lock, by atomic operations on words of the counter's
//! own cache line; so a process may end, or be stopped, at any instruction, and the others go on.
//! The table knows nothing of nginx: it is given memory, and the time.
//!
//! - [`layout`]: how the memory is divided
//! - [`identity`]: what makes two hits count together
//! - [`meta`], [`word`]: the two kinds of words of a slot, and why one compare-and-swap suffices
//! - [`places`], [`claim`]: finding a counter's slot, and making room for a new one
//! - [`names`], [`changes`], [`division`], [`sync_state`], [`buffers`]: what only synced counters and
//!   their sync need
//! - [`counting`], [`columns`]: counting; windows, and what turning one takes
//! - [`directory`], [`stats`]: namespaces and their places; counts of events
//! - [`named`], [`store_state`]: words that are found by a name; what a node knows of a store
//! - this file: what users see

pub(crate) mod atomic;
mod batches;
mod buffers;
mod changes;
mod claim;
mod columns;
mod counting;
#[cfg(all(test, not(loom)))]
mod crash_tests;
mod directory;
#[cfg(all(test, not(loom)))]
mod directory_tests;
mod division;
pub(crate) mod fail;
mod identity;
mod layout;
mod lease;
#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
mod meta;
mod named;
mod names;
mod node;
mod part;
mod places;
mod progress;
mod slot;
mod stats;
mod store_state;
#[cfg(all(test, not(loom)))]
mod stress_tests;
mod sync_slot;
mod sync_slots;
mod sync_state;
#[cfg(all(test, not(loom)))]
mod sync_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

use atomic::Ordering::Relaxed;
use identity::{Hasher, KeyHash, Mask};
use layout::Parts;
use meta::Meta;
use stats::{NamespaceLine, SharedLine, ZoneLine};
use word::{Generation, Stamp};

use crate::policy::algorithm::{Algorithm, Reading};
use crate::policy::hits::Hits;
use crate::policy::namespace::OnError;
use crate::policy::window::WindowSize;

pub use batches::{BatchName, BatchRecord};
pub use changes::{Change, CounterRef, LookedAt, Pending, WindowChange};
pub use identity::Identity;
pub use layout::{LayoutError, ZoneRoom};
pub use lease::{Lease, LeaseLost};
pub use meta::NamespaceIndex;
pub use named::{NameKind, Named};
pub use part::{HasKey, Part};
pub use progress::Repair;
pub use stats::{Cycle, Evicted, Invalid, NamespaceStats, Outcome, SyncStats, ZoneStats};
pub use store_state::{StoreState, StoreTransition};
pub use sync_state::{MonotonicMillis, SyncState};

/// A table of counters in shared memory, as one process sees it.
///
/// All methods may be called at the same time by any number of threads and processes.
#[derive(Debug)]
pub struct CounterTable<'m> {
    parts: Parts<'m>,
    hasher: Hasher,
    /// Which event counters this process uses.
    worker: AtomicUsize,
}

/// All counters of one namespace and window size: what [`CounterTable`] needs beside the key.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    mask: Mask,
    namespace: NamespaceIndex,
    size: WindowSize,
    is_synced: bool,
    /// Where the event counters of the namespace begin.
    lines: usize,
}

/// A key: any bytes, hashed for one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    bytes: &'k [u8],
    hash: KeyHash,
}

impl Counter {
    /// The size of the windows.
    pub fn size(&self) -> WindowSize {
        self.size
    }

    /// The identity of the counter of a key: equal for equal counters only.
    #[inline]
    pub fn identity(&self, key: Key<'_>) -> Identity {
        self.mask.identity(key.hash)
    }

    /// Whether `other`, of the same table, are the same counters: of one namespace and size.
    pub fn is_same(&self, other: &Counter) -> bool {
        (self.namespace, self.size) == (other.namespace, other.size)
    }

    /// The same counters, if they are `is_synced`: then they keep the bytes of their keys, and
    /// changes of them are found by [`CounterTable::take_changes`].
    pub fn synced(self, is_synced: bool) -> Counter {
        Counter { is_synced, ..self }
    }

    fn meta(&self, generation: Generation) -> Meta {
        Meta::counter(generation, self.namespace, self.size, self.is_synced)
    }

    /// The namespace that is counted in.
    pub fn namespace(&self) -> NamespaceIndex {
        self.namespace
    }
}

/// On what condition hits are counted.
#[derive(Clone, Copy, Debug)]
pub enum Admission {
    /// Always.
    Unconditional,
    /// If the rate including them is at most the limit.
    Within(Hits, Algorithm),
}

/// What came of counting hits.
#[derive(Debug)]
pub struct Counted<'m> {
    /// What is read afterwards.
    pub reading: Reading,
    /// Whether the condition was met, and the hits were counted.
    pub admitted: bool,
    /// How to find the hits again, if they were counted: [`CounterTable::give_back`].
    pub receipt: Option<Receipt<'m>>,
}

/// Where hits were counted.
#[derive(Debug)]
pub struct Receipt<'m> {
    column: &'m atomic::AtomicU64,
    stamp: Stamp,
    value: Hits,
}

impl Receipt<'_> {
    /// The hits that were counted.
    #[inline]
    pub fn value(&self) -> Hits {
        self.value
    }
}

impl<'k> Key<'k> {
    /// The key itself.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
}

impl<'m> CounterTable<'m> {
    /// Makes a table in `region`, which must be all zero, and is all but a little of a zone of `size`
    /// bytes.
    ///
    /// `secret` keys the hash of identities; it must be unpredictable.
    ///
    /// # Errors
    ///
    /// [`LayoutError::TooSmall`] below some 20 KiB, [`LayoutError::Misaligned`].
    ///
    /// # Safety
    ///
    /// During `'m` the region is valid for reads and writes, in every process that has a table in
    /// it, and is accessed through tables only.
    pub unsafe fn create(
        region: NonNull<[u8]>,
        size: usize,
        secret: [u64; 2],
    ) -> Result<Self, LayoutError> {
        // SAFETY: the caller's promise.
        Ok(Self::over(unsafe { Parts::create(region, size, secret)? }))
    }

    /// Finds the table that was made in `region` of a zone of `size` bytes, in this or another process.
    ///
    /// # Errors
    ///
    /// [`LayoutError::NotATable`] and [`LayoutError::OtherLayout`] if there is none that this
    /// version understands; the memory is not changed then.
    ///
    /// # Safety
    ///
    /// As for [`CounterTable::create`].
    pub unsafe fn open(region: NonNull<[u8]>, size: usize) -> Result<Self, LayoutError> {
        // SAFETY: the caller's promise.
        Ok(Self::over(unsafe { Parts::open(region, size)? }))
    }

    fn over(parts: Parts<'m>) -> Self {
        let hasher = Hasher::new(parts.secret);
        CounterTable {
            parts,
            hasher,
            worker: AtomicUsize::new(0),
        }
    }

    /// Makes this process count events as worker number `worker`. Workers that share a number
    /// share counters, which costs time but loses nothing.
    pub fn set_worker(&self, worker: usize) {
        let workers = self.parts.zone_lines.len();
        self.worker
            .store(worker.checked_rem(workers).unwrap_or_default(), Relaxed);
    }

    /// The counters of `namespace`, whose name is `name`, in windows of `size`.
    pub fn counter(&self, namespace: NamespaceIndex, name: &[u8], size: WindowSize) -> Counter {
        const COUNTER: u8 = 0;
        let mask = self.hasher.mask(name, COUNTER, size.millis());
        Counter {
            mask,
            namespace,
            size,
            is_synced: false,
            lines: self.lines_of(namespace),
        }
    }

    /// A key, for this table.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key {
            bytes,
            hash: self.hasher.hash_key(bytes),
        }
    }

    /// Counts the outcome of a request that was counted in one of `counter`.
    #[inline]
    pub fn count_outcome(&self, counter: &Counter, outcome: Outcome) {
        self.count(counter.lines, |line| line.count(outcome));
    }

    /// Counts hits that were charged to one of `counter`, and will not be given back.
    pub fn count_hits(&self, counter: &Counter, hits: Hits) {
        self.count(counter.lines, |line| line.hits(hits));
    }

    /// Counts the outcome of a request, and with it the hits that it was charged for good.
    #[inline]
    pub fn count_decided(&self, counter: &Counter, outcome: Outcome, hits: Hits) {
        self.count(counter.lines, |line| {
            line.count(outcome);
            line.hits(hits);
        });
    }

    /// Counts a request of a namespace that `on_error` decided on.
    pub fn count_fallback(&self, counter: &Counter, on_error: OnError) {
        self.count_shared(counter, |line| line.fell_back(on_error));
    }

    /// Counts a value that was wrong at run time.
    pub fn count_invalid(&self, counter: &Counter, what: Invalid) {
        self.count_shared(counter, |line| line.invalid(what));
    }

    /// Counts a request that was rejected by a policy which has no count of its own.
    pub fn count_rejected(&self, counter: &Counter) {
        self.count_shared(counter, SharedLine::rejected);
    }

    /// Counts a request that waited for a store for so many microseconds.
    pub fn count_wait(&self, counter: &Counter, micros: u64) {
        self.count_shared(counter, |line| line.waited(micros));
    }

    fn count_shared(&self, counter: &Counter, event: impl FnOnce(&SharedLine)) {
        if let Some(line) = self.parts.shared_lines.get(counter.namespace.get()) {
            event(line);
        }
    }

    /// What happened in `namespace` since the zone was made, on this node.
    pub fn namespace_stats(&self, namespace: NamespaceIndex) -> NamespaceStats {
        let (start, workers) = (self.lines_of(namespace), self.parts.zone_lines.len());
        let lines = self
            .parts
            .namespace_lines
            .get(start..start.saturating_add(workers));
        match self.parts.shared_lines.get(namespace.get()) {
            Some(shared) => NamespaceLine::sum(lines.unwrap_or_default(), shared),
            None => NamespaceStats::default(),
        }
    }

    /// What happened in the zone since it was made.
    pub fn zone_stats(&self) -> ZoneStats {
        ZoneLine::sum(self.parts.zone_lines)
    }

    /// How many keys can have a place at the same time, if none of them is synced: a key that is takes
    /// more room.
    pub fn capacity(&self) -> u64 {
        let buckets = u64::try_from(self.parts.buckets.len()).unwrap_or(u64::MAX);
        buckets.saturating_mul(slot::WAYS as u64)
    }

    /// How many keys have a place now, in all namespaces: an estimate while workers count.
    pub fn keys(&self) -> u64 {
        NamespaceLine::keys(self.parts.namespace_lines)
    }

    /// How many of them are of the namespaces that have these places; `None`: there are no such places.
    pub fn keys_of(&self, places: Range<usize>) -> Option<u64> {
        let workers = self.parts.zone_lines.len();
        let end = places.end.min(self.parts.directory.len());
        let lines = places.start.saturating_mul(workers)..end.saturating_mul(workers);
        let lines = self.parts.namespace_lines.get(lines)?;
        (!lines.is_empty()).then(|| NamespaceLine::keys(lines))
    }

    /// Where the event counters of `namespace` begin: there is a line for each worker.
    fn lines_of(&self, namespace: NamespaceIndex) -> usize {
        let workers = self.parts.zone_lines.len();
        namespace.get().saturating_mul(workers)
    }

    /// Counts an event of the namespace whose event counters begin at `lines`, as this worker.
    #[inline]
    fn count(&self, lines: usize, event: impl FnOnce(&NamespaceLine)) {
        let line = lines.wrapping_add(self.worker.load(Relaxed));
        if let Some(line) = self.parts.namespace_lines.get(line) {
            event(line);
        }
    }

    /// Notes, as this worker, that its event loop was held for so many nanoseconds.
    pub fn note_hold(&self, nanos: u64) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.held(nanos);
        }
    }

    /// Counts an eviction, as this worker.
    fn count_evicted(&self, what: Evicted) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.evicted(what);
        }
    }
}
