//! Sets a counter to zero, for this node and all nodes that are synced with it.
//!
//! This node's count of a synced counter becomes minus the other nodes' count, so that the sum is
//! zero. A sync treats that like any change: it pushes the difference, which sets the store's total
//! to zero. Hits that others have counted since, and not pushed, are added to that. If two nodes
//! reset the counter before they know of each other, the later push makes the total negative. The
//! answer says so, and that node counts the difference again ([`CounterTable::count_again`]).
//!
//! Each word is changed in one step from the value that was read, the previous window first: a
//! process may end between the two.

use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::{CounterRef, CounterTable};

impl<'m> CounterTable<'m> {
    /// Sets the count of `key` to zero: in the current window and the previous one.
    pub fn reset(&self, counter: &Counter, key: Key<'_>, clock: &impl Clock) {
        while let Some(occupant) = self.find(counter.identity(key)) {
            let is_reset = if counter.is_synced {
                self.prepare_sync(occupant, counter, key, clock);
                let is_reset = self.reset_windows(occupant, counter, clock);
                self.mark_dirty(occupant.slot);
                is_reset
            } else {
                self.give_up(occupant)
            };
            if is_reset {
                return;
            }
            // The slot was given to another key at this moment, so the loop starts again.
        }
    }

    /// Records that a key was reset in its store.
    pub fn record_reset(&self) {
        // Release: a process that sees the new number asks the store afterwards.
        self.parts.resets.fetch_add(1, Release);
    }

    /// Returns the number of resets since the zone was made.
    pub fn resets(&self) -> u64 {
        self.parts.resets.load(Acquire)
    }

    /// Sets the windows of a counter to zero. Returns `false` if the slot has another occupant by
    /// now.
    fn reset_windows(&self, occupant: Occupant<'m>, counter: &Counter, clock: &impl Clock) -> bool {
        let (size, mut now) = (counter.size, clock.now());
        loop {
            let mut columns = WindowColumns::read(occupant.slot, occupant.meta, size.at(now));
            if !columns.try_settle(occupant, size, now) {
                match occupant.settle(size, &mut now, clock) {
                    Some(settled) => columns = settled,
                    None => return false,
                }
            }
            let number = columns.at.number;
            let windows = [number.wrapping_sub(1), number];
            let is_done = windows.iter().all(|window| reset_window(occupant, *window));
            if !occupant.is_there() {
                return false;
            }
            if is_done {
                return true;
            }
        }
    }

    /// Counts hits again that a reset has subtracted twice from window `number`, if that still
    /// counts.
    pub fn count_again(&self, counter: CounterRef, number: u64, hits: Hits) {
        let Some(occupant) = self.occupant_of(counter) else {
            return;
        };
        let stamp = Stamp::new(number, occupant.meta.generation());
        let (local, _) = occupant.slot.local_columns(number);
        self.mark_dirty(occupant.slot);
        loop {
            let word = load(local);
            if word.stamp() != stamp || !occupant.is_there() {
                return;
            }
            let new = WindowCount::new(stamp, word.hits().plus(hits));
            let swapped = local.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
            fail_point!("reset.undone");
            if swapped.is_ok() {
                self.mark_dirty(occupant.slot);
                return;
            }
        }
    }
}

/// Sets window `number` of a counter to zero. Returns false if another process has changed the word
/// just now, or turned it to a later window.
fn reset_window(occupant: Occupant<'_>, number: u64) -> bool {
    let stamp_of = |number| Stamp::new(number, occupant.meta.generation());
    let (stamp, next) = (stamp_of(number), stamp_of(number.wrapping_add(2)));
    let (local, _) = occupant.slot.local_columns(number);
    let (remote, _) = occupant.slot.remote_columns(number);
    let (word, remote) = (load(local), load(remote).hits_of(stamp));
    let zero = WindowCount::new(stamp, Hits::ZERO.minus(remote));
    // A column of an older window already counts as zero.
    if word.hits_of(stamp) == zero.hits() {
        return true;
    }
    // A word of the next occupancy looks like one of an older window.
    if word.stamp() == next || !occupant.is_there() {
        return false;
    }
    // AcqRel: the next reader of the word sees the slot as this process saw it.
    let swapped = local.compare_exchange(word.bits(), zero.bits(), AcqRel, Relaxed);
    fail_point!("reset.window");
    swapped.is_ok()
}
