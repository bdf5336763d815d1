//! Synced namespaces: a timer in every worker, and a thread that does what the timer asks for.
//!
//! The timer and the log belong to nginx's event loop, the store's connections and the cycle itself
//! to the thread, so that no datastore ever holds the event loop. The thread wakes the loop when it
//! has done something. All workers do the same: which of them syncs is decided by a lease in shared
//! memory, with every cycle anew; which of them asks stores about the requests of all, by a lock.
//!
//! - [`job`]: when a namespace is synced
//! - [`thread`]: the thread, and the [`command`]s that it gets; [`channel`]: what it hears of others' pushes;
//!   [`early`]: how it hears of what is to be pushed before its time; [`last_push`]: what a worker pushes that ends;
//!   [`wake`]: how it wakes the loop; [`waiter`]: what waits for a cycle
//!
//! The exchange itself is in [`crate::broker`].

mod channel;
mod command;
mod early;
mod job;
mod last_push;
mod thread;
mod waiter;
mod wake;

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::sync::Arc;

use nginx_sys::{NGX_LOG_ERR, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_event_t};

use super::conf::SyncedNamespace;
use super::cycle;
use super::event_loop::{EndOfTurn, OfEventLoop, monotonic, monotonic_millis};
use super::guard::guard;
use super::hold::measured;
use super::log::{self, Log};
use crate::broker::message::Reply;
use crate::broker::{Bells, Broker, Client, DecidingStore, EventFd, Severity, SharedQueues};
use crate::engine::{LastPush, Machine, Report, Surroundings as _};
use crate::policy::window::UnixMillis;
use crate::store::decision::Question;
use crate::table::MonotonicMillis;
use job::Job;
use thread::{Done, Thread};
pub(super) use waiter::SyncWaiter;
use wake::Wake;

/// For how many turns of the event loop questions are gathered, at most.
const MAX_TURNS: u32 = 8;

/// How long a worker that ends pushes what is left: before the master kills it; and gracefully, for so long without a
/// batch that its store takes, and as long as what stops nginx mostly waits, at most.
const LAST_PUSH_OF_TERM: Duration = Duration::from_millis(800);
const LAST_PUSH_OF_QUIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));

/// What this worker does.
static WORKER: OfEventLoop<RefCell<Option<Worker>>> = OfEventLoop(RefCell::new(None));

struct Worker {
    thread: Thread,
    wake: Wake,
    jobs: Vec<Job>,
    /// Where stores are asked about requests; `None` if none decides, or none can.
    client: Option<Client>,
    /// What asks them for all workers, in the thread of this one or of another.
    broker: Option<Broker>,
    /// What wakes the thread when something is to be pushed before its time, if anything is.
    bell: Option<EventFd>,
    /// Whether stores are asked about requests.
    asks: Cell<bool>,
    /// Posted where something is asked.
    end_of_turn: EndOfTurn<'static>,
    /// For how many turns questions have been gathered, and how much there was at the end of the last.
    turns: Cell<u32>,
    asked: Cell<usize>,
    /// What takes what stores reply about requests.
    go_on: fn(Vec<Reply>),
    /// What is to be told what came of its cycle.
    ended: Vec<(SyncWaiter, Option<Report>)>,
    log: Log<'static>,
}

