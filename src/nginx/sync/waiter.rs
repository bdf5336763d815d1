//! Waiters for a cycle that begins after they were added.

use crate::engine::Report;

/// A function to call when a cycle has ended.
pub(crate) struct SyncWaiter {
    /// Called by the event loop with `id` and the cycle's report; with `None` if the cycle did not
    /// sync.
    pub(crate) done: fn(u64, Option<Report>),
    pub(crate) id: u64,
}

/// The waiters for cycles of one namespace.
#[derive(Default)]
pub(super) struct SyncWaiters {
    /// Number of cycles that have begun.
    begun: u64,
    /// The waiters, each with the number of its cycle.
    waiting: Vec<(u64, SyncWaiter)>,
}

impl SyncWaiters {
    /// Adds a waiter for the next cycle.
    pub(super) fn add(&mut self, waiter: SyncWaiter) {
        self.waiting.push((self.begun.wrapping_add(1), waiter));
    }

    /// Records that a cycle has begun.
    pub(super) fn begin(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// Takes the waiters for the cycle that has just ended, and for earlier ones.
    pub(super) fn take_ended(&mut self) -> impl Iterator<Item = SyncWaiter> {
        let begun = self.begun;
        let ended = self.waiting.extract_if(.., move |(cycle, _)| *cycle <= begun);
        ended.map(|(_, waiter)| waiter)
    }
}
