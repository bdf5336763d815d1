//! Lists the counters that have names: the synced windows, and bans. A file of its own, since only readers that look at
//! the whole table need it.

use core::ops::Range;

use crate::policy::algorithm::Reading;
use crate::policy::window::{Clock, WindowSize};
use crate::table::slots::columns::WindowColumns;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::Occupant;
use crate::table::zone::counter_table::CounterTable;

/// A counter with a name, and its hits at a moment.
#[derive(Clone, Debug)]
pub struct NamedCounter {
    /// The counted name of the key.
    pub name: Vec<u8>,
    /// The size of its windows.
    pub size: WindowSize,
    /// Its hits.
    pub reading: Reading,
}

impl<'m> CounterTable<'m> {
    /// Returns the counters in `slots` that have a name, are of `namespace`, and are chosen by their size and hits.
    pub fn named_counters(
        &self,
        namespace: NamespaceIndex,
        slots: Range<usize>,
        is_chosen: impl Fn(WindowSize, &Reading) -> bool,
        clock: &impl Clock,
    ) -> Vec<NamedCounter> {
        let now = clock.now();
        let occupants = slots.map_while(|index| self.slot_at(index)).map(Occupant::of);
        let counters = occupants.filter_map(|occupant| {
            let meta = occupant.meta;
            let size = meta.size().filter(|_| meta.is_synced() && meta.namespace() == namespace)?;
            let reading = WindowColumns::read_ahead(occupant, size, now).reading();
            if occupant.is_old(size, now) || !is_chosen(size, &reading) {
                return None;
            }
            let name = self.name_of(occupant)?;
            Some(NamedCounter { name, size, reading })
        });
        counters.collect()
    }
}
