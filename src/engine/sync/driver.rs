//! The driver of a namespace's sync: runs the cycles one after another, once in each period and when
//! a caller asks, with early pushes and polls in between.
//!
//! Each user of a node's memory runs a driver. A lease decides, for each cycle, which one syncs.

use core::time::Duration;

use futures_util::future::FutureExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use super::last_push::LastPush;
use super::poll_schedule::PollSchedule;
use super::shard_sync::{EarlyPush, Env};
use super::sync_outcome::{Report, SyncError};
use super::syncer::Syncer;
use crate::policy::budget::Exchange;
use crate::store::contract::strategy::Strategy;

/// Periods in a row in which another user synced, after which a driver closes its connection.
const MAX_IDLE: u32 = 20;
/// Interval in which a driver checks whether another user has ended its cycle.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Pause between the cycles of a last push, and between checks whether the store makes progress.
const PAUSE_OF_LAST_PUSH: Duration = Duration::from_millis(10);
/// Shortest pause between two early pushes. Changes in between go with the second one. A timer can
/// be a millisecond late.
const EARLY_PAUSE: Duration = Duration::from_millis(4);
/// Ratio of the pause before a poll to the time of the last exchange, so that polls use at most a
/// tenth of a slow store's time.
const POLLS_APART: u32 = 10;

/// The result of a cycle; `Ok(None)` if another user of the memory syncs.
pub type SyncResult = Result<Option<Report>, SyncError>;

/// A command to a driver.
pub enum SyncCommand {
    /// Sync even if the node was synced in this period, so that all hits counted so far are pushed.
    /// While another user syncs, the driver waits.
    Sync {
        /// Whether to fetch all counters that matter, even if they were fetched before.
        fetches_anew: bool,
        /// Called with the result.
        reply: Box<dyn FnOnce(SyncResult) + Send>,
    },
    /// Sync once in each period from now on, by a timer of the driver.
    StartTimer,
    /// Sync, unless the node was synced in this period: a period of the caller's timer has passed.
    Tick,
    /// Push counters that are due early.
    Early,
    /// Close the connection, because users of a newer configuration sync now. No exchange follows.
    Leave,
    /// Push the remaining hits within these limits, and end.
    Finish(LastPush),
}

/// The times of a driver.
#[derive(Clone, Copy, Debug)]
pub struct SyncTimes {
    /// Period of the cycles.
    pub period: Duration,
    /// Whether the driver has a timer of its own, and begins the first cycle at once. Otherwise a
    /// caller starts that, or has one.
    pub recurs: bool,
    /// Whether a store without a channel is polled for other nodes' early pushes.
    pub polls: bool,
    /// Longest wait of a caller for the cycles of other users.
    pub patience: Duration,
}

/// An observer of a driver's exchanges with the store.
pub trait SyncObserver {
    /// Called before an exchange.
    fn begin(&mut self);
    /// Called after a cycle, and after an early push or poll that failed.
    fn end(&mut self, result: &SyncResult, store: &impl Strategy);
    /// Called when the time of the last push is over and the store has not confirmed all hits.
    fn unconfirmed(&mut self) {}
}

/// No observer.
impl SyncObserver for () {
    fn begin(&mut self) {}
    fn end(&mut self, _: &SyncResult, _: &impl Strategy) {}
}

/// The driver. Times are since the machine's start.
pub struct SyncDriver<'n, 'm, E, S, C, O> {
    syncer: Syncer<'n, 'm>,
    times: SyncTimes,
    env: E,
    store: S,
    connect: C,
    observer: O,
    /// The cycle that callers wait for.
    requested: Option<RequestedSync>,
    /// Time of the next cycle that no caller waits for: when the timer is due, or when a failed
    /// cycle is retried.
    next: Option<Duration>,
    /// Failures of the store in a row.
    failures: u32,
    /// Periods in a row in which another user synced.
    idle: u32,
    early: EarlyTimer,
    polls: PollTimer,
}

/// A cycle that callers wait for.
struct RequestedSync {
    since: Duration,
    /// Time of the next attempt.
    next: Duration,
    replies: Vec<Box<dyn FnOnce(SyncResult) + Send>>,
}

impl<'n, 'm, E: Env, S: Strategy, C: Fn() -> S, O: SyncObserver> SyncDriver<'n, 'm, E, S, C, O> {
    /// Creates a driver of `syncer`. `connect` creates a client of the store, which connects at its
    /// first use.
    pub fn new(
        syncer: Syncer<'n, 'm>,
        times: SyncTimes,
        env: E,
        connect: C,
        observer: O,
    ) -> SyncDriver<'n, 'm, E, S, C, O> {
        let store = connect();
        let is_polled = times.polls && store.channel().is_none();
        SyncDriver {
            syncer: syncer.living_for(Syncer::life_of(times.period)),
            times,
            env,
            store,
            connect,
            observer,
            requested: None,
            next: times.recurs.then_some(Duration::ZERO),
            failures: 0,
            idle: 0,
            early: EarlyTimer::default(),
            polls: PollTimer {
                schedule: is_polled.then(PollSchedule::default),
                next: None,
                pause: Duration::ZERO,
            },
        }
    }

