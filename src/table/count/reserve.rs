//! Reserves: hits of a key that its store has charged ahead, to be spent here without asking it.
//!
//! A reserve has a slot of its own, as a counter that is not synced: what was spent in a window is in the
//! column of what this node counted, and what was granted, below zero, in the column of what others did.
//! While the window lasts, both only grow, but for what a request puts back that it did not need. So
//! a process that has just read what was granted knows of nothing more than there is, and one
//! compare-and-swap of the other word spends: never more than was granted, by however many processes.
//!
//! Windows are those of the store's clock, which is the time that is passed here. What is left is taken out by
//! spending all of it ([`CounterTable::drain`]), and only then counted as hits below zero of the key's own
//! counter ([`CounterTable::give_back`]), which a sync pushes as any: a process that ends in between leaves
//! it charged.

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::table::slots::admission::Receipt;
use crate::table::slots::columns::{WindowColumns, load};
use crate::table::words::atomic::Ordering::{AcqRel, Relaxed};
use crate::table::words::fail::fail_point;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{NamespaceIndex, Ticks};
use crate::table::words::part::Part;
use crate::table::words::slot::Occupant;
use crate::table::words::word::{Stamp, WindowCount};
use crate::table::zone::counter::{Counter, Key};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::lease::{IsHeld, LeaseLost, confirm};

/// Number in the identities of reserves, in place of a kind of counters.
const RESERVES: u8 = u8::MAX;

/// Milliseconds.
const LATELY: u64 = 1000;

/// The reserve of a key under one limit: what was charged under it, another limit may not admit.
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

/// The result of spending.
#[derive(Debug)]
pub struct Spent<'m> {
    /// Hits that are left.
    pub left: Hits,
    /// Receipt by which the hits are put back; `None`: they cost nothing.
    pub receipt: Option<Receipt<'m>>,
}

impl ReservedHits {
    /// Returns the hits that can be spent.
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

    /// The size of its windows.
    pub fn size(&self) -> WindowSize {
        self.reserves.size
    }
}

impl<'m> CounterTable<'m> {
    /// The reserves of `namespace`, whose name is `name`, in windows of `size`.
    pub fn reserves(&self, namespace: NamespaceIndex, name: &[u8], size: WindowSize) -> Counter {
        let counter = self.counter(namespace, name, size);
        Counter { mask: self.hasher.mask(name, RESERVES, size.millis()), ..counter }
    }

    /// Returns the reserve of `key` under a limit of so many hits.
    pub fn reserve(
        &self,
        reserves: &Counter,
        key: Key<'_>,
        limit: Hits,
        algorithm: Algorithm,
    ) -> Reserve {
        // Both halves are pseudo-random: whatever differs in one of them, in both or in neither, is another one.
        let Identity([one, two]) = reserves.identity(key);
        let limit = limit.thousandths().cast_unsigned();
        let other = limit.rotate_left(32) ^ u64::from(algorithm.wire_id());
        Reserve { reserves: *reserves, id: Identity([one ^ limit, two ^ other]) }
    }

    /// Whether a key was counted, or asked about, within the last second: then it is worth a reserve.
    pub fn was_used_lately(&self, counter: &Counter, key: Key<'_>, now: UnixMillis) -> bool {
        let found = self.find(counter.identity(key));
        found.is_some_and(|it| {
            let used = Ticks(it.slot.used.load(Relaxed));
            !used.is_over(Ticks::at(now.0), LATELY)
        })
    }

    /// Sees to it that a reserve has a slot. Returns `false` if there is none to be had without taking one
    /// that this node counts in.
    pub fn make_room_for_reserve(&self, reserve: &Reserve, clock: &impl Clock) -> bool {
        let found = self.find(reserve.id);
        let found = found.or_else(|| self.insert_gently(&reserve.reserves, reserve.id, clock));
        found.is_some()
    }

