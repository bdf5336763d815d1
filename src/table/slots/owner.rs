//! The counter that owns a part of a name, or a block of a log.

use core::ptr;

use super::log_chain::{is_before, tail_number};
use crate::table::words::atomic::Ordering::{Acquire, Relaxed};
use crate::table::words::meta::{Meta, SlotState};
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::Generation;
use crate::table::zone::counter_table::CounterTable;

impl<'m> CounterTable<'m> {
    /// Returns the slot that a counter or a name's part links to, and its index.
    pub(super) fn next_of(&self, slot: &Slot) -> Option<(usize, &'m Slot)> {
        let index = self.index_of_link(slot.extension.load(Acquire))?;
        Some((index, self.slot_at(index)?))
    }

    /// Returns the first part of a counter's name, with its meta; `None` without a name.
    pub(crate) fn first_part(&self, occupant: Occupant<'_>) -> Option<(&'m Slot, Meta)> {
        let (_, first) = self.next_of(occupant.slot)?;
        let meta = first.meta();
        let (owner, _) = meta.owner_and_len()?;
        let is_ours = owner == occupant.meta.generation()
            && first.used.load(Relaxed) as usize == self.index_of(occupant.slot);
        is_ours.then_some((first, meta))
    }

    /// Returns the counter that owns the name's part or the log's block in `slot`; `None` without
    /// an owner.
    pub(crate) fn owner_of(&self, slot: &Slot, meta: Meta) -> Option<Occupant<'m>> {
        if let Some((generation, number)) = meta.owner_and_number() {
            return self.owner_of_block(slot, generation, number);
        }
        let (owner_generation, _) = meta.owner_and_len()?;
        let owner = Occupant::of(self.slot_at(slot.used.load(Relaxed) as usize)?);
        if owner.meta.generation() != owner_generation {
            return None;
        }
        match owner.meta.state() {
            SlotState::Counter => {
                let (index, _) = self.next_of(owner.slot)?;
                (index == self.index_of(slot)).then_some(owner)
            }
            // A further part: its first part links to the counter.
            SlotState::Name => {
                let counter = Occupant::of(self.slot_at(owner.slot.used.load(Relaxed) as usize)?);
                let (index, _) = self.next_of(counter.slot)?;
                let (counter_generation, _) = owner.meta.owner_and_len()?;
                let is_live = counter.meta.is_counter()
                    && counter.meta.generation() == counter_generation
                    && index == self.index_of(owner.slot);
                is_live.then_some(counter)
            }
            SlotState::Free | SlotState::Busy(_) | SlotState::Block => None,
        }
    }

    /// Returns the counter that owns the block in `slot`: see [`CounterTable::owner_of`].
    fn owner_of_block(
        &self,
        slot: &Slot,
        generation: Generation,
        number: u32,
    ) -> Option<Occupant<'m>> {
        let owner = Occupant::of(self.slot_at(slot.used.load(Relaxed) as usize)?);
        if !owner.meta.is_log() || owner.meta.generation() != generation {
            return None;
        }
        if owner.meta.is_of_holds() {
            return Some(owner);
        }
        // Without a chain, its first block is about to be linked.
        let is_left = tail_number(owner.slot).is_some_and(|tail| is_before(number, tail));
        (!is_left).then_some(owner)
    }

    /// Returns whether the block with this meta in `slot` belongs to the log of `occupant`.
    pub(super) fn is_block_of(&self, occupant: Occupant<'_>, slot: &Slot, meta: Meta) -> bool {
        meta.owner_and_number().is_some()
            && self.owner_of(slot, meta).is_some_and(|owner| ptr::eq(owner.slot, occupant.slot))
    }
}
