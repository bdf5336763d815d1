//! Claims a slot: chooses the cheapest one, and holds it while it is prepared for its next use.

use super::cells::leave;
use super::columns::{WindowColumns, load};
use super::level;
use super::log;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::table::words::atomic::{AtomicU32, AtomicU64, fence, replace_held};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::{Meta, SlotState, Ticks};
use crate::table::words::slot::{Lost, Occupant, Slot};
use crate::table::words::word::{Generation, Stamp};
use crate::table::zone::counter_table::CounterTable;
use crate::table::zone::event_lines::Evicted;
use crate::table::zone::events::NamespaceLine;

/// Longest time that an insertion takes, in milliseconds, unless its process is stopped or killed.
pub(super) const CLAIM_MILLIS: u64 = 1000;

/// Cost of claiming a slot. The cheapest slot is claimed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimCost {
    Free,
    /// Claimed by a process that was stopped or killed.
    Abandoned,
    /// Occupied. The least recently used (smallest) is claimed first, and of those of one tick the
    /// one with the fewest hits, which protects a limited key in a flood of new ones.
    Evicted(Evicted, u32, u64),
    /// Claimed by a process that is still working on it.
    Busy,
}

/// A slot that this process has claimed.
pub(crate) struct Claim<'m> {
    pub(super) slot: &'m Slot,
    mine: Meta,
}

impl Claim<'_> {
    /// Returns the generation of the slot's next occupancy.
    pub(super) fn generation(&self) -> Generation {
        self.mine.generation()
    }

    /// Replaces a word while the claim holds. Returns the previous value.
    pub(super) fn replace(&self, word: &AtomicU64, new: impl Fn(u64) -> u64) -> Result<u64, Lost> {
        replace_held(word, || self.slot.meta.load(Acquire) == self.mine.bits(), new).ok_or(Lost)
    }

    /// Sets one of the slot's 32-bit words, like [`Claim::replace`].
    pub(super) fn set(&self, word: &AtomicU32, new: u32) -> Result<(), Lost> {
        let old = word.load(Acquire);
        if self.slot.meta.load(Acquire) != self.mine.bits() {
            return Err(Lost);
        }
        word.compare_exchange(old, new, AcqRel, Relaxed).map_or(Err(Lost), |_| Ok(()))
    }

    /// Publishes the slot with `meta`, and so ends the claim.
    pub(super) fn publish(&self, meta: Meta) -> Result<(), Lost> {
        // Release: a process that reads the new meta sees the prepared slot.
        self.slot
            .meta
            .compare_exchange(self.mine.bits(), meta.bits(), Release, Relaxed)
            .map_or(Err(Lost), |_| Ok(()))
    }
}

