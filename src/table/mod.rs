//! The counter table: one per zone, in memory that all workers of the node share.
//!
//! Counters are found and changed without a lock, by atomic operations on words of the counter's
//! own cache line; so a process may end, or be stopped, at any instruction, and the others go on.
//! The table knows nothing of nginx: it is given memory, and the time.
//!
//! - [`layout`]: how the memory is divided
//! - [`identity`]: what makes two hits count together
//! - [`meta`], [`word`]: the two kinds of words of a cell, and why one compare-and-swap suffices
//! - [`places`], [`claim`]: finding a counter's cell, and making room for a new one
//! - [`names`], [`changes`]: what only synced counters need
//! - this file: counting

mod atomic;
mod changes;
mod claim;
#[cfg(all(test, not(loom)))]
mod crash_tests;
pub(crate) mod fail;
mod identity;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
mod meta;
mod names;
mod places;
mod stats;
#[cfg(all(test, not(loom)))]
mod stress_tests;
#[cfg(all(test, not(loom)))]
mod sync_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

use atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use claim::meta_of;
use fail::fail_point;
use identity::{Hasher, Mask};
use layout::{Cell, DirectoryEntry, Parts};
use meta::{Meta, Ticks};
use places::Place;
use stats::{NamespaceLine, ZoneLine};
use word::{Salt, Stamp, Word};

use crate::policy::hits::Hits;
use crate::policy::window::{Clock, Counts, Position, UnixMillis, WindowSize, WindowType};

pub use changes::{Change, CounterRef, WindowChange};
pub use identity::{Identity, KeyHash};
pub use layout::LayoutError;
pub use meta::NamespaceIndex;
pub use stats::{Evicted, NamespaceStats, Outcome, ZoneStats};

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

    /// The same counters, if they are `is_synced`: then they keep the bytes of their keys, and
    /// changes of them are found by [`CounterTable::take_changes`].
    pub fn synced(self, is_synced: bool) -> Counter {
        Counter { is_synced, ..self }
    }

    fn meta(&self, salt: Salt) -> Meta {
        Meta::counter(salt, self.namespace, self.size, self.is_synced)
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
    Within(Hits, WindowType),
}

/// What came of counting hits.
#[derive(Debug)]
pub struct Counted<'m> {
    /// The counts afterwards.
    pub counts: Counts,
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
    namespace: NamespaceIndex,
    is_synced: bool,
    value: Hits,
}

impl Receipt<'_> {
    /// The hits that were counted.
    pub fn value(&self) -> Hits {
        self.value
    }
}

/// A counter's columns at one moment.
struct Columns<'m> {
    /// The window that is counted in, and the time in it.
    at: Position,
    /// The column of that window.
    current: &'m atomic::AtomicU64,
    /// Its value when it was read.
    word: Word,
    /// The stamp that it should have: if it has another, it holds another window.
    stamp: Stamp,
    /// The hits of this node in the window.
    counted: Hits,
    /// The rest of the cluster's.
    remote: Hits,
    /// The hits of all in the window before.
    previous: Hits,
    /// Whether the neighbouring column holds the window after this one.
    is_behind: bool,
}

impl<'m> CounterTable<'m> {
    /// Makes a table in `region`, which must be all zero.
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
    pub unsafe fn create(region: NonNull<[u8]>, secret: [u64; 2]) -> Result<Self, LayoutError> {
        // SAFETY: the caller's promise.
        Ok(Self::over(unsafe { Parts::create(region, secret)? }))
    }

