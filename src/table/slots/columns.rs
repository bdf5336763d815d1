//! A counter's columns: reads them for a window, and prepares them for counting in it.

use crate::policy::algorithm::{Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, Clock, UnixMillis, WindowPosition, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::{Stamp, WindowCount};

/// The columns of a counter, as read at one moment.
pub(crate) struct WindowColumns<'m> {
    /// The current window, and the time in it.
    pub(crate) at: WindowPosition,
    /// The column of that window.
    pub(crate) current: &'m AtomicU64,
    /// The column's value.
    pub(crate) word: WindowCount,
    /// The stamp of the window. A column with another stamp contains another window.
    pub(crate) stamp: Stamp,
    /// Hits of this node in the window.
    pub(crate) counted: Hits,
    /// Hits of other nodes in the window.
    pub(crate) remote: Hits,
    /// Hits of all nodes in the previous window.
    pub(crate) previous: Hits,
    /// Whether the other column contains the next window.
    pub(super) is_behind: bool,
}

impl<'m> WindowColumns<'m> {
    /// Reads the columns for the window `at` and the previous one.
    #[inline]
    pub(crate) fn read(slot: &'m Slot, meta: Meta, at: WindowPosition) -> WindowColumns<'m> {
        let window = |number| Stamp::new(number, meta.generation());
        let stamp = window(at.number);
        let (before, after) =
            (window(at.number.wrapping_sub(1)), window(at.number.wrapping_add(1)));
        // Acquire: a reader that sees a word of the next occupancy also sees that the meta has
        // changed, and one that sees a hit also sees `used` as of that hit.
        let (current, other) = slot.local_columns(at.number);
        let (remote, other_remote) = slot.remote_columns(at.number);
        let (word, other) = (load(current), load(other));
        let (remote, other_remote) = (load(remote), load(other_remote));
        WindowColumns {
            at,
            current,
            word,
            stamp,
            counted: word.hits_of(stamp),
            remote: remote.hits_of(stamp),
            previous: other.hits_of(before).plus_at_least_zero(other_remote.hits_of(before)),
            is_behind: other.stamp() == after && other.hits() != Hits::ZERO,
        }
    }

    /// Reads the columns for `now`, or for the next window if a process whose clock is slightly
    /// ahead already counts in that.
    pub(crate) fn read_ahead(
        occupant: Occupant<'m>,
        size: WindowSize,
        now: UnixMillis,
    ) -> WindowColumns<'m> {
        let at = size.at(now);
        let columns = WindowColumns::read(occupant.slot, occupant.meta, at);
        if !columns.is_behind || !at.is_before_next(size) {
            return columns;
        }
        let next = WindowPosition { number: at.number.wrapping_add(1), elapsed: 0 };
        WindowColumns::read(occupant.slot, occupant.meta, next)
    }

    /// Returns the windows of a counter that matter at `now`, with this node's hits.
    pub(crate) fn live(
        occupant: Occupant<'m>,
        size: WindowSize,
        now: UnixMillis,
    ) -> impl Iterator<Item = (u64, Hits)> {
        let number = size.at(now).number;
        let is_old = occupant.is_old(size, now);
        // The next window may be in use: see `WindowColumns::read_ahead`.
        let near = [number.wrapping_sub(1), number, number.wrapping_add(1)];
        near.into_iter().filter(move |_| !is_old).filter_map(move |number| {
            let (local, _) = occupant.slot.local_columns(number);
            let local = load(local);
            let stamp = Stamp::new(number, occupant.meta.generation());
            (local.stamp() == stamp).then_some((number, local.hits()))
        })
    }

    /// Prepares these columns for counting if only the date must be set. Returns whether they are
    /// ready. This is the case in the newest window of a counter in use.
    #[inline]
    pub(crate) fn try_settle(
        &self,
        occupant: Occupant<'_>,
        size: WindowSize,
        now: UnixMillis,
    ) -> bool {
        // The date comes last: see `read`.
        self.word.stamp() == self.stamp && !self.is_behind && occupant.try_date(size, now)
    }

