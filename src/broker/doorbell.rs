//! The doorbell: two words in shared memory that say when a writer of [`Ring`](super::Ring)s is to wake
//! their reader.
//!
//! Only the reader sets it. A writer may look at it long after its message was read, and wake for
//! nothing; if that unset the doorbell, a reader that sleeps on would not be woken.

use crate::table::atomic::{AtomicU64, Ordering, fence};

/// Rung once so many messages were written.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'m> {
    /// How many messages were written ever, roughly: who was killed may not have counted its last ones,
    /// and some may be counted twice.
    written: &'m AtomicU64,
    /// Who reads is to be woken when so many were.
    at: &'m AtomicU64,
}

impl<'m> Doorbell<'m> {
    /// That in these words, which were zero when the first process called this: who reads is to be
    /// woken for anything.
    pub fn over(written: &'m AtomicU64, at: &'m AtomicU64) -> Doorbell<'m> {
        Doorbell { written, at }
    }

    /// From now on, who reads is to be woken when `messages` more were written. It is to look once
    /// more before it sleeps: what was written before is there to be read. If there is something, and
    /// it waits for more, it is to set this anew.
    pub fn set(self, messages: u64) {
        // What is counted is there to be read.
        let written = self.written.load(Ordering::Acquire);
        let at = written.saturating_add(messages);
        self.at.store(at, Ordering::Relaxed);
        // Pairs with that in `is_due`: either who writes sees it, or what was written is seen.
        fence(Ordering::SeqCst);
    }

    /// Who reads is at work, and will look by itself.
    pub fn unset(self) {
        self.at.store(u64::MAX, Ordering::Relaxed);
    }

    /// Counts so many messages, at least those that were written just now: one that is counted twice
    /// only has somebody woken early. Returns whether who reads is to be woken.
    pub fn is_due(self, messages: u64) -> bool {
        let before = self.written.fetch_add(messages, Ordering::Release);
        fence(Ordering::SeqCst);
        before.saturating_add(messages) >= self.at.load(Ordering::Relaxed)
    }
}
