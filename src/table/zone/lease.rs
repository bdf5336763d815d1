//! The lease of a sync: which worker may write what the node knows of the store.
//!
//! All of that is in shared memory ([`SyncSlot`](super::sync_slot::SyncSlot)), so that a worker that takes
//! over from one that was killed goes on where that one stopped. A worker that was only stopped, and wakes
//! when another has taken over, changes nothing any more: every write is a compare-and-swap from a value
//! that was read before the lease was looked at, as in [`claim`](crate::table::slots::claim); and the worker that takes
//! over changes every word in turn before it relies on it, since its term is part of the words. What is
//! written of counters is covered in the same way, by [`pushed`](crate::table::slots::pushed).

use super::sync_slot::{BatchWord, BufferWord, FIND_CHANGES, LeaseWord, Record, RepairWord};
use super::sync_state::{MonotonicMillis, SyncState};
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::fail::fail_point;

/// The right to sync, until it is lost: [`SyncState::take_lease`].
#[derive(Debug)]
pub struct Lease<'m> {
    pub(crate) state: SyncState<'m>,
    pub(super) term: u64,
}

/// Another worker has taken the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost;

/// Tells whether a lease is held still. To be asked after a word was read, and before it is replaced.
pub type IsHeld<'h> = &'h dyn Fn() -> bool;

/// Lease for tests without one.
#[cfg(test)]
pub(crate) const HELD: IsHeld<'static> = &|| true;

/// Confirms that a lease is held.
pub(crate) fn confirm(is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
    is_held().then_some(()).ok_or(LeaseLost)
}

impl<'m> SyncState<'m> {
    /// Takes the lease for `lifetime` milliseconds, if no worker has it at `now`, and this is the newest
    /// configuration.
    pub fn take_lease(&self, now: MonotonicMillis, lifetime: u64) -> Option<Lease<'m>> {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        // After the lease was looked at: where a slot is released, the generation changes first, then
        // the lease, so that either this sees it or the swap fails.
        if self.is_superseded() || old.deadline() > now.0 {
            return None;
        }
        let term = LeaseWord::new(old.term().wrapping_add(1), 0).term();
        let new = LeaseWord::new(term, now.0.saturating_add(lifetime));
        word.compare_exchange(old.0, new.0, AcqRel, Relaxed).ok()?;
        fail_point!("lease.taken");
        let lease = Lease { state: *self, term };
        if old.deadline() != 0 {
            // It was not given back: what its holder had taken of the changes is lost with it, and that holder
            // may still be about to write.
            let mark = |word| RepairWord(word).taken_over(lease.tag()).0 | FIND_CHANGES;
            lease.replace(&self.slot.repair, mark).ok()?;
            fail_point!("lease.marked");
        }
        // From now on no other worker's swap of this word succeeds.
        let adopt = |word| match BatchWord(word) {
            batch if batch.count() == 0 => BatchWord::new(batch.acknowledged(), lease.tag(), 0).0,
            _ => word,
        };
        lease.replace(&self.slot.batch, adopt).ok()?;
        fail_point!("lease.adopted");
        Some(lease)
    }

    /// Whether a worker has the lease, or was killed with it.
    pub fn is_leased(&self) -> bool {
        LeaseWord(self.slot.lease.load(Acquire)).deadline() != 0
    }

    /// Returns a number that changes whenever the lease is taken, kept or given back.
    pub fn holder_sign(&self) -> u64 {
        // Relaxed: nothing else is read because of what it says.
        self.slot.lease.load(Relaxed)
    }

    /// Ends the lease at `now`, as if its holder had not come back in time.
    pub fn end_lease(&self, now: MonotonicMillis) {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        if old.deadline() > now.0 {
            let new = LeaseWord::new(old.term(), now.0);
            // If it was renewed, taken or given back in this moment, its holder is alive.
            let _ = word.compare_exchange(old.0, new.0, AcqRel, Relaxed);
        }
    }
}

