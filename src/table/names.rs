//! The bytes of keys, for those who have to name them: synced counters.
//!
//! A counter's name is a chain of slots: the first part holds 32 bytes, and what the store has of
//! the counter; each further one 48. So names of all lengths fit wherever enough slots can be had,
//! and take no memory where keys need no names.
//!
//! Nothing frees a name: a part says whose it is, and whatever looks for a slot (or for a name) sees
//! whether that is still so. A first part belongs to the counter that leads to it, if the generation that
//! it remembers is still the counter's; a further part to the first one, likewise. So a process
//! may end between any two steps, and what it leaves behind is found to belong to nobody.

use super::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
    fence,
};
use super::claim::{Claim, ClaimCost};
use super::columns::{WindowColumns, load};
use super::counter_table::CounterTable;
use super::fail::fail_point;
use super::identity::Identity;
use super::meta::{Meta, SlotState, Ticks};
use super::places::scale;
use super::slot::{Bucket, Lost, Occupant, Slot};
use super::word::{Stamp, WindowCount};
use crate::policy::hits::Hits;
use crate::policy::key::MAX_NAME_LEN;
use crate::policy::window::{Clock, UnixMillis};

/// The bytes of a name in its first part, and in each further one.
const FIRST: usize = 32;
const FURTHER: usize = 48;

/// How often a name is tried to be attached: others that make counters in the same moment are in the
/// way of one attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 64 };

/// The words of a slot that hold the bytes of a name. Those of a first part leave `local` out, which
/// holds what the store has.
fn words(slot: &Slot, is_first: bool) -> impl Iterator<Item = &AtomicU64> {
    let local: &[AtomicU64] = if is_first { &[] } else { &slot.local };
    slot.id.iter().chain(&slot.remote).chain(local)
}

/// The parts that a name of `len` bytes has.
fn parts_of(len: usize) -> usize {
    len.saturating_sub(FIRST)
        .div_ceil(FURTHER)
        .saturating_add(1)
}

impl<'m> CounterTable<'m> {
    /// The slot that a counter or a part of a name leads to.
    fn next_of(&self, slot: &Slot) -> Option<(usize, &'m Slot)> {
        let index = (slot.extension.load(Acquire) as usize).checked_sub(1)?;
        Some((index, self.slot_at(index)?))
    }

    /// The first part of the name of a counter, with its meta; `None` if it has no name.
    pub(super) fn first_part(&self, occupant: Occupant<'_>) -> Option<(&'m Slot, Meta)> {
        let (_, first) = self.next_of(occupant.slot)?;
        let meta = first.meta();
        let (owner, _) = meta.owner_and_len()?;
        let is_ours = owner == occupant.meta.generation()
            && first.used.load(Relaxed) as usize == self.index_of(occupant.slot);
        is_ours.then_some((first, meta))
    }

    /// The counter that the part of a name in `slot` belongs to; `None` if to none.
    pub(super) fn owner_of(&self, slot: &Slot, meta: Meta) -> Option<(&'m Slot, Meta)> {
        let (owner_generation, _) = meta.owner_and_len()?;
        let owner = self.slot_at(slot.used.load(Relaxed) as usize)?;
        let owner_meta = owner.meta();
        if owner_meta.generation() != owner_generation {
            return None;
        }
        match owner_meta.state() {
            SlotState::Counter => {
                let (index, _) = self.next_of(owner)?;
                (index == self.index_of(slot)).then_some((owner, owner_meta))
            }
            // A further part: its first one leads on.
            SlotState::Name => {
                let counter = self.slot_at(owner.used.load(Relaxed) as usize)?;
                let counter_meta = counter.meta();
                let (index, _) = self.next_of(counter)?;
                let (counter_generation, _) = owner_meta.owner_and_len()?;
                let is_live = counter_meta.is_counter()
                    && counter_meta.generation() == counter_generation
                    && index == self.index_of(owner);
                is_live.then_some((counter, counter_meta))
            }
            SlotState::Free | SlotState::Busy(_) => None,
        }
    }

