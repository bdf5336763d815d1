//! The schedule of a namespace's sync: once in each period, with a growing pause while its store is
//! down, and when a caller asks for it.

use core::time::Duration;

use super::waiter::{SyncWaiter, SyncWaiters};
use crate::engine::{Env as _, Machine, Report, SyncError};
use crate::nginx::conf::SyncedNamespace;
use crate::nginx::event_loop::EventTimer;
use crate::nginx::log::Log;

/// Pause before the next check of a running cycle whose end was not reported.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The schedule of one namespace's sync. Times are of nginx's monotonic clock.
pub(super) struct Job {
    pub(super) namespace: SyncedNamespace,
    timer: EventTimer<'static>,
    is_under_way: bool,
    /// Whether a cycle was requested and has not begun.
    is_asked: bool,
    /// Whether cycles recur.
    recurs: bool,
    /// Time of the next cycle.
    next: Duration,
    /// Failures of the store in a row.
    failures: u32,
    waiters: SyncWaiters,
}

impl Job {
    /// Creates the schedule. `tick` is called with `number` when a cycle may be due.
    pub(super) fn new(
        number: usize,
        namespace: SyncedNamespace,
        tick: fn(u64),
        log: Log<'static>,
    ) -> Job {
        let timer = EventTimer::new(log, tick, number as u64);
        let recurs = !namespace.waits_for_caller;
        Job {
            namespace,
            // nginx does not delay its exit for this timer.
            timer: timer.cancelable(),
            is_under_way: false,
            is_asked: false,
            recurs,
            next: Duration::ZERO,
            failures: 0,
            waiters: SyncWaiters::default(),
        }
    }

    /// Schedules the first cycle, unless a caller starts the timer. It begins at once, so that a
    /// new node knows the current totals.
    pub(super) fn start(&mut self) {
        if self.recurs {
            self.set_timer(Duration::from_millis(1));
        }
    }

    /// Requests a cycle, which begins when none is running.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Makes cycles recur. Returns whether they did not recur before.
    pub(super) fn recur(&mut self) -> bool {
        !core::mem::replace(&mut self.recurs, true)
    }

    /// Adds a waiter for the next cycle.
    pub(super) fn add(&mut self, waiter: SyncWaiter) {
        self.waiters.add(waiter);
    }

    /// Begins a cycle with `begin`, if one is due. `begin` is passed whether the cycle was
    /// requested, and returns whether the thread accepted it.
    pub(super) fn begin_if_due(&mut self, now: Duration, begin: impl FnOnce(bool) -> bool) {
        if !self.is_under_way && (self.is_asked || self.recurs && now >= self.next) {
            self.is_under_way = begin(self.is_asked);
            if self.is_under_way {
                self.waiters.begin();
            }
            // A thread that has ended is started again; the request stays.
            self.is_asked &= !self.is_under_way;
            self.next = now.saturating_add(self.namespace.period);
        }
        self.set_timer_for_next(now);
    }

    /// Resets the schedule after the thread panicked: a running cycle is lost.
    pub(super) fn begin_again(&mut self, now: Duration) {
        // The lost cycle may have been a requested one.
        self.is_asked |= self.is_under_way;
        self.is_under_way = false;
        self.set_timer_for_next(now);
    }

    /// Records the end of a cycle. Returns the waiters of the cycle.
    pub(super) fn end(
        &mut self,
        now: Duration,
        result: &Result<Option<Report>, SyncError>,
    ) -> impl Iterator<Item = SyncWaiter> {
        self.is_under_way = false;
        match result {
            Ok(Some(_)) => self.failures = 0,
            // Another worker holds or has taken the lease.
            Ok(None) | Err(SyncError::LeaseLost) => {}
            Err(SyncError::Store(_) | SyncError::NoProgress(_)) => self.fail(now),
        }
        self.set_timer_for_next(now);
        self.waiters.take_ended()
    }

    /// Records that an early push failed. The next cycle retries it, unless one is running.
    pub(super) fn retry(&mut self, now: Duration) {
        if !self.is_under_way {
            self.fail(now);
            self.set_timer_for_next(now);
        }
    }

    fn fail(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.next = now.saturating_add(Machine.back_off(self.failures));
    }

    /// Sets the timer for the next cycle. The end of a running cycle is reported separately.
    fn set_timer_for_next(&mut self, now: Duration) {
        let pause = if self.is_under_way {
            LOOK_AGAIN
        } else if self.is_asked {
            Duration::ZERO
        } else if self.recurs {
            self.next.saturating_sub(now)
        } else {
            return;
        };
        self.set_timer(pause);
    }

    fn set_timer(&mut self, after: Duration) {
        self.timer.set(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }
}