/// Starts to sync `namespaces`, and to ask `stores`, in this worker, which begins to serve; what it
/// did for another configuration has ended. `go_on` takes what stores reply about requests.
pub(super) fn start(
    namespaces: Vec<SyncedNamespace>,
    stores: Vec<DecidingStore>,
    (queues, bells): (Option<Arc<SharedQueues>>, Option<Arc<Bells>>),
    go_on: fn(Vec<Reply>),
    log: Log<'static>,
) {
    let worker = cycle::worker();
    if namespaces.is_empty() {
        return;
    }
    if let Some(bells) = &bells {
        let own = u16::try_from(worker).unwrap_or(u16::MAX);
        for namespace in &namespaces {
            let bells = bells.clone();
            let table = namespace.namespace.table();
            table.wake_by(own, move |worker| bells.ring(worker));
        }
    }
    let bell = bells.and_then(|bells| bells.of(worker).cloned());
    let broker = queues.map(|queues| Broker {
        queues,
        worker,
        stores,
        uptime: || Machine.uptime(),
    });
    let client = broker.as_ref();
    let client = client.and_then(|broker| Client::new(broker.queues.clone(), worker));
    let eventfd = client.as_ref().and_then(Client::eventfd);
    let thread = eventfd
        .map_or_else(EventFd::new, Ok)
        .and_then(|eventfd| Wake::new(eventfd, Some(woken), log))
        .and_then(|wake| {
            let woken = (wake.eventfd(), bell.clone());
            let thread = Thread::start(&namespaces, broker.clone(), woken)?;
            Ok((thread, wake))
        });
    let (thread, wake) = match thread {
        Ok(thread) => thread,
        Err(error) => {
            let message = format_args!("ratelimit: nothing is synced: no thread ({error})");
            return log::error(NGX_LOG_ERR, log, message);
        }
    };
    let jobs = namespaces.into_iter().enumerate();
    let jobs = jobs.map(|(number, namespace)| Job::new(number, namespace, tick, log));
    let mut worker = Worker {
        thread,
        wake,
        jobs: jobs.collect(),
        client,
        broker,
        bell,
        asks: Cell::new(true),
        end_of_turn: EndOfTurn::new(log, end_turn),
        turns: Cell::new(0),
        asked: Cell::new(0),
        go_on,
        ended: Vec::new(),
        log,
    };
    for job in &mut worker.jobs {
        job.start();
    }
    WORKER.0.replace(Some(worker));
}

/// Whether this process syncs.
pub(super) fn is_started() -> bool {
    WORKER.0.borrow().is_some()
}

/// Asks no store about requests any more, but to give back: this process goes on with another
/// configuration.
pub(super) fn end_questions() {
    if let Some(worker) = &*WORKER.0.borrow() {
        worker.asks.set(false);
    }
}

/// Ends what this process syncs, which goes on with another configuration. No request waits any more.
pub(super) fn end() {
    if let Some(worker) = leave() {
        // However long it takes: nginx is about to unmap the zones that it has no more.
        worker.thread.wait_for_end();
    }
}

/// Has a namespace synced: a cycle of this worker begins now, or when the one has ended that is under way,
/// here or in another worker. Returns whether this process syncs it.
pub(super) fn sync_now(namespace: &str) -> bool {
    with_worker(|worker| worker.sync_now(namespace)).unwrap_or(false)
}

/// The same; `waiter` is told when the cycle has ended.
pub(super) fn sync_for(namespace: &str, waiter: SyncWaiter) -> bool {
    let is_asked = with_worker(|worker| {
        if let Some((_, job)) = worker.job_of(namespace) {
            job.add(waiter);
        }
        let is_asked = worker.sync_now(namespace);
        if !worker.ended.is_empty() {
            // Not by who asks, which may be a request.
            worker.wake.eventfd().wake();
        }
        is_asked
    });
    is_asked.unwrap_or(false)
}

/// Has a namespace synced again and again, if it is not yet; returns whether this process syncs it.
pub(super) fn start_timer(namespace: &str) -> bool {
    with_worker(|worker| worker.start_timer(namespace)).unwrap_or(false)
}

/// Pushes what is left, for a bounded time, and ends the thread, if it does not take too long: this
/// process ends.
pub(super) fn stop() {
    leave();
}

fn leave() -> Option<Worker> {
    let mut worker = WORKER.0.take()?;
    worker.client.iter().for_each(Client::send);
    let (patience, longest) = match cycle::is_terminated() {
        true => (LAST_PUSH_OF_TERM, LAST_PUSH_OF_TERM),
        false => LAST_PUSH_OF_QUIT,
    };
    let limits = LastPush {
        began: Machine.uptime(),
        patience,
        longest,
    };
    for done in worker.thread.finish(limits) {
        worker.note(done);
    }
    worker.log_store_events();
    Some(worker)
}

