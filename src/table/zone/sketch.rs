//! A sketch of the keys that were rejected most, with a bounded number of entries, by the
//! Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
//! Top-k Elements in Data Streams, 2005).
//!
//! A key with an entry is counted in it. A key without one takes the entry with the smallest count
//! and continues from that count, which is stored as its error. So `count - error <= rejections <=
//! count` holds for all keys with an entry, and no other key has more rejections than the smallest
//! count. All counts are halved at the start of every minute. A key whose count is 0 keeps its entry
//! until another key takes it.
//!
//! ```text
//!  63                32 31               8 7         0
//! +--------------------+------------------+-----------+
//! | count              | minute           | version   |   also of errors and missed rejections
//! +--------------------+------------------+-----------+
//! ```
//!
//! A count is of its minute, and is halved when it is read or changed later, within 15 years.
//! Counting is one compare-and-swap of the word. An entry is given to another key under a lock of the
//! sketch, in steps, after each of which the process may be killed: the version becomes odd, so that the entry
//! counts for no key; the error, the name and the hash follow; then the version becomes even with
//! the new count. An entry with an odd version is given away first. The lock expires after
//! [`LOCK_MILLIS`]. A process that lost it detects that before each write, as in
//! [`claim`](crate::table::slots::claim). No process waits for the lock: a rejection that finds it
//! held is counted as missed, and counts may be too small by that number.

use core::cmp::Reverse;

use super::sketch_name::SketchName;
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::atomic::{AtomicU32, AtomicU64, replace_held};
use crate::table::words::fail::fail_point;

/// Most keys of a sketch, if the zone is large enough.
pub(super) const MAX_ENTRIES: usize = 256;

/// Longest time that replacing an entry takes, in milliseconds.
const LOCK_MILLIS: u64 = 100;

/// Attempts to take the entry with the smallest count while other processes change it.
const ATTEMPTS: u32 = 4;

/// The words of a sketch without its entries.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct SketchHead {
    /// The number of the owning namespace plus one; 0 without an owner.
    pub(crate) owner: AtomicU64,
    /// A `LockWord`.
    lock: AtomicU64,
    /// A `SketchCount`: rejections that were not counted.
    missed: AtomicU64,
}

/// The words of an entry without its count and its hash.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct SketchKey {
    /// A `SketchCount`: the part of the count that may belong to other keys.
    error: AtomicU64,
    name: [AtomicU64; SketchName::WORDS],
}

/// All sketches of a zone, with the same number of entries each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketches<'m> {
    pub(crate) heads: &'m [SketchHead],
    pub(crate) hashes: &'m [AtomicU64],
    pub(crate) counts: &'m [AtomicU64],
    pub(crate) keys: &'m [SketchKey],
    /// Last known position of each hash.
    pub(crate) hints: &'m [AtomicU32],
}

/// A sketch of a zone.
#[derive(Clone, Copy)]
pub(crate) struct Sketch<'m> {
    pub(crate) head: &'m SketchHead,
    hashes: &'m [AtomicU64],
    counts: &'m [AtomicU64],
    keys: &'m [SketchKey],
    hints: &'m [AtomicU32],
}

/// A rejected key in a sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedKey {
    /// The key's name; for a name that is too long for an entry, its digest.
    pub name: Vec<u8>,
    /// Upper bound of the rejections, except for missed ones.
    pub count: u64,
    /// The part of the count that may belong to other keys.
    pub error: u64,
}

/// A minute since 1970, modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SketchMinute(u32);

impl SketchMinute {
    const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;

    fn of(now: UnixMillis) -> SketchMinute {
        SketchMinute((now.0 / 60_000) as u32 & Self::MASK)
    }

    /// Returns the minutes since an earlier minute; 0 if it is later, within half of the range.
    fn since(self, earlier: SketchMinute) -> u32 {
        // The difference's sign is in the highest bit.
        let unused = u32::BITS - Self::BITS;
        let passed = (self.0.wrapping_sub(earlier.0) << unused).cast_signed() >> unused;
        u32::try_from(passed).unwrap_or(0)
    }
}

