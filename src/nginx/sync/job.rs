//! The schedule of a namespace's sync: once in a period, later and later while its store is away,
//! and when a caller asks for it.

use core::time::Duration;

use super::waiter::{SyncWaiter, SyncWaiters};
use crate::engine::{Env as _, Machine, Report, SyncError};
use crate::nginx::conf::SyncedNamespace;
use crate::nginx::event_loop::EventTimer;
use crate::nginx::log::Log;

/// Pause before the next look for a cycle that is under way, whose end should have been reported.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The sync of one namespace. Times are of nginx's monotonic clock.
pub(super) struct Job {
    pub(super) namespace: SyncedNamespace,
    timer: EventTimer<'static>,
    is_under_way: bool,
    /// Whether a cycle was asked for that has not begun.
    is_asked: bool,
    /// Whether cycles recur.
    recurs: bool,
    /// Time of the next sync.
    next: Duration,
    /// Number of failures of the store in a row.
    failures: u32,
    waiters: SyncWaiters,
}

impl Job {
    /// Creates the job, which has `tick` called with `number` when a cycle may be due.
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
            // A worker that is to end does not wait for it.
            timer: timer.cancelable(),
            is_under_way: false,
            is_asked: false,
            recurs,
            next: Duration::ZERO,
            failures: 0,
            waiters: SyncWaiters::default(),
        }
    }

    /// Sets the first timer, unless a caller is to start it: at once, since a new node begins with
    /// everything that still matters.
    pub(super) fn start(&mut self) {
        if self.recurs {
            self.set_timer(Duration::from_millis(1));
        }
    }

    /// Has a cycle begin as soon as none is under way.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Has cycles recur; returns whether they did not.
    pub(super) fn recur(&mut self) -> bool {
        !core::mem::replace(&mut self.recurs, true)
    }

    /// Something waits for the next cycle.
    pub(super) fn add(&mut self, waiter: SyncWaiter) {
        self.waiters.add(waiter);
    }

    /// Begins a cycle by `begin`, if one is due: that is told whether it was asked for, and returns whether
    /// the thread is there to do it.
    pub(super) fn begin_if_due(&mut self, now: Duration, begin: impl FnOnce(bool) -> bool) {
        if !self.is_under_way && (self.is_asked || self.recurs && now >= self.next) {
            self.is_under_way = begin(self.is_asked);
            if self.is_under_way {
                self.waiters.begin();
            }
            // A thread that is not there is started again.
            self.is_asked &= !self.is_under_way;
            self.next = now.saturating_add(self.namespace.period);
        }
        self.set_timer_for_next(now);
    }

    /// The cycle that was under way, if there was one, has been lost with its thread.
    pub(super) fn begin_again(&mut self, now: Duration) {
        // It may have been asked for.
        self.is_asked |= self.is_under_way;
        self.is_under_way = false;
        self.set_timer_for_next(now);
    }

    /// A cycle has ended. Returns what waited for it.
    pub(super) fn end(
        &mut self,
        now: Duration,
        result: &Result<Option<Report>, SyncError>,
    ) -> impl Iterator<Item = SyncWaiter> {
        self.is_under_way = false;
        match result {
            Ok(Some(_)) => self.failures = 0,
            // Another worker is at it, or has taken over.
            Ok(None) | Err(SyncError::LeaseLost) => {}
            Err(SyncError::Store(_) | SyncError::NoProgress(_)) => self.fail(now),
        }
        self.set_timer_for_next(now);
        self.waiters.take_ended()
    }

    /// A push before its time has failed: the next cycle tries again, if none is under way.
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

    /// Has the next cycle begin when it is time. While one is under way, its end is told.
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
