//! The link from a counter of holds to the synced counter in which other nodes are told its number, and the telling: see
//! `count::telling`.

use super::columns::load;
use crate::policy::hits::Hits;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::held::ToldLink;
use crate::table::words::slot::{Occupant, Slot};
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter_table::CounterTable;

impl Occupant<'_> {
    /// Returns whether other nodes are told of the counter of holds.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        let Slot { remote: [_, link], .. } = self.slot;
        ToldLink::from_bits(link.load(Relaxed)).of(self.meta.generation()).is_some()
    }
}

impl<'m> CounterTable<'m> {
    /// Returns the counter in which other nodes are told of the counter of holds in `hold`.
    pub(crate) fn told_of(&self, hold: Occupant<'m>) -> Option<Occupant<'m>> {
        let Slot { remote: [_, link], .. } = hold.slot;
        let link = ToldLink::from_bits(link.load(Acquire));
        let (slot, generation) = link.of(hold.meta.generation())?;
        let told = Occupant::of(self.slot_at(slot)?);
        (told.meta.is_synced() && told.meta.generation() == generation).then_some(told)
    }

    /// Links a counter of holds to the one in which other nodes are told.
    pub(crate) fn link_told(&self, hold: Occupant<'m>, told: Occupant<'m>) {
        let Slot { remote: [_, word], .. } = hold.slot;
        let old = ToldLink::from_bits(word.load(Acquire));
        let (own, generation) = (hold.meta.generation(), told.meta.generation());
        let new = ToldLink::new(own, generation, self.index_of(told.slot));
        // The word of a later occupancy is not replaced.
        if old != new && old.bits() as u16 == own.bits() {
            let _ = word.compare_exchange(old.bits(), new.bits(), AcqRel, Relaxed);
            fail_point!("hold.linked");
        }
    }

    /// Sets the hits of the counter that `hold` links to, if there is one, to its number: in window `number` and the one
    /// before, or in the windows in which it was told.
    pub(crate) fn tell(&self, hold: Occupant<'m>, number: Option<u64>) {
        let Some(told) = self.told_of(hold) else { return };
        let stamp_of = |number| Stamp::new(number, told.meta.generation());
        loop {
            let held = hold.held();
            let hits = Hits::from_thousandths(i64::from(held).saturating_mul(1000));
            if !hold.is_there() {
                return;
            }
            let mut is_told = true;
            for (parity, column) in told.slot.local.iter().enumerate() {
                let word = load(column);
                let stamp = match number {
                    Some(number) if number % 2 == parity as u64 => stamp_of(number),
                    Some(number) if word.stamp() != stamp_of(number.wrapping_sub(1)) => continue,
                    _ => word.stamp(),
                };
                if word.hits_of(stamp) == hits || (number.is_none() && word.hits() == Hits::ZERO) {
                    continue;
                }
                self.mark_dirty(told.slot);
                let new = WindowCount::new(stamp, hits);
                is_told &= told.is_there()
                    && column.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed).is_ok();
                fail_point!("hold.told");
                self.mark_dirty(told.slot);
            }
            // Whoever changes the number tells it after that, so the last one tells the last number.
            if (is_told && hold.held() == held) || !told.is_there() {
                return;
            }
        }
    }
}
