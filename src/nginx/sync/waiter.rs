//! Waiters for a cycle that begins after they asked for it.

use crate::engine::Report;

/// A waiter that is told when its cycle has ended.
pub(crate) struct SyncWaiter {
    /// Called by the event loop with the number, and with what the cycle did; `None`: it did not sync.
    pub(crate) done: fn(u64, Option<Report>),
    pub(crate) id: u64,
}

/// All that wait for cycles of a namespace.
#[derive(Default)]
pub(super) struct SyncWaiters {
    /// Number of cycles that have begun.
    begun: u64,
    /// With the number of its cycle, each.
    waiting: Vec<(u64, SyncWaiter)>,
}

impl SyncWaiters {
    /// Adds a waiter for the next cycle.
    pub(super) fn add(&mut self, waiter: SyncWaiter) {
        self.waiting.push((self.begun.wrapping_add(1), waiter));
    }

    /// A cycle has begun.
    pub(super) fn begin(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// Takes those that wait for no later cycle than the one that has just ended.
    pub(super) fn take_ended(&mut self) -> impl Iterator<Item = SyncWaiter> {
        let begun = self.begun;
        let ended = self.waiting.extract_if(.., move |(cycle, _)| *cycle <= begun);
        ended.map(|(_, waiter)| waiter)
    }
}
