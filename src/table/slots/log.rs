//! Logs: counters with the time of each hit, as for a moving window.
//!
//! An entry is a time and the sum of all hits up to it, so the hits between two entries are the
//! difference of their sums. It is one word:
//!
//! ```text
//!  63     62                        28 27               0
//! +------+----------------------------+------------------+
//! | mark | time: ms modulo 2^35       | sum: thousandths |
//! +------+----------------------------+------------------+
//! ```
//!
//! The newest entry is in the counter's own slot; one compare-and-swap of it counts a hit. The
//! older entries are in a *chain* of blocks: see [`log_chain`](super::log_chain). The *base* is the
//! last entry that has left the window. The rate is the newest sum minus the base's.
//!
//! Hits of one millisecond share an entry. A hit of another millisecond takes three steps. If a
//! process is killed after any of them, the next process continues from there:
//!
//! 1. *Close* the newest entry: it is marked, and then changes only by being replaced.
//! 2. *Append* a copy to the chain: the first empty word becomes the closed entry. Only closed
//!    entries are appended, and no two of them have the same time, so all processes append the same
//!    one.
//! 3. *Replace* the newest entry by one with a later time.
//!
//! The last step counts the hit. It fails if another process has counted since the limit was
//! checked. A process that finds the entry of its own time closed counts one millisecond later:
//! another process has seen a later time and closed it.
//!
//! Memory is [bounded](MovingCount::most_entries): if a log has as many entries as its limit needs,
//! or no slot is free for a block, the next hit is *merged*: the newest entry gets the hit's time.
//! Its hits then leave the window later than they should, never earlier.

#[cfg(doc)]
use crate::policy::algorithm::MovingCount;
use crate::policy::window::{CLOCK_SKEW, UnixMillis, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire};
use crate::table::words::slot::{Lost, Slot};
use crate::table::words::word::Generation;

const SUM_BITS: u32 = 28;
const SUM_MASK: u64 = (1 << SUM_BITS) - 1;
const TIME_BITS: u32 = 35;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const MARK: u64 = 1 << 63;

/// Most thousandths that a log counts in a window; more than any limit. A larger difference of two
/// sums is negative.
pub(crate) const MOST: u64 = (1 << (SUM_BITS - 1)) - 1;

const MONTH: u64 = 30 * 24 * 3_600_000;

// A window fits, and in addition a month in which a time counts as future.
const _: () = assert!(WindowSize::MAX_MILLIS < TIME_MASK - MONTH);

/// A moment in milliseconds modulo 2^35; 0 stands for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTime(u64);

impl LogTime {
    const NEVER: LogTime = LogTime(0);

    pub(crate) fn of(now: UnixMillis) -> LogTime {
        LogTime((now.0 & TIME_MASK).max(1))
    }

    /// Returns the time one millisecond later.
    pub(crate) fn next(self) -> LogTime {
        LogTime::of(UnixMillis(self.0.wrapping_add(1)))
    }

    /// Returns the milliseconds from `self` to `later`.
    fn until(self, later: LogTime) -> u64 {
        later.0.wrapping_sub(self.0) & TIME_MASK
    }

    /// Returns whether this is in the future, as for a process with an old time, or after the clock
    /// was set back.
    pub(crate) fn is_ahead(self, now: UnixMillis) -> bool {
        self != LogTime::NEVER && self.until(LogTime::of(now)) > TIME_MASK / 2
    }

    /// Returns the milliseconds since then; 0 if another worker's clock is ahead.
    pub(crate) fn age(self, now: UnixMillis) -> u64 {
        let now = LogTime::of(now);
        if now.until(self) <= CLOCK_SKEW { 0 } else { self.until(now) }
    }

    /// Returns whether hits of this time have left the window. Hits of the future have left too,
    /// since the clock was set back.
    pub(super) fn has_left(self, size: WindowSize, now: UnixMillis) -> bool {
        self == LogTime::NEVER || self.age(now) > size.millis()
    }

    /// Returns whether this is before `other`, where both are times of one log and `other` is at
    /// most some minutes older than its newest.
    pub(crate) fn is_before(self, other: LogTime) -> bool {
        // The range of times is more than twice the age of the oldest entry.
        self == LogTime::NEVER || (self != other && self.until(other) <= TIME_MASK - MONTH)
    }

    /// Returns the bound of times that have left the window which ends at `now`. `self` is the
    /// log's newest time. `None` if all entries have left.
    #[inline]
    pub(crate) fn leaving(self, size: WindowSize, now: UnixMillis) -> Option<Leaving> {
        if self == LogTime::NEVER {
            return None;
        }
        let at = LogTime::of(now);
        let ahead = at.until(self);
        let most = match ahead <= CLOCK_SKEW {
            true => size.millis().checked_add(ahead)?,
            false => size.millis().checked_sub(self.until(at))?,
        };
        Some(Leaving { newest: self, most })
    }

    /// Returns the last moment, up to this one, with these lowest bits.
    pub(crate) fn last_with(self, bits: u16) -> LogTime {
        let back = (self.0 as u16).wrapping_sub(bits);
        LogTime(self.0.wrapping_sub(u64::from(back)) & TIME_MASK)
    }

    pub(crate) fn lowest_bits(self) -> u16 {
        self.0 as u16
    }

    /// Returns the time of a hit at `now`. `self` is the log's newest time, before which no hit is
    /// counted, unless it is in the future because the clock was set back.
    pub(crate) fn of_hit(self, now: UnixMillis) -> LogTime {
        let at = LogTime::of(now);
        let is_skewed = self != LogTime::NEVER && at.until(self) <= CLOCK_SKEW;
        if is_skewed { self } else { at }
    }
}

