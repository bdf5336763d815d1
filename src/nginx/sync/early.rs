//! Early pushes, for which the worker's bell wakes the thread, and polls between syncs, which a
//! timer starts.

use core::cell::RefCell;
use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;

use futures_util::future::{Either, select};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::Instant;

use super::command::Command;
use crate::broker::EventFd;
use crate::engine::{Machine, PollSchedule, Report, SyncError, Syncer};
use crate::table::SyncState;

/// Shortest pause between two early pushes. Changes in between go with the second one. A timer can
/// be a millisecond late.
const PAUSE: Duration = Duration::from_millis(4);
/// Ratio of the pause before a poll to the time of the last exchange, so that polls use at most a
/// tenth of a slow store's time.
const LOOKS_APART: u32 = 10;

/// The timer of early pushes.
#[derive(Debug, Default)]
pub(super) struct EarlyTimer {
    /// Start of the last early push.
    last: Option<Instant>,
    /// Time at which the next early push is due; `None` if none is.
    next: Option<Instant>,
}

impl EarlyTimer {
    /// Returns the time of the next early push; `None` if none is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns whether an early push may begin now. Otherwise schedules it.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let after = self.last.and_then(|last| last.checked_add(PAUSE));
        self.next = after.filter(|after| *after > now);
        let begins = self.next.is_none();
        if begins {
            self.last = Some(now);
        }
        begins
    }

    /// Schedules another early push, since another worker was syncing.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.next = now.checked_add(PAUSE);
    }
}

/// The timer of polls for other nodes' pushes, for a store without a channel.
#[derive(Debug)]
pub(super) struct LookTimer {
    /// `None` if the store has a channel.
    times: Option<PollSchedule>,
    next: Option<Instant>,
    /// Time from the last exchange to the next poll.
    pause: Duration,
}

impl LookTimer {
    pub(super) fn new(is_needed: bool) -> LookTimer {
        LookTimer {
            times: is_needed.then(PollSchedule::default),
            next: None,
            pause: Duration::ZERO,
        }
    }

    /// Returns the time of the next poll; `None` if none is scheduled.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Schedules the next poll after a cycle that began at `began` and returned `result`.
    pub(super) fn set_after(
        &mut self,
        syncer: &Syncer<'_, '_>,
        began: Instant,
        result: &Result<Option<Report>, SyncError>,
    ) {
        let times = self.times.as_mut().filter(|_| result.is_ok());
        let pause = times.and_then(|times| syncer.next_look(times, &Machine));
        let now = Instant::now();
        let least = now.duration_since(began).saturating_mul(LOOKS_APART);
        self.pause = pause.unwrap_or_default().max(least);
        self.next = pause.and_then(|_| now.checked_add(self.pause));
    }

    /// Returns the time from the last exchange to the next poll.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Postpones the poll, because another worker has just exchanged with the store. The poll stays
    /// scheduled, since the other worker may not know how fast the counters grow.
    pub(super) fn put_off(&mut self) {
        self.next = Instant::now().checked_add(self.pause);
    }

    /// Cancels polls until the next cycle.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }
}

/// The sync states of namespaces with early pushes, and the senders to their tasks.
pub(super) type EarlySyncs = Rc<RefCell<Vec<(SyncState<'static>, UnboundedSender<Command>)>>>;

/// Sends a command to the tasks of the namespaces whose bell is rung, until `ending` is closed.
pub(super) async fn listen(bell: EventFd, namespaces: EarlySyncs, mut ending: watch::Receiver<()>) {
    // Without the bell, hits are pushed once in each period.
    let Ok(rung) = bell.listen() else { return };
    let mut ended = pin!(ending.changed());
    loop {
        match select(pin!(rung.readable()), ended.as_mut()).await {
            Either::Left((Ok(mut ready), _)) => ready.clear_ready(),
            Either::Left((Err(_), _)) | Either::Right(_) => return,
        }
        bell.clear();
        for (state, task) in &*namespaces.borrow() {
            if state.is_rung() {
                // Sending fails only if the task has ended.
                let _ = task.send(Command::Early);
            }
        }
    }
}