/// A count, and its minute.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SketchCount(u64);

impl SketchCount {
    fn new(count: u64, minute: SketchMinute, version: u8) -> SketchCount {
        let count = count.min(u32::MAX.into());
        SketchCount(count << 32 | u64::from(minute.0) << 8 | u64::from(version))
    }

    fn minute(self) -> SketchMinute {
        SketchMinute((self.0 >> 8) as u32 & SketchMinute::MASK)
    }

    fn count(self) -> u64 {
        self.0 >> 32
    }

    fn version(self) -> u8 {
        self.0 as u8
    }

    /// Returns whether the entry is being given to another key.
    fn is_changing(self) -> bool {
        self.version() & 1 == 1
    }

    /// Returns the number of halvings until `minute`; 0 if the clock was set back.
    fn halvings(self, minute: SketchMinute) -> u32 {
        minute.since(self.minute()).min(63)
    }

    /// Returns the count in `minute`.
    fn at(self, minute: SketchMinute) -> u64 {
        self.count() >> self.halvings(minute)
    }

    /// Returns the count in `minute`, with each halving rounded up.
    fn at_most(self, minute: SketchMinute) -> u64 {
        let rest = (1_u64 << self.halvings(minute)).wrapping_sub(1);
        self.count().saturating_add(rest) >> self.halvings(minute)
    }

    /// Returns the count after one more rejection.
    fn next(self, minute: SketchMinute) -> SketchCount {
        let minute = match self.halvings(minute) {
            // After the clock was set back, the count is not halved again.
            0 => self.minute(),
            _ => minute,
        };
        SketchCount::new(self.at(minute).saturating_add(1), minute, self.version())
    }
}

/// The time since which the lock is held, and the number of times that it was taken.
#[derive(Clone, Copy)]
struct LockWord(u64);

impl LockWord {
    const TIME_BITS: u32 = 40;

    fn new(since: u64, taken: u64) -> LockWord {
        LockWord(taken << Self::TIME_BITS | since & ((1 << Self::TIME_BITS) - 1))
    }

    /// Returns the time in milliseconds; 0 if the lock is free.
    fn since(self) -> u64 {
        self.0 & ((1 << Self::TIME_BITS) - 1)
    }

    fn taken(self) -> u64 {
        self.0 >> Self::TIME_BITS
    }
}

/// The lock for giving entries away, until it expires.
struct SketchLock<'m> {
    word: &'m AtomicU64,
    mine: LockWord,
}

impl<'m> SketchLock<'m> {
    /// Takes the lock at `now`, unless another process holds it.
    fn take(word: &'m AtomicU64, now: UnixMillis) -> Option<SketchLock<'m>> {
        let old = LockWord(word.load(Acquire));
        let mine = LockWord::new(now.0.max(1), old.taken().wrapping_add(1));
        // A distant time in the future means that the clock was set back.
        let is_held = old.since() != 0 && old.since().abs_diff(mine.since()) <= LOCK_MILLIS;
        if is_held {
            return None;
        }
        let taken = word.compare_exchange(old.0, mine.0, AcqRel, Relaxed);
        fail_point!("sketch.locked");
        taken.ok().map(|_| SketchLock { word, mine })
    }

    /// Replaces a word while the lock is held. `None` if it is lost.
    fn replace(&self, word: &AtomicU64, new: u64) -> Option<()> {
        replace_held(word, || self.word.load(Acquire) == self.mine.0, |_| new)?;
        fail_point!("sketch.written");
        Some(())
    }

    fn release(self) {
        let free = LockWord::new(0, self.mine.taken());
        // A lost lock belongs to another process.
        let _ = self.word.compare_exchange(self.mine.0, free.0, Release, Relaxed);
        fail_point!("sketch.unlocked");
    }
}

impl<'m> Sketches<'m> {
    /// Returns the sketch with this number.
    pub(crate) fn get(&self, index: usize) -> Option<Sketch<'m>> {
        let entries = self.counts.len().checked_div(self.heads.len())?;
        let start = index.checked_mul(entries)?;
        let range = start..start.checked_add(entries)?;
        Some(Sketch {
            head: self.heads.get(index)?,
            hashes: self.hashes.get(range.clone())?,
            counts: self.counts.get(range.clone())?,
            keys: self.keys.get(range.clone())?,
            hints: self.hints.get(range)?,
        })
    }
}

