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
use std::io;
use std::sync::Arc;

use nginx_sys::{NGX_LOG_ERR, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_event_t};

use super::conf::{LateNamespace, SyncedNamespace};
use super::cycle;
use super::event_loop::{EndOfTurn, OfEventLoop, monotonic, monotonic_millis};
use super::guard::guard;
use super::hold::measured;
use super::log::{self, Log};
use crate::broker::shared::message::Reply;
use crate::broker::{Bells, Broker, Client, DecidingStore, EventFd, Severity, SharedQueues};
use crate::engine::{Env as _, LastPush, Machine, Report};
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::Question;
use crate::table::MonotonicMillis;
use job::Job;
use thread::{Done, Thread};
pub(super) use waiter::SyncWaiter;
use wake::Wake;

/// For how many turns of the event loop questions are gathered, at most.
const MAX_TURNS: u32 = 8;
/// A timer that is later than that is of a worker that was stopped, or got no processor.
const STOPPED: Duration = Duration::from_millis(100);

/// Longest last push of a worker that ends: before the master kills it; and gracefully, without a
/// batch that its store takes, and altogether as long as what stops nginx mostly waits.
const LAST_PUSH_OF_TERM: Duration = Duration::from_millis(800);
const LAST_PUSH_OF_QUIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));

/// The surroundings in which this process serves a configuration; `None`: it serves none, or none yet.
static SERVING: OfEventLoop<RefCell<Option<Serving>>> = OfEventLoop(RefCell::new(None));

/// The surroundings in which a process serves, whether it syncs anything or not.
#[derive(Clone)]
struct Serving {
    bells: Option<Arc<Bells>>,
    /// Takes what stores reply about requests.
    go_on: fn(Vec<Reply>),
    log: Log<'static>,
}

/// State of this worker.
static WORKER: OfEventLoop<RefCell<Option<Worker>>> = OfEventLoop(RefCell::new(None));

struct Worker {
    thread: Thread,
    wake: Wake,
    jobs: Vec<Job>,
    /// Clients by which stores are asked about requests; none if no store decides, or none can be
    /// asked.
    clients: Vec<DeciderClient>,
    /// Brokers that ask them for all workers, in the thread of this one or of another; and for this
    /// one alone about namespaces that it has defined.
    brokers: Vec<Broker>,
    /// Bell that wakes the thread when counters are to be pushed early, if any are.
    bell: Option<EventFd>,
    /// Whether stores are asked about requests.
    asks: Cell<bool>,
    /// Posted where something is asked.
    end_of_turn: EndOfTurn<'static>,
    /// For how many turns questions have been gathered, and how much there was at the end of the last.
    turns: Cell<u32>,
    asked: Cell<usize>,
    /// Function that takes the replies of stores about requests.
    go_on: fn(Vec<Reply>),
    /// Waiters whose cycle has ended, with its report.
    ended: Vec<(SyncWaiter, Option<Report>)>,
    log: Log<'static>,
}

/// A worker's end of the queues to some deciders.
struct DeciderClient {
    /// The number of the first decider.
    first: usize,
    client: Client,
}

/// Starts to sync `namespaces`, and to ask `stores`, in this worker, which begins to serve; what it
/// did for another configuration has ended. `late` are those that callers have defined in it before. `go_on` takes
/// what stores reply about requests.
pub(super) fn start(
    namespaces: Vec<SyncedNamespace>,
    stores: Vec<DecidingStore>,
    (queues, bells): (Option<Arc<SharedQueues>>, Option<Arc<Bells>>),
    late: Vec<LateNamespace>,
    go_on: fn(Vec<Reply>),
    log: Log<'static>,
) {
    let serving = Serving { bells, go_on, log };
    if !namespaces.is_empty() {
        let broker = queues.map(|queues| Broker {
            queues,
            worker: cycle::worker(),
            stores,
            uptime: || Machine.uptime(),
        });
        begin(&serving, namespaces, broker);
    }
    SERVING.0.replace(Some(serving));
    late.into_iter().for_each(add);
}

/// Starts to sync one more namespace, which a caller has defined in this process: when that serves.
pub(super) fn add(late: LateNamespace) {
    let Some(serving) = SERVING.0.borrow().clone() else {
        return;
    };
    if WORKER.0.borrow().is_none() {
        begin(&serving, Vec::new(), None);
    }
    if let Some(worker) = &mut *WORKER.0.borrow_mut() {
        worker.add(&serving, late);
    }
}