    #[inline]
    pub(crate) fn reading(&self) -> Reading {
        // The sum can be negative for a moment, while the store's count is in flight.
        let current = self.counted.plus_at_least_zero(self.remote);
        WindowCounts::of(self.at, current, self.previous).into()
    }
}

/// A counter's columns in the most frequent case: it has hits in this window already, and none of
/// other nodes.
pub(crate) struct PlainColumns<'m> {
    at: WindowPosition,
    /// The column of the current window.
    pub(crate) current: &'m AtomicU64,
    /// The column's value.
    pub(crate) word: WindowCount,
    /// The stamp of the window.
    pub(crate) stamp: Stamp,
    previous: Hits,
}

impl<'m> PlainColumns<'m> {
    /// Reads the columns for `now`, which is at `at` in its window. `None` in all other cases.
    #[inline]
    pub(crate) fn read(
        occupant: Occupant<'m>,
        size: WindowSize,
        now: UnixMillis,
        at: WindowPosition,
    ) -> Option<Self> {
        let window = |number| Stamp::new(number, occupant.meta.generation());
        let (stamp, before) = (window(at.number), window(at.number.wrapping_sub(1)));
        // In the order of `WindowColumns::read`, for the same reasons.
        let (current, other) = occupant.slot.local_columns(at.number);
        let (remote, other_remote) = occupant.slot.remote_columns(at.number);
        let (word, other) = (load(current), load(other));
        let (remote, other_remote) = (load(remote), load(other_remote));

        let previous = if other.stamp() == before {
            other.hits()
        } else if other.stamp() != window(at.number.wrapping_add(1)) {
            Hits::ZERO
        } else {
            return None;
        };
        let is_plain = word.stamp() == stamp
            && remote.stamp() != stamp
            && other_remote.stamp() != before
            && occupant.try_date(size, now);
        is_plain.then_some(PlainColumns { at, current, word, stamp, previous })
    }

    #[inline]
    pub(crate) fn reading(&self) -> Reading {
        WindowCounts::of(self.at, self.word.hits(), self.previous).into()
    }
}

#[inline]
pub(crate) fn load(column: &AtomicU64) -> WindowCount {
    WindowCount::from_bits(column.load(Acquire))
}

/// Returns whether a counter last `used` at this time has only hits that do not count any more.
#[inline]
fn is_long_ago(used: Ticks, size: WindowSize, now: Ticks) -> bool {
    used != now && used.is_over(now, size.millis().saturating_mul(2))
}