/// The bound of times that have left a window.
///
/// Times are compared by their distances from the newest one, since an entry can be older than
/// times reach back: it was in the window at the newest hit, and the newest hit is in the window
/// now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    newest: LogTime,
    /// Greatest age, relative to the newest entry, of an entry in the window.
    most: u64,
}

impl Leaving {
    #[inline]
    pub(crate) fn has_left(self, entry: LogEntry) -> bool {
        entry.time().until(self.newest) > self.most
    }
}

/// A time, and the sum of all hits up to it. A mark means that the entry is closed, or in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry(u64);

impl LogEntry {
    pub(super) const fn from_bits(bits: u64) -> LogEntry {
        LogEntry(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the first entry of a log, whose time has left the window. Its sum depends on the
    /// slot's generation, so that a compare-and-swap prepared for a former occupant fails.
    pub(crate) const fn first(generation: Generation) -> LogEntry {
        LogEntry(generation.bits() as u64)
    }

    /// Returns the value of a word in a block before its entry is appended.
    pub(super) const fn empty(generation: Generation) -> u64 {
        generation.bits() as u64
    }

    pub(crate) const fn new(time: LogTime, sum: u64) -> LogEntry {
        LogEntry(time.0 << SUM_BITS | sum & SUM_MASK)
    }

    pub(crate) const fn marked(self) -> LogEntry {
        LogEntry(self.0 | MARK)
    }

    pub(crate) const fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    pub(crate) const fn time(self) -> LogTime {
        LogTime(self.0 >> SUM_BITS & TIME_MASK)
    }

    pub(crate) const fn sum(self) -> u64 {
        self.0 & SUM_MASK
    }

    /// Returns the hits after the entry with this sum, in thousandths.
    pub(crate) const fn since(self, sum: u64) -> u64 {
        let hits = self.sum().wrapping_sub(sum) & SUM_MASK;
        if hits > MOST { 0 } else { hits }
    }

    /// Returns the entry with its sum lowered by `hits`.
    pub(crate) const fn without(self, hits: u64) -> LogEntry {
        LogEntry(self.0 & !SUM_MASK | self.sum().wrapping_sub(hits) & SUM_MASK)
    }

    pub(super) fn has_left(self, size: WindowSize, now: UnixMillis) -> bool {
        self.time().has_left(size, now)
    }

    /// Replaces this entry in `word` with `new`.
    pub(crate) fn replace(self, word: &AtomicU64, new: LogEntry) -> Result<(), Lost> {
        // AcqRel: a reader of the entry sees the chain as of the decision.
        word.compare_exchange(self.0, new.0, AcqRel, Acquire).map_or(Err(Lost), |_| Ok(()))
    }
}

/// Returns the word of the newest entry of the log in `slot`.
pub(crate) fn newest_word(slot: &Slot) -> &AtomicU64 {
    let [word, _] = &slot.local;
    word
}

/// Returns the newest entry of the log in `slot`.
pub(crate) fn newest(slot: &Slot) -> LogEntry {
    LogEntry::from_bits(newest_word(slot).load(Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_000_000;

    #[test]
    fn an_entry_keeps_its_parts() {
        let time = LogTime::of(UnixMillis(T));
        let entry = LogEntry::new(time, 123_456_789);
        assert_eq!((entry.time(), entry.sum()), (time, 123_456_789));
        let marked = entry.marked();
        assert!(marked.is_marked() && !entry.is_marked());
        assert_eq!((marked.time(), marked.sum()), (time, 123_456_789));
        assert_eq!(marked.without(1_000), LogEntry::new(time, 123_455_789).marked());
    }

    #[test]
    fn sums_go_round() {
        let entry = |sum: u64| LogEntry::new(LogTime::of(UnixMillis(T)), sum);
        assert_eq!(entry(SUM_MASK + 501).since(SUM_MASK - 499), 1000);
        assert_eq!(entry(3).without(5).since(SUM_MASK - 1), 0);
        assert_eq!(entry(3).since(5), 0, "below zero");
    }

    #[test]
    fn a_hit_counts_until_it_is_older_than_the_window() {
        for millis in [1, 1000, WindowSize::MAX_MILLIS] {
            let size = WindowSize::from_millis(millis).unwrap();
            let time = LogTime::of(UnixMillis(T));
            let has_left = |now| time.has_left(size, UnixMillis(now));
            assert!(!has_left(T) && !has_left(T + millis) && has_left(T + millis + 1));
            // From another worker's clock, and after the clock was set back.
            assert!(!has_left(T - CLOCK_SKEW));
            assert!(has_left(T - 3_600_000));
            assert!(LogTime::NEVER.has_left(size, UnixMillis(T)));
        }
    }

    #[test]
    fn times_are_of_the_newest_or_later() {
        let time = LogTime::of(UnixMillis(T));
        for (now, then) in [(T, T), (T - 5, T), (T + 1, T + 1), (T - 5000, T - 5000)] {
            assert_eq!(time.of_hit(UnixMillis(now)), LogTime::of(UnixMillis(then)));
        }
        assert!(time.is_before(time.next()) && !time.next().is_before(time));
        assert!(!time.is_before(time) && LogTime::NEVER.is_before(time));
        for back in [0, 1, 65_535] {
            let before = LogTime::of(UnixMillis(T - back));
            assert_eq!(time.last_with(before.lowest_bits()), before);
        }
    }
}
