//! The doorbell: two words in shared memory that tell writers of [`Ring`](crate::broker::Ring)s
//! when to wake their reader.
//!
//! Only the reader sets it. A writer may check it long after its message was read, and wake the
//! reader for nothing. If that unset the doorbell, a reader that sleeps again would not be woken.

use super::tenure::{FencedWord, Replaced, Term};
use crate::table::words::atomic::{AtomicU64, Ordering, fence};

/// Wakes the reader after a given number of messages.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'m> {
    /// Approximate number of written messages: a writer that was killed may not have counted its
    /// last ones, or counted some twice.
    written: &'m AtomicU64,
    /// Number of messages at which the reader is woken, in 48 bits.
    at: FencedWord<'m>,
}

impl<'m> Doorbell<'m> {
    /// Returns the doorbell in these words, which must be zero at first: any message wakes the
    /// reader.
    pub fn over(written: &'m AtomicU64, at: &'m AtomicU64) -> Doorbell<'m> {
        let at = FencedWord::over(at);
        Doorbell { written, at }
    }

    /// Wakes the reader when `messages` more are written. The reader must check the rings once more
    /// before it sleeps, since earlier messages do not wake it. If it then waits for more, it must
    /// set the doorbell again.
    ///
    /// # Errors
    ///
    /// [`Replaced`], as for all that the reader does.
    pub fn set(self, term: Term, messages: u64) -> Result<(), Replaced> {
        // Counted messages can be read.
        let written = self.written.load(Ordering::Acquire);
        let at = written.saturating_add(messages);
        self.at.set(term, at)?;
        // Pairs with the fence in `record_written`: either the writer sees `at`, or the reader sees
        // the messages.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Unsets the doorbell, while the reader is working and checks the rings itself.
    pub fn unset(self, term: Term) -> Result<(), Replaced> {
        self.at.set(term, FencedWord::MAX)
    }

    /// Makes pending writes of readers of earlier terms fail. The reader checks the rings itself
    /// until it sets the doorbell.
    pub fn take_over(self, term: Term) -> Result<(), Replaced> {
        self.at.take(term)
    }

    /// Counts written messages, at least those of this call; counting one twice only wakes the
    /// reader early. Returns whether the reader must be woken.
    pub fn record_written(self, messages: u64) -> bool {
        let before = self.written.fetch_add(messages, Ordering::Release);
        fence(Ordering::SeqCst);
        before.saturating_add(messages) >= self.at.get(Ordering::Relaxed)
    }
}
