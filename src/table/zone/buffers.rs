//! Buffers for the records of sealed batches. All syncs of the zone share them, since few have a
//! batch in flight; each sync also has one record of its own, for when all buffers are taken, as by
//! batches for a store that is down.
//!
//! As with names, no process has to free a buffer: it contains its owner and the lease's term in
//! which it was claimed, and a worker that looks for one checks whether that is still valid. A
//! buffer is free if its owner's term is over and it contains no sealed batch. A worker that lost
//! its lease may still be about to write. Its write fails, since each claim has a number, which is
//! part of all words of the batch.

use super::layout::Parts;
use super::sync_slot::{BatchWord, BufferWord, LeaseWord, OwnerWord, Record, SyncSlot};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;

/// All buffers of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers<'m> {
    slots: &'m [SyncSlot],
    owners: &'m [AtomicU64],
    records: &'m [Record],
}

impl<'m> Buffers<'m> {
    pub(crate) fn of(parts: &Parts<'m>) -> Buffers<'m> {
        Buffers { slots: parts.sync_slots, owners: parts.buffers, records: parts.records }
    }

    /// Returns the records of a buffer.
    pub(crate) fn records(&self, index: usize) -> Option<&'m [Record]> {
        let each = self.records.len().checked_div(self.owners.len())?;
        let start = index.checked_mul(each)?;
        self.records.get(start..start.checked_add(each)?)
    }

    /// Claims a buffer for sync `slot` in a term. Returns its index, and the number of the claim.
    /// `None` if all are taken.
    pub(super) fn claim(&self, slot: usize, term: u64) -> Option<(usize, u16)> {
        let mut owners = self.owners.iter().enumerate();
        owners.find_map(|(index, owner)| {
            let old = OwnerWord(owner.load(Acquire));
            if self.is_taken(index, old) {
                return None;
            }
            let claim = old.claim().wrapping_add(1);
            let new = OwnerWord::new((slot as u64).wrapping_add(1), term, claim);
            // Acquire: this worker sees the former owner's writes before it overwrites them.
            let claimed = owner.compare_exchange(old.0, new.0, AcqRel, Relaxed);
            fail_point!("buffer.claimed");
            claimed.ok().map(|_| (index, claim))
        })
    }

    /// Returns whether the buffer is in use. `owner` was just read from it.
    fn is_taken(&self, index: usize, owner: OwnerWord) -> bool {
        let slot = usize::try_from(owner.slot()).ok();
        let Some(slot) = slot.and_then(|slot| self.slots.get(slot.checked_sub(1)?)) else {
            return false;
        };
        // The lease first: in a later term, only a batch that is sealed already matters.
        if LeaseWord(slot.lease.load(Acquire)).term() == owner.term() {
            return true;
        }
        let batch = BatchWord(slot.batch.load(Acquire));
        if batch.count() == 0 {
            // Until the next holder has changed this word, the former one can still seal its batch.
            return batch.tag() == owner.term() as u16;
        }
        // The buffer's index is set before the batch is sealed.
        BufferWord(slot.buffer.load(Acquire)).buffer() == Some(index)
    }

    /// Returns the number of the claim by which sync `slot` has a buffer in a term; `None` without
    /// one.
    pub(super) fn claim_of(&self, index: usize, slot: usize, term: u64) -> Option<u16> {
        let owner = OwnerWord(self.owners.get(index)?.load(Acquire));
        let is_its = owner.slot() == (slot as u64).wrapping_add(1) && owner.term() == term;
        is_its.then_some(owner.claim())
    }

    /// Releases a buffer that sync `slot` has by claim `claim`, if it still has it. It must not
    /// contain a sealed batch.
    pub(super) fn release(&self, index: usize, slot: usize, claim: u16) {
        let Some(word) = self.owners.get(index) else {
            return;
        };
        let owner = OwnerWord(word.load(Acquire));
        if owner.slot() == (slot as u64).wrapping_add(1) && owner.claim() == claim {
            let free = OwnerWord::new(0, 0, claim);
            // If the exchange fails, the next owner has it already.
            let _ = word.compare_exchange(owner.0, free.0, AcqRel, Relaxed);
            fail_point!("buffer.released");
        }
    }
}