impl<'m> Lease<'m> {
    /// Keeps the lease for `lifetime` milliseconds from `now` on.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another has taken it.
    pub fn renew(&self, now: MonotonicMillis, lifetime: u64) -> Result<(), LeaseLost> {
        let new = LeaseWord::new(self.term, now.0.saturating_add(lifetime));
        self.replace(&self.state.slot.lease, |_| new.0)
    }

    /// Gives the lease back.
    pub fn release(self) {
        // Before: later, it is the next holder's.
        self.free_buffer();
        let released = LeaseWord::new(self.term, 0);
        // If it is lost, there is nothing to give back.
        let _ = self.replace(&self.state.slot.lease, |_| released.0);
        fail_point!("lease.released");
    }

    /// Notes which process has the lease, for [`SyncState::stats`].
    pub fn record_holder(&self, process: u32) {
        self.state.line.held_by(process);
    }

    /// Notes that a sync that began at `start` has ended well.
    pub fn record_synced(&self, start: MonotonicMillis) {
        // If the lease is lost, another worker notes it.
        let _ = self.replace(&self.state.slot.synced, |_| start.0);
    }

    /// Confirms that what was read of the sync until now is of this holder.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn confirm_held(&self) -> Result<(), LeaseLost> {
        confirm(&|| self.is_held())
    }

    /// Whether no other worker has taken the lease.
    pub fn is_held(&self) -> bool {
        LeaseWord(self.state.slot.lease.load(Acquire)).term() == self.term
    }

    /// Replaces a word while the lease is held.
    pub(crate) fn replace(
        &self,
        word: &AtomicU64,
        new: impl Fn(u64) -> u64,
    ) -> Result<(), LeaseLost> {
        loop {
            // Before the lease is looked at: see above.
            let old = word.load(Acquire);
            if !self.is_held() {
                return Err(LeaseLost);
            }
            if word.compare_exchange(old, new(old), AcqRel, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// The tag of this term's records, by which they differ from those of other terms.
    pub(crate) fn tag(&self) -> u16 {
        self.term as u16
    }

    /// Returns the records for the next batch, and their tag.
    pub(crate) fn room(&self) -> Result<(&'m [Record], u16), LeaseLost> {
        let SyncState { slot, index, buffers, .. } = self.state;
        let claimed = match self.claimed_buffer() {
            Some(claimed) => Some(claimed),
            None => {
                let claimed = buffers.claim(index, self.term);
                let word = BufferWord::new(claimed.map(|(buffer, _)| buffer), self.tag());
                self.replace(&slot.buffer, |_| word.0)?;
                fail_point!("buffer.noted");
                claimed
            }
        };
        let records = claimed.and_then(|(buffer, claim)| Some((buffers.records(buffer)?, claim)));
        Ok(records.unwrap_or((core::slice::from_ref(&slot.inline), self.tag())))
    }

    /// The buffer that was claimed in this term, and the number of the claim.
    pub(super) fn claimed_buffer(&self) -> Option<(usize, u16)> {
        let SyncState { slot, index, buffers, .. } = self.state;
        let word = BufferWord(slot.buffer.load(Acquire));
        let buffer = word.buffer().filter(|_| word.tag() == self.tag())?;
        Some((buffer, buffers.claim_of(buffer, index, self.term)?))
    }

    /// Gives the buffer back that was claimed in this term, if no batch in it is sealed.
    pub(super) fn free_buffer(&self) {
        if self.state.sealed_records() == 0
            && let Some((buffer, claim)) = self.claimed_buffer()
        {
            self.state.buffers.release(buffer, self.state.index, claim);
        }
    }

    /// Gives the buffer back of a batch that was sealed, in whatever term, and is no more.
    pub(crate) fn free_buffer_of(&self, batch: BatchWord) {
        let word = BufferWord(self.state.slot.buffer.load(Acquire));
        if let (Some(buffer), 1..) = (word.buffer(), batch.count()) {
            // Its tag is the number of the claim.
            let SyncState { index, buffers, .. } = self.state;
            buffers.release(buffer, index, batch.tag());
        }
    }
}
