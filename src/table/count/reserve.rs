//! Reserves: hits of a key that its store has charged ahead, and that this node spends without
//! asking it.
//!
//! A reserve has a slot of its own, like a counter that is not synced. The column of this node's
//! hits contains what was spent in a window; the column of other nodes' hits contains what was
//! granted, as a negative number. During a window both only grow, except when a request puts
//! unneeded hits back. A process that has read the granted hits thus never overestimates them, and
//! one compare-and-swap of the spent hits spends: all processes together never spend more than was
//! granted.
//!
//! Windows are of the store's clock, whose time callers pass. Unused hits are first taken out by
//! spending all of them ([`CounterTable::drain`]), and then counted below zero in the key's own
//! counter ([`CounterTable::give_back`]), which a sync pushes like any other. If a process ends
//! between the two, the hits stay charged.

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::slots::admission::Receipt;
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{NamespaceIndex, Ticks};
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key, Part};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// Takes the place of the kind of counter in the identity of a reserve.
const RESERVES: u8 = u8::MAX;

/// In milliseconds.
const LATELY: u64 = 1000;

/// The reserve of a key under one limit. Hits that were charged under one limit may not be admitted
/// by another.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    reserves: Counter,
    id: Identity,
}

/// The state of a reserve in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedHits {
    /// Hits that the store has charged.
    pub granted: Hits,
    /// Hits of these that were spent.
    pub spent: Hits,
}

/// The result of spending hits.
#[derive(Debug)]
pub struct Spent<'m> {
    /// Hits that are left.
    pub left: Hits,
    /// Receipt for putting the hits back; `None` for a cost of zero.
    pub receipt: Option<Receipt<'m>>,
}

impl ReservedHits {
    /// Returns the hits that can still be spent.
    pub fn left(self) -> Hits {
        self.granted.minus(self.spent).max(Hits::ZERO)
    }

    fn of(columns: &WindowColumns<'_>) -> ReservedHits {
        ReservedHits { granted: Hits::ZERO.minus(columns.remote), spent: columns.counted }
    }
}

impl Reserve {
    #[cfg(all(test, loom))]
    pub(crate) fn over(reserves: Counter, id: Identity) -> Reserve {
        Reserve { reserves, id }
    }

    /// Returns the identity of the reserve.
    pub fn identity(&self) -> Identity {
        self.id
    }

    /// Returns the size of the reserve's windows.
    pub fn size(&self) -> WindowSize {
        self.reserves.size
    }
}

impl<'m> CounterTable<'m> {
    /// Returns the reserves of `namespace`, whose name is `name`, in windows of `size`.
    pub fn reserves(&self, namespace: NamespaceIndex, name: &[u8], size: WindowSize) -> Counter {
        let counter = self.counter(namespace, name, size);
        Counter { mask: self.hasher.mask(name, RESERVES, size.bits()), ..counter }
    }

    /// Returns the reserve of `key` under a limit of `limit` hits.
    pub fn reserve(
        &self,
        reserves: &Counter,
        key: Key<'_>,
        limit: Hits,
        algorithm: Algorithm,
    ) -> Reserve {
        // Both halves are pseudo-random, so another limit or algorithm makes another identity.
        let Identity([one, two]) = reserves.identity(key);
        let limit = limit.thousandths().cast_unsigned();
        let other = limit.rotate_left(32) ^ u64::from(algorithm.wire_id());
        Reserve { reserves: *reserves, id: Identity([one ^ limit, two ^ other]) }
    }

    /// Returns whether a key was counted or asked about within the last second, and so is worth a
    /// reserve.
    pub fn was_used_lately(&self, counter: &Counter, key: Key<'_>, now: UnixMillis) -> bool {
        let found = self.find(counter.identity(key));
        found.is_some_and(|it| {
            let used = Ticks(it.slot.used.load(Relaxed));
            !used.is_over(Ticks::at(now.0), LATELY)
        })
    }

    /// Gives a reserve a slot. Returns `false` if every possible slot belongs to a counter with
    /// hits of this node.
    pub fn make_room_for_reserve(&self, reserve: &Reserve, clock: &impl Clock) -> bool {
        let found = self.find(reserve.id);
        let found = found.or_else(|| self.insert_gently(&reserve.reserves, reserve.id, clock));
        found.is_some()
    }

