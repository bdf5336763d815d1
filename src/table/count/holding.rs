//! Holds and releases requests, for limits on how many of a key are under way.
//!
//! A hold is one compare-and-swap of the key's [total](crate::table::words::held), which checks the limit. So a limit is
//! exact on the node.

use crate::policy::algorithm::{Algorithm, Reading, UnderWay};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, WindowSize};
use crate::table::slots::admission::{Admission, Counted, Receipt};
use crate::table::slots::cells::total_word;
use crate::table::words::atomic::Ordering::Acquire;
use crate::table::words::fail::fail_point;
use crate::table::words::held::{HeldCell, HeldTotal, HoldChange, HolderNumber};
use crate::table::words::slot::Occupant;
use crate::table::words::word::Stamp;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;

#[inline]
fn reading(count: u32) -> Reading {
    UnderWay(Hits::from_thousandths(i64::from(count).saturating_mul(1000))).into()
}

#[inline]
fn receipt(occupant: Occupant<'_>) -> Receipt<'_> {
    Receipt {
        column: total_word(occupant.slot),
        stamp: Stamp::from_bits(occupant.meta.generation().bits()),
        value: Hits::ONE,
    }
}

impl<'m> CounterTable<'m> {
    /// Holds a request of `key` within `limit`, but only in the most frequent case: the counter is in its home slot, was
    /// held before, and no other process interferes. Otherwise returns `None` and holds nothing.
    #[inline(always)]
    pub fn hold_at_home(
        &self,
        counter: &Counter,
        key: &Key<'_>,
        clock: &impl Clock,
        limit: Hits,
    ) -> Option<Counted<'m>> {
        let id = counter.identity(*key);
        let occupant = self.home(id)?;
        // The identity is of a counter of holds.
        if !occupant.meta.is_log() || !occupant.slot.has_identity(id) {
            return None;
        }
        let (holder, total) = (self.holder()?, occupant.total()?);
        if total.is_new() || total.is_closed() {
            return None;
        }
        let before = reading(total.count());
        if !Algorithm::Concurrency.admits(WindowSize::MIN, &before, limit, Hits::ONE) {
            return Some(Counted::refused(before));
        }
        let cell = self.settled_cell(occupant, total, holder)?;
        occupant.replace_total(total, total.after(HoldChange::Taken, holder, cell)).ok()?;
        fail_point!("hold.taken");
        if !occupant.is_there() {
            return None;
        }
        occupant.touch(clock.now());
        Some(Counted::admitted(before, receipt(occupant)))
    }

    /// Holds a request if `admission` allows it. `None`, without a hold, if the slot has another occupant by now.
    #[inline]
    pub(super) fn hold(
        &self,
        occupant: Occupant<'m>,
        clock: &impl Clock,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        match self.holder() {
            Some(holder) => self.hold_as(holder, occupant, clock, admission),
            // More processes than a zone has numbers: these requests do not count.
            None => Some(Counted::unknown()),
        }
    }

    /// Holds a request as [`CounterTable::hold`] does, for the process with number `holder`.
    #[inline]
    pub(crate) fn hold_as(
        &self,
        holder: HolderNumber,
        occupant: Occupant<'m>,
        clock: &impl Clock,
        admission: Admission,
    ) -> Option<Counted<'m>> {
        loop {
            let Some(total) = occupant.total().filter(|total| !total.is_closed()) else {
                // The process that closed it may have been killed; in a damaged zone, the total is of no counter.
                self.give_up(occupant);
                return None;
            };
            let before = reading(total.count());
            let is_admitted = admission.admits(WindowSize::MIN, &before, Hits::ONE);
            if !is_admitted || total.count() == HeldTotal::MOST {
                return Some(Counted::refused(before));
            }
            if total.is_new() {
                self.mark(occupant.slot);
            }
            let cell = self.settled_cell(occupant, total, holder);
            let cell = cell.or_else(|| {
                let word = self.add_cell(occupant, holder, clock)?;
                Some(HeldCell::from_bits(word.load(Acquire)))
            });
            let Some(cell) = cell else {
                // Without a cell, the hold of a killed process would never end: it does not count.
                return occupant.is_there().then(Counted::unknown);
            };
            if occupant.replace_total(total, total.after(HoldChange::Taken, holder, cell)).is_err()
            {
                continue;
            }
            fail_point!("hold.taken");
            if !occupant.is_there() {
                return None;
            }
            occupant.touch(clock.now());
            return Some(Counted::admitted(before, receipt(occupant)));
        }
    }

    /// Returns the receipt of a hold of `key`; `None` if there is no counter.
    pub fn hold_of(&self, counter: &Counter, key: Key<'_>) -> Option<Receipt<'m>> {
        self.find(counter.identity(key)).map(receipt)
    }

    /// Releases a hold of this process. Returns `false` if it is gone: the counter was evicted.
    #[inline]
    pub fn release(&self, receipt: &Receipt<'m>) -> bool {
        let (Some(occupant), Some(holder)) = (self.occupant_of_hold(receipt), self.holder()) else {
            return false;
        };
        let is_released = self.release_as(holder, occupant);
        if is_released && occupant.is_told() {
            self.tell(occupant, None);
        }
        is_released
    }

    /// Releases a hold of the process with number `holder`. Returns `false` if it has none.
    #[inline]
    pub(crate) fn release_as(&self, holder: HolderNumber, occupant: Occupant<'m>) -> bool {
        while let Some(total) = occupant.total() {
            let Some(cell) = self.settled_cell(occupant, total, holder) else { return false };
            // Never below zero, even if another process took this one for ended.
            if cell.count() == 0 {
                // The total may have changed since: only together do they count.
                match occupant.total() == Some(total) {
                    true => return false,
                    false => continue,
                }
            }
            let new = total.after(HoldChange::Released, holder, cell);
            if occupant.replace_total(total, new).is_ok() {
                fail_point!("hold.released");
                return true;
            }
        }
        false
    }

    /// Gives back all that the process with number `holder` holds of a key. `has_ended` is asked whether it still has its
    /// number and has ended. Several processes may do this at once, and one that was stopped may go on: each change is
    /// one of the total that was read before the question.
    pub(crate) fn recover(
        &self,
        occupant: Occupant<'m>,
        holder: HolderNumber,
        has_ended: impl Fn() -> bool,
    ) {
        while let Some(total) = occupant.total() {
            let Some(cell) = self.settled_cell(occupant, total, holder) else { return };
            let is_settled = occupant.total() == Some(total);
            if is_settled && (cell.count() == 0 || !has_ended()) {
                return;
            }
            fail_point!("hold.recovering");
            if is_settled {
                let new = total.after(HoldChange::Recovered, holder, cell);
                // If it fails, the next turn sees why; else it completes the change.
                let _ = occupant.replace_total(total, new);
                fail_point!("hold.recovered");
            }
        }
    }

    /// Returns how many requests of `key` are under way.
    pub(super) fn read_held(&self, counter: &Counter, key: Key<'_>) -> Reading {
        let found = self.find(counter.identity(key));
        found.map_or_else(Reading::default, |it| reading(it.held()))
    }
}