    /// Executes commands until they end. Returns the limits of the last push; `None` if all senders
    /// are gone.
    pub async fn run(&mut self, commands: &mut UnboundedReceiver<SyncCommand>) -> Option<LastPush> {
        loop {
            let due = [self.next_cycle(), self.early.next, self.polls.next];
            let left = due.into_iter().flatten().min();
            let left = left.map(|due| due.saturating_sub(self.env.uptime()));
            // Commands only change the schedule, so they are first.
            let command = match left {
                None => Some(commands.recv().await),
                // A timer of tokio, even for no time, would take up to a millisecond.
                Some(Duration::ZERO) => commands.recv().now_or_never(),
                Some(left) => timeout(left, commands.recv()).await.ok(),
            };
            match command {
                None => self.exchange().await,
                Some(None) => return None,
                Some(Some(SyncCommand::Finish(limits))) => return Some(limits),
                Some(Some(SyncCommand::StartTimer)) => {
                    self.times.recurs = true;
                    self.next.get_or_insert(self.env.uptime());
                }
                // While the store is down, the pauses between retries may be longer.
                Some(Some(SyncCommand::Tick)) => {
                    self.next.get_or_insert(self.env.uptime());
                }
                Some(Some(SyncCommand::Leave)) => self.disconnect(),
                Some(Some(SyncCommand::Early)) => self.early.schedule(self.env.uptime()),
                Some(Some(SyncCommand::Sync { fetches_anew, reply })) => {
                    if fetches_anew {
                        self.syncer.fetch_anew();
                    }
                    let now = self.env.uptime();
                    let new = || RequestedSync { since: now, next: now, replies: Vec::new() };
                    self.requested.get_or_insert_with(new).replies.push(reply);
                }
            }
        }
    }

    /// Pushes the remaining hits within these limits.
    pub async fn finish(mut self, limits: LastPush) {
        self.observer.begin();
        // Other users of the memory tell that the node is alive.
        self.syncer = self.syncer.living_for(Duration::ZERO);
        let pause = async || sleep(PAUSE_OF_LAST_PUSH).await;
        let pushed = limits.run(&self.syncer, &mut self.store, &self.env, pause);
        match pushed.await {
            Some(result) => self.observer.end(&result, &self.store),
            // One of the users that end at the same time tells it.
            None if self.syncer.is_last() && self.syncer.has_unsent(&self.env) => {
                self.observer.unconfirmed();
            }
            None => {}
        }
    }

    /// Closes the connection. The next exchange opens one again.
    fn disconnect(&mut self) {
        self.store = (self.connect)();
    }

    /// Returns the time of the next cycle; `None` if none is due before a caller asks.
    fn next_cycle(&self) -> Option<Duration> {
        self.requested.as_ref().map_or(self.next, |requested| Some(requested.next))
    }

    /// Begins the exchange that is due.
    async fn exchange(&mut self) {
        let began = self.env.uptime();
        let is_due = |next: Option<Duration>| next.is_some_and(|next| next <= began);
        self.observer.begin();
        if is_due(self.next_cycle()) {
            self.sync(began).await;
        } else if is_due(self.early.next) {
            self.push_early(began).await;
        } else if is_due(self.polls.next) {
            self.poll(began).await;
        }
    }

    async fn sync(&mut self, began: Duration) {
        self.next = self.times.recurs.then(|| began.saturating_add(self.times.period));
        // Each user has a timer; the node syncs once in each period.
        if self.requested.is_none() && self.syncer.is_fresh(self.times.period, &self.env) {
            self.idle = self.idle.saturating_add(1);
            if self.idle == MAX_IDLE {
                // So that a node has few connections.
                self.disconnect();
            }
            return;
        }
        self.idle = 0;
        let result = self.syncer.sync(&mut self.store, &self.env).await;
        let ended = self.env.uptime();
        self.polls.set_after(&self.syncer, (began, ended), &result, &self.env);
        self.record(&result);
        let is_others = match &result {
            Ok(report) => !Report::is_whole(*report),
            Err(error) => *error == SyncError::LeaseLost,
        };
        if let Some(requested) = &mut self.requested {
            // The other user may have missed the last hits. If it was killed, its lease ends. Users
            // of a newer configuration sync in place of this one.
            let waited = ended.saturating_sub(requested.since);
            if is_others && waited <= self.times.patience && !self.syncer.is_superseded() {
                requested.next = ended.saturating_add(LOOK_AGAIN);
                return;
            }
            let replies = core::mem::take(&mut requested.replies);
            self.requested = None;
            replies.into_iter().for_each(|reply| reply(result.clone()));
        }
    }

