//! Changed counters, and records of the hits that a store has and reports.

use core::ops::Range;

use crate::policy::hits::Hits;
use crate::policy::key::banned_by;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::slots::columns::WindowColumns;
use crate::table::slots::dirty::{bits_of, clear, slot_of};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Generation, Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key, Part};
use crate::table::zone::counter_table::{CounterRef, CounterTable};
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// A synced counter that has changed.
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
    /// Windows that matter, in which this node's hits differ from those that the store has.
    pub windows: Vec<WindowChange>,
}

/// The change in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The number of the window.
    pub number: u64,
    /// Hits that this node has counted.
    pub local: Hits,
    /// Hits of these that the store has. The difference to push is `local - pushed`.
    pub pushed: Hits,
}

/// This node's hits in the windows of a counter that a store has, as far as the node knew at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushedHits(Option<(Generation, [WindowCount; 2])>);

impl PushedHits {
    /// Returns those in window `number`; zero if the node had no counter.
    pub fn of(&self, number: u64) -> Hits {
        let Some((generation, [even, odd])) = self.0 else { return Hits::ZERO };
        let word = if number.is_multiple_of(2) { even } else { odd };
        word.hits_of(Stamp::new(number, generation))
    }
}

impl<'m> CounterTable<'m> {
    /// Takes the changed counters of one group (at most 48 counters) that are in `part`. Passes
    /// each to `visit`. A counter is not found again until it changes again, or `record_again` is
    /// called.
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
        // Cannot fail, since the closure always returns true.
        let _ = self.take_changes_at(place, part.into(), now, &|| true, visit);
    }

    /// Takes the changed counters of a group whose bits are set, from the lowest one on.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]. Another worker finds the counters that were not passed on.
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
        let mut changed = bits_of(word) & bits;
        while changed != 0 {
            let (index, bit) = (slot_of(group, changed), changed & changed.wrapping_neg());
            changed &= !bit;
            let slot = self.slot_at(index);
            // A slot that changes hands at this moment is marked again with its next hit.
            let is_others = slot.is_some_and(|slot| {
                let meta = slot.meta();
                let occupant = Occupant { slot, meta };
                // A counter without a name is marked again, whichever sync finds it.
                meta.is_counter() && meta.is_synced() && !self.is_in(part, occupant, true)
            });
            if is_others {
                continue;
            }
            if !clear(word, bit, is_held)? {
                continue;
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

    /// Takes the counters of `part` in these slots over from a former lease holder that has not
    /// released the lease, and marks the changes that were lost with it.
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
        self.take_over(slots, part.into(), now, |occupant| self.hand_over(occupant, is_held))
    }

    /// Discards the record of the hits that the store has of `part` in these slots, because the
    /// store has lost them, and marks all counters that still matter as changed.
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
        self.take_over(slots, part.into(), now, |occupant| self.forget(occupant, is_held))
    }

    /// Marks the counter in `occupant` as changed, if it has hits that the store has not.
    fn record_unsent(&self, occupant: Occupant<'m>, now: UnixMillis) {
        if self.has_unsent(occupant, now) {
            self.set_dirty_bit(self.index_of(occupant.slot));
        }
    }

    /// Does the same as [`CounterTable::forget_pushed`] in a namespace with reserves, of which the
    /// store has lost the charges. Hits that were given back are not marked.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn forget_charged<'p>(
        &self,
        slots: Range<usize>,
        part: impl Into<Part<'p>>,
        now: UnixMillis,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        self.take_over(slots, part.into(), now, |occupant| {
            self.forget(occupant, is_held)?;
            self.withhold(occupant, is_held)
        })
    }

    /// Applies `visit` to each counter of `part` in these slots, and marks all counters there that
    /// have changes: the former lease holder may have cleared the bit of a counter of another part,
    /// which was just put into the slot.
    fn take_over(
        &self,
        slots: Range<usize>,
        part: Part<'_>,
        now: UnixMillis,
        mut visit: impl FnMut(Occupant<'m>) -> Result<(), LeaseLost>,
    ) -> Result<(), LeaseLost> {
        // First, so that no bit that is set from here on is cleared by that holder.
        self.restamp_dirty(slots.clone());
        for slot in slots.map_while(|index| self.slot_at(index)) {
            let occupant = Occupant::of(slot);
            if occupant.meta.is_synced() {
                if self.is_in(part, occupant, false) {
                    visit(occupant)?;
                }
                self.record_unsent(occupant, now);
            }
        }
        Ok(())
    }

    /// Returns the key and the window size of a counter with a name; `None` if it is gone.
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

    /// Returns the same for all windows of a key's counter.
    pub fn pushed_hits(&self, counter: &Counter, key: Key<'_>) -> PushedHits {
        let occupant = self.find(counter.identity(key));
        PushedHits(occupant.map(|occupant| {
            let words = [0, 1].map(|parity| self.pushed_word(occupant, parity));
            (occupant.meta.generation(), words)
        }))
    }

    /// Returns the change of the counter in slot `index`, if it is a synced one. A counter without
    /// a name gets it with its next hit, and stays marked until then.
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
            // Made by a worker that still served the entry's previous namespace.
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

    /// Returns whether a counter belongs to the namespace that uses the entry now.
    fn is_of_its_namespace(&self, occupant: Occupant<'m>, key: &[u8], size: WindowSize) -> bool {
        let Some(name) = self.name_to_check(occupant.meta.namespace()) else {
            return true;
        };
        let counter = self.counter(occupant.meta.namespace(), &name, size);
        occupant.slot.has_identity(counter.identity(self.key(key)))
    }

    /// Marks a counter as changed again.
    pub fn record_again(&self, counter: CounterRef) {
        self.set_dirty_bit(counter.index as usize);
    }

    /// Records that the store has this node's hits in window `number` up to `up_to`, where it had
    /// them up to `from`. Repeating this has no effect, nor does a counter that is gone.
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

    /// Records the hits of the other nodes in window `number`, which matters now: the store's total
    /// minus this node's part of it. Has no effect if the counter is gone.
    ///
    /// A worker that takes over gets each counter that this one was about to record again, since
    /// the position is advanced afterwards. It changes the word, so that this one's write fails.
    /// Only if the total was reset to its earlier value meanwhile, the word may have the expected
    /// value again; then everything is fetched again, as
    /// [`Lease::confirm_applied`](crate::table::Lease::confirm_applied) explains.
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
                // As in `Claim::replace`: if the counter is still here, a later claim changes the
                // word.
                if !occupant.is_there() {
                    break;
                }
                fail_point!("remote.setting");
                match remote.compare_exchange(old, new.bits(), AcqRel, Acquire) {
                    Ok(_) => break,
                    // A value from the channel ([`CounterTable::hear_remote`]) is older.
                    Err(other) => old = other,
                }
            }
            fail_point!("remote.set");
        }
        Ok(())
    }

    /// Records the other nodes' hits before a sync does: `hits` computes them from this node's hits
    /// that the store has. Has no effect if it returns `None`, or if a sync changes the word
    /// meanwhile, since that is newer. Returns whether it did: a sync may have written the same word
    /// again, which this has then replaced.
    pub fn hear_remote(
        &self,
        counter: CounterRef,
        number: u64,
        now: UnixMillis,
        hits: impl FnOnce(Hits) -> Option<Hits>,
    ) -> bool {
        if let (Some(occupant), Some(size)) = (self.occupant_of(counter), counter.meta.size()) {
            let (remote, _) = occupant.slot.remote_columns(number);
            // Loaded before anything else: see `set_remote`.
            let old = remote.load(Acquire);
            if let Some(hits) = hits(self.pushed(occupant, number)) {
                occupant.wake(size, now);
                let new = WindowCount::new(Stamp::new(number, occupant.meta.generation()), hits);
                if occupant.is_there() {
                    fail_point!("remote.hearing");
                    let heard = remote.compare_exchange(old, new.bits(), AcqRel, Relaxed);
                    fail_point!("remote.heard");
                    return heard.is_ok();
                }
            }
        }
        false
    }

    /// Finds the counter of `key`, or inserts it, but not in place of one with hits of this node.
    /// `None` without a slot.
    pub fn make_room_for(
        &self,
        counter: &Counter,
        key: Key<'_>,
        clock: &impl Clock,
    ) -> Option<CounterRef> {
        let id = counter.identity(key);
        let occupant = self.find(id).or_else(|| self.insert_gently(counter, id, clock))?;
        // Bans are listed, whichever node began them.
        if banned_by(key.bytes).is_some() {
            self.attach_name(occupant, id, key.bytes, clock);
        }
        let index = u32::try_from(self.index_of(occupant.slot)).ok()?;
        Some(CounterRef { index, meta: occupant.meta })
    }
}
