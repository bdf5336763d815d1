//! A reference to a counter, for use outside of the table.

use core::num::NonZeroU64;

use super::counter_table::CounterTable;
use crate::table::words::meta::Meta;
use crate::table::words::slot::Occupant;

/// A reference to a counter in its slot. It never refers to another counter in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRef {
    pub(crate) index: u32,
    pub(crate) meta: Meta,
}

impl CounterRef {
    pub(crate) fn index_and_generation(self) -> (u32, u16) {
        (self.index, self.meta.generation().bits())
    }

    /// Returns a number for the occupancy: the slot, counted from 1, and the slot's generation. It
    /// recurs after 2^16 other counters in the slot.
    pub fn occupancy(self) -> NonZeroU64 {
        let slot = u64::from(self.index).saturating_add(1);
        let bits = slot << 16 | u64::from(self.meta.generation().bits());
        // The slot's part is never 0.
        NonZeroU64::new(bits).unwrap_or(NonZeroU64::MAX)
    }

    /// Returns the bits of the counter's group from this counter on, for
    /// [`CounterTable::take_changes_at`].
    pub fn bits_from(self) -> u64 {
        u64::MAX << (self.index % 64)
    }
}

impl<'m> CounterTable<'m> {
    /// Returns the counter in slot `index`, if its occupancy has this generation.
    pub(crate) fn counter_ref(&self, index: u32, generation: u16) -> Option<CounterRef> {
        let meta = self.slot_at(index as usize)?.meta();
        let is_it = meta.is_counter() && meta.generation().bits() == generation;
        is_it.then_some(CounterRef { index, meta })
    }

    pub(crate) fn occupant_of(&self, counter: CounterRef) -> Option<Occupant<'m>> {
        let slot = self.slot_at(counter.index as usize)?;
        let occupant = Occupant { slot, meta: counter.meta };
        slot.meta().is_same_counter(counter.meta).then_some(occupant)
    }
}
