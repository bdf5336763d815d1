//! Counters that changed, and notes of what a store has and tells.

use core::ops::Range;

use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::slots::columns::WindowColumns;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::part::Part;
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_ref::CounterRef;
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// A synced counter that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Reference to the counter.
    pub counter: CounterRef,
    /// The key.
    pub key: Vec<u8>,
    /// The namespace.
    pub namespace: NamespaceIndex,
    /// The size of its windows.
    pub size: WindowSize,
    /// Its windows that matter and have hits of this node that the store has not, or the reverse.
    pub windows: Vec<WindowChange>,
}

/// The change in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The number of the window.
    pub number: u64,
    /// Hits that this node counted.
    pub local: Hits,
    /// Hits of these that the store has. The diff is `local - pushed`.
    pub pushed: Hits,
}

impl<'m> CounterTable<'m> {
    /// Takes the changes of one group (at most 64 counters) that are of `part`, such as a namespace:
    /// each is passed to `visit`, and will not be found again unless it changes again, or
    /// `record_again` is called with it.
    ///
    /// Windows that do not matter at `now` are left out.
    pub fn take_changes<'p>(
        &self,
        group: usize,
        part: impl Into<Part<'p>>,
        now: UnixMillis,
        visit: impl FnMut(Change),
    ) {
        let place = (group, u64::MAX);
        // Cannot fail.
        let _ = self.take_changes_at(place, part.into(), now, &|| true, visit);
    }

    /// Takes the changes of those counters of a group whose bits are set, from the lowest one on.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]. What was not passed on is found by another worker.
    pub fn take_changes_at(
        &self,
        (group, bits): (usize, u64),
        part: Part<'_>,
        now: UnixMillis,
        is_held: IsHeld<'_>,
        mut visit: impl FnMut(Change),
    ) -> Result<(), LeaseLost> {
        let Some(word) = self.parts.dirty.get(group) else {
            return Ok(());
        };
        let mut changed = word.load(Acquire) & bits;
        while changed != 0 {
            let bit = changed.trailing_zeros();
            changed &= changed.wrapping_sub(1);
            let index = group.saturating_mul(64).saturating_add(bit as usize);
            let slot = self.slot_at(index);
            // A slot that changes hands in this moment is noted again with its next hit.
            let is_others = slot.is_some_and(|slot| {
                let meta = slot.meta();
                let occupant = Occupant { slot, meta };
                // One without a name gets the bit again, whichever sync finds it.
                meta.is_counter() && meta.is_synced() && !self.is_in(part, occupant, true)
            });
            if is_others {
                continue;
            }
            confirm(is_held)?;
            fail_point!("change.taking");
            word.fetch_and(!(1 << bit), AcqRel);
            fail_point!("change.taken");
            if let Err(lost) = confirm(is_held) {
                // Another worker may have looked for all changes before.
                self.set_dirty_bit(index);
                return Err(lost);
            }
            if let Some(change) = self.change(index, now) {
                if part.has(change.namespace, &change.key) {
                    visit(change);
                } else {
                    self.record_again(change.counter);
                }
            }
        }
        Ok(())
    }

    /// Takes the counters of `part` in these slots over from the former holder of the lease, which has not given
    /// it back, and notes the changes that were lost with it.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn find_changes<'p>(
        &self,
        slots: Range<usize>,
        part: impl Into<Part<'p>>,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        self.for_each_synced(slots, part.into(), |occupant| {
            self.hand_over(occupant, is_held)?;
            self.record_unsent(occupant, now);
            Ok(())
        })
    }

    /// Forgets what the store has of the hits of `part` in these slots, and notes all that still matters as changed:
    /// the store lost what it had.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn forget_pushed<'p>(
        &self,
        slots: Range<usize>,
        part: impl Into<Part<'p>>,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        self.for_each_synced(slots, part.into(), |occupant| {
            self.forget(occupant, is_held)?;
            self.record_unsent(occupant, now);
            Ok(())
        })
    }

    /// Makes what the store has not of the counter in `occupant` be found, if there is any.
    fn record_unsent(&self, occupant: Occupant<'m>, now: UnixMillis) {
        if self.has_unsent(occupant, now) {
            self.set_dirty_bit(self.index_of(occupant.slot));
        }
    }

    fn for_each_synced(
        &self,
        slots: Range<usize>,
        part: Part<'_>,
        mut visit: impl FnMut(Occupant<'m>) -> Result<(), LeaseLost>,
    ) -> Result<(), LeaseLost> {
        for slot in slots.map_while(|index| self.slot_at(index)) {
            let occupant = Occupant::of(slot);
            if occupant.meta.is_synced() && self.is_in(part, occupant, false) {
                visit(occupant)?;
            }
        }
        Ok(())
    }

    /// The key and the window size of a counter that has a name; `None` if it is gone.
    pub fn key_of(&self, counter: CounterRef) -> Option<(Vec<u8>, WindowSize)> {
        let occupant = self.occupant_of(counter)?;
        Some((self.name_of(occupant)?, counter.meta.size()?))
    }

    /// Returns the hits of this node in window `number` that the store has, as far as this node
    /// knows.
    pub fn pushed_of(&self, counter: CounterRef, number: u64) -> Hits {
        let occupant = self.occupant_of(counter);
        occupant.map_or(Hits::ZERO, |occupant| self.pushed(occupant, number))
    }

    /// Returns the change of the counter in slot number `index`, if it is a synced one. A counter
    /// without a name gets it with its next hit, and is looked at again until then.
    fn change(&self, index: usize, now: UnixMillis) -> Option<Change> {
        let slot = self.slot_at(index)?;
        let meta = slot.meta();
        let size = meta.size().filter(|_| meta.is_synced())?;
        let occupant = Occupant { slot, meta };
        let extension = slot.extension.load(Acquire);
        let Some(key) = self.name_of(occupant) else {
            self.drop_name(occupant, extension);
            self.set_dirty_bit(index);
            return None;
        };
        if !self.is_of_its_namespace(occupant, &key, size) {
            // A worker that still served a namespace of before made it.
            self.give_up(occupant);
            return None;
        }
        let windows = WindowColumns::live(occupant, size, now).map(|(number, local)| {
            WindowChange { number, local, pushed: self.pushed(occupant, number) }
        });
        let windows: Vec<_> = windows.filter(|window| window.local != window.pushed).collect();
        let counter = CounterRef { index: u32::try_from(index).ok()?, meta };
        let change = Change { counter, key, namespace: meta.namespace(), size, windows };
        (slot.meta().is_same_counter(meta) && !change.windows.is_empty()).then_some(change)
    }

    /// Whether a counter is of the namespace that has the place now that its own had.
    fn is_of_its_namespace(&self, occupant: Occupant<'m>, key: &[u8], size: WindowSize) -> bool {
        let Some(name) = self.name_to_check(occupant.meta.namespace()) else {
            return true;
        };
        let counter = self.counter(occupant.meta.namespace(), &name, size);
        occupant.slot.has_identity(counter.identity(self.key(key)))
    }

    /// Makes a change be found again.
    pub fn record_again(&self, counter: CounterRef) {
        self.set_dirty_bit(counter.index as usize);
    }

    /// Notes that the store has the hits of this node in window `number` up to the second number, where it
    /// had them up to the first one. Doing so again changes nothing. Nothing happens if the counter is
    /// gone.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn advance_pushed(
        &self,
        counter: CounterRef,
        number: u64,
        pushed: (Hits, Hits),
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        if let Some(occupant) = self.occupant_of(counter)
            && self.set_pushed(occupant, number, pushed, is_held)?
        {
            self.record_alone(occupant, number);
        }
        Ok(())
    }

    /// Notes what the rest of the cluster counted in window `number`, which matters now: the store's
    /// total less what of this node's hits it includes. Nothing happens if the counter is gone.
    ///
    /// A worker that takes over is told of each counter that this one was about to note, since the
    /// position moves after that: so it changes the word, and this fails. Only if the total was since reset to what it was
    /// before, the word may be the one that is expected; then everything is fetched anew, as
    /// [`Lease::confirm_applied`](crate::table::Lease::confirm_applied) says.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn set_remote(
        &self,
        counter: CounterRef,
        number: u64,
        hits: Hits,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        if let (Some(occupant), Some(size)) = (self.occupant_of(counter), counter.meta.size()) {
            occupant.wake(size, now);
            let (remote, _) = occupant.slot.remote_columns(number);
            let new = WindowCount::new(Stamp::new(number, occupant.meta.generation()), hits);
            let mut old = remote.load(Acquire);
            loop {
                confirm(is_held)?;
                // As in `Claim::replace`: if the counter is still here, a later taker changes the word.
                if !occupant.is_there() {
                    break;
                }
                fail_point!("remote.setting");
                match remote.compare_exchange(old, new.bits(), AcqRel, Acquire) {
                    Ok(_) => break,
                    // What is heard meanwhile ([`CounterTable::hear_remote`]) is older.
                    Err(other) => old = other,
                }
            }
            fail_point!("remote.set");
        }
        Ok(())
    }

    /// Notes the same as it was heard before a sync tells: what `hits` makes of the hits of this node that
    /// the store has. Nothing happens if it says so, or if a sync notes something meanwhile: that is newer.
    pub fn hear_remote(
        &self,
        counter: CounterRef,
        number: u64,
        now: UnixMillis,
        hits: impl FnOnce(Hits) -> Option<Hits>,
    ) {
        if let (Some(occupant), Some(size)) = (self.occupant_of(counter), counter.meta.size()) {
            let (remote, _) = occupant.slot.remote_columns(number);
            // Before anything else is looked at: see `set_remote`.
            let old = remote.load(Acquire);
            if let Some(hits) = hits(self.pushed(occupant, number)) {
                occupant.wake(size, now);
                let new = WindowCount::new(Stamp::new(number, occupant.meta.generation()), hits);
                if occupant.is_there() {
                    let _ = remote.compare_exchange(old, new.bits(), AcqRel, Relaxed);
                    fail_point!("remote.heard");
                }
            }
        }
    }

    /// Finds the counter of `key`, or makes one, unless it would take the slot of one that this
    /// node counts in. `None` if there is none.
    pub fn make_room_for(
        &self,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
    ) -> Option<CounterRef> {
        let id = counter.identity(key);
        let occupant = self.find(id).or_else(|| self.insert_gently(counter, id, clock))?;
        let index = u32::try_from(self.index_of(occupant.slot)).ok()?;
        Some(CounterRef { index, meta: occupant.meta })
    }
}
