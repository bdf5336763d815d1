//! Gives a counter its name: claims slots for the parts, writes them, and attaches them.
//!
//! A process may end between any two steps. The parts that it leaves belong to no counter, as
//! [`names`](super::names) explains.

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

/// Attempts to attach a name. Each process that inserts a counter at the same time can spoil one
/// attempt.
const ATTEMPTS: u32 = if cfg!(loom) { 3 } else { 64 };

/// The tag of a name's part. A slot that was never used has the tag 0.
const NAME_TAG: u8 = 127;

impl<'m> CounterTable<'m> {
    /// Gives a synced counter its name, if it has none. Does nothing if the name is too long, or if
    /// slots are contended for long; the next hit tries again.
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
            // The parts of a former name belong to no counter from here on.
            if before == 0 || self.drop_name(occupant, before) {
                // If it is lost, another process has the slot, and the next attempt takes other
                // ones.
                let _ = self.try_to_attach(occupant, id, (name, len), clock);
            }
        }
    }

    /// Removes the link of a counter to its name, which was `extension`. Returns whether the link
    /// was still the same.
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
                // The parts that were published belong to no counter already.
                for claim in &claims {
                    let _ = claim.publish(Meta::free(claim.generation()));
                }
                return Err(Lost);
            }
        };
        // A process that loses this race leaves a name that belongs to no counter. A slot that
        // changed hands has another generation, by which a reader sees that this name is not its
        // counter's.
        let _ = occupant.slot.extension.compare_exchange(0, first, AcqRel, Relaxed);
        // Before the check whether the name is complete: see `CounterTable::claim`.
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

    /// Writes a name into its claimed slots. Returns the link to its first part.
    fn write_name(
        &self,
        occupant: Occupant<'m>,
        claims: &[Claim<'m>],
        (name, len): (&[u8], u16),
    ) -> Result<u32, Lost> {
        let first = claims.first().ok_or(Lost)?;
        let index_of = |slot: &Slot| u32::try_from(self.index_of(slot)).map_err(|_| Lost);
        let mut next = 0;
        // From the last part on, so that a published part links to published ones.
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

    /// Claims the cheapest slot for part `part` of the name or the log of `occupant`, in two
    /// buckets that depend on the identity and the number.
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
        // Multiples of an odd number without a pattern are spread over all buckets.
        let step = part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chosen =
            [one, two].map(|bits| buckets.get(scale(bits.wrapping_add(step), buckets.len())));
        let cheapest = |bucket: &'m Bucket| {
            let costs = bucket.iter().map(|slot| (slot.meta(), slot));
            let costs = costs.map(|(meta, slot)| (self.cost_of(slot, meta, now), slot, meta));
            let occupied = costs.clone().filter(|&(cost, ..)| cost != ClaimCost::Free).count();
            // Excludes the counter itself, and the parts of its name and its log.
            let others = costs.filter(|&(cost, slot, meta)| {
                let is_own = core::ptr::eq(slot, occupant.slot);
                cost != ClaimCost::Busy && !is_own && !self.is_block_of(occupant, slot, meta)
            });
            let (cost, slot, meta) = others.min_by_key(|&(cost, ..)| cost)?;
            Some((cost, occupied, slot, meta))
        };
        // Of two with the same cost, the one in the emptier bucket.
        let chosen = chosen.into_iter().flatten().filter_map(cheapest);
        let (cost, _, slot, meta) =
            chosen.min_by_key(|&(cost, occupied, ..)| (cost, occupied)).ok_or(Lost)?;
        let claim = self.claim(slot, meta, cost, ticks)?;
        self.tag_name(&claim)?;
        Ok(claim)
    }

    /// Tags a slot that was claimed for a name's part.
    pub(super) fn tag_name(&self, claim: &Claim<'m>) -> Result<(), Lost> {
        let index = self.index_of(claim.slot);
        let word = self.parts.tags.get(index / WAYS).ok_or(Lost)?;
        claim.replace(word, |tags| Tags(tags).with(index % WAYS, NAME_TAG).0)?;
        Ok(())
    }

    /// Resets a claimed slot to the state of one that was never used.
    pub(super) fn untag(&self, claim: &Claim<'m>) -> Result<(), Lost> {
        let index = self.index_of(claim.slot);
        let word = self.parts.tags.get(index / WAYS).ok_or(Lost)?;
        claim.replace(word, |tags| Tags(tags).with(index % WAYS, 0).0)?;
        Ok(())
    }
}
