//! The table as one process sees it: where it is in memory, and its counts of events.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use std::sync::OnceLock;

use super::counter::{Counter, Key};
use super::event_lines::{Evicted, Invalid, Outcome, add};
use super::events::{NamespaceLine, NamespaceStats, SharedLine, ZoneLine, ZoneStats};
use super::layout::{DirectoryEntry, LayoutError, Parts};
use super::near_cell::EarlyShare;
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::namespace::OnError;
use crate::policy::window::WindowSize;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::bell::Bell;
use crate::table::words::identity::Hasher;
use crate::table::words::meta::{Meta, NamespaceIndex};
use crate::table::words::slot::{Bucket, Slot, WAYS};
use crate::table::words::word::Generation;

/// A table of counters in shared memory, as one process sees it.
///
/// All methods may be called at the same time by any number of threads and processes.
#[derive(Debug)]
pub struct CounterTable<'m> {
    pub(crate) parts: Parts<'m>,
    pub(crate) hasher: Hasher,
    /// Index of this process's event counters.
    worker: AtomicUsize,
    /// Bell of the worker that pushes.
    pub(crate) bell: OnceLock<Bell>,
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

    pub(crate) fn over(parts: Parts<'m>) -> Self {
        let hasher = Hasher::new(parts.secret);
        CounterTable { parts, hasher, worker: AtomicUsize::new(0), bell: OnceLock::new() }
    }

    /// Makes this process count events as worker number `worker`. Workers that share a number
    /// share counters, which costs time but loses nothing.
    pub fn set_worker(&self, worker: usize) {
        let workers = self.parts.zone_lines.len();
        self.worker.store(worker.checked_rem(workers).unwrap_or_default(), Relaxed);
    }

    /// The counters of `namespace`, whose name is `name`, in windows of `size`.
    pub fn counter(&self, namespace: NamespaceIndex, name: &[u8], size: WindowSize) -> Counter {
        self.counter_of(namespace, name, StoredKind::Windows, size)
    }

    /// The counters of `namespace`, whose name is `name`, of this kind and size: of a bucket, with its rate.
    pub fn counter_of(
        &self,
        namespace: NamespaceIndex,
        name: &[u8],
        kind: StoredKind,
        size: WindowSize,
    ) -> Counter {
        let mask = self.hasher.mask(name, kind.wire_id(), kind.measure(size));
        Counter {
            kind,
            meta: Meta::counter(namespace, size, kind),
            begins_with_hits: kind == StoredKind::Windows,
            number_mask: match kind {
                StoredKind::Windows => u64::MAX,
                StoredKind::Level(_) | StoredKind::Log => 0,
            },
            mask,
            namespace,
            size,
            is_synced: false,
            early: EarlyShare::OFF,
            lines: self.lines_of(namespace),
        }
    }

    /// A key, for this table.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hasher.hash_key(bytes) }
    }

    /// Counts the outcome of a request that was counted in one of `counter`.
    #[inline]
    pub fn count_outcome(&self, counter: &Counter, outcome: Outcome) {
        self.count(counter.lines, |line| line.count(outcome));
    }

    /// Counts hits that were charged to one of `counter`, and will not be refunded.
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

    /// Counts hits of a namespace that were admitted above a limit.
    pub fn count_excess(&self, counter: &Counter, hits: Hits) {
        self.count_shared(counter, |line| line.exceeded(hits));
    }

    /// Counts a request that was rejected by a policy which has no count of its own.
    pub fn count_rejected(&self, counter: &Counter) {
        self.count_shared(counter, |line| add(&line.rejected_unnamed, 1));
    }

    /// Counts a request that a rate holds back.
    pub fn count_delayed(&self, counter: &Counter) {
        self.count_shared(counter, |line| add(&line.delayed, 1));
    }

    /// Counts a request that waited, for a store or since a rate held it back, for so many microseconds.
    pub fn count_wait(&self, counter: &Counter, micros: u64) {
        self.count_shared(counter, |line| line.waited(micros));
    }

    fn count_shared(&self, counter: &Counter, event: impl FnOnce(&SharedLine)) {
        if let Some(line) = self.parts.shared_lines.get(counter.namespace.get()) {
            event(line);
        }
    }

    /// Returns the events of `namespace` on this node since the zone was made.
    pub fn namespace_stats(&self, namespace: NamespaceIndex) -> NamespaceStats {
        let (start, workers) = (self.lines_of(namespace), self.parts.zone_lines.len());
        let lines = self.parts.namespace_lines.get(start..start.saturating_add(workers));
        let shared = self.parts.shared_lines.get(namespace.get()..=namespace.get());
        let stats = NamespaceLine::read(lines.unwrap_or_default(), NamespaceStats::default());
        SharedLine::read(shared.unwrap_or_default(), stats)
    }

    /// Returns the events of the zone since it was made.
    pub fn zone_stats(&self) -> ZoneStats {
        ZoneLine::read(self.parts.zone_lines, ZoneStats::default())
    }

    /// Returns the number of keys that fit at the same time, if none of them is synced: a synced
    /// key takes more room.
    pub fn capacity(&self) -> u64 {
        let buckets = u64::try_from(self.parts.buckets.len()).unwrap_or(u64::MAX);
        buckets.saturating_mul(WAYS as u64)
    }

    /// Returns the number of keys of the namespaces with these places: an estimate while workers count. `None`: there
    /// are no such places.
    pub fn keys_of(&self, places: Range<usize>) -> Option<u64> {
        let workers = self.parts.zone_lines.len();
        let end = places.end.min(self.parts.directory.len());
        let lines = places.start.saturating_mul(workers)..end.saturating_mul(workers);
        let lines = self.parts.namespace_lines.get(lines)?;
        (!lines.is_empty()).then(|| NamespaceLine::read(lines, NamespaceStats::default()).keys())
    }

    /// Returns the index of the first line of event counters of `namespace`: there is a line for
    /// each worker.
    pub(crate) fn lines_of(&self, namespace: NamespaceIndex) -> usize {
        let workers = self.parts.zone_lines.len();
        namespace.get().saturating_mul(workers)
    }

    /// Counts hits of a namespace that its store will not get.
    pub fn count_dropped(&self, namespace: NamespaceIndex, hits: Hits) {
        self.count(self.lines_of(namespace), |line| line.dropped(hits));
    }

    /// Counts an event of the namespace whose event counters begin at `lines`, as this worker.
    #[inline]
    pub(crate) fn count(&self, lines: usize, event: impl FnOnce(&NamespaceLine)) {
        let line = lines.wrapping_add(self.worker.load(Relaxed));
        if let Some(line) = self.parts.namespace_lines.get(line) {
            event(line);
        }
    }

    /// Notes, as this worker, that its event loop was held for so many nanoseconds.
    pub fn record_hold(&self, nanos: u64) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.held(nanos);
        }
    }

    /// Counts an eviction, as this worker.
    pub(crate) fn count_evicted(&self, what: Evicted) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.evicted(what);
        }
    }

    /// Returns the number of slots.
    pub fn slot_count(&self) -> usize {
        self.parts.buckets.len().saturating_mul(WAYS)
    }

    /// Returns the link to slot number `index` in its present generation: to a part of a name, or to a block of a log. The
    /// bits that no index needs have those of the generation: a process that was about to drop a link does not drop the
    /// next one, though it is to the same slot.
    pub(crate) fn link_to(&self, index: usize, generation: Generation) -> Option<u32> {
        let link = u32::try_from(index.checked_add(1)?).ok()?;
        let version = u32::from(generation.bits()).checked_shl(self.index_bits());
        Some(version.unwrap_or(0) | link)
    }

    /// Returns the index in a link; `None`: it leads nowhere.
    pub(crate) fn index_of_link(&self, link: u32) -> Option<usize> {
        let indexes = u32::MAX.checked_shr(u32::BITS.saturating_sub(self.index_bits()));
        ((link & indexes.unwrap_or(0)) as usize).checked_sub(1)
    }

    /// Returns the number of bits of a link to the last slot.
    fn index_bits(&self) -> u32 {
        usize::BITS.saturating_sub(self.slot_count().leading_zeros())
    }

    pub(crate) fn slot_at(&self, index: usize) -> Option<&'m Slot> {
        let buckets: &'m [Bucket] = self.parts.buckets;
        buckets.get(index / WAYS)?.get(index % WAYS)
    }

    /// The index of the slot that `part` is, or is a part of.
    pub(crate) fn index_of<T>(&self, part: &T) -> usize {
        let start = self.parts.buckets.as_ptr() as usize;
        let distance = (core::ptr::from_ref(part) as usize).wrapping_sub(start);
        distance.checked_div(size_of::<Slot>()).unwrap_or_default()
    }

    /// The number of the configuration that is used.
    pub(crate) fn configuration(&self) -> u64 {
        self.parts.configuration.load(Relaxed)
    }

    pub(crate) fn entry(&self, index: NamespaceIndex) -> Option<&'m DirectoryEntry> {
        let entries: &'m [DirectoryEntry] = self.parts.directory;
        entries.get(index.get())
    }
}
