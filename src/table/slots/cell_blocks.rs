//! Adds blocks of [cells](super::cells) to a counter of holds.
//!
//! A block that a killed process has not linked belongs to its counter all the same, until that is evicted.

use super::cells::{Found, place_of};
use super::claim::Claim;
use crate::policy::window::Clock;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::held::{HeldCell, HolderNumber};
use crate::table::words::identity::Identity;
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::zone::counter_table::CounterTable;

/// Attempts to get a block. Each process that claims slots at the same time can spoil one attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 16 };

impl<'m> CounterTable<'m> {
    /// Returns the cell of `holder`, after adding the block that has it. `None` if no slot is available, or the slot has
    /// another occupant by now.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_cell(
        &self,
        occupant: Occupant<'m>,
        holder: HolderNumber,
        clock: &impl Clock,
    ) -> Option<&'m AtomicU64> {
        let (number, place) = place_of(holder);
        for _ in 0..ATTEMPTS {
            match self.find_block(occupant, number)? {
                Found::Block(block) => return block.words().get(place),
                // If it is lost, another process has added a block or claimed the slot.
                Found::End(end) => drop(self.add_block(occupant, end, number, clock)),
            }
        }
        None
    }

    fn add_block(
        &self,
        occupant: Occupant<'m>,
        end: &'m Slot,
        number: u32,
        clock: &impl Clock,
    ) -> Result<(), Lost> {
        let ticks = Ticks::at(clock.now().0);
        let [one, two] = &occupant.slot.id;
        let id = Identity([one.load(Relaxed), two.load(Relaxed)]);
        let claim = self.claim_part(occupant, id, number.into(), clock.fresh(), ticks)?;
        fail_point!("hold.block.claimed");
        let Ok(meta) = self.write_cells(occupant, &claim, number) else {
            let _ = claim.publish(Meta::free(claim.generation()));
            return Err(Lost);
        };
        fail_point!("hold.block.published");
        let link = self.link_to(self.index_of(claim.slot), meta.generation());
        // Release: a process that finds the block sees its content.
        let linked =
            link.map(|link| end.extension.compare_exchange(0, link, AcqRel, Relaxed).is_ok());
        fail_point!("hold.block.linked");
        match linked {
            Some(true) => Ok(()),
            // Another process was first.
            _ => self.free_block(claim.slot, meta, clock),
        }
    }

    fn write_cells(
        &self,
        occupant: Occupant<'m>,
        claim: &Claim<'m>,
        number: u32,
    ) -> Result<Meta, Lost> {
        let owner = u32::try_from(self.index_of(occupant.slot)).map_err(|_| Lost)?;
        let empty = HeldCell::empty(occupant.meta.generation());
        for word in claim.slot.words() {
            claim.replace(word, |_| empty.bits())?;
        }
        fail_point!("hold.block.written");
        claim.set(&claim.slot.used, owner)?;
        claim.set(&claim.slot.extension, 0)?;
        let meta = Meta::block(claim.generation(), occupant.meta.generation(), number);
        claim.publish(meta)?;
        Ok(meta)
    }
}