/// It may be time for a cycle of job `number`.
fn tick(number: u64) {
    with_worker(|worker| worker.tick(usize::try_from(number).unwrap_or(usize::MAX)));
    tell_waiters();
}

/// Tells those whose cycles have ended.
fn tell_waiters() {
    let ended = with_worker(|worker| core::mem::take(&mut worker.ended));
    for (waiter, report) in ended.into_iter().flatten() {
        (waiter.done)(waiter.id, report);
    }
}

/// nginx's callback when the thread has done something.
unsafe extern "C" fn woken(_event: *mut ngx_event_t) {
    guard((), || {
        let replies = with_worker(|worker| {
            worker.wake.clear();
            worker.take_results();
            let client = worker.client.as_ref()?;
            if client.unsent() > 0 {
                // There may be room now for what had none.
                worker.end_of_turn.post();
            }
            Some((worker.go_on, client.replies()))
        });
        // Requests that go on may ask again.
        if let Some((go_on, replies)) = replies.flatten() {
            go_on(replies);
        }
        tell_waiters();
    });
}

fn with_worker<T>(callback: impl FnOnce(&mut Worker) -> T) -> Option<T> {
    let mut worker = WORKER.0.borrow_mut();
    let worker = worker.as_mut()?;
    let first = worker.jobs.first();
    let table = first.map(|job| job.namespace.namespace.table());
    Some(measured(table, || callback(worker)))
}

/// Asks a decider about request `id`, if that waits for the answer, until `deadline`, in milliseconds
/// of nginx's monotonic clock. Returns whether it can be asked.
pub(super) fn ask(decider: usize, id: Option<u64>, deadline: u64, question: &Question) -> bool {
    with_client(|worker, client| {
        if id.is_some() && !worker.asks.get() {
            return false;
        }
        worker.end_of_turn.post();
        let is_asked = client.ask(decider, id, deadline, question);
        if !is_asked {
            let message = format_args!(
                "ratelimit: a request has too many limits to ask a store about: {} counters",
                question.counters.len()
            );
            log::error(NGX_LOG_ERR, worker.log, message);
        }
        is_asked
    })
    .unwrap_or(false)
}

/// Has a decider charge or give back hits; no answer is waited for. Returns whether it is asked.
pub(super) fn tell(decider: usize, question: &Question) -> bool {
    ask(decider, None, 0, question)
}

/// Has a decider charge hits that were counted without it, when it answers again.
pub(super) fn charge_later(decider: usize, question: &Question) {
    with_client(|worker, client| {
        worker.end_of_turn.post();
        client.charge_later(decider, question);
    });
}

/// Looks at a decider's circuit; returns whether the decider is to be asked. Has it probed if it is time.
pub(super) fn check_circuit(decider: usize) -> bool {
    with_client(|worker, client| {
        let may_ask = client.check_circuit(decider, now_millis());
        // It may be to be probed.
        if !may_ask && client.unsent() > 0 {
            worker.end_of_turn.post();
        }
        may_ask
    })
    .unwrap_or(false)
}

/// What time it is by the clock of a decider's store; `None`: it has not said.
pub(super) fn store_time(decider: usize) -> Option<UnixMillis> {
    with_client(|_, client| client.store_time(decider, now_millis()))?
}

/// Where this worker logs what it does for stores; `None`: it does nothing.
pub(super) fn log() -> Option<Log<'static>> {
    Some(WORKER.0.borrow().as_ref()?.log)
}

/// Notes that a decider did not answer in time.
pub(super) fn note_timeout(decider: usize) {
    with_client(|worker, client| {
        worker.end_of_turn.post();
        client.note_timeout(decider, now_millis());
    });
}

/// `None` if no store can be asked.
fn with_client<T>(callback: impl FnOnce(&Worker, &Client) -> T) -> Option<T> {
    let worker = WORKER.0.borrow();
    let worker = worker.as_ref()?;
    Some(callback(worker, worker.client.as_ref()?))
}

