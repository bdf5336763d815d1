//! The lease of a sync: the right of one worker to write the node's state of the store.
//!
//! All of this state is in shared memory ([`SyncSlot`](super::sync_slot::SyncSlot)), so that a
//! worker that takes over from a killed one continues where that one ended. A worker that was only
//! stopped, and continues after another one has taken over, changes nothing any more. Every write
//! is a compare-and-swap from a value that was read before the lease was checked, as in
//! [`claim`](crate::table::slots::claim); and the worker that takes over changes every word before
//! it relies on it, since the words contain its term. Writes to counters are protected in the same
//! way, by [`pushed`](crate::table::slots::pushed).

use super::sync_slot::{BatchWord, BufferWord, FIND_CHANGES, LeaseWord, Record, RepairWord};
use super::sync_state::{MonotonicMillis, SyncState};
use crate::table::words::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use crate::table::words::atomic::{AtomicU64, replace_held};
use crate::table::words::fail::fail_point;

/// The right to sync, until another worker takes it: [`SyncState::take_lease`].
#[derive(Debug)]
pub struct Lease<'m> {
    pub(crate) state: SyncState<'m>,
    pub(super) term: u64,
}

/// The term after which no worker held the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTerm(LeaseWord);

/// The error that another worker has taken the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost;

/// Returns whether a lease is still held. To be called after a word was read and before it is
/// replaced.
pub type IsHeld<'h> = &'h dyn Fn() -> bool;

/// A lease for tests, which is always held.
#[cfg(test)]
pub(crate) const HELD: IsHeld<'static> = &|| true;

/// Fails if the lease is not held any more.
pub(crate) fn confirm(is_held: IsHeld<'_>) -> Result<(), LeaseLost> {
    is_held().then_some(()).ok_or(LeaseLost)
}

impl<'m> SyncState<'m> {
    /// Takes the lease for `lifetime` milliseconds, if no worker holds it at `now`, and this is the
    /// newest configuration.
    pub fn take_lease(&self, now: MonotonicMillis, lifetime: u64) -> Option<Lease<'m>> {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        // After the lease was read: releasing a slot changes the generation first and then the
        // lease, so either this sees the new generation or the exchange fails.
        if self.is_superseded() || old.deadline() > now.0 {
            return None;
        }
        let term = old.next_term();
        let new = LeaseWord::of_sync(term, now.0.saturating_add(lifetime), false);
        word.compare_exchange(old.0, new.0, AcqRel, Relaxed).ok()?;
        fail_point!("lease.taken");
        let lease = Lease { state: *self, term };
        if old.deadline() != 0 {
            // The lease was not released: the changes that its holder had taken are lost with it,
            // and that holder may still be about to write.
            let mark = |word| RepairWord(word).taken_over(lease.tag()).0 | FIND_CHANGES;
            lease.replace(&self.slot.repair, mark).ok()?;
            fail_point!("lease.marked");
        }
        // From now on no other worker's exchange of this word succeeds.
        let adopt = |word| match BatchWord(word) {
            batch if batch.count() == 0 => BatchWord::new(batch.acknowledged(), lease.tag(), 0).0,
            _ => word,
        };
        lease.replace(&self.slot.batch, adopt).ok()?;
        fail_point!("lease.adopted");
        Some(lease)
    }

    /// Returns the last term of the lease, unless a worker holds it, or was killed while it held it.
    pub fn unleased(&self) -> Option<LastTerm> {
        let word = LeaseWord(self.slot.lease.load(Acquire));
        (word.deadline() == 0).then_some(LastTerm(word))
    }

    /// Returns whether a sync may have recorded other nodes' hits since the end of this term. If it has written a word
    /// that this process has read or replaced, the answer is yes.
    pub fn may_have_applied_since(&self, LastTerm(last): LastTerm) -> bool {
        // Acquire: a sync marks the lease before it writes such a word.
        let word = LeaseWord(self.slot.lease.load(Acquire));
        let is_taken = word.term() == last.next_term() && word.deadline() != 0;
        word != last && (word.applies() || !is_taken)
    }

    /// Returns a number that changes whenever the lease is taken, renewed or released.
    pub fn holder_sign(&self) -> u64 {
        // Relaxed: the number orders no other memory.
        self.slot.lease.load(Relaxed)
    }

    /// Ends the lease at `now`, as if it had expired.
    pub fn end_lease(&self, now: MonotonicMillis) {
        let word = &self.slot.lease;
        let old = LeaseWord(word.load(Acquire));
        if old.deadline() > now.0 {
            let new = LeaseWord::of_sync(old.term(), now.0, old.applies());
            // If the exchange fails, the lease was just renewed, taken or released, so its holder
            // is alive.
            let _ = word.compare_exchange(old.0, new.0, AcqRel, Relaxed);
        }
    }
}