fn begin(serving: &Serving, namespaces: Vec<SyncedNamespace>, broker: Option<Broker>) {
    match Worker::new(serving, namespaces, broker) {
        Ok(worker) => drop(WORKER.0.replace(Some(worker))),
        Err(error) => {
            let message = format_args!("ratelimit: nothing is synced: no thread ({error})");
            log::error(NGX_LOG_ERR, serving.log, message);
        }
    }
}

/// Whether this process serves a configuration.
pub(super) fn is_started() -> bool {
    SERVING.0.borrow().is_some()
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

/// Has a namespace synced; `waiter` is told when the cycle has ended.
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
    SERVING.0.take();
    let mut worker = WORKER.0.take()?;
    worker.clients.iter().for_each(|it| it.client.send());
    let (patience, longest) = match cycle::is_terminated() {
        true => (LAST_PUSH_OF_TERM, LAST_PUSH_OF_TERM),
        false => LAST_PUSH_OF_QUIT,
    };
    let limits = LastPush { began: Machine.uptime(), patience, longest };
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
            if worker.unsent() > 0 {
                // There may be room now for what had none.
                worker.end_of_turn.post();
            }
            let replies = worker.clients.iter().flat_map(|it| it.client.replies());
            (worker.go_on, replies.collect::<Vec<_>>())
        });
        // Requests that go on may ask again.
        if let Some((go_on, replies)) = replies {
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
    with_client(decider, |worker, client, decider| {
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
    with_client(decider, |worker, client, decider| {
        worker.end_of_turn.post();
        if !client.charge_later(decider, question) {
            worker.count_dropped(question);
        }
    });
}

/// Looks at a decider's circuit; returns whether the decider is to be asked. Has it probed if it is time.
pub(super) fn check_circuit(decider: usize) -> bool {
    with_client(decider, |worker, client, decider| {
        let may_ask = client.check_circuit(decider, now_millis());
        // It may be to be probed.
        if !may_ask && client.unsent() > 0 {
            worker.end_of_turn.post();
        }
        may_ask
    })
    .unwrap_or(false)
}

/// Returns the time by the clock of a decider's store; `None`: it has not told it.
pub(super) fn store_time(decider: usize) -> Option<UnixMillis> {
    with_client(decider, |_, client, decider| client.store_time(decider, now_millis()))?
}

/// Returns the log of this worker's work for stores; `None`: it does none.
pub(super) fn log() -> Option<Log<'static>> {
    Some(WORKER.0.borrow().as_ref()?.log)
}

/// Notes that a decider did not answer in time, which this worker finds so long `after` the deadline. One that is that late
/// was stopped itself, and knows nothing of the store.
pub(super) fn record_timeout(decider: usize, after: Duration) {
    if after > STOPPED {
        return;
    }
    with_client(decider, |worker, client, decider| {
        worker.end_of_turn.post();
        client.record_timeout(decider, now_millis());
    });
}

/// Calls `callback` with the client of a decider, and the decider's number there; `None` if it cannot be asked.
fn with_client<T>(
    decider: usize,
    callback: impl FnOnce(&Worker, &Client, usize) -> T,
) -> Option<T> {
    let worker = WORKER.0.borrow();
    let worker = worker.as_ref()?;
    // In the order of their numbers.
    let mut clients = worker.clients.iter().rev();
    let known = clients.find_map(|it| Some((&it.client, decider.checked_sub(it.first)?)));
    let (client, decider) = known?;
    Some(callback(worker, client, decider))
}

/// At the end of a turn of the event loop in which something was asked, and of those that follow until
/// nothing more is.
fn end_turn(_: u64) {
    if let Some(worker) = &*WORKER.0.borrow() {
        worker.send_or_gather();
    }
}

impl Worker {
    fn new(
        serving: &Serving,
        namespaces: Vec<SyncedNamespace>,
        broker: Option<Broker>,
    ) -> io::Result<Worker> {
        let Serving { bells, go_on, log } = serving.clone();
        let client = broker.as_ref();
        let client = client.and_then(|broker| Client::new(broker.queues.clone(), broker.worker));
        let eventfd = client.as_ref().and_then(Client::eventfd);
        let wake = Wake::new(eventfd.map_or_else(EventFd::new, Ok)?, Some(woken), log)?;
        let bell = bells.and_then(|bells| bells.of(cycle::worker()).cloned());
        let mut worker = Worker {
            thread: Thread::start(wake.eventfd(), bell.clone())?,
            wake,
            jobs: Vec::new(),
            clients: Vec::new(),
            brokers: broker.into_iter().collect(),
            bell,
            asks: Cell::new(true),
            end_of_turn: EndOfTurn::new(log, end_turn, 0),
            turns: Cell::new(0),
            asked: Cell::new(0),
            go_on,
            ended: Vec::new(),
            log,
        };
        let client = client.map(|client| DeciderClient { first: 0, client });
        worker.clients.extend(client);
        for broker in &worker.brokers {
            worker.thread.ask(broker.clone());
        }
        worker.sync(serving, namespaces);
        Ok(worker)
    }

    /// Starts to sync namespaces.
    fn sync(&mut self, serving: &Serving, namespaces: Vec<SyncedNamespace>) {
        if let Some(bells) = &serving.bells {
            let own = u16::try_from(cycle::worker()).unwrap_or(u16::MAX);
            for namespace in &namespaces {
                let bells = bells.clone();
                let table = namespace.namespace.table();
                table.wake_by(own, move |worker| bells.ring(worker));
            }
        }
        self.thread.sync_also(&namespaces);
        for namespace in namespaces {
            let mut job = Job::new(self.jobs.len(), namespace, tick, self.log);
            job.start();
            self.jobs.push(job);
        }
    }

    /// Starts to sync a namespace that a caller has defined, and to ask its store, if that decides.
    fn add(&mut self, serving: &Serving, late: LateNamespace) {
        if let Some((first, store)) = late.decided
            && let Err(error) = self.ask_also(first, store)
        {
            let name = &late.synced.name;
            let message = format_args!(
                "ratelimit: the store of namespace \"{name}\" is not asked about requests ({error})"
            );
            log::error(NGX_LOG_ERR, self.log, message);
        }
        self.sync(serving, vec![late.synced]);
    }

    /// Starts to ask a store, for this worker alone.
    fn ask_also(&mut self, first: usize, store: DecidingStore) -> io::Result<()> {
        let deciders = match store.is_divided {
            true => store.shards.len(),
            false => 1,
        };
        let queues = SharedQueues::waking(vec![self.wake.eventfd()], deciders)?;
        let broker = Broker {
            queues: Arc::new(queues),
            worker: 0,
            stores: vec![store],
            uptime: || Machine.uptime(),
        };
        let client = Client::new(broker.queues.clone(), broker.worker);
        let client = client.map(|client| DeciderClient { first, client });
        self.clients.extend(client);
        self.thread.ask(broker.clone());
        self.brokers.push(broker);
        Ok(())
    }

    /// Returns how many words were not sent yet to brokers.
    fn unsent(&self) -> usize {
        self.clients.iter().map(|it| it.client.unsent()).sum()
    }

    /// Sends what was asked in this turn and in those before, unless more may come of what is ready
    /// by now: then that is handled first, without waiting for anything.
    fn send_or_gather(&self) {
        let turns = self.turns.get().saturating_add(1);
        let asked = self.unsent();
        if asked > self.asked.replace(asked) && turns < MAX_TURNS {
            self.turns.set(turns);
            self.end_of_turn.post_next();
        } else {
            self.turns.set(0);
            self.asked.set(0);
            self.clients.iter().for_each(|it| it.client.send());
        }
    }

    /// Counts what a question charges as hits that the store does not get.
    fn count_dropped(&self, question: &Question) {
        for counter in &question.counters {
            let mut jobs = self.jobs.iter().map(|job| job.namespace.namespace);
            let namespace = jobs.find(|it| *it.name() == counter.shard.namespace);
            if let Some(namespace) = namespace {
                let table = namespace.table();
                table.count_dropped(namespace.index(), counter.cost);
            }
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
        if let Ok(mut thread) = Thread::start(self.wake.eventfd(), self.bell.clone()) {
            thread.sync_also(&namespaces);
            for broker in &self.brokers {
                thread.ask(broker.clone());
            }
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
        if let Some(Report { pushed, fetched, .. }) = report {
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