    /// Gives a synced counter its name, if it has none. Does nothing if the name is longer than any
    /// that keys are counted under, or if slots are contended for long: the next hit tries again.
    #[cold]
    pub(super) fn attach_name(
        &self,
        occupant: Occupant<'m>,
        id: Identity,
        name: &[u8],
        clock: &impl Clock,
    ) {
        let len = match u16::try_from(name.len()) {
            Ok(len) if name.len() <= MAX_NAME_LEN => len,
            _ => return,
        };
        for _ in 0..ATTEMPTS {
            let before = occupant.slot.extension.load(Acquire);
            let is_done = self.name_of(occupant).is_some();
            if is_done || !occupant.is_there() {
                return;
            }
            // What is left of a former name is nobody's from here on.
            if before == 0 || self.drop_name(occupant, before) {
                // What was lost, somebody else has: the next attempt takes other slots.
                let _ = self.try_to_attach(occupant, id, (name, len), clock);
            }
        }
    }

    /// Leaves a counter without a name whose extension was `extension` when it was found to lead to
    /// none; returns whether it still was.
    pub(super) fn drop_name(&self, occupant: Occupant<'m>, extension: u32) -> bool {
        let dropped = occupant
            .slot
            .extension
            .compare_exchange(extension, 0, AcqRel, Relaxed);
        dropped.is_ok()
    }

    fn try_to_attach(
        &self,
        occupant: Occupant<'m>,
        id: Identity,
        name: (&[u8], u16),
        clock: &impl Clock,
    ) -> Result<(), Lost> {
        let count = parts_of(name.0.len());
        let mut claims = Vec::with_capacity(count);
        let written = self
            .claim_parts(count, occupant, id, &mut claims, clock)
            .and_then(|()| self.write_name(occupant, &claims, name));
        let first = match written {
            Ok(first) => first,
            Err(Lost) => {
                // Those that were published already belong to nobody.
                for claim in &claims {
                    let _ = claim.publish(Meta::free(claim.generation()));
                }
                return Err(Lost);
            }
        };
        // Who lost the race to attach leaves a name that belongs to nobody. A counter that changed
        // hands has another generation: then this name is not its own, which whoever reads it sees.
        let _ = occupant
            .slot
            .extension
            .compare_exchange(0, first, AcqRel, Relaxed);
        // Before it is looked at whether the name is whole: see `CounterTable::claim`.
        fence(SeqCst);
        fail_point!("name.attached");
        Ok(())
    }

    /// Claims `count` slots for the name of `occupant`.
    fn claim_parts(
        &self,
        count: usize,
        occupant: Occupant<'m>,
        id: Identity,
        claims: &mut Vec<Claim<'m>>,
        clock: &impl Clock,
    ) -> Result<(), Lost> {
        let ticks = Ticks::at(clock.now().0);
        for part in 0..count {
            claims.push(self.claim_part(occupant, id, part as u64, clock.fresh(), ticks)?);
            fail_point!("name.claimed");
        }
        Ok(())
    }

