//! Looks at all counters of holds: gives back what ended processes held, frees counters that are not in use any more, and
//! sums up the holds.
//!
//! Each process looks a few times a second, in steps of less than a millisecond. So the holds of a killed process are
//! given back within a second, by whichever other process is first. Its number is free for another process only after
//! somebody has seen that it holds nothing.

use core::time::Duration;

use crate::policy::window::Clock;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::held::{HolderNumber, MARKS};
use crate::table::words::meta::{NamespaceIndex, SlotState, Ticks};
use crate::table::words::slot::Occupant;
use crate::table::words::system::ProcessId;
use crate::table::zone::counter_table::CounterTable;

/// Interval in which a process looks for ended ones.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The time without a hold after which a counter is freed, in milliseconds.
const IDLE: u64 = 10_000;
/// Looks from one sweep for idle counters to the next.
const IDLE_LOOKS: u32 = 40;
/// The work of one step: words of marks, and slots, which take longer.
const STEP: usize = 16_384;
const SLOT: usize = 16;

/// One process's sweep of a table.
#[derive(Debug, Default)]
pub struct HeldSweep {
    /// Looks since the last sweep for idle counters.
    looks: u32,
    /// The holder whose start time is compared next.
    turn: usize,
    /// The next word of marks; `None` between sweeps.
    next: Option<usize>,
    /// The ended holders whose holds this sweep gives back.
    ended: Vec<(HolderNumber, u64)>,
}

impl<'m> CounterTable<'m> {
    /// Looks for processes that have ended. Returns whether a sweep has begun, whose steps
    /// [`CounterTable::sweep_holds`] makes.
    pub fn look_at_holders(&self, sweep: &mut HeldSweep) -> bool {
        if sweep.next.is_some() {
            return true;
        }
        let holders = self.parts.holders.iter().enumerate();
        let holders = holders.map(|(number, word)| (number, word.load(Acquire)));
        let mut known = holders.filter(|(_, word)| *word != 0).peekable();
        if known.peek().is_none() {
            return false;
        }
        sweep.looks = sweep.looks.saturating_add(1);
        let turn = sweep.turn;
        sweep.turn = 0;
        for (place, (number, word)) in known.enumerate() {
            if place > turn && sweep.turn == 0 {
                sweep.turn = place;
            }
            // A process id is seldom used again, so the start times are compared in turn.
            if ProcessId::from_bits(word).has_ended(place == turn) {
                sweep
                    .ended
                    .extend(u16::try_from(number).map(|number| (HolderNumber(number), word)));
            }
        }
        if !sweep.ended.is_empty() || sweep.looks >= IDLE_LOOKS {
            sweep.next = Some(0);
        }
        sweep.next.is_some()
    }

    /// Makes one step of a sweep. Returns whether more are left.
    pub fn sweep_holds(&self, sweep: &mut HeldSweep, clock: &impl Clock) -> bool {
        let Some(first) = sweep.next else { return false };
        let (mut at, mut work) = (first, 0_usize);
        for word in self.marks_from(first) {
            if work >= STEP {
                sweep.next = Some(at);
                return true;
            }
            let marks = word.load(Acquire);
            work = work.saturating_add(1);
            if marks as u32 != 0 {
                work = work.saturating_add(SLOT.saturating_mul(marks.count_ones() as usize));
                self.sweep_group(at, marks, sweep, clock);
            }
            at = at.saturating_add(1);
        }
        for (HolderNumber(number), word) in sweep.ended.drain(..) {
            if let Some(holder) = self.parts.holders.get(usize::from(number)) {
                // Each of its holds was given back, by this process or another. If the exchange fails, another process
                // has freed the number.
                let _ = holder.compare_exchange(word, 0, AcqRel, Relaxed);
                fail_point!("holder.freed");
            }
        }
        (sweep.next, sweep.looks) = (None, 0);
        false
    }

    /// Sweeps the slots of one word of marks, which was read as `marks`.
    fn sweep_group(&self, group: usize, mut marks: u64, sweep: &HeldSweep, clock: &impl Clock) {
        for bit in 0..MARKS {
            if marks & 1 << bit == 0 {
                continue;
            }
            let index = group.saturating_mul(MARKS).saturating_add(bit);
            let Some(slot) = self.slot_at(index) else { return };
            let occupant = Occupant::of(slot);
            if occupant.meta.is_of_holds() {
                self.sweep_counter(occupant, sweep, clock);
            }
            let has_left = match slot.meta().state() {
                SlotState::Busy(_) => false,
                _ => !slot.meta().is_of_holds(),
            };
            if has_left && let Some(left) = self.unmark(index, marks) {
                marks = left;
            }
        }
    }

    fn sweep_counter(&self, occupant: Occupant<'m>, sweep: &HeldSweep, clock: &impl Clock) {
        for &(holder, word) in &sweep.ended {
            let known = self.parts.holders.get(usize::from(holder.0));
            self.recover(occupant, holder, || known.is_some_and(|it| it.load(Acquire) == word));
            self.tell(occupant, None);
        }
        let used = Ticks(occupant.slot.used.load(Relaxed));
        let is_idle = used.is_over(Ticks::at(clock.now().0), IDLE);
        if is_idle && occupant.held() == 0 && occupant.close() {
            self.give_up(occupant);
        }
    }

    /// Returns how many requests of a namespace's keys are under way on this node; one that several rules hold counts for
    /// each.
    pub fn held_in(&self, namespace: NamespaceIndex) -> u64 {
        let mut sum = 0_u64;
        self.each_counter_of_holds(|occupant| {
            if occupant.meta.namespace() == namespace {
                sum = sum.saturating_add(occupant.held().into());
            }
        });
        sum
    }
}