impl Sketch<'_> {
    /// Counts a rejection of the key with this name and hash. The hash must not be 0.
    pub(crate) fn count(&self, hash: u64, name: &[u8], now: UnixMillis) {
        let minute = SketchMinute::of(now);
        let is_counted = match self.find(hash) {
            Some(index) => self.count_in(index, hash, minute),
            None => false,
        };
        if !is_counted && self.replace(hash, &SketchName::of(name), now).is_none() {
            // Another process is changing the entries at this moment.
            let bump = |word| Some(SketchCount(word).next(minute).0);
            let _ = self.head.missed.fetch_update(AcqRel, Acquire, bump);
        }
    }

    /// Returns the entry of a hash.
    fn find(&self, hash: u64) -> Option<usize> {
        let hint = self.hint_of(hash)?;
        let index = hint.load(Relaxed) as usize;
        let is_it = |word: &AtomicU64| word.load(Acquire) == hash;
        if self.hashes.get(index).is_some_and(is_it) {
            return Some(index);
        }
        let index = self.hashes.iter().position(is_it)?;
        hint.store(u32::try_from(index).unwrap_or_default(), Relaxed);
        Some(index)
    }

    fn hint_of(&self, hash: u64) -> Option<&AtomicU32> {
        let index = usize::try_from(hash).ok()?.checked_rem(self.hints.len())?;
        self.hints.get(index)
    }

    /// Counts in an entry, if it has this hash. Returns whether it did.
    fn count_in(&self, index: usize, hash: u64, minute: SketchMinute) -> bool {
        let (Some(count), Some(word)) = (self.counts.get(index), self.hashes.get(index)) else {
            return false;
        };
        loop {
            let old = SketchCount(count.load(Acquire));
            // The hash is read after the count: a process that gives the entry away changes the
            // hash first.
            if old.is_changing() || word.load(Acquire) != hash {
                return false;
            }
            let swapped = count.compare_exchange(old.0, old.next(minute).0, AcqRel, Relaxed);
            fail_point!("sketch.counted");
            if swapped.is_ok() {
                return true;
            }
        }
    }

    /// Gives a key without an entry the one with the smallest count. `None` if that fails.
    #[cold]
    fn replace(&self, hash: u64, name: &SketchName, now: UnixMillis) -> Option<()> {
        let lock = SketchLock::take(&self.head.lock, now)?;
        let replaced = self.replace_locked(&lock, hash, name, SketchMinute::of(now));
        lock.release();
        replaced
    }

    fn replace_locked(
        &self,
        lock: &SketchLock<'_>,
        hash: u64,
        name: &SketchName,
        minute: SketchMinute,
    ) -> Option<()> {
        // Another process may have given the key an entry before it released the lock.
        if (0..self.hashes.len()).any(|index| self.count_in(index, hash, minute)) {
            return Some(());
        }
        let (index, count, least, old) = (0..ATTEMPTS).find_map(|_| {
            let (index, least) = self.smallest(minute)?;
            let count = self.counts.get(index)?;
            let old = SketchCount(count.load(Acquire));
            if !old.is_changing() && old.at(minute) > least {
                return None;
            }
            // The version is odd from here on, and differs from the ones that a former holder of
            // the lock knows.
            let version = old.version() | 1;
            let version = version.wrapping_add(if old.is_changing() { 2 } else { 0 });
            let odd = SketchCount::new(old.at(minute), minute, version);
            let taken = count.compare_exchange(old.0, odd.0, AcqRel, Relaxed);
            fail_point!("sketch.taken");
            taken.ok().map(|_| (index, count, least, odd))
        })?;
        let key = self.keys.get(index)?;
        lock.replace(&key.error, SketchCount::new(least, minute, 0).0)?;
        for (word, value) in key.name.iter().zip(name.words()) {
            lock.replace(word, value)?;
        }
        lock.replace(self.hashes.get(index)?, hash)?;
        let version = old.version().wrapping_add(1);
        let new = SketchCount::new(least.saturating_add(1), minute, version);
        // Fails if the lock was lost and the next holder has taken the entry.
        let swapped = count.compare_exchange(old.0, new.0, AcqRel, Relaxed);
        fail_point!("sketch.replaced");
        if let Some(hint) = self.hint_of(hash) {
            hint.store(u32::try_from(index).unwrap_or_default(), Relaxed);
        }
        swapped.ok().map(|_| ())
    }

    /// Returns the entry to give away, and the smallest count of all complete entries. Of those with
    /// this count, an unused entry comes first, then the one that has not been counted in for longest.
    fn smallest(&self, minute: SketchMinute) -> Option<(usize, u64)> {
        let words = || self.counts.iter().map(|word| SketchCount(word.load(Acquire)));
        let hashes = self.hashes.iter().map(|word| word.load(Acquire));
        let whole = words().zip(hashes).enumerate().filter(|(_, (word, _))| !word.is_changing());
        let (index, (smallest, _)) = whole.min_by_key(|(_, (word, hash))| {
            (word.at(minute), *hash != 0, Reverse(word.halvings(minute)))
        })?;
        // An incomplete entry, which a killed process has left.
        let left = words().position(SketchCount::is_changing);
        Some((left.unwrap_or(index), smallest.at(minute)))
    }

    /// Returns the keys by descending counts, which may be 0, and the number of rejections that were not counted.
    pub(crate) fn top(&self, now: UnixMillis) -> (Vec<RejectedKey>, u64) {
        let minute = SketchMinute::of(now);
        let entries = 0..self.counts.len();
        let mut keys: Vec<_> = entries.filter_map(|index| self.key(index, minute)).collect();
        keys.sort_by(|one, other| (other.count, &one.name).cmp(&(one.count, &other.name)));
        let missed = SketchCount(self.head.missed.load(Acquire));
        (keys, missed.at_most(minute))
    }

    /// Returns the key of an entry; `None` without one.
    fn key(&self, index: usize, minute: SketchMinute) -> Option<RejectedKey> {
        let (count, key) = (self.counts.get(index)?, self.keys.get(index)?);
        let hash = self.hashes.get(index)?;
        let before = SketchCount(count.load(Acquire));
        // All loads are Acquire, since they precede the check that the entry is unchanged.
        let is_used = hash.load(Acquire) != 0;
        let error = SketchCount(key.error.load(Acquire));
        let name = SketchName::from_words(key.name.each_ref().map(|word| word.load(Acquire)));
        let after = SketchCount(count.load(Acquire));
        let rejections = before.at(minute);
        let is_whole = !before.is_changing() && before.version() == after.version();
        (is_whole && is_used).then(|| RejectedKey {
            name: name.to_bytes(),
            count: rejections,
            error: error.at_most(minute).min(rejections),
        })
    }

    /// Clears the sketch. It must not belong to a namespace.
    pub(crate) fn clear(&self) {
        for (hash, count) in self.hashes.iter().zip(self.counts) {
            hash.store(0, Relaxed);
            count.store(0, Relaxed);
        }
        self.head.missed.store(0, Relaxed);
        self.head.owner.store(0, Release);
        fail_point!("sketch.cleared");
    }
}