    /// Spends `cost` hits of a reserve at `now`, or only looks whether there are any, if it is zero. `None`: there
    /// are not so many.
    #[inline]
    pub fn spend(&self, reserve: &Reserve, cost: Hits, now: UnixMillis) -> Option<Spent<'m>> {
        let size = reserve.reserves.size;
        loop {
            let occupant = self.find(reserve.id)?;
            let columns = WindowColumns::read(occupant.slot, occupant.meta, size.at(now));
            let left = ReservedHits::of(&columns).left();
            // Stamps of long ago may look like those of now.
            if left < cost || left == Hits::ZERO || occupant.is_old(size, now) {
                return None;
            }
            if cost == Hits::ZERO {
                return Some(Spent { left, receipt: None });
            }
            let new = WindowCount::new(columns.stamp, columns.counted.plus_value(cost));
            // AcqRel: as where hits are counted.
            let swapped =
                columns.current.compare_exchange(columns.word.bits(), new.bits(), AcqRel, Relaxed);
            if swapped.is_err() {
                continue;
            }
            fail_point!("reserve.spent");
            // If the slot changed hands meanwhile, what was spent went with it, and so did the rest.
            return occupant.is_there().then_some(Spent {
                left: left.minus(cost),
                receipt: Some(Receipt { column: columns.current, stamp: new.stamp(), value: cost }),
            });
        }
    }

    /// Puts back what was spent, unless its window or the reserve is gone; returns whether it did.
    pub fn put_back(&self, reserve: &Reserve, receipt: &Receipt<'m>) -> bool {
        self.refund(&reserve.reserves, receipt)
    }

    /// Adds hits to a reserve that the store has charged in window number `window`, at `clock` of the store.
    /// Returns whether they can be spent in it.
    pub fn grant(&self, reserve: &Reserve, hits: Hits, window: u64, clock: &impl Clock) -> bool {
        let size = reserve.reserves.size;
        let found = self.find(reserve.id);
        let found = found.or_else(|| self.insert_gently(&reserve.reserves, reserve.id, clock));
        let Some(occupant) = found else { return false };
        // Before the hits: what spends them sees that they are not of long ago.
        occupant.wake(size, clock.now());
        let stamp_of = |number| Stamp::new(number, occupant.meta.generation());
        let (stamp, next) = (stamp_of(window), stamp_of(window.wrapping_add(2)));
        let (granted, _) = occupant.slot.remote_columns(window);
        loop {
            let word = load(granted);
            // A word of the next occupancy looks just like one of an older window.
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

    /// Returns the state of a reserve in window number `window`, which matters at `now`.
    pub fn reserved(&self, reserve: &Reserve, window: u64, now: UnixMillis) -> ReservedHits {
        let found = self.find(reserve.id);
        let found = found.filter(|it| !it.is_old(reserve.reserves.size, now));
        found.map_or_else(ReservedHits::default, |it| reserved_in(it, window))
    }

    /// Takes all that is left of a reserve in window number `window`, which matters at `now`: the caller may
    /// give it back, and nothing else can spend it.
    pub fn drain(&self, reserve: &Reserve, window: u64, now: UnixMillis) -> Hits {
        let found = self.find(reserve.id);
        let found = found.filter(|it| !it.is_old(reserve.reserves.size, now));
        found.map_or(Hits::ZERO, |it| drain_window(it, window))
    }

    /// Counts hits below zero of `key` in window number `window`, for the next sync to push: the store has
    /// charged them, and they were not spent. Returns `false` if the window cannot be counted in any more, or there is
    /// no place to: then they stay charged.
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
        // It may have become a synced one just now.
        let occupant = Occupant::of(occupant.slot);
        if !occupant.slot.has_identity(id) {
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
                // The store has charged that at least, if the counter knows nothing of it: no sum below zero is room. If this
                // fails, something has just been noted.
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

    /// The store has lost what it had charged ahead: voids all reserves of the namespace, and forgets what was given back
    /// of counters of `part` and is not pushed yet.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]. The next holder does all of it.
    pub fn void_reserves<'p>(
        &self,
        part: impl Into<Part<'p>>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        let part = part.into();
        self.void_all(part, is_held)?;
        for counter in self.occupants() {
            if counter.meta.is_synced() && self.is_in(part, counter, false) {
                self.forget_unpushed(counter, is_held)?;
            }
        }
        Ok(())
    }

    /// The store has lost what it had: forgets what was given back of counters of `part`, and voids all reserves
    /// of the namespace. What was charged ahead is gone with the rest, and giving it back would admit it
    /// a second time.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`]. The next holder does all of it: what this one was about to forget then, it has forgotten, too.
    pub fn forget_reserves<'p>(
        &self,
        part: impl Into<Part<'p>>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        let part = part.into();
        // First: nothing of them is given back after that.
        self.void_all(part, is_held)?;
        for counter in self.occupants() {
            if counter.meta.is_synced() && self.is_in(part, counter, false) {
                forget_given_back(counter, is_held)?;
            }
        }
        Ok(())
    }

    fn void_all(&self, part: Part<'_>, is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
        for reserve in self.occupants() {
            let meta = reserve.meta;
            if meta.is_local_counter() && meta.namespace() == part.namespace {
                void(reserve, is_held)?;
            }
        }
        Ok(())
    }

    fn occupants(&self) -> impl Iterator<Item = Occupant<'m>> {
        let slots = (0..self.slot_count()).map_while(|index| self.slot_at(index));
        slots.map(Occupant::of)
    }

    /// Has nothing be counted below what the store has.
    fn forget_unpushed(
        &self,
        occupant: Occupant<'m>,
        is_held: IsHeld<'_>,
    ) -> Result<(), LeaseLost> {
        for number in [0, 1] {
            let (local, _) = occupant.slot.local_columns(number);
            loop {
                let word = load(local);
                let pushed = self.pushed_word(occupant, number).hits_of(word.stamp());
                if word.hits() >= pushed || !occupant.is_there() {
                    break;
                }
                let new = WindowCount::new(word.stamp(), pushed);
                confirm(is_held)?;
                fail_point!("reserve.forgetting");
                let swapped = local.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
                fail_point!("reserve.forgotten");
                if swapped.is_ok() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn reserved_in(occupant: Occupant<'_>, window: u64) -> ReservedHits {
    let stamp = Stamp::new(window, occupant.meta.generation());
    let (spent, _) = occupant.slot.local_columns(window);
    let (granted, _) = occupant.slot.remote_columns(window);
    // In the order in which they are written, the other way round: never more spent than granted.
    let spent = load(spent).hits_of(stamp);
    let granted = Hits::ZERO.minus(load(granted).hits_of(stamp));
    ReservedHits { granted, spent }
}

/// Spends all that is left in a window, and returns how much that was.
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

/// Has nothing be left of a reserve, if it is one: of a counter, nothing was granted.
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

/// Has nothing be counted below zero.
fn forget_given_back(occupant: Occupant<'_>, is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
    for local in &occupant.slot.local {
        loop {
            let word = load(local);
            if word.hits() >= Hits::ZERO || !occupant.is_there() {
                break;
            }
            let new = WindowCount::new(word.stamp(), Hits::ZERO);
            confirm(is_held)?;
            fail_point!("reserve.forgetting");
            let swapped = local.compare_exchange(word.bits(), new.bits(), AcqRel, Relaxed);
            fail_point!("reserve.forgotten");
            if swapped.is_ok() {
                break;
            }
        }
    }
    Ok(())
}