impl<'m> Occupant<'m> {
    /// Reads and prepares the columns of a counter for its first hit in this window, or the first
    /// in a while. `None` if the slot has another occupant by now.
    #[cold]
    pub(crate) fn settle(
        self,
        size: WindowSize,
        now: &mut UnixMillis,
        clock: &impl Clock,
    ) -> Option<WindowColumns<'m>> {
        // Each turn removes the reason for another one: the clock was read again, or columns were
        // cleared. Only another process that counts can cause a further turn.
        loop {
            let used = Ticks(self.slot.used.load(Relaxed));
            if used.is_after(Ticks::at(now.0)) {
                // This process has an old time, or the clock was set back.
                *now = clock.fresh();
            }
            // The words are loaded before `used`, which shows whether they are old. A process that
            // counts meanwhile changes one of these words, or has set `used` before. (Except if its
            // word has exactly the stamp and the hits of the old word, which takes two processes
            // that use the counter again after exactly 2^17 windows.)
            let Slot { local, remote, .. } = self.slot;
            let all = [local, remote].map(|[even, odd]| [even, odd].map(|word| (word, load(word))));
            let columns = WindowColumns::read_ahead(self, size, *now);
            let number = columns.at.number;
            if columns.is_behind {
                // Still the same: if the clock was set back, words of future windows are cleared,
                // so that no key is blocked in this window.
                *now = clock.fresh();
                if WindowColumns::read_ahead(self, size, *now).at.number == number {
                    self.forget(number.wrapping_add(1));
                }
                continue;
            }
            let is_old = self.is_old(size, *now);
            if is_old {
                // All columns, since a stamp that is not near the current one may become current
                // later.
                all.iter().flatten().for_each(|&(column, word)| self.clear(column, word));
            }
            // Before the hit, so that a reader of the hit sees that the counter is in use.
            self.touch(*now);
            if is_old {
                continue;
            }
            if columns.word.stamp() != columns.stamp {
                // Turning a column discards its hits, which must be those of an older window. The
                // clock is read again, since this process may have been stopped for long.
                if columns.word.hits() != Hits::ZERO {
                    let fresh = clock.fresh();
                    if size.at(fresh).number != size.at(*now).number {
                        *now = fresh;
                        continue;
                    }
                }
                // The column must still be this counter's: a word of the next occupancy looks like
                // one of an older window.
                if !self.is_there() {
                    return None;
                }
                fail_point!("turn.verified");
            }
            return Some(columns);
        }
    }

    /// Marks the counter as in use, and clears it if it was unused for long.
    pub(crate) fn wake(self, size: WindowSize, now: UnixMillis) {
        // In the order of `settle`, for the same reasons.
        let Slot { local, remote, .. } = self.slot;
        let all = [local, remote].map(|[even, odd]| [even, odd].map(|word| (word, load(word))));
        if self.is_old(size, now) {
            let words = all.iter().flatten();
            words.for_each(|&(column, word)| self.clear(column, word));
        }
        self.touch(now);
    }

    /// Sets the date of a counter whose words were just read, if it was in use recently. With many
    /// keys, this is what nearly every hit needs. Returns whether the counter has the current date.
    #[inline]
    fn try_date(self, size: WindowSize, now: UnixMillis) -> bool {
        let (used, now) = (Ticks(self.slot.used.load(Relaxed)), Ticks::at(now.0));
        // `settle` handles the other cases.
        used == now
            || !(used.is_after(now) || is_long_ago(used, size, now)) && self.date(used, now).is_ok()
    }

    /// Marks the counter as in use. `used` decreases only if the clock does, so that a counter with
    /// hits of a current window never looks unused.
    pub(crate) fn touch(&self, now: UnixMillis) {
        let (used, now) = (Ticks(self.slot.used.load(Relaxed)), Ticks::at(now.0));
        // A time slightly in the future comes from another process's clock.
        if used == now || (used.is_after(now) && !now.is_over(used, CLOCK_SKEW)) {
            return;
        }
        // If the exchange fails, another process has just set the date.
        let _ = self.date(used, now);
    }

    /// Replaces the date, which was read as `used`.
    #[inline]
    fn date(&self, used: Ticks, now: Ticks) -> Result<u32, u32> {
        // Release: pairs with the acquiring loads of a reader that sees the following hit.
        let date = &self.slot.used;
        let result = date.compare_exchange(used.0, now.0, Release, Relaxed);
        fail_point!("touch.dated");
        result
    }

    /// Returns whether the counter was unused for so long that its hits do not count any more, even
    /// if its stamps match: stamps recur.
    pub(crate) fn is_old(&self, size: WindowSize, now: UnixMillis) -> bool {
        let used = Ticks(self.slot.used.load(Relaxed));
        is_long_ago(used, size, Ticks::at(now.0))
    }

    /// Clears the columns that contain window `number`.
    fn forget(&self, number: u64) {
        let stamp = Stamp::new(number, self.meta.generation());
        let (local, _) = self.slot.local_columns(number);
        let (remote, _) = self.slot.remote_columns(number);
        for (column, word) in [local, remote].map(|column| (column, load(column))) {
            if word.stamp() == stamp {
                self.clear(column, word);
            }
        }
    }

    /// Clears a column whose value is `word`.
    fn clear(&self, column: &AtomicU64, word: WindowCount) {
        // If the exchange fails, another process counts in the column, and makes the same check.
        let empty = WindowCount::empty(self.meta.generation()).bits();
        let _ = column.compare_exchange(word.bits(), empty, AcqRel, Relaxed);
        fail_point!("forget.cleared");
    }
}