impl<'m> Lease<'m> {
    /// Extends the lease to `lifetime` milliseconds from `now`.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another worker has taken it.
    pub fn renew(&self, now: MonotonicMillis, lifetime: u64) -> Result<(), LeaseLost> {
        let deadline = now.0.saturating_add(lifetime);
        let new = |old| LeaseWord::of_sync(self.term, deadline, LeaseWord(old).applies()).0;
        self.replace(&self.state.slot.lease, new)
    }

    /// Records that the holder applies a store's answer from now on, for
    /// [`SyncState::may_have_applied_since`].
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if another worker has taken it.
    pub fn begin_to_apply(&self) -> Result<(), LeaseLost> {
        let new = |old: u64| LeaseWord::of_sync(self.term, LeaseWord(old).deadline(), true).0;
        self.replace(&self.state.slot.lease, new)?;
        fail_point!("lease.applies");
        Ok(())
    }

    /// Releases the lease.
    pub fn release(self) {
        // First, since afterwards the buffer is the next holder's.
        self.free_buffer();
        let released = LeaseWord::new(self.term, 0);
        // A lost lease need not be released.
        let _ = self.replace(&self.state.slot.lease, |_| released.0);
        fail_point!("lease.released");
    }

    /// Records which process holds the lease, for [`SyncState::stats`].
    pub fn record_holder(&self, process: u32) {
        self.state.line.held_by(process);
    }

    /// Records that a sync which began at `start` has succeeded.
    pub fn record_synced(&self, start: MonotonicMillis) {
        // If the lease is lost, another worker records it.
        let _ = self.replace(&self.state.slot.synced, |_| start.0);
        fail_point!("sync.recorded");
    }

    /// Fails if another worker may have changed the sync's state that was read so far.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub fn confirm_held(&self) -> Result<(), LeaseLost> {
        confirm(&|| self.is_held())
    }

    /// Returns whether no other worker has taken the lease.
    pub fn is_held(&self) -> bool {
        LeaseWord(self.state.slot.lease.load(Acquire)).term() == self.term
    }

    /// Replaces a word while the lease is held.
    pub(crate) fn replace(
        &self,
        word: &AtomicU64,
        new: impl Fn(u64) -> u64,
    ) -> Result<(), LeaseLost> {
        replace_held(word, || self.is_held(), new).map(|_| ()).ok_or(LeaseLost)
    }

    /// Returns the tag of this term's records, which distinguishes them from those of other terms.
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

    /// Returns the buffer that was claimed in this term, and the number of the claim.
    pub(super) fn claimed_buffer(&self) -> Option<(usize, u16)> {
        let SyncState { slot, index, buffers, .. } = self.state;
        let word = BufferWord(slot.buffer.load(Acquire));
        let buffer = word.buffer().filter(|_| word.tag() == self.tag())?;
        Some((buffer, buffers.claim_of(buffer, index, self.term)?))
    }

    /// Releases the buffer that was claimed in this term, unless it contains a sealed batch.
    pub(super) fn free_buffer(&self) {
        if self.state.sealed_records() == 0
            && let Some((buffer, claim)) = self.claimed_buffer()
        {
            self.state.buffers.release(buffer, self.state.index, claim);
        }
    }

    /// Releases the buffer of a batch that was sealed in any term, and has ended.
    pub(crate) fn free_buffer_of(&self, batch: BatchWord) {
        let word = BufferWord(self.state.slot.buffer.load(Acquire));
        if let (Some(buffer), 1..) = (word.buffer(), batch.count()) {
            // Its tag is the number of the claim.
            let SyncState { index, buffers, .. } = self.state;
            buffers.release(buffer, index, batch.tag());
        }
    }
}