    /// Spends `cost` hits of a reserve at `now`; a cost of zero only checks whether any are left.
    /// `None` if there are not enough.
    #[inline]
    pub fn spend(&self, reserve: &Reserve, cost: Hits, now: UnixMillis) -> Option<Spent<'m>> {
        let size = reserve.reserves.size;
        loop {
            let occupant = self.find(reserve.id)?;
            let columns = WindowColumns::read(occupant.slot, occupant.meta, size.at(now));
            let left = ReservedHits::of(&columns).left();
            // The stamps of a long unused reserve may look current.
            if left < cost || left == Hits::ZERO || occupant.is_old(size, now) {
                return None;
            }
            if cost == Hits::ZERO {
                return Some(Spent { left, receipt: None });
            }
            let new = WindowCount::new(columns.stamp, columns.counted.plus_value(cost));
            // AcqRel, as for counting a hit.
            let swapped =
                columns.current.compare_exchange(columns.word.bits(), new.bits(), AcqRel, Relaxed);
            if swapped.is_err() {
                continue;
            }
            fail_point!("reserve.spent");
            // If the slot has another occupant by now, the spent hits and the rest of the reserve
            // are lost.
            return occupant.is_there().then_some(Spent {
                left: left.minus(cost),
                receipt: Some(Receipt { column: columns.current, stamp: new.stamp(), value: cost }),
            });
        }
    }

    /// Puts spent hits back, unless their window or the reserve is gone. Returns whether it did.
    pub fn put_back(&self, reserve: &Reserve, receipt: &Receipt<'m>) -> bool {
        self.refund(&reserve.reserves, receipt)
    }

    /// Adds hits that the store has charged in window `window` to a reserve. `clock` is the
    /// store's. Returns whether the hits can be spent in that window.
    pub fn grant(&self, reserve: &Reserve, hits: Hits, window: u64, clock: &impl Clock) -> bool {
        let size = reserve.reserves.size;
        let found = self.find(reserve.id);
        let found = found.or_else(|| self.insert_gently(&reserve.reserves, reserve.id, clock));
        let Some(occupant) = found else { return false };
        // Before the hits, so that a process that spends them sees that they are current.
        occupant.wake(size, clock.now());
        let stamp_of = |number| Stamp::new(number, occupant.meta.generation());
        let (stamp, next) = (stamp_of(window), stamp_of(window.wrapping_add(2)));
        let (granted, _) = occupant.slot.remote_columns(window);
        loop {
            let word = load(granted);
            // A word of the next occupancy looks like one of an older window.
            if word.stamp() == next || !occupant.is_there() {
                return false;
            }
            let new = WindowCount::new(stamp, word.hits_of(stamp).minus(hits));
            let swapped = granted.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
            if swapped.is_ok() {
                fail_point!("reserve.granted");
                return true;
            }
        }
    }

    /// Returns the state of a reserve in window `window`, if that is current at `now`.
    pub fn reserved(&self, reserve: &Reserve, window: u64, now: UnixMillis) -> ReservedHits {
        let found = self.find(reserve.id);
        let found = found.filter(|it| !it.is_old(reserve.reserves.size, now));
        found.map_or_else(ReservedHits::default, |it| reserved_in(it, window))
    }

    /// Takes all hits left of a reserve in window `window`, if that is current at `now`. Nothing
    /// else can spend them, so the caller may give them back.
    pub fn drain(&self, reserve: &Reserve, window: u64, now: UnixMillis) -> Hits {
        let found = self.find(reserve.id);
        let found = found.filter(|it| !it.is_old(reserve.reserves.size, now));
        found.map_or(Hits::ZERO, |it| drain_window(it, window))
    }

    /// Counts hits below zero of `key` in window `window`, for the next sync to push: the store has
    /// charged these hits, and they were not spent. Returns `false` if the window has ended or
    /// there is no slot; then the hits stay charged.
    pub fn give_back(
        &self,
        counter: &Counter,
        key: Key<'_>,
        window: u64,
        hits: Hits,
        clock: &impl Clock,
    ) -> bool {
        let id = counter.identity(key);
        let found = self.find(id);
        let Some(occupant) = found.or_else(|| self.insert_gently(counter, id, clock)) else {
            return false;
        };
        self.prepare_sync(occupant, counter, key, clock);
        // The counter may have become a synced one just now. Only a counter with a name has a word
        // for the hits that the store has, by which a sync withholds them: see `pushed`.
        let occupant = Occupant::of(occupant.slot);
        if !occupant.slot.has_identity(id) || self.first_part(occupant).is_none() {
            return false;
        }
        occupant.wake(counter.size, clock.now());
        let stamp_of = |number| Stamp::new(number, occupant.meta.generation());
        let (stamp, next) = (stamp_of(window), stamp_of(window.wrapping_add(2)));
        let (local, _) = occupant.slot.local_columns(window);
        let (remote, _) = occupant.slot.remote_columns(window);
        loop {
            let word = load(local);
            if word.stamp() == next || !occupant.is_there() {
                return false;
            }
            let new = WindowCount::new(stamp, word.hits_of(stamp).minus(hits));
            let (told, least) = (load(remote), Hits::ZERO.minus(new.hits()));
            if told.hits_of(stamp) < least && told.stamp() != next && occupant.is_there() {
                // The store has charged at least these hits, which the counter's own record may not
                // contain: a negative sum must not admit more. If the exchange fails, another
                // process has just set the word.
                let least = WindowCount::new(stamp, least).bits();
                let _ = remote.compare_exchange(told.bits(), least, AcqRel, Relaxed);
                fail_point!("reserve.noted");
            }
            let swapped = local.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
            if swapped.is_ok() {
                fail_point!("reserve.given_back");
                self.mark_dirty(occupant.slot);
                return true;
            }
        }
    }

    /// Voids all reserves of a namespace, because the store has lost the charged hits.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]; the next holder repeats all of it.
    pub fn void_reserves(
        &self,
        namespace: NamespaceIndex,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        for reserve in self.occupants() {
            let meta = reserve.meta;
            if meta.is_local_counter() && meta.namespace() == namespace {
                void(reserve, is_held)?;
            }
        }
        Ok(())
    }

    /// Has no sync push the hits of counters in `part` that were given back and not pushed yet. To
    /// be called after the reserves were voided, so that no more of their hits are given back.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]; the next holder repeats all of it.
    pub fn withhold_given_back<'p>(
        &self,
        part: impl Into<Part<'p>>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        for counter in self.synced_in(part.into()) {
            self.withhold(counter, is_held)?;
        }
        Ok(())
    }

    /// Gives up the counters in `part` of which more was given back than was counted. In a store with
    /// absolute counts, such a counter can only begin again: its count includes hits of charges that
    /// the store has lost. To be called after the reserves were voided.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]; the next holder repeats all of it.
    pub fn give_up_given_back<'p>(
        &self,
        part: impl Into<Part<'p>>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        for counter in self.synced_in(part.into()) {
            if counter.slot.local.iter().any(|it| load(it).hits() < Hits::ZERO) {
                confirm(is_held)?;
                // If another worker has taken over, the slot has another generation.
                self.give_up(counter);
            }
        }
        Ok(())
    }

    fn synced_in<'t>(&'t self, part: Part<'t>) -> impl Iterator<Item = Occupant<'m>> + use<'t, 'm> {
        self.occupants().filter(move |it| it.meta.is_synced() && self.is_in(part, *it, false))
    }

    fn occupants(&self) -> impl Iterator<Item = Occupant<'m>> {
        let slots = (0..self.slot_count()).map_while(|index| self.slot_at(index));
        slots.map(Occupant::of)
    }
}