    /// Finds the table that was made in `region`, in this or another process.
    ///
    /// # Errors
    ///
    /// [`LayoutError::NotATable`] and [`LayoutError::OtherLayout`] if there is none that this
    /// version understands; the memory is not changed then.
    ///
    /// # Safety
    ///
    /// As for [`CounterTable::create`].
    pub unsafe fn open(region: NonNull<[u8]>) -> Result<Self, LayoutError> {
        // SAFETY: the caller's promise.
        Ok(Self::over(unsafe { Parts::open(region)? }))
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

    /// Finds or makes the directory entry of the namespace `name` (at most 64 bytes; longer
    /// ones are cut).
    ///
    /// Returns `None` if the directory is full: it has room for one namespace per 32 KiB of the
    /// zone, 8 to 1024 in all.
    pub fn namespace(&self, name: &[u8]) -> Option<NamespaceIndex> {
        let index = self
            .parts
            .directory
            .iter()
            .position(|entry| entry.is_or_becomes(name))?;
        u16::try_from(index).ok().map(NamespaceIndex)
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

    /// Counts `value` (above zero) hits of `key`, if `admission` allows it.
    ///
    /// A key without a counter gets one, in an otherwise full table that of another key: see
    /// [`ZoneStats`].
    #[inline]
    pub fn add(
        &self,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Counted<'m> {
        let id = counter.identity(key);
        loop {
            let place = self.find_or_insert(counter, id, clock);
            if counter.is_synced || place.meta.is_synced() {
                self.prepare_sync(place, counter, key, clock);
            }
            if let Some(counted) = self.add_at(place, counter, clock, value, admission) {
                if counter.is_synced {
                    self.note_change(place.cell);
                }
                return counted;
            }
            // The place was given to another key in this very moment.
        }
    }

    /// Sees to it that a counter which is about to change is synced, or is not, as `counter` says.
    #[cold]
    fn prepare_sync(&self, place: Place<'m>, counter: &Counter, key: Key<'_>, clock: &impl Clock) {
        if place.meta.is_synced() != counter.is_synced {
            // As after a change of the configuration. If this fails, somebody else has done it, or
            // the cell has changed hands.
            let meta = place.meta.with_synced(counter.is_synced);
            let old = place.meta.bits();
            let _ = place
                .cell
                .meta
                .compare_exchange(old, meta.bits(), AcqRel, Relaxed);
        }
        if counter.is_synced {
            if place.cell.extension.load(Relaxed) == 0 {
                self.attach_name(place, counter.identity(key), key.bytes, clock);
            }
            self.note_change(place.cell);
        }
    }

    /// Counts at a place. `None` if it is not the counter's any more: then nothing was counted.
    // Always: `add` is its only user, and its result would be copied twice.
    #[inline(always)]
    fn add_at(
        &self,
        place: Place<'m>,
        counter: &Counter,
        clock: &impl Clock,
        value: Hits,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        let mut now = clock.now();
        loop {
            let mut columns = Columns::read(place.cell, place.meta, counter.size.at(now));
            if !columns.is_settled(place, now) {
                columns = place.settle(counter.size, &mut now, clock)?;
            }

            let before = columns.counts();
            if let Admission::Within(limit, window_type) = admission {
                if !window_type.admits(counter.size, &before, limit, value) {
                    return Some(Counted {
                        counts: before,
                        admitted: false,
                        receipt: None,
                    });
                }
            }

            let new = Word::new(columns.stamp, columns.counted.plus(value));
            // The one instruction that counts: it fails if the window was turned, if the cell
            // changed hands, or if anybody else counted since the limit was checked. AcqRel: the
            // next reader of the word sees the cell as this process saw it.
            if columns
                .current
                .compare_exchange(columns.word.bits(), new.bits(), AcqRel, Acquire)
                .is_err()
            {
                continue;
            }
            fail_point!("add.counted");
            // If the cell changed hands meanwhile, the hit went with its old counter.
            if !meta_of(place.cell).is_same_counter(place.meta) {
                return None;
            }
            self.count(counter.namespace, |line| line.hits(value.thousandths()));

            let counts = Counts {
                current: before.current.plus(value),
                ..before
            };
            let receipt = Receipt {
                column: columns.current,
                stamp: columns.stamp,
                namespace: counter.namespace,
                is_synced: counter.is_synced,
                value,
            };
            return Some(Counted {
                counts,
                admitted: true,
                receipt: Some(receipt),
            });
        }
    }

    /// What was counted of `key` so far: zeros for a key without a counter.
    pub fn read(&self, counter: &Counter, key: Key<'_>, clock: &impl Clock) -> Counts {
        let now = clock.now();
        let Position { number, elapsed } = counter.size.at(now);
        let nothing = Counts {
            window: number,
            elapsed,
            ..Counts::default()
        };
        loop {
            let Some(place) = self.find(counter.identity(key)) else {
                return nothing;
            };
            let columns = Columns::read_ahead(place, counter.size, now);
            let is_old = place.is_old(counter.size, now);
            let counts = if is_old { nothing } else { columns.counts() };
            // Acquire on the words before: if the meta is unchanged, they were the counter's.
            if meta_of(place.cell).is_same_counter(place.meta) {
                return counts;
            }
        }
    }

    /// Takes hits back that were counted, unless their window or their counter is gone.
    pub fn give_back(&self, receipt: &Receipt<'m>) {
        if receipt.is_synced {
            self.note_change(receipt.column);
        }
        let mut word = Word::from_bits(receipt.column.load(Acquire));
        while word.stamp() == receipt.stamp {
            // Not below zero: the window may have been forgotten, or have been full.
            let left = word.hits().minus(receipt.value).max(Hits::ZERO);
            let new = Word::new(receipt.stamp, left);
            match receipt
                .column
                .compare_exchange(word.bits(), new.bits(), AcqRel, Acquire)
            {
                Ok(_) => {
                    fail_point!("give_back.counted");
                    let back = Hits::ZERO.minus(receipt.value).thousandths();
                    self.count(receipt.namespace, |line| line.hits(back));
                    if receipt.is_synced {
                        self.note_change(receipt.column);
                    }
                    return;
                }
                Err(changed) => word = Word::from_bits(changed),
            }
        }
    }

    /// Counts the outcome of a request of `namespace`.
    #[inline]
    pub fn count_outcome(&self, namespace: NamespaceIndex, outcome: Outcome) {
        self.count(namespace, |line| line.count(outcome));
    }

    /// What happened in `namespace` since the zone was made, on this node.
    pub fn namespace_stats(&self, namespace: NamespaceIndex) -> NamespaceStats {
        let workers = self.parts.zone_lines.len();
        let start = namespace.get().saturating_mul(workers);
        let lines = self
            .parts
            .namespace_lines
            .get(start..start.saturating_add(workers));
        NamespaceLine::sum(lines.unwrap_or_default())
    }

    /// What happened in the zone since it was made.
    pub fn zone_stats(&self) -> ZoneStats {
        ZoneLine::sum(self.parts.zone_lines)
    }

    /// Counts an event of `namespace`, as this worker.
    #[inline]
    fn count(&self, namespace: NamespaceIndex, event: impl FnOnce(&NamespaceLine)) {
        let workers = self.parts.zone_lines.len();
        let line = namespace
            .get()
            .wrapping_mul(workers)
            .wrapping_add(self.worker.load(Relaxed));
        if let Some(line) = self.parts.namespace_lines.get(line) {
            event(line);
        }
    }

    /// Counts an eviction, as this worker.
    fn count_evicted(&self, what: Evicted) {
        if let Some(line) = self.parts.zone_lines.get(self.worker.load(Relaxed)) {
            line.evicted(what);
        }
    }
}

impl<'m> Columns<'m> {
    /// Reads the columns for the window `at` and the one before.
    #[inline]
    fn read(cell: &'m Cell, meta: Meta, at: Position) -> Columns<'m> {
        let window = |number| Stamp::new(number, meta.salt());
        let stamp = window(at.number);
        let (before, after) = (
            window(at.number.wrapping_sub(1)),
            window(at.number.wrapping_add(1)),
        );
        // Acquire: who sees a word of the next occupancy sees that the meta has changed, and who
        // sees a hit sees `used` as it was when the hit was counted.
        let (current, other) = cell.local_columns(at.number);
        let (remote, other_remote) = cell.remote_columns(at.number);
        let (word, other) = (load(current), load(other));
        let (remote, other_remote) = (load(remote), load(other_remote));
        Columns {
            at,
            current,
            word,
            stamp,
            counted: word.hits_of(stamp),
            remote: remote.hits_of(stamp),
            previous: other
                .hits_of(before)
                .plus_at_least_zero(other_remote.hits_of(before)),
            is_behind: other.stamp() == after && other.hits() != Hits::ZERO,
        }
    }

    /// Reads the columns for `now`, or for the next window if another process, whose clock is a
    /// little ahead, already counts in that.
    fn read_ahead(place: Place<'m>, size: WindowSize, now: UnixMillis) -> Columns<'m> {
        let at = size.at(now);
        let columns = Columns::read(place.cell, place.meta, at);
        let lead = size.millis().saturating_sub(at.elapsed);
        if !columns.is_behind || lead > (size.millis() / 10).min(Ticks::SKEW_MILLIS) {
            return columns;
        }
        let next = Position {
            number: at.number.wrapping_add(1),
            elapsed: 0,
        };
        Columns::read(place.cell, place.meta, next)
    }

    /// Whether these columns, just read, can be counted in as they are: this is the newest
    /// window of a counter in use.
    #[inline]
    fn is_settled(&self, place: Place<'_>, now: UnixMillis) -> bool {
        // The last load: see `read`.
        let used = Ticks(place.cell.used.load(Relaxed));
        self.word.stamp() == self.stamp && !self.is_behind && used == Ticks::at(now.0)
    }

    #[inline]
    fn counts(&self) -> Counts {
        // A sum can be negative for a moment, while what the store says is on its way.
        Counts {
            window: self.at.number,
            current: self.counted.plus_at_least_zero(self.remote),
            previous: self.previous,
            elapsed: self.at.elapsed,
        }
    }
}

#[inline]
fn load(column: &atomic::AtomicU64) -> Word {
    Word::from_bits(column.load(Acquire))
}

impl Cell {
    /// The column of the window `number`, and that of its neighbours.
    #[inline]
    fn local_columns(&self, number: u64) -> (&atomic::AtomicU64, &atomic::AtomicU64) {
        let [even, odd] = &self.local;
        if number & 1 == 0 {
            (even, odd)
        } else {
            (odd, even)
        }
    }

    #[inline]
    fn remote_columns(&self, number: u64) -> (&atomic::AtomicU64, &atomic::AtomicU64) {
        let [even, odd] = &self.remote;
        if number & 1 == 0 {
            (even, odd)
        } else {
            (odd, even)
        }
    }
}

impl<'m> Place<'m> {
    /// Reads the columns of a counter that is about to be counted in, for the first time in this
    /// window or for a while. `None` if the place is not the counter's any more.
    #[cold]
    fn settle(
        self,
        size: WindowSize,
        now: &mut UnixMillis,
        clock: &impl Clock,
    ) -> Option<Columns<'m>> {
        loop {
            let used = Ticks(self.cell.used.load(Relaxed));
            if used.is_after(Ticks::at(now.0)) {
                // Our time is old, or the clock was set back.
                *now = clock.fresh();
            }
            // The words before `used`, from which it follows whether they are old: who counts
            // meanwhile changes one of these words, or has dated the counter before. (Unless what it
            // counts has just the stamp and the hits of the old word, which takes a counter that
            // is used again after exactly 2^17 windows, by two processes at once.)
            let Cell { local, remote, .. } = self.cell;
            let all = [local, remote].map(|[even, odd]| [even, odd].map(|word| (word, load(word))));
            let columns = Columns::read_ahead(self, size, *now);
            let number = columns.at.number;
            if columns.is_behind {
                // The same: and if it was the clock, what is in the future is forgotten, so that
                // nobody is blocked in this window and in that.
                *now = clock.fresh();
                if Columns::read_ahead(self, size, *now).at.number == number {
                    self.forget(number.wrapping_add(1));
                }
                continue;
            }
            let is_old = self.is_old(size, *now);
            if is_old {
                // All of it: a stamp that is not near now is, once the clock moves.
                all.iter()
                    .flatten()
                    .for_each(|&(column, word)| self.clear(column, word));
            }
            // Before the hit: who sees a hit sees that the counter is in use.
            self.touch(*now);
            if is_old {
                continue;
            }
            if columns.word.stamp() != columns.stamp {
                // Who turns a column wipes out what it held. That must be an older window, so
                // look at the clock: this process may have been stopped for long.
                if columns.word.hits() != Hits::ZERO {
                    let fresh = clock.fresh();
                    if size.at(fresh).number != size.at(*now).number {
                        *now = fresh;
                        continue;
                    }
                }
                // And it must still be this counter's column: a word of the next occupancy looks
                // just like one of an older window.
                if !meta_of(self.cell).is_same_counter(self.meta) {
                    return None;
                }
                fail_point!("turn.verified");
            }
            return Some(columns);
        }
    }

    /// Notes that the counter is in use: `used` never goes back while the clock does not, so that
    /// a counter with hits of a live window never looks unused.
    fn touch(&self, now: UnixMillis) {
        let (used, now) = (Ticks(self.cell.used.load(Relaxed)), Ticks::at(now.0));
        // A little in the future is another process's look at the clock.
        if used == now || (used.is_after(now) && !now.is_over(used, Ticks::SKEW_MILLIS)) {
            return;
        }
        // If this fails, somebody else has just noted the same. Release: pairs with the acquiring
        // loads of whoever sees the hit that follows.
        let date = &self.cell.used;
        let _ = date.compare_exchange(used.0, now.0, Release, Relaxed);
        fail_point!("touch.dated");
    }

    /// Whether the counter was not used for so long that all it holds is forgotten, even if its
    /// stamps look right: those come round again.
    fn is_old(&self, size: WindowSize, now: UnixMillis) -> bool {
        let millis = size.millis().saturating_mul(2);
        let (used, now) = (Ticks(self.cell.used.load(Relaxed)), Ticks::at(now.0));
        used != now && used.is_over(now, millis)
    }

    /// Clears the columns of the window `number`, if they hold it.
    fn forget(&self, number: u64) {
        let stamp = Stamp::new(number, self.meta.salt());
        let (local, _) = self.cell.local_columns(number);
        let (remote, _) = self.cell.remote_columns(number);
        for (column, word) in [local, remote].map(|column| (column, load(column))) {
            if word.stamp() == stamp {
                self.clear(column, word);
            }
        }
    }

    /// Clears a column that holds `word`.
    fn clear(&self, column: &atomic::AtomicU64, word: Word) {
        // If this fails, somebody counts in the column, and looks again as we do.
        let empty = Word::empty(self.meta.salt()).bits();
        let _ = column.compare_exchange(word.bits(), empty, AcqRel, Relaxed);
        fail_point!("forget.cleared");
    }
}

impl DirectoryEntry {
    /// Whether the entry has the name, or was free and now has it.
    fn is_or_becomes(&self, name: &[u8]) -> bool {
        /// The length of an entry whose name is being written.
        const BUSY: u64 = u64::MAX;

        let name = name
            .get(..crate::policy::namespace::MAX_NAME_LEN)
            .unwrap_or(name);
        let words = self
            .name
            .iter()
            .zip(name.chunks(8).map(word_of).chain(core::iter::repeat(0)));
        // Acquire: pairs with the release below.
        match self.len.compare_exchange(0, BUSY, Acquire, Acquire) {
            Ok(_) => {
                words.for_each(|(word, value)| word.store(value, Relaxed));
                self.len.store(name.len() as u64, Release);
                true
            }
            Err(len) => {
                len == name.len() as u64
                    && words
                        .into_iter()
                        .all(|(word, value)| word.load(Relaxed) == value)
            }
        }
    }
}

/// Up to eight bytes as a number.
fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}
