//! The cells of a counter of holds: one for each process that has held a request of the key.
//!
//! The first two are in the slot itself, beside the [total](crate::table::words::held), and the link to the counter in
//! which other nodes are told. Those of further processes are in a chain of blocks, six in each. A block is an ordinary slot that belongs to its key, as those of a
//! [log](super::log_blocks) do: it is evicted with it, and its cost is the key's.

use super::admission::Receipt;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::held::{HeldCell, HeldTotal, HolderNumber, MARKS};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

/// Cells in the key's own slot.
const OWN: u16 = 2;
/// Cells in a block.
const IN_BLOCK: u16 = 6;
/// More blocks than a key can have.
const MOST_BLOCKS: usize = 256;

/// Returns the total of the counter in `slot`.
#[inline]
pub(crate) fn total_word(slot: &Slot) -> &AtomicU64 {
    let [total, _] = &slot.local;
    total
}

/// Returns the number of the block that has the cell of `holder`, and the cell's place in it.
pub(super) fn place_of(holder: HolderNumber) -> (u32, usize) {
    let further = holder.0.saturating_sub(OWN);
    (u32::from(further / IN_BLOCK), usize::from(further % IN_BLOCK))
}

/// The end of a search in a chain.
pub(super) enum Found<'m> {
    Block(&'m Slot),
    /// The last slot of the chain.
    End(&'m Slot),
}

impl<'m> Occupant<'m> {
    /// Reads the total of a counter of holds. `None` if the slot has another occupant by now.
    #[inline]
    pub(crate) fn total(&self) -> Option<HeldTotal> {
        // Acquire: a process that sees a change sees the cell that its author saw.
        let total = HeldTotal::from_bits(total_word(self.slot).load(Acquire));
        total.is_of(self.meta.generation()).then_some(total)
    }

    /// Replaces the total that was read as `old`, whose change is completed.
    #[inline]
    pub(crate) fn replace_total(&self, old: HeldTotal, new: HeldTotal) -> Result<(), Lost> {
        // Release: pairs with the load in `total`.
        let swapped =
            total_word(self.slot).compare_exchange(old.bits(), new.bits(), AcqRel, Relaxed);
        swapped.map_or(Err(Lost), |_| Ok(()))
    }

    /// Closes a counter without holds, so that no process holds in it any more. Returns whether it is closed.
    pub(crate) fn close(&self) -> bool {
        let Some(total) = self.total() else { return false };
        if total.is_closed() {
            return true;
        }
        // Its last change need not be completed: nobody reads the cells any more.
        let closed = HeldTotal::closed(self.meta.generation());
        let is_closed = total.count() == 0 && self.replace_total(total, closed).is_ok();
        fail_point!("hold.closed");
        is_closed
    }

    /// Returns the holds of a counter.
    pub(crate) fn held(&self) -> u32 {
        self.total().map_or(0, HeldTotal::count)
    }
}

/// Closes the counter of holds in `occupant`, which is about to be evicted, if it has no holds. A counter with holds is
/// evicted only if all others in its buckets have some; these requests then do not count any more. Without a total of this
/// counter, the slot has another occupant by now, as its claim will see, or the zone is damaged.
pub(super) fn leave(occupant: Occupant<'_>) -> Result<(), Lost> {
    let is_empty = occupant.total().is_some_and(|total| total.count() == 0);
    match occupant.meta.is_of_holds() && is_empty {
        true => occupant.close().then_some(()).ok_or(Lost),
        false => Ok(()),
    }
}

impl<'m> CounterTable<'m> {
    /// Returns the counter of a hold, unless the slot has another occupant by now.
    #[inline]
    pub(crate) fn occupant_of_hold(&self, receipt: &Receipt<'m>) -> Option<Occupant<'m>> {
        let occupant = Occupant::of(self.slot_at(self.index_of(receipt.column))?);
        let Occupant { meta, .. } = occupant;
        (meta.is_of_holds() && meta.generation().bits() == receipt.stamp.bits()).then_some(occupant)
    }

    /// Returns the cell of `holder`; `None` if it has none, or the slot has another occupant by now.
    #[inline]
    pub(crate) fn cell_of(
        &self,
        occupant: Occupant<'m>,
        holder: HolderNumber,
    ) -> Option<&'m AtomicU64> {
        let Slot { local: [_, first], remote: [second, _], .. } = occupant.slot;
        match holder {
            HolderNumber(0) => Some(first),
            HolderNumber(1) => Some(second),
            holder => self.cell_in_block(occupant, holder),
        }
    }

    #[cold]
    #[inline(never)]
    fn cell_in_block(&self, occupant: Occupant<'m>, holder: HolderNumber) -> Option<&'m AtomicU64> {
        let (number, place) = place_of(holder);
        match self.find_block(occupant, number)? {
            Found::Block(block) => block.words().get(place),
            Found::End(_) => None,
        }
    }

    /// Completes the last change of the counter in `occupant`, whose total was read as `total`.
    #[inline(never)]
    pub(crate) fn complete(&self, occupant: Occupant<'m>, total: HeldTotal) {
        // Without a cell, there was no change, or the slot has another occupant.
        let Some(word) = self.cell_of(occupant, total.holder()) else { return };
        let cell = HeldCell::from_bits(word.load(Acquire));
        if let Some(new) = cell.completed(total) {
            // If it fails, another process has completed the change. AcqRel, as for the total.
            let _ = word.compare_exchange(cell.bits(), new.bits(), AcqRel, Acquire);
            fail_point!("hold.completed");
        }
    }

    /// Returns the cell of `holder` after the last change of the counter in `occupant`, whose total was read as `total`, is
    /// completed. Must be called before the total is replaced. `None` if the holder has no cell.
    #[inline(always)]
    pub(crate) fn settled_cell(
        &self,
        occupant: Occupant<'m>,
        total: HeldTotal,
        holder: HolderNumber,
    ) -> Option<HeldCell> {
        let is_own = total.holder() == holder;
        if !is_own {
            self.complete(occupant, total);
        }
        let word = self.cell_of(occupant, holder)?;
        let cell = HeldCell::from_bits(word.load(Acquire));
        let Some(new) = cell.completed(total).filter(|_| is_own) else {
            return Some(cell);
        };
        let swapped = word.compare_exchange(cell.bits(), new.bits(), AcqRel, Acquire);
        fail_point!("hold.completed");
        // If it fails, another process has completed the change.
        Some(swapped.map_or_else(HeldCell::from_bits, |_| new))
    }

    /// Finds a block of a counter. `None` if the slot has another occupant by now.
    pub(super) fn find_block(&self, occupant: Occupant<'m>, number: u32) -> Option<Found<'m>> {
        let mut at = occupant.slot;
        for _ in 0..MOST_BLOCKS {
            let Some((_, next)) = self.next_of(at) else {
                return occupant.is_there().then_some(Found::End(at));
            };
            let (owner, own_number) = next.meta().owner_and_number()?;
            let is_ours = owner == occupant.meta.generation()
                && next.used.load(Relaxed) as usize == self.index_of(occupant.slot);
            if !is_ours {
                return None;
            }
            if own_number == number {
                return Some(Found::Block(next));
            }
            at = next;
        }
        None
    }

    /// Calls `look` with each counter of holds.
    pub(crate) fn each_counter_of_holds(&self, mut look: impl FnMut(Occupant<'m>)) {
        for (group, word) in self.marks_from(0).iter().enumerate() {
            let mut marks = word.load(Acquire) as u32;
            while marks != 0 {
                let bit = marks.trailing_zeros() as usize;
                marks &= marks.wrapping_sub(1);
                let slot = self.slot_at(group.saturating_mul(MARKS).saturating_add(bit));
                if let Some(occupant) = slot.map(Occupant::of).filter(|it| it.meta.is_of_holds()) {
                    look(occupant);
                }
            }
        }
    }
}
