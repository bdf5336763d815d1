//! The wait of a request, or of a caller of the library, for a store's answer: a number by which
//! the answer is found, and a deadline.

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use super::event_loop::{EventTimer, monotonic_millis};
use super::log::Log;
use super::sync;
use crate::store::contract::decision::Question;

/// A wait for answers, one after another. Dropping it ends the wait. A worker does not exit before.
pub(super) struct StoreWait<'l> {
    id: u64,
    timer: EventTimer<'l>,
    begun: Cell<Option<Begun>>,
}

/// A wait that has begun.
#[derive(Clone, Copy)]
struct Begun {
    since: Instant,
    /// The deadline, in milliseconds of nginx's monotonic clock.
    deadline: u64,
    /// The decider that is asked; `None` if the wait is for something else.
    decider: Option<usize>,
}

impl<'l> StoreWait<'l> {
    /// Creates the wait with number `id`. At the deadline, `time_out` is called with that number.
    pub(super) fn new(log: Log<'l>, time_out: fn(u64), id: u64) -> StoreWait<'l> {
        StoreWait { id, timer: EventTimer::new(log, time_out, id), begun: Cell::new(None) }
    }

    /// Begins to wait, for at most `timeout`.
    pub(super) fn begin(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let deadline = monotonic_millis().saturating_add(millis);
        self.begun.set(Some(Begun { since: Instant::now(), deadline, decider: None }));
        self.timer.set(millis);
    }

    /// Asks a decider whose circuit is closed. The answer has the wait's number. Returns whether the
    /// decider was asked.
    pub(super) fn ask(&self, decider: usize, question: &Question) -> bool {
        let Some(begun) = self.begun.get() else {
            return false;
        };
        let is_asked = sync::ask(decider, Some(self.id), begun.deadline, question);
        self.begun.set(Some(Begun { decider: is_asked.then_some(decider), ..begun }));
        is_asked
    }

    /// Records that the asked decider, if any, missed the deadline.
    pub(super) fn record_timeout(&self) {
        if let Some(Begun { decider: Some(decider), deadline, .. }) = self.begun.get() {
            let overdue = monotonic_millis().saturating_sub(deadline);
            sync::record_timeout(decider, Duration::from_millis(overdue));
        }
    }

    /// Ends the wait. Returns its duration; `None` if it had not begun.
    pub(super) fn end(&self) -> Option<Duration> {
        self.timer.unset();
        self.begun.take().map(|begun| begun.since.elapsed())
    }
}
