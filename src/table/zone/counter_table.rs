//! The table as one process sees it: its parts in memory, this process's event counters and bell, and references to
//! counters.

use core::fmt;
use core::num::NonZeroU64;
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
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::identity::Hasher;
use crate::table::words::meta::{Meta, NamespaceIndex};
use crate::table::words::slot::{Bucket, Occupant, Slot, WAYS, group_of};
use crate::table::words::word::Generation;

/// A table of counters in shared memory, as one process sees it.
///
/// All methods can be called concurrently by any thread or process.
#[derive(Debug)]
pub struct CounterTable<'m> {
    pub(crate) parts: Parts<'m>,
    pub(crate) hasher: Hasher,
    /// Number of the worker whose event counters this process increments.
    worker: AtomicUsize,
    /// The bell for early pushes.
    pub(crate) bell: OnceLock<Bell>,
    /// The number under which this process holds requests: see `holders`.
    pub(crate) holder: AtomicU64,
}

/// Wakes the thread of the worker with this number.
type WakeWorker = dyn Fn(u16) + Send + Sync;

/// The bell for early pushes, in each process: how to wake another worker.
pub(crate) struct Bell {
    pub(crate) own: u16,
    pub(crate) wake: Box<WakeWorker>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bell of {}", self.own)
    }
}

impl<'m> CounterTable<'m> {
    /// Creates a table in `region`, which must be all zero. It is nearly all of a zone of `size`
    /// bytes.
    ///
    /// `secret` is the key of the identities' hash. It must be unpredictable.
    ///
    /// # Errors
    ///
    /// [`LayoutError::TooSmall`] below about 20 KiB, [`LayoutError::Misaligned`].
    ///
    /// # Safety
    ///
    /// During `'m`, `region` is valid for reads and writes in every process with a table in it, and
    /// is accessed only through tables.
    pub unsafe fn create(
        region: NonNull<[u8]>,
        size: usize,
        secret: [u64; 2],
    ) -> Result<Self, LayoutError> {
        // SAFETY: by the caller's contract.
        Ok(Self::over(unsafe { Parts::create(region, size, secret)? }))
    }

    /// Opens the table that was created in `region`, by this or another process, in a zone of
    /// `size` bytes.
    ///
    /// # Errors
    ///
    /// [`LayoutError::NotATable`] and [`LayoutError::OtherLayout`] if there is none that this
    /// version supports. The memory is then unchanged.
    ///
    /// # Safety
    ///
    /// See [`CounterTable::create`].
    pub unsafe fn open(region: NonNull<[u8]>, size: usize) -> Result<Self, LayoutError> {
        // SAFETY: by the caller's contract.
        Ok(Self::over(unsafe { Parts::open(region, size)? }))
    }

    pub(crate) fn over(parts: Parts<'m>) -> Self {
        let hasher = Hasher::new(parts.secret);
        CounterTable {
            parts,
            hasher,
            worker: AtomicUsize::new(0),
            bell: OnceLock::new(),
            holder: AtomicU64::new(0),
        }
    }

    /// Sets the worker whose event counters this process increments. Workers that share a number
    /// count correctly, but slower.
    pub fn set_worker(&self, worker: usize) {
        let workers = self.parts.zone_lines.len();
        self.worker.store(worker.checked_rem(workers).unwrap_or_default(), Relaxed);
    }

    /// Returns the counters of `namespace`, whose name is `name`, in windows of `size`.
    pub fn counter(&self, namespace: NamespaceIndex, name: &[u8], size: WindowSize) -> Counter {
        self.counter_of(namespace, name, StoredKind::Windows, size)
    }

