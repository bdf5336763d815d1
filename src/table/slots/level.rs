//! Levels: counters with hits and a time that change together, as for an elastic window.
//!
//! Each change makes another state of the counter, with a number. The two words of a state are in
//! the columns of its number's parity, the hits in `local` and the time in `remote`, and have the
//! stamp of the number, as the words of a window have the window's. To replace state *n*, a process
//! first replaces the time of state *n - 1* by the time of state *n + 1*, which no process reads
//! yet, and then the hits. That compare-and-swap is the change; it fails if another process was
//! first. If a process ends between the two, the next process replaces the time again.
//!
//! If two processes are between the two steps at once, the later time stays. If the other process
//! then replaces the hits, the time between their readings of the clock counts as not passed: no
//! hit is admitted for it.

use super::columns::load;
use crate::policy::algorithm::Level;
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::{Stamp, WindowCount};

/// The words of a counter that belong to different states, or to none.
#[derive(PartialEq)]
pub(crate) struct Unsettled([WindowCount; 4]);

/// A state of a counter.
pub(crate) struct LevelState<'m> {
    pub(crate) level: Level,
    /// The columns of the next state, and their values.
    next: [(&'m AtomicU64, WindowCount); 2],
    /// The stamp of the next state.
    stamp: Stamp,
}

/// Converts a mark to its stored form, which lasts until 2106.
#[inline]
fn mark_word(mark: UnixSeconds) -> u32 {
    u32::try_from(mark.0).unwrap_or(u32::MAX)
}

impl<'m> LevelState<'m> {
    /// Reads the current state of the counter in `occupant`.
    ///
    /// # Errors
    ///
    /// [`Unsettled`] if the counter changed meanwhile.
    #[inline]
    pub(crate) fn read(occupant: Occupant<'m>) -> Result<LevelState<'m>, Unsettled> {
        let Slot { local, remote, .. } = occupant.slot;
        let ([even, odd], [even_time, odd_time]) = (local, remote);
        let (even_word, odd_word) = (load(even), load(odd));
        // The distance of each number from the first of its parity.
        let count =
            |word: WindowCount| word.stamp().bits().wrapping_sub(occupant.meta.generation().bits());
        let unsettled = || Unsettled([even_word, odd_word, load(even_time), load(odd_time)]);
        let (evens, odds) = (count(even_word), count(odd_word));
        let is_odd = evens == odds;
        if !is_odd && evens != odds.wrapping_add(1) {
            return Err(unsettled());
        }
        let (word, next, next_time, time) = match is_odd {
            true => (odd_word, (even, even_word), even_time, odd_time),
            false => (even_word, (odd, odd_word), odd_time, even_time),
        };
        // The state's own time is loaded last. While it is unchanged, no process has prepared the
        // state after the next, so `replace` cannot overwrite that state's time.
        let next_time = (next_time, load(next_time));
        let at = load(time);
        let level = Level {
            hits: word.hits(),
            at: at.time(),
            mark: UnixSeconds(occupant.slot.extension.load(Relaxed).into()),
        };
        let (_, before) = next;
        let state = LevelState {
            level,
            stamp: Stamp::from_bits(before.stamp().bits().wrapping_add(1)),
            next: [next, next_time],
        };
        match at.stamp() == word.stamp() {
            true => Ok(state),
            false => Err(unsettled()),
        }
    }

    /// Returns the previous state, unless a process has begun to replace it.
    pub(crate) fn before(&self) -> Option<Level> {
        let [(_, hits), (_, at)] = self.next;
        (hits.stamp() == at.stamp()).then(|| Level {
            hits: hits.hits(),
            at: at.time(),
            mark: self.level.mark,
        })
    }

    /// Replaces this state with `level`. Returns false, without a change, if another process was
    /// first.
    #[inline]
    pub(crate) fn replace(&self, occupant: Occupant<'m>, level: &Level) -> bool {
        let [(hits, old_hits), (at, old_at)] = self.next;
        if self.level.mark != level.mark {
            // If two processes begin a window at once, one of them is enough.
            let (word, [old, new]) =
                (&occupant.slot.extension, [self.level, *level].map(|level| mark_word(level.mark)));
            let _ = word.compare_exchange(old, new, Relaxed, Relaxed);
        }
        // Both AcqRel: a reader that sees the hits sees their time, and the slot as this process
        // does.
        let new_at = WindowCount::of_time(self.stamp, level.at);
        // The later of two readings of the clock, whichever process replaces the hits first.
        let is_prepared = old_at.stamp() == self.stamp && old_at.time() >= new_at.time();
        let is_prepared = is_prepared || swap(at, old_at, new_at);
        fail_point!("level.prepared");
        is_prepared && swap(hits, old_hits, WindowCount::new(self.stamp, level.hits))
    }
}

fn swap(word: &AtomicU64, old: WindowCount, new: WindowCount) -> bool {
    word.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
}

/// Returns the level of a counter at `now`, in thousandths.
pub(super) fn live_hits(occupant: Occupant<'_>, size: WindowSize, now: UnixMillis) -> u64 {
    // A counter that is changing is in use.
    let Ok(LevelState { level, .. }) = LevelState::read(occupant) else {
        return u64::MAX;
    };
    match level.is_over(size, now) {
        true => 0,
        false => level.hits.thousandths().unsigned_abs(),
    }
}