    /// Writes a name into the slots that were claimed for it; returns what leads to its first part.
    fn write_name(
        &self,
        occupant: Occupant<'m>,
        claims: &[Claim<'m>],
        (name, len): (&[u8], u16),
    ) -> Result<u32, Lost> {
        let first = claims.first().ok_or(Lost)?;
        let index_of = |slot: &Slot| u32::try_from(self.index_of(slot)).map_err(|_| Lost);
        let mut next = 0;
        // From the last part on: a part that is published leads to parts that are.
        for (index, claim) in claims.iter().enumerate().rev() {
            let is_first = index == 0;
            let (start, owner, generation) = if is_first {
                (0, occupant.slot, occupant.meta.generation())
            } else {
                let before = index.wrapping_sub(1).wrapping_mul(FURTHER);
                (FIRST.wrapping_add(before), first.slot, first.generation())
            };
            let bytes = name.get(start..).unwrap_or_default().chunks(8);
            let values = bytes
                .map(super::directory::word_of)
                .chain(core::iter::repeat(0));
            for (word, value) in words(claim.slot, is_first).zip(values) {
                claim.replace(word, |_| value)?;
            }
            if is_first {
                for pushed in &claim.slot.local {
                    let nothing = WindowCount::empty(occupant.meta.generation());
                    claim.replace(pushed, |_| nothing.bits())?;
                }
            }
            fail_point!("name.written");
            claim.set(&claim.slot.used, index_of(owner)?)?;
            claim.set(&claim.slot.extension, next)?;
            claim.publish(Meta::name(claim.generation(), generation, len))?;
            fail_point!("name.published");
            next = index_of(claim.slot)?.saturating_add(1);
        }
        Ok(next)
    }

    /// Claims a slot for part number `part` of the name of `occupant`: of those of two buckets that its
    /// identity and the number choose, the one that costs least.
    fn claim_part(
        &self,
        occupant: Occupant<'m>,
        id: Identity,
        part: u64,
        now: UnixMillis,
        ticks: Ticks,
    ) -> Result<Claim<'m>, Lost> {
        let buckets: &'m [Bucket] = self.parts.buckets;
        let Identity([one, two]) = id;
        // Multiples of an odd number that has no pattern spread over all buckets.
        let step = part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chosen =
            [one, two].map(|bits| buckets.get(scale(bits.wrapping_add(step), buckets.len())));
        let cheapest = |bucket: &'m Bucket| {
            let costs = bucket.iter().map(|slot| (slot.meta(), slot));
            let costs = costs.map(|(meta, slot)| (self.cost_of(slot, meta, now), slot, meta));
            let occupied = costs
                .clone()
                .filter(|&(cost, ..)| cost != ClaimCost::Free)
                .count();
            // Not the counter itself, nor a part of its name.
            let others = costs.filter(|&(cost, slot, _)| {
                cost != ClaimCost::Busy && !core::ptr::eq(slot, occupant.slot)
            });
            let (cost, slot, meta) = others.min_by_key(|&(cost, ..)| cost)?;
            Some((cost, occupied, slot, meta))
        };
        // Of two that cost the same, that in the emptier bucket.
        let chosen = chosen.into_iter().flatten().filter_map(cheapest);
        let (cost, _, slot, meta) = chosen
            .min_by_key(|&(cost, occupied, ..)| (cost, occupied))
            .ok_or(Lost)?;
        let claim = self.claim(slot, meta, cost, ticks)?;
        self.tag_name(&claim)?;
        Ok(claim)
    }

    /// The name of a counter; `None` if it has none, or is no counter any more.
    pub(super) fn name_of(&self, occupant: Occupant<'m>) -> Option<Vec<u8>> {
        let (first, meta) = self.first_part(occupant)?;
        let (_, len) = meta.owner_and_len()?;
        let len = usize::from(len);
        let mut name = Vec::with_capacity(len.saturating_add(FURTHER));
        let mut slot = first;
        for part in 0..parts_of(len) {
            if part > 0 {
                let (_, next) = self.next_of(slot)?;
                let (owner, _) = next.meta().owner_and_len()?;
                let is_ours = owner == meta.generation()
                    && next.used.load(Relaxed) as usize == self.index_of(first);
                if !is_ours {
                    return None;
                }
                slot = next;
            }
            for word in words(slot, part == 0) {
                name.extend_from_slice(&word.load(Acquire).to_le_bytes());
            }
        }
        name.truncate(len);
        // Parts are taken only after the counter was: if it is still there, so were they.
        occupant
            .slot
            .meta()
            .is_same_counter(occupant.meta)
            .then_some(name)
    }

    /// Whether a synced counter has hits of live windows that the store has not.
    pub(super) fn has_unsent(&self, occupant: Occupant<'m>, now: UnixMillis) -> bool {
        let Some(size) = occupant.meta.size().filter(|_| occupant.meta.is_synced()) else {
            return false;
        };
        WindowColumns::live(occupant, size, now)
            .any(|(number, local)| local != self.pushed(occupant, number))
    }

    /// What the store has not got of the window that a synced counter's current column holds, if that
    /// is a former one, which is about to give way.
    pub(super) fn unsent_before(
        &self,
        columns: &WindowColumns<'m>,
        occupant: Occupant<'m>,
    ) -> Hits {
        let word = columns.word;
        let is_former = word.stamp() != columns.stamp && word.hits() != Hits::ZERO;
        if !is_former || !occupant.meta.is_synced() {
            return Hits::ZERO;
        }
        let Some((first, _)) = self.first_part(occupant) else {
            return word.hits();
        };
        // Of the same parity, and so of the same window if the stamp is the same.
        let (pushed, _) = first.local_columns(columns.at.number);
        word.hits().minus(load(pushed).hits_of(word.stamp()))
    }

    /// What the store has of the hits of this node in window `number`.
    pub(super) fn pushed(&self, occupant: Occupant<'m>, number: u64) -> Hits {
        match self.first_part(occupant) {
            Some((first, _)) => {
                let stamp = Stamp::new(number, occupant.meta.generation());
                let (pushed, _) = first.local_columns(number);
                load(pushed).hits_of(stamp)
            }
            None => Hits::ZERO,
        }
    }
}
