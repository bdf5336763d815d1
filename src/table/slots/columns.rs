//! A counter's columns: reading them for a window, and settling what has to be settled before one
//! can be counted in.

use crate::policy::algorithm::{Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{CLOCK_SKEW, Clock, UnixMillis, WindowPosition, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::{Stamp, WindowCount};

/// A counter's columns at one moment.
pub(crate) struct WindowColumns<'m> {
    /// The window that is counted in, and the time in it.
    pub(crate) at: WindowPosition,
    /// The column of that window.
    pub(crate) current: &'m AtomicU64,
    /// Its value when it was read.
    pub(crate) word: WindowCount,
    /// The stamp that it should have: if it has another, it holds another window.
    pub(crate) stamp: Stamp,
    /// The hits of this node in the window.
    pub(crate) counted: Hits,
    /// The rest of the cluster's.
    pub(crate) remote: Hits,
    /// The hits of all in the window before.
    pub(crate) previous: Hits,
    /// Whether the neighbouring column holds the window after this one.
    pub(super) is_behind: bool,
}

impl<'m> WindowColumns<'m> {
    /// Reads the columns for the window `at` and the one before.
    #[inline]
    pub(crate) fn read(slot: &'m Slot, meta: Meta, at: WindowPosition) -> WindowColumns<'m> {
        let window = |number| Stamp::new(number, meta.generation());
        let stamp = window(at.number);
        let (before, after) =
            (window(at.number.wrapping_sub(1)), window(at.number.wrapping_add(1)));
        // Acquire: a reader that sees a word of the next occupancy sees that the meta has changed, and
        // one that sees a hit sees `used` as it was when the hit was counted.
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

    /// Reads the columns for `now`, or for the next window if another process, whose clock is a
    /// little ahead, already counts in that.
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

    /// The windows of a counter that matter at `now`, and what this node counted in them.
    pub(crate) fn live(
        occupant: Occupant<'m>,
        size: WindowSize,
        now: UnixMillis,
    ) -> impl Iterator<Item = (u64, Hits)> {
        let number = size.at(now).number;
        let is_old = occupant.is_old(size, now);
        // One window ahead may be in use: see `WindowColumns::read_ahead`.
        let near = [number.wrapping_sub(1), number, number.wrapping_add(1)];
        near.into_iter().filter(move |_| !is_old).filter_map(move |number| {
            let (local, _) = occupant.slot.local_columns(number);
            let local = load(local);
            let stamp = Stamp::new(number, occupant.meta.generation());
            (local.stamp() == stamp).then_some((number, local.hits()))
        })
    }

    /// Makes these columns, just read, ready to be counted in, if that takes no more than a date; returns
    /// whether they are. It is so in the newest window of a counter in use.
    #[inline]
    pub(crate) fn try_settle(
        &self,
        occupant: Occupant<'_>,
        size: WindowSize,
        now: UnixMillis,
    ) -> bool {
        // The date last: see `read`.
        self.word.stamp() == self.stamp && !self.is_behind && occupant.try_date(size, now)
    }

    #[inline]
    pub(crate) fn reading(&self) -> Reading {
        // A sum can be negative for a moment, while what the store says is on its way.
        let current = self.counted.plus_at_least_zero(self.remote);
        WindowCounts::of(self.at, current, self.previous).into()
    }
}

/// A counter's columns in the case that most are: it was counted in already in this window, and has
/// nothing of other nodes.
pub(crate) struct PlainColumns<'m> {
    at: WindowPosition,
    /// The column of the window that is counted in.
    pub(crate) current: &'m AtomicU64,
    /// Its value when it was read.
    pub(crate) word: WindowCount,
    /// Its stamp.
    pub(crate) stamp: Stamp,
    previous: Hits,
}

impl<'m> PlainColumns<'m> {
    /// Reads the columns for `now`. `None` if it is another case.
    #[inline]
    pub(crate) fn read(occupant: Occupant<'m>, size: WindowSize, now: UnixMillis) -> Option<Self> {
        let at = size.at(now);
        let window = |number| Stamp::new(number, occupant.meta.generation());
        let (stamp, before) = (window(at.number), window(at.number.wrapping_sub(1)));
        // In the order and for the reasons of `WindowColumns::read`.
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

/// Whether all that a counter holds that was last `used` then is forgotten.
#[inline]
fn is_long_ago(used: Ticks, size: WindowSize, now: Ticks) -> bool {
    used != now && used.is_over(now, size.millis().saturating_mul(2))
}

impl<'m> Occupant<'m> {
    /// Reads the columns of a counter that is about to be counted in, for the first time in this
    /// window or for a while. `None` if the slot has another occupant by now.
    #[cold]
    pub(crate) fn settle(
        self,
        size: WindowSize,
        now: &mut UnixMillis,
        clock: &impl Clock,
    ) -> Option<WindowColumns<'m>> {
        // What makes a turn follow on another is gone by then: the clock was read afresh, or the columns
        // were cleared. Only another process can bring about the same again, by counting.
        loop {
            let used = Ticks(self.slot.used.load(Relaxed));
            if used.is_after(Ticks::at(now.0)) {
                // Our time is old, or the clock was set back.
                *now = clock.fresh();
            }
            // The words before `used`, from which it follows whether they are old: a process
            // that counts meanwhile changes one of these words, or has dated the counter before. (Unless what it
            // counts has just the stamp and the hits of the old word, which takes a counter that
            // is used again after exactly 2^17 windows, by two processes at once.)
            let Slot { local, remote, .. } = self.slot;
            let all = [local, remote].map(|[even, odd]| [even, odd].map(|word| (word, load(word))));
            let columns = WindowColumns::read_ahead(self, size, *now);
            let number = columns.at.number;
            if columns.is_behind {
                // The same: and if it was the clock, what is in the future is forgotten, so that
                // no key is blocked in this window and in that.
                *now = clock.fresh();
                if WindowColumns::read_ahead(self, size, *now).at.number == number {
                    self.forget(number.wrapping_add(1));
                }
                continue;
            }
            let is_old = self.is_old(size, *now);
            if is_old {
                // All of it: a stamp that is not near now is, once the clock moves.
                all.iter().flatten().for_each(|&(column, word)| self.clear(column, word));
            }
            // Before the hit: a reader that sees a hit sees that the counter is in use.
            self.touch(*now);
            if is_old {
                continue;
            }
            if columns.word.stamp() != columns.stamp {
                // Turning a column wipes out what it held. That must be an older window, so
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
                if !self.is_there() {
                    return None;
                }
                fail_point!("turn.verified");
            }
            return Some(columns);
        }
    }

    /// Makes the counter one in use, and forgets what it held if it was not for long.
    pub(crate) fn wake(self, size: WindowSize, now: UnixMillis) {
        // In the order and for the reasons of `settle`.
        let Slot { local, remote, .. } = self.slot;
        let all = [local, remote].map(|[even, odd]| [even, odd].map(|word| (word, load(word))));
        if self.is_old(size, now) {
            let words = all.iter().flatten();
            words.for_each(|&(column, word)| self.clear(column, word));
        }
        self.touch(now);
    }

    /// Dates the counter, whose words were just read, if it was in use a little while ago: among many keys,
    /// that is what nearly every hit finds. Returns whether the counter has the date of now.
    #[inline]
    fn try_date(self, size: WindowSize, now: UnixMillis) -> bool {
        let (used, now) = (Ticks(self.slot.used.load(Relaxed)), Ticks::at(now.0));
        // Otherwise `settle` knows what to do.
        used == now
            || !(used.is_after(now) || is_long_ago(used, size, now)) && self.date(used, now).is_ok()
    }

    /// Notes that the counter is in use: `used` never goes back while the clock does not, so that
    /// a counter with hits of a live window never looks unused.
    pub(crate) fn touch(&self, now: UnixMillis) {
        let (used, now) = (Ticks(self.slot.used.load(Relaxed)), Ticks::at(now.0));
        // A little in the future is another process's look at the clock.
        if used == now || (used.is_after(now) && !now.is_over(used, CLOCK_SKEW)) {
            return;
        }
        // If this fails, another process has just noted the same.
        let _ = self.date(used, now);
    }

    /// Replaces the date that was read as `used`.
    #[inline]
    fn date(&self, used: Ticks, now: Ticks) -> Result<u32, u32> {
        // Release: pairs with the acquiring loads of a reader that sees the hit that follows.
        let date = &self.slot.used;
        let result = date.compare_exchange(used.0, now.0, Release, Relaxed);
        fail_point!("touch.dated");
        result
    }

    /// Whether the counter was not used for so long that all it holds is forgotten, even if its
    /// stamps look right: those come round again.
    pub(crate) fn is_old(&self, size: WindowSize, now: UnixMillis) -> bool {
        let used = Ticks(self.slot.used.load(Relaxed));
        is_long_ago(used, size, Ticks::at(now.0))
    }

    /// Clears the columns of the window `number`, if they hold it.
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

    /// Clears a column that holds `word`.
    fn clear(&self, column: &AtomicU64, word: WindowCount) {
        // If this fails, another process counts in the column, and looks again as this one does.
        let empty = WindowCount::empty(self.meta.generation()).bits();
        let _ = column.compare_exchange(word.bits(), empty, AcqRel, Relaxed);
        fail_point!("forget.cleared");
    }
}