    /// Returns the counters of `namespace`, whose name is `name`, of this kind and size; a bucket's
    /// kind has its rate.
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
                StoredKind::Level(_) | StoredKind::Log | StoredKind::Holds => 0,
            },
            mask,
            namespace,
            size,
            is_synced: false,
            early: EarlyShare::OFF,
            lines: self.lines_of(namespace),
        }
    }

    /// Hashes a key for this table.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hasher.hash_key(bytes) }
    }

    /// Counts the outcome of a request in the namespace of `counter`.
    #[inline]
    pub fn count_outcome(&self, counter: &Counter, outcome: Outcome) {
        self.count(counter.lines, |line| line.count(outcome));
    }

    /// Counts hits that were charged in the namespace of `counter`, and will not be refunded.
    pub fn count_hits(&self, counter: &Counter, hits: Hits) {
        self.count(counter.lines, |line| line.hits(hits));
    }

    /// Counts the outcome of a request, and the hits that it was finally charged.
    #[inline]
    pub fn count_decided(&self, counter: &Counter, outcome: Outcome, hits: Hits) {
        self.count(counter.lines, |line| {
            line.count(outcome);
            line.hits(hits);
        });
    }

    /// Counts a request that `on_error` decided.
    pub fn count_fallback(&self, counter: &Counter, on_error: OnError) {
        self.count_shared(counter, |line| line.fell_back(on_error));
    }

    /// Counts a value that was invalid at run time.
    pub fn count_invalid(&self, counter: &Counter, what: Invalid) {
        self.count_shared(counter, |line| line.invalid(what));
    }

    /// Counts hits that were admitted above a limit.
    pub fn count_excess(&self, counter: &Counter, hits: Hits) {
        self.count_shared(counter, |line| line.exceeded(hits));
    }

    /// Counts a request that was rejected by a policy without its own counter.
    pub fn count_rejected(&self, counter: &Counter) {
        self.count_shared(counter, |line| add(&line.rejected_unnamed, 1));
    }

    /// Counts a request that a ban rejected.
    pub fn count_banned(&self, counter: &Counter) {
        self.count_shared(counter, |line| add(&line.banned, 1));
    }

    /// Counts a request that a rate delayed.
    pub fn count_delayed(&self, counter: &Counter) {
        self.count_shared(counter, |line| add(&line.delayed, 1));
    }

    /// Counts a wait of a request for a store or a rate, in microseconds.
    pub fn count_wait(&self, counter: &Counter, micros: u64) {
        self.count_shared(counter, |line| line.waited(micros));
    }

    fn count_shared(&self, counter: &Counter, event: impl FnOnce(&SharedLine)) {
        if let Some(line) = self.parts.shared_lines.get(counter.namespace.get()) {
            event(line);
        }
    }

    /// Returns the event counts of `namespace` on this node since the zone was created.
    pub fn namespace_stats(&self, namespace: NamespaceIndex) -> NamespaceStats {
        let shared = self.parts.shared_lines.get(namespace.get()..=namespace.get());
        let stats = NamespaceLine::read(self.namespace_lines(namespace), NamespaceStats::default());
        SharedLine::read(shared.unwrap_or_default(), stats)
    }

    /// Returns the event counts of the zone since it was created.
    pub fn zone_stats(&self) -> ZoneStats {
        ZoneLine::read(self.parts.zone_lines, ZoneStats::default())
    }

    /// Returns the number of keys that fit if none of them is synced. A synced key takes more room.
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

    /// Returns the index of the first line of event counters of `namespace`, which has one line for
    /// each worker.
    pub(crate) fn lines_of(&self, namespace: NamespaceIndex) -> usize {
        let workers = self.parts.zone_lines.len();
        namespace.get().saturating_mul(workers)
    }

    /// Returns the lines of event counters of `namespace`.
    pub(crate) fn namespace_lines(&self, namespace: NamespaceIndex) -> &'m [NamespaceLine] {
        let (start, workers) = (self.lines_of(namespace), self.parts.zone_lines.len());
        let lines = self.parts.namespace_lines.get(start..start.saturating_add(workers));
        lines.unwrap_or_default()
    }

    /// Counts hits of a namespace as lost to its store.
    pub fn count_dropped(&self, namespace: NamespaceIndex, hits: Hits) {
        self.count(self.lines_of(namespace), |line| line.dropped(hits));
    }

    /// Counts an event in this worker's line of the namespace whose lines begin at `lines`.
    #[inline]
    pub(crate) fn count(&self, lines: usize, event: impl FnOnce(&NamespaceLine)) {
        let line = lines.wrapping_add(self.worker.load(Relaxed));
        if let Some(line) = self.parts.namespace_lines.get(line) {
            event(line);
        }
    }

    /// Records that a callback of this worker blocked its event loop for `nanos` nanoseconds.
    pub fn record_hold(&self, nanos: u64) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.held(nanos);
        }
    }

    /// Counts an eviction in this worker's line.
    pub(crate) fn count_evicted(&self, what: Evicted) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.evicted(what);
        }
    }

    /// Returns the number of slots.
    pub fn slot_count(&self) -> usize {
        self.parts.buckets.len().saturating_mul(WAYS)
    }

    /// Returns the link to slot `index` in its current generation, for a part of a name or a block
    /// of a log. The bits that no index needs contain bits of the generation, so that a process
    /// that was about to remove a link does not remove a later one to the same slot.
    pub(crate) fn link_to(&self, index: usize, generation: Generation) -> Option<u32> {
        let link = u32::try_from(index.checked_add(1)?).ok()?;
        let version = u32::from(generation.bits()).checked_shl(self.index_bits());
        Some(version.unwrap_or(0) | link)
    }

    /// Returns the slot's index in a link; `None` for no link.
    pub(crate) fn index_of_link(&self, link: u32) -> Option<usize> {
        let indexes = u32::MAX.checked_shr(u32::BITS.saturating_sub(self.index_bits()));
        ((link & indexes.unwrap_or(0)) as usize).checked_sub(1)
    }

    /// Returns the number of bits of the last slot's link.
    fn index_bits(&self) -> u32 {
        usize::BITS.saturating_sub(self.slot_count().leading_zeros())
    }

    pub(crate) fn slot_at(&self, index: usize) -> Option<&'m Slot> {
        let buckets: &'m [Bucket] = self.parts.buckets;
        buckets.get(index / WAYS)?.get(index % WAYS)
    }

    /// Returns the index of the slot that `part` is, or belongs to.
    pub(crate) fn index_of<T>(&self, part: &T) -> usize {
        let start = self.parts.buckets.as_ptr() as usize;
        let distance = (core::ptr::from_ref(part) as usize).wrapping_sub(start);
        distance.checked_div(size_of::<Slot>()).unwrap_or_default()
    }

    /// Returns the number of the current configuration.
    pub(crate) fn configuration(&self) -> u64 {
        self.parts.configuration.load(Relaxed)
    }

    pub(crate) fn entry(&self, index: NamespaceIndex) -> Option<&'m DirectoryEntry> {
        let entries: &'m [DirectoryEntry] = self.parts.directory;
        entries.get(index.get())
    }
}

