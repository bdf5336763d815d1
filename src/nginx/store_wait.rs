//! The wait for a store's answer, of a request or of a caller of the library: a number by which the answer is found,
//! and a deadline.

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use super::event_loop::{EventTimer, monotonic_millis};
use super::log::Log;
use super::sync;
use crate::store::contract::decision::Question;

/// A wait for one answer after another. Dropped, it ends. Until then, a worker that is to end goes on.
pub(super) struct StoreWait<'l> {
    id: u64,
    timer: EventTimer<'l>,
    begun: Cell<Option<Begun>>,
}

/// A wait that has begun.
#[derive(Clone, Copy)]
struct Begun {
    since: Instant,
    /// The deadline, by nginx's monotonic clock in milliseconds.
    deadline: u64,
    /// The decider that is asked; `None`: something else is waited for.
    decider: Option<usize>,
}

impl<'l> StoreWait<'l> {
    /// Creates the wait with number `id`. `time_out` is called with the number at the deadline.
    pub(super) fn new(log: Log<'l>, time_out: fn(u64), id: u64) -> StoreWait<'l> {
        StoreWait { id, timer: EventTimer::new(log, time_out, id), begun: Cell::new(None) }
    }

    /// Begins to wait, for `timeout` from now on.
    pub(super) fn begin(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let deadline = monotonic_millis().saturating_add(millis);
        self.begun.set(Some(Begun { since: Instant::now(), deadline, decider: None }));
        self.timer.set(millis);
    }

    /// Asks a decider, if it answers as far as is known. The answer comes with the wait's number. Returns whether it was asked.
    pub(super) fn ask(&self, decider: usize, question: &Question) -> bool {
        let Some(begun) = self.begun.get() else {
            return false;
        };
        let is_asked = sync::check_circuit(decider)
            && sync::ask(decider, Some(self.id), begun.deadline, question);
        self.begun.set(Some(Begun { decider: is_asked.then_some(decider), ..begun }));
        is_asked
    }

    /// Records that the decider did not answer before the deadline, if one was asked.
    pub(super) fn record_timeout(&self) {
        if let Some(Begun { decider: Some(decider), deadline, .. }) = self.begun.get() {
            let overdue = monotonic_millis().saturating_sub(deadline);
            sync::record_timeout(decider, Duration::from_millis(overdue));
        }
    }

    /// Ends the wait. Returns how long it was; `None` if it had not begun.
    pub(super) fn end(&self) -> Option<Duration> {
        self.timer.unset();
        self.begun.take().map(|begun| begun.since.elapsed())
    }
}
