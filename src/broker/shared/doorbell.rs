//! The doorbell: two words in shared memory that say when a writer of [`Ring`](crate::broker::Ring)s is to wake
//! their reader.
//!
//! Only the reader sets it. A writer may look at it long after its message was read, and wake for
//! nothing; if that unset the doorbell, a reader that sleeps on would not be woken.

use super::tenure::{FencedWord, Replaced, Term};
use crate::table::words::atomic::{AtomicU64, Ordering, fence};

/// Rung for the reader once so many messages were written.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'m> {
    /// Number of messages written so far, roughly: a writer that was killed may have missed its
    /// last ones, or counted some twice.
    written: &'m AtomicU64,
    /// The reader is to be woken when so many were, in 48 bits.
    at: FencedWord<'m>,
}

impl<'m> Doorbell<'m> {
    /// The doorbell in these words, which were zero when the first process called this: the reader is to be
    /// woken for any message.
    pub fn over(written: &'m AtomicU64, at: &'m AtomicU64) -> Doorbell<'m> {
        let at = FencedWord::over(at);
        Doorbell { written, at }
    }

    /// From now on, the reader is to be woken when `messages` more were written. It has to look once more
    /// before it sleeps: what was written before is there to be read. If there is something, and it
    /// waits for more, it has to set this anew.
    ///
    /// # Errors
    ///
    /// [`Replaced`], as of all that the reader does.
    pub fn set(self, term: Term, messages: u64) -> Result<(), Replaced> {
        // What is counted is there to be read.
        let written = self.written.load(Ordering::Acquire);
        let at = written.saturating_add(messages);
        self.at.set(term, at)?;
        // Pairs with that in `record_written`: either the writer sees `at`, or the
        // reader sees what was written.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// The reader is at work, and will look by itself.
    pub fn unset(self, term: Term) -> Result<(), Replaced> {
        self.at.set(term, FencedWord::MAX)
    }

    /// Takes over from readers of terms before. The reader looks by itself until it sets this.
    pub fn take_over(self, term: Term) -> Result<(), Replaced> {
        self.at.take(term)
    }

    /// Counts so many messages, at least those that were written just now: one that is counted twice only
    /// wakes the reader early. Returns whether the reader is to be woken.
    pub fn record_written(self, messages: u64) -> bool {
        let before = self.written.fetch_add(messages, Ordering::Release);
        fence(Ordering::SeqCst);
        before.saturating_add(messages) >= self.at.get(Ordering::Relaxed)
    }
}
