//! Early pushes, for which the worker's bell wakes the thread, and early looks, for which a timer
//! does.

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

/// Pause between two early pushes: changes in between go with the second one. A timer may be a
/// millisecond late.
const PAUSE: Duration = Duration::from_millis(4);
/// Ratio of the pause before a look to the exchange before: looks take a slow store a tenth of the
/// time at most.
const LOOKS_APART: u32 = 10;

/// The timer of early pushes.
#[derive(Debug, Default)]
pub(super) struct EarlyTimer {
    /// Start of the last one.
    last: Option<Instant>,
    /// Time at which the next one is due, if there is to be one.
    next: Option<Instant>,
}

impl EarlyTimer {
    /// Returns the time of the next look, if nothing else comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Something is due: returns whether it is time for it.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let after = self.last.and_then(|last| last.checked_add(PAUSE));
        self.next = after.filter(|after| *after > now);
        let begins = self.next.is_none();
        if begins {
            self.last = Some(now);
        }
        begins
    }

    /// Another worker was at it: it is to be looked again.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.next = now.checked_add(PAUSE);
    }
}

/// The timer of looks at others' pushes, where no channel tells of them.
#[derive(Debug)]
pub(super) struct LookTimer {
    /// `None`: somebody tells.
    times: Option<PollSchedule>,
    next: Option<Instant>,
    /// Time from the last exchange to the next look.
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

    /// Returns the time of the next look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Sets the time of the next look after a cycle that began then, and of which this came.
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

    /// Returns the time from the last exchange to the next look.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Puts the look off, since another worker has just been at the store. It goes on unless that one does: it may not
    /// know how fast counters grow.
    pub(super) fn put_off(&mut self) {
        self.next = Instant::now().checked_add(self.pause);
    }

    /// Has nobody look before the next cycle.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }
}

/// The syncs whose hits are pushed before their time, with their tasks.
pub(super) type EarlySyncs = Rc<RefCell<Vec<(SyncState<'static>, UnboundedSender<Command>)>>>;

/// Has the tasks of namespaces whose bell is rung told of it, until `ending` is closed.
pub(super) async fn listen(bell: EventFd, namespaces: EarlySyncs, mut ending: watch::Receiver<()>) {
    // Without, hits are pushed with the period.
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
                // One that has ended has nothing to do.
                let _ = task.send(Command::Early);
            }
        }
    }
}