/// A reference to a counter in its slot. It never refers to another counter in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRef {
    pub(crate) index: u32,
    pub(crate) meta: Meta,
}

impl CounterRef {
    pub(crate) fn index_and_generation(self) -> (u32, u16) {
        (self.index, self.meta.generation().bits())
    }

    /// Returns a number for the occupancy: the slot, counted from 1, and the slot's generation. It
    /// recurs after 2^16 other counters in the slot.
    pub fn occupancy(self) -> NonZeroU64 {
        let slot = u64::from(self.index).saturating_add(1);
        let bits = slot << 16 | u64::from(self.meta.generation().bits());
        // The slot's part is never 0.
        NonZeroU64::new(bits).unwrap_or(NonZeroU64::MAX)
    }

    /// Returns the bits of the counter's group from this counter on, for
    /// [`CounterTable::take_changes_at`].
    pub fn bits_from(self) -> u64 {
        let (_, bit) = group_of(self.index as usize);
        bit.wrapping_neg()
    }
}

impl<'m> CounterTable<'m> {
    /// Returns the counter in slot `index`, if its occupancy has this generation.
    pub(crate) fn counter_ref(&self, index: u32, generation: u16) -> Option<CounterRef> {
        let meta = self.slot_at(index as usize)?.meta();
        let is_it = meta.is_counter() && meta.generation().bits() == generation;
        is_it.then_some(CounterRef { index, meta })
    }

    pub(crate) fn occupant_of(&self, counter: CounterRef) -> Option<Occupant<'m>> {
        let slot = self.slot_at(counter.index as usize)?;
        let occupant = Occupant { slot, meta: counter.meta };
        slot.meta().is_same_counter(counter.meta).then_some(occupant)
    }
}