fn reserved_in(occupant: Occupant<'_>, window: u64) -> ReservedHits {
    let stamp = Stamp::new(window, occupant.meta.generation());
    let (spent, _) = occupant.slot.local_columns(window);
    let (granted, _) = occupant.slot.remote_columns(window);
    // In the reverse order of the writes, so that spent hits never exceed granted ones.
    let spent = load(spent).hits_of(stamp);
    let granted = Hits::ZERO.minus(load(granted).hits_of(stamp));
    ReservedHits { granted, spent }
}

/// Spends all hits left in a window. Returns their number.
fn drain_window(occupant: Occupant<'_>, window: u64) -> Hits {
    let stamp_of = |number| Stamp::new(number, occupant.meta.generation());
    let (stamp, next) = (stamp_of(window), stamp_of(window.wrapping_add(2)));
    let (spent, _) = occupant.slot.local_columns(window);
    loop {
        let word = load(spent);
        let reserved = reserved_in(occupant, window);
        let left = reserved.granted.minus(word.hits_of(stamp));
        if left <= Hits::ZERO || word.stamp() == next || !occupant.is_there() {
            return Hits::ZERO;
        }
        let new = WindowCount::new(stamp, reserved.granted);
        let swapped = spent.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
        if swapped.is_ok() {
            fail_point!("reserve.drained");
            return match occupant.is_there() {
                true => left,
                false => Hits::ZERO,
            };
        }
    }
}

/// Empties a slot's reserve. Counters are unchanged, since they have no granted hits.
fn void(occupant: Occupant<'_>, is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
    for (granted, spent) in occupant.slot.remote.iter().zip(&occupant.slot.local) {
        loop {
            let (granted, word) = (load(granted), load(spent));
            let all = Hits::ZERO.minus(granted.hits());
            if all <= Hits::ZERO || word == WindowCount::new(granted.stamp(), all) {
                break;
            }
            let new = WindowCount::new(granted.stamp(), all);
            confirm(is_held)?;
            fail_point!("reserve.voiding");
            // A slot with another occupant is not this reserve's any more.
            if !occupant.is_there()
                || spent.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed).is_ok()
            {
                fail_point!("reserve.voided");
                break;
            }
        }
    }
    Ok(())
}
