//! Giving a counter its name: claiming slots for the parts, writing them, and attaching them.
//!
//! A process may end between any two steps: what it leaves behind is found to belong to no counter, as
//! [`names`](super::names) says.

use super::claim::{Claim, ClaimCost};
use super::names::{FIRST, FURTHER, parts_of, words};
use super::probe::{Tags, scale};
use crate::policy::key::MAX_NAME_LEN;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use crate::table::words::atomic::fence;
use crate::table::words::fail::fail_point;
use crate::table::words::identity::Identity;
use crate::table::words::meta::{Meta, Ticks};
use crate::table::words::slot::{Bucket, Lost, Occupant, Slot, WAYS};
use crate::table::words::word::WindowCount;
use crate::table::zone::counter_table::CounterTable;

/// Number of attempts to attach a name: each process that makes a counter at the moment spoils one
/// attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 64 };

/// The tag of a part of a name. A slot that was never used has the tag 0.
const NAME_TAG: u8 = 127;

impl<'m> CounterTable<'m> {
    /// Gives a synced counter its name, if it has none. Does nothing if the name is longer than any
    /// that keys are counted under, or if slots are contended for long: the next hit tries again.
    #[cold]
    pub(crate) fn attach_name(
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
            // What is left of a former name belongs to no counter from here on.
            if before == 0 || self.drop_name(occupant, before) {
                // What was lost, another process has: the next attempt takes other slots.
                let _ = self.try_to_attach(occupant, id, (name, len), clock);
            }
        }
    }

    /// Leaves a counter without a name whose extension was `extension` when it was found to lead to
    /// none; returns whether it still was.
    pub(crate) fn drop_name(&self, occupant: Occupant<'m>, extension: u32) -> bool {
        fail_point!("name.dropping");
        let dropped = occupant.slot.extension.compare_exchange(extension, 0, AcqRel, Relaxed);
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
                // Those that were published already belong to no counter.
                for claim in &claims {
                    let _ = claim.publish(Meta::free(claim.generation()));
                }
                return Err(Lost);
            }
        };
        // A process that lost the race to attach leaves a name that belongs to no counter. A slot that
        // changed hands has another generation: a reader sees that this name is not its counter's.
        let _ = occupant.slot.extension.compare_exchange(0, first, AcqRel, Relaxed);
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
            let values =
                bytes.map(crate::table::zone::directory::word_of).chain(core::iter::repeat(0));
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
            next = self.link_to(self.index_of(claim.slot), claim.generation()).ok_or(Lost)?;
        }
        Ok(next)
    }

    /// Claims a slot for part number `part` of the name (or the log) of `occupant`: of those of two buckets
    /// that its identity and the number choose, the one that costs least.
    pub(super) fn claim_part(
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
            let occupied = costs.clone().filter(|&(cost, ..)| cost != ClaimCost::Free).count();
            // Not the counter itself, nor a part of its name or its log.
            let others = costs.filter(|&(cost, slot, meta)| {
                let is_own = core::ptr::eq(slot, occupant.slot);
                cost != ClaimCost::Busy && !is_own && !self.is_block_of(occupant, slot, meta)
            });
            let (cost, slot, meta) = others.min_by_key(|&(cost, ..)| cost)?;
            Some((cost, occupied, slot, meta))
        };
        // Of two that cost the same, that in the emptier bucket.
        let chosen = chosen.into_iter().flatten().filter_map(cheapest);
        let (cost, _, slot, meta) =
            chosen.min_by_key(|&(cost, occupied, ..)| (cost, occupied)).ok_or(Lost)?;
        let claim = self.claim(slot, meta, cost, ticks)?;
        self.tag_name(&claim)?;
        Ok(claim)
    }

    /// Tags a slot that was claimed for a part of a name.
    pub(super) fn tag_name(&self, claim: &Claim<'m>) -> Result<(), Lost> {
        let index = self.index_of(claim.slot);
        let word = self.parts.tags.get(index / WAYS).ok_or(Lost)?;
        claim.replace(word, |tags| Tags(tags).with(index % WAYS, NAME_TAG).0)?;
        Ok(())
    }

    /// Makes a slot that was claimed look like one that was never used.
    pub(super) fn untag(&self, claim: &Claim<'m>) -> Result<(), Lost> {
        let index = self.index_of(claim.slot);
        let word = self.parts.tags.get(index / WAYS).ok_or(Lost)?;
        claim.replace(word, |tags| Tags(tags).with(index % WAYS, 0).0)?;
        Ok(())
    }
}