    async fn push_early(&mut self, began: Duration) {
        if self.syncer.is_store_lost() {
            // All changes are pushed when the store is back.
            self.early = EarlyTimer::default();
            return;
        }
        let wait = self.syncer.wait(Exchange::Push, &self.env);
        if !wait.is_zero() && !self.syncer.is_superseded() {
            let again = self.syncer.postpone_early(&self.env);
            self.early.next = began.checked_add(wait.min(again));
            return;
        }
        self.early = EarlyTimer { last: Some(began), next: None };
        self.idle = 0;
        let pushed = self.syncer.sync_early(EarlyPush::Due, &mut self.store, &self.env);
        let result = pushed.await;
        let ended = self.env.uptime();
        self.polls.set_after(&self.syncer, (began, ended), &result, &self.env);
        match result {
            Ok(report) if Report::is_whole(report) => {}
            // Users of a newer configuration push the rest.
            Ok(_) | Err(SyncError::LeaseLost) if self.syncer.is_superseded() => {}
            // Another user was syncing.
            Ok(_) | Err(SyncError::LeaseLost) => {
                self.early.next = ended.checked_add(EARLY_PAUSE);
            }
            error => self.record(&error),
        }
    }

    async fn poll(&mut self, began: Duration) {
        if self.syncer.is_store_lost() || self.syncer.is_superseded() {
            // No polls until the next cycle.
            self.polls.next = None;
        } else if let wait = self.syncer.wait(Exchange::Read, &self.env)
            && !wait.is_zero()
        {
            self.polls.next = began.checked_add(wait);
        } else if !self.syncer.is_last() && self.syncer.is_fresh(self.polls.pause, &self.env) {
            // Another user has just exchanged with the store. The poll stays scheduled, since that
            // user may not know how fast the counters grow.
            self.polls.next = began.checked_add(self.polls.pause);
        } else {
            let polled = self.syncer.sync_early(EarlyPush::Near, &mut self.store, &self.env);
            let result = polled.await;
            let ended = self.env.uptime();
            self.polls.set_after(&self.syncer, (began, ended), &result, &self.env);
            if result.is_err() {
                self.record(&result);
            }
        }
    }

    /// Records a result. After a failure, the next cycle is a retry, with a growing pause.
    fn record(&mut self, result: &SyncResult) {
        match result {
            Ok(Some(_)) => self.failures = 0,
            // Another user holds or has taken the lease.
            Ok(None) | Err(SyncError::LeaseLost) => {}
            Err(SyncError::Store(_) | SyncError::NoProgress(_)) => {
                self.failures = self.failures.saturating_add(1);
                let pause = self.env.back_off(self.failures);
                self.next = Some(self.env.uptime().saturating_add(pause));
            }
        }
        self.observer.end(result, &self.store);
    }
}

/// The timer of early pushes.
#[derive(Debug, Default)]
struct EarlyTimer {
    /// Start of the last early push.
    last: Option<Duration>,
    /// Time at which the next early push is due; `None` if none is.
    next: Option<Duration>,
}

impl EarlyTimer {
    /// Schedules an early push: now, or after the pause since the last one.
    fn schedule(&mut self, now: Duration) {
        let after = self.last.and_then(|last| last.checked_add(EARLY_PAUSE));
        self.next = Some(after.map_or(now, |after| after.max(now)));
    }
}

/// The timer of polls for other nodes' pushes, for a store without a channel.
#[derive(Debug)]
struct PollTimer {
    /// `None` if no polls are needed.
    schedule: Option<PollSchedule>,
    /// Time of the next poll; `None` if none is scheduled.
    next: Option<Duration>,
    /// Time from the last exchange to the next poll.
    pause: Duration,
}

impl PollTimer {
    /// Schedules the next poll after an exchange.
    fn set_after(
        &mut self,
        syncer: &Syncer<'_, '_>,
        (began, ended): (Duration, Duration),
        result: &SyncResult,
        env: &impl Env,
    ) {
        let schedule = self.schedule.as_mut().filter(|_| result.is_ok());
        let pause = schedule.and_then(|schedule| syncer.next_look(schedule, env));
        let least = ended.saturating_sub(began).saturating_mul(POLLS_APART);
        self.pause = pause.unwrap_or_default().max(least);
        self.next = pause.and_then(|_| ended.checked_add(self.pause));
    }
}