/// At the end of a turn of the event loop in which something was asked, and of those that follow until
/// nothing more is.
fn end_turn(_: u64) {
    if let Some(worker) = &*WORKER.0.borrow() {
        worker.send_or_gather();
    }
}

impl Worker {
    /// Sends what was asked in this turn and in those before, unless more may come of what is ready
    /// by now: then that is handled first, without waiting for anything.
    fn send_or_gather(&self) {
        let Some(client) = &self.client else { return };
        let turns = self.turns.get().saturating_add(1);
        let asked = client.unsent();
        if asked > self.asked.replace(asked) && turns < MAX_TURNS {
            self.turns.set(turns);
            self.end_of_turn.post_next();
        } else {
            self.turns.set(0);
            self.asked.set(0);
            client.send();
        }
    }

    /// Begins a cycle, if it is time.
    fn tick(&mut self, number: usize) {
        self.take_results();
        let Some(job) = self.jobs.get_mut(number) else {
            return;
        };
        let now = monotonic();
        job.begin_if_due(now, |is_asked| match is_asked {
            true => self.thread.sync_now(number),
            false => self.thread.sync(number),
        });
    }

    /// Has a namespace synced as soon as may be; returns whether it is there.
    fn sync_now(&mut self, namespace: &str) -> bool {
        let Some((number, job)) = self.job_of(namespace) else {
            return false;
        };
        job.ask();
        self.tick(number);
        true
    }

    /// Has cycles of a namespace recur; returns whether it is there.
    fn start_timer(&mut self, namespace: &str) -> bool {
        let Some((number, job)) = self.job_of(namespace) else {
            return false;
        };
        if job.recur() {
            self.tick(number);
        }
        true
    }

    /// The sync of a namespace, with its number.
    fn job_of(&mut self, namespace: &str) -> Option<(usize, &mut Job)> {
        let mut jobs = self.jobs.iter_mut().enumerate();
        jobs.find(|(_, job)| *job.namespace.name == *namespace)
    }

    /// Takes what the thread has done, which decides when it is time again.
    fn take_results(&mut self) {
        for done in self.thread.done() {
            self.note(done);
        }
        self.log_store_events();
        if self.thread.has_ended() {
            self.start_again();
        }
    }

    /// Logs what is new of stores.
    fn log_store_events(&self) {
        for event in self.thread.store_events() {
            let level = match event.severity() {
                Severity::Error => NGX_LOG_ERR,
                Severity::Warn => NGX_LOG_WARN,
                Severity::Notice => NGX_LOG_NOTICE,
            };
            log::error(level, self.log, &event);
        }
    }

    /// Makes another thread go on where one that panicked stopped.
    #[cold]
    fn start_again(&mut self) {
        let namespaces: Vec<_> = self.jobs.iter().map(|job| job.namespace.clone()).collect();
        let message = "ratelimit: the thread that syncs has ended, it is started again";
        log::error(NGX_LOG_ERR, self.log, message);
        let woken = (self.wake.eventfd(), self.bell.clone());
        if let Ok(thread) = Thread::start(&namespaces, self.broker.clone(), woken) {
            self.thread = thread;
        }
        let now = monotonic();
        for job in &mut self.jobs {
            job.begin_again(now);
        }
    }

    /// Notes what came of a cycle.
    fn note(&mut self, done: Done) {
        let Some(job) = self.jobs.get_mut(done.number) else {
            return;
        };
        let report = done.result.as_ref().ok().copied().flatten();
        if let Some(Report {
            pushed, fetched, ..
        }) = report
        {
            let name = &job.namespace.name;
            log::debug(self.log, || {
                format!("ratelimit_namespace \"{name}\": {pushed} pushed, {fetched} fetched")
            });
        }
        if done.is_early {
            job.retry(monotonic());
            return;
        }
        let ended = job.end(monotonic(), &done.result);
        self.ended.extend(ended.map(|waiter| (waiter, report)));
    }
}

/// nginx's monotonic clock, as processes tell it to each other.
fn now_millis() -> MonotonicMillis {
    MonotonicMillis(monotonic_millis())
}
