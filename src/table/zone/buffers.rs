//! Buffers with the records of batches on their way to a store. All syncs of the zone share them,
//! since few have a batch on its way; each sync has a record of its own for when all buffers are
//! taken, as by batches for a store that is away.
//!
//! As with names, nothing has to be freed: a buffer says whose it is, and in which term of the lease
//! it was claimed, and a worker that looks for one sees whether that is still so. It is free if its owner's
//! term is over and no batch that is sealed is in it. A worker that lost its lease may still be about
//! to write; what it prepared fails, since every claim has a number that is part of all words of the
//! batch.

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

    /// The records of a buffer.
    pub(crate) fn records(&self, index: usize) -> Option<&'m [Record]> {
        let each = self.records.len().checked_div(self.owners.len())?;
        let start = index.checked_mul(each)?;
        self.records.get(start..start.checked_add(each)?)
    }

    /// Claims a buffer for the sync number `slot` in a term; returns its index, and the number of the
    /// claim. `None`: all are taken.
    pub(super) fn claim(&self, slot: usize, term: u64) -> Option<(usize, u16)> {
        let mut owners = self.owners.iter().enumerate();
        owners.find_map(|(index, owner)| {
            let old = OwnerWord(owner.load(Acquire));
            if self.is_taken(index, old) {
                return None;
            }
            let claim = old.claim().wrapping_add(1);
            let new = OwnerWord::new((slot as u64).wrapping_add(1), term, claim);
            // Acquire: what the former owner wrote is seen, and written over.
            let claimed = owner.compare_exchange(old.0, new.0, AcqRel, Relaxed);
            fail_point!("buffer.claimed");
            claimed.ok().map(|_| (index, claim))
        })
    }

    /// Whether the buffer is in use, whose word was just read.
    fn is_taken(&self, index: usize, owner: OwnerWord) -> bool {
        let slot = usize::try_from(owner.slot()).ok();
        let Some(slot) = slot.and_then(|slot| self.slots.get(slot.checked_sub(1)?)) else {
            return false;
        };
        // The lease first: in a later term, only a batch is of interest that is sealed already.
        if LeaseWord(slot.lease.load(Acquire)).term() == owner.term() {
            return true;
        }
        let batch = BatchWord(slot.batch.load(Acquire));
        if batch.count() == 0 {
            // Until the next holder has changed the word, the former one may seal its batch still.
            return batch.tag() == owner.term() as u16;
        }
        // It was noted before the batch was sealed.
        BufferWord(slot.buffer.load(Acquire)).buffer() == Some(index)
    }

    /// The number of the claim with which the sync number `slot` has a buffer in a term.
    pub(super) fn claim_of(&self, index: usize, slot: usize, term: u64) -> Option<u16> {
        let owner = OwnerWord(self.owners.get(index)?.load(Acquire));
        let is_its = owner.slot() == (slot as u64).wrapping_add(1) && owner.term() == term;
        is_its.then_some(owner.claim())
    }

    /// Gives a buffer back that the sync number `slot` has by the claim of this number, if it still
    /// has: no batch in it is sealed.
    pub(super) fn release(&self, index: usize, slot: usize, claim: u16) {
        let Some(word) = self.owners.get(index) else {
            return;
        };
        let owner = OwnerWord(word.load(Acquire));
        if owner.slot() == (slot as u64).wrapping_add(1) && owner.claim() == claim {
            let free = OwnerWord::new(0, 0, claim);
            // If it fails, the next one has it already.
            let _ = word.compare_exchange(owner.0, free.0, AcqRel, Relaxed);
            fail_point!("buffer.released");
        }
    }
}