impl<'m> CounterTable<'m> {
    /// Claims `slot`, whose meta was `old`, and counts the eviction.
    pub(crate) fn claim(
        &self,
        slot: &'m Slot,
        old: Meta,
        cost: ClaimCost,
        ticks: Ticks,
    ) -> Result<Claim<'m>, Lost> {
        let is_free = matches!(cost, ClaimCost::Free);
        if !is_free {
            self.evict_owner(slot, old, cost)?;
        }
        let mine = Meta::busy(old.generation().next(), ticks);
        slot.replace_meta(old, mine)?;
        let claim = Claim { slot, mine };
        if !is_free {
            self.settle_claim(&claim, old, cost)?;
        }
        Ok(claim)
    }

    /// Closes a counter of holds, and evicts the counter that owns a part, before the slot is claimed. Its other parts then belong
    /// to no counter.
    #[cold]
    fn evict_owner(&self, slot: &'m Slot, old: Meta, cost: ClaimCost) -> Result<(), Lost> {
        leave(Occupant { slot, meta: old })?;
        if let (true, ClaimCost::Evicted(..)) = (old.is_part(), cost) {
            let owner = self.owner_of(slot, old).ok_or(Lost)?;
            leave(owner)?;
            return self.give_up(owner).then_some(()).ok_or(Lost);
        }
        Ok(())
    }

    /// Checks a claim once more, and counts the eviction.
    #[cold]
    fn settle_claim(&self, claim: &Claim<'m>, old: Meta, cost: ClaimCost) -> Result<(), Lost> {
        if let (SlotState::Name, ClaimCost::Abandoned) = (old.state(), cost) {
            // The part may have been attached since. The process that attaches it checks the part
            // afterwards: either it finds the part claimed, or this process finds it attached.
            fence(SeqCst);
            if self.owner_of(claim.slot, old).is_some() {
                // Nothing in the slot was changed.
                claim.publish(old)?;
                return Err(Lost);
            }
        }
        if let SlotState::Counter = old.state() {
            self.count(self.lines_of(old.namespace()), NamespaceLine::removed);
        }
        if let ClaimCost::Evicted(what, ..) = cost {
            self.count_evicted(what);
        }
        Ok(())
    }

    /// Gives up a counter with its hits, so that the key starts at zero. Returns `false` if the
    /// slot has another occupant by now.
    #[cold]
    pub(crate) fn give_up(&self, occupant: Occupant<'m>) -> bool {
        let Occupant { slot, meta } = occupant;
        let free = Meta::free(meta.generation().next());
        let is_free = slot.replace_meta(meta, free).is_ok();
        fail_point!("reset.freed");
        if is_free {
            self.count(self.lines_of(meta.namespace()), NamespaceLine::removed);
        }
        is_free
    }

    /// Returns the cost of claiming `slot` with the meta `meta`.
    pub(crate) fn cost_of(&self, slot: &'m Slot, meta: Meta, now: UnixMillis) -> ClaimCost {
        let ticks = Ticks::at(now.0);
        match meta.state() {
            SlotState::Free => ClaimCost::Free,
            SlotState::Busy(since) if since.is_over(ticks, CLAIM_MILLIS) => ClaimCost::Abandoned,
            SlotState::Busy(_) => ClaimCost::Busy,
            SlotState::Counter if meta.is_of_holds() => {
                cost_of_holds(Occupant { slot, meta }, ticks)
            }
            SlotState::Counter => {
                let occupant = Occupant { slot, meta };
                let hits = match meta.size() {
                    Some(size) if meta.is_level() => level::live_hits(occupant, size, now),
                    Some(size) if meta.is_log() => self.live_hits_of_log(occupant, size, now),
                    Some(size) => live_hits(occupant, size, now),
                    None => 0,
                };
                let what = match hits {
                    0 => Evicted::Ended,
                    _ if self.has_unsent(occupant, now) => Evicted::Unsent,
                    _ => Evicted::Sent,
                };
                let used = Ticks(slot.used.load(Relaxed));
                ClaimCost::Evicted(what, u32::MAX.wrapping_sub(used.until(ticks)), hits)
            }
            // Claiming a part of a name, or a block, costs its counter.
            SlotState::Name | SlotState::Block => match self.owner_of(slot, meta) {
                Some(owner) => self.cost_of(owner.slot, owner.meta, now),
                None => ClaimCost::Abandoned,
            },
        }
    }
}

/// Returns the cost of claiming the counter of holds in `occupant` at `ticks`: with holds, more than any other's.
fn cost_of_holds(occupant: Occupant<'_>, ticks: Ticks) -> ClaimCost {
    let used = Ticks(occupant.slot.used.load(Relaxed));
    match occupant.held() {
        0 => ClaimCost::Evicted(Evicted::Ended, u32::MAX.wrapping_sub(used.until(ticks)), 0),
        held => ClaimCost::Evicted(Evicted::Unsent, u32::MAX, u64::MAX << 32 | u64::from(held)),
    }
}

/// Returns whether this node counted in a counter, in windows that matter at `now`.
pub(super) fn has_local_hits(slot: &Slot, meta: Meta, now: UnixMillis) -> bool {
    let occupant = Occupant { slot, meta };
    let size = meta.size();
    size.is_some_and(|size| {
        if meta.is_level() {
            return level::live_hits(occupant, size, now) > 0;
        }
        if meta.is_log() {
            return !log::newest(slot).has_left(size, now);
        }
        WindowColumns::live(occupant, size, now).any(|(_, hits)| hits != Hits::ZERO)
    })
}

/// Returns the sum of the absolute hits in windows that matter at `now`, in thousandths.
fn live_hits(occupant: Occupant<'_>, size: WindowSize, now: UnixMillis) -> u64 {
    if occupant.is_old(size, now) {
        return 0;
    }
    let Occupant { slot, meta } = occupant;
    let number = size.at(now).number;
    // The next window may be in use: see `WindowColumns::read_ahead`.
    let windows = [number.wrapping_sub(1), number, number.wrapping_add(1)];
    let hits = windows.into_iter().flat_map(|number| {
        let stamp = Stamp::new(number, meta.generation());
        let ((local, _), (remote, _)) = (slot.local_columns(number), slot.remote_columns(number));
        [local, remote].map(|column| load(column).hits_of(stamp).thousandths().unsigned_abs())
    });
    hits.fold(0, u64::saturating_add)
}
