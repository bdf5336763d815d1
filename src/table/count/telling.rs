//! Tells the other nodes how many requests of a key are under way on this one.
//!
//! The number is told in an ordinary synced counter of windows, whose hits this node sets to it: in the current window,
//! and in the previous one if it was told there. So the sync pushes each change once, as any diff; other nodes read the
//! larger sum of the two windows, of which one is complete while nodes have not told again in the other; and a node that
//! is gone counts for two windows at most. The counter of holds links to it, so that a release needs no key.

use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::table::slots::admission::Receipt;
use crate::table::slots::columns::load;
use crate::table::slots::insertion::Insertion;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::Occupant;
use crate::table::words::word::Stamp;
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;

impl<'m> CounterTable<'m> {
    /// Returns how many requests of `key` are under way on the other nodes, as far as they have told in `told`.
    pub fn held_by_others(&self, told: &Counter, key: Key<'_>, clock: &impl Clock) -> Hits {
        let Some(occupant) = self.find(told.identity(key)) else {
            return Hits::ZERO;
        };
        let now = clock.now();
        let number = told.size.at(now).number;
        let is_old = occupant.is_old(told.size, now);
        // A node whose clock is slightly ahead tells in the next window.
        let near = [number.wrapping_sub(1), number, number.wrapping_add(1)];
        let sums = near.map(|number| {
            let (remote, _) = occupant.slot.remote_columns(number);
            load(remote).hits_of(Stamp::new(number, occupant.meta.generation()))
        });
        let most = sums.into_iter().fold(Hits::ZERO, Hits::max);
        if is_old || !occupant.is_there() { Hits::ZERO } else { most }
    }

    /// Tells the number of a key in `told`, after a hold of it. `key` is the told counter's.
    pub fn tell_hold(&self, told: &Counter, key: Key<'_>, hold: &Receipt<'m>, clock: &impl Clock) {
        let id = told.identity(key);
        let is_ready =
            |it: &Occupant<'_>| it.meta.is_synced() && it.slot.extension.load(Relaxed) != 0;
        let found = self.find(id).filter(is_ready);
        let found = found.or_else(|| {
            let found = self.find_or_insert(told, id, Hits::ZERO, clock)?;
            let Insertion::Found(occupant) = found else { return None };
            self.prepare_sync(occupant, told, key, clock);
            let occupant = Occupant::of(occupant.slot);
            occupant.slot.has_identity(id).then_some(occupant)
        });
        let (Some(found), Some(hold)) = (found, self.occupant_of_hold(hold)) else {
            return;
        };
        found.wake(told.size, clock.now());
        self.link_told(hold, found);
        self.tell(hold, Some(told.size.at(clock.now()).number));
    }

    /// Tells the present numbers of all keys of a namespace, for a new window.
    pub fn tell_all(&self, namespace: NamespaceIndex, clock: &impl Clock) {
        self.each_counter_of_holds(|hold| {
            if hold.meta.namespace() == namespace
                && hold.held() > 0
                && let Some(told) = self.told_of(hold)
                && let Some(size) = told.meta.size()
            {
                told.wake(size, clock.now());
                self.tell(hold, Some(size.at(clock.now()).number));
            }
        });
    }
}
