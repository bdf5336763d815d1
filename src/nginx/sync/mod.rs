//! Synced namespaces: each worker has a timer for every namespace, and a thread that runs the
//! syncs.
//!
//! The timers and the log belong to nginx's event loop; the cycles and the store's connections
//! belong to the thread, so that no datastore ever blocks the event loop. The thread wakes the
//! event loop when it has results. All workers run the same code. A lease in shared memory decides,
//! for each cycle, which worker syncs; a lock decides which worker asks stores about the requests
//! of all workers.
//!
//! - [`thread`]: the thread; [`task`]: its [driver](crate::engine::SyncDriver) of each namespace
//! - [`channel`]: its subscriptions to other nodes' pushes; [`wake`]: how it wakes the event loop
//!
//! The exchange with deciders is in [`crate::broker`].

mod channel;
mod task;
mod thread;
mod wake;

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use nginx_sys::{NGX_LOG_ERR, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_event_t};

use super::conf::{LateNamespace, SyncedNamespace};
use super::cycle;
use super::event_loop::{EndOfTurn, EventTimer, OfEventLoop, guard, measured, monotonic_millis};
use super::log::{self, Log};
use crate::broker::shared::message::Reply;
use crate::broker::{Bells, Broker, Client, DecidingStore, EventFd, Severity, SharedQueues};
use crate::engine::{Env as _, LastPush, Machine, Report};
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::Question;
use crate::table::MonotonicMillis;
use task::Done;
pub(super) use task::SyncWaiter;
use thread::Thread;
use wake::Wake;

/// Most turns of the event loop in which questions are collected before they are sent.
const MAX_TURNS: u32 = 8;
/// Time until the first cycle in milliseconds, the shortest of nginx's timers. A new node is to
/// know the current totals.
const AT_ONCE: u64 = 1;
/// Pause before a thread that the system has refused is started again.
const START_AGAIN: Duration = Duration::from_secs(1);
/// A timer that is later than this shows that the worker was stopped or got no CPU time.
const STOPPED: Duration = Duration::from_millis(100);

/// Longest last push of a worker at a fast shutdown. The master kills it half a second later.
const LAST_PUSH_OF_TERM: Duration = Duration::from_secs(1);
/// Longest last push of a worker at a graceful shutdown.
const LAST_PUSH_OF_QUIT: Duration = Duration::from_secs(2);

/// The context in which this process serves; `None` if it serves no configuration.
static SERVING: OfEventLoop<RefCell<Option<Serving>>> = OfEventLoop(RefCell::new(None));

/// The context in which a process serves, even if it syncs nothing.
#[derive(Clone)]
struct Serving {
    bells: Option<Arc<Bells>>,
    /// Takes the stores' replies about requests.
    go_on: fn(Vec<Reply>),
    log: Log<'static>,
}

/// The sync state of this worker; `None` if it neither syncs nor asks stores.
static WORKER: OfEventLoop<RefCell<Option<Worker>>> = OfEventLoop(RefCell::new(None));

struct Worker {
    thread: Thread,
    /// Set while the system has refused a thread in place of one that has panicked.
    start_again: EventTimer<'static>,
    wake: Wake,
    /// The synced namespaces, by their numbers in the thread, with their timers.
    namespaces: Vec<(SyncedNamespace, EventTimer<'static>)>,
    /// Clients that ask deciders; empty if no store decides, or the queues could not be created.
    clients: Vec<DeciderClient>,
    /// Brokers that ask the deciders: one for all workers, run by the thread of the worker that
    /// holds the lock; the others for namespaces that only this worker has defined.
    brokers: Vec<Broker>,
    /// Eventfd that wakes the thread for early pushes; `None` without zones.
    bell: Option<EventFd>,
    /// Whether stores are still asked about requests.
    asks: Cell<bool>,
    /// Posted when a question is queued.
    end_of_turn: EndOfTurn<'static>,
    /// Turns in which questions were collected so far, and the number of unsent words after the
    /// last one.
    turns: Cell<u32>,
    asked: Cell<usize>,
    /// Takes the stores' replies about requests.
    go_on: fn(Vec<Reply>),
    /// Waiters whose cycle has ended, with its report.
    ended: Vec<(SyncWaiter, Option<Report>)>,
    log: Log<'static>,
}

/// This worker's client of some deciders.
struct DeciderClient {
    /// Number of the first decider.
    first: usize,
    client: Client,
}

/// Starts to sync `namespaces` and to ask `stores` in this worker. The syncs of another
/// configuration must have ended. `late` are the namespaces that callers have defined in this
/// worker before. `go_on` takes the stores' replies about requests.
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

/// Starts to sync a namespace that a caller has defined, if this process serves.
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

/// Returns whether this process serves a configuration.
pub(super) fn is_started() -> bool {
    SERVING.0.borrow().is_some()
}

/// Stops asking stores about requests, except for refunds, because this process changes to another
/// configuration.
pub(super) fn end_questions() {
    if let Some(worker) = &*WORKER.0.borrow() {
        worker.asks.set(false);
    }
}

/// Ends all syncs, because this process changes to another configuration. No request may be
/// waiting.
pub(super) fn end() {
    if let Some(worker) = leave() {
        // Without a time limit: nginx is about to unmap zones that the thread uses.
        worker.thread.wait_for_end();
    }
}

/// Syncs a namespace. A cycle of this worker begins now, or after the cycle that is running here or
/// in another worker. Returns false if this process does not sync the namespace.
pub(super) fn sync_now(namespace: &str) -> bool {
    with_worker(|worker| worker.sync_now(namespace, None)).unwrap_or(false)
}

/// Syncs a namespace, and calls `waiter` when the cycle has ended. Returns false if this process
/// does not sync the namespace.
pub(super) fn sync_for(namespace: &str, waiter: SyncWaiter) -> bool {
    with_worker(|worker| worker.sync_now(namespace, Some(waiter))).unwrap_or(false)
}

/// Makes the sync of a namespace recur. Returns false if this process does not sync it.
pub(super) fn start_timer(namespace: &str) -> bool {
    with_worker(|worker| worker.start_timer(namespace)).unwrap_or(false)
}

/// Pushes the remaining hits and ends the thread, both in a limited time, because this process
/// ends.
pub(super) fn stop() {
    leave();
}

fn leave() -> Option<Worker> {
    SERVING.0.take();
    let mut worker = WORKER.0.take()?;
    worker.clients.iter().for_each(|it| it.client.send());
    let longest = match cycle::is_terminated() {
        true => LAST_PUSH_OF_TERM,
        false => LAST_PUSH_OF_QUIT,
    };
    for done in worker.thread.finish(LastPush { began: Machine.uptime(), longest }) {
        worker.note(done);
    }
    worker.log_store_events();
    Some(worker)
}

/// nginx's callback when the thread has woken the event loop.
unsafe extern "C" fn woken(_event: *mut ngx_event_t) {
    guard((), || take_results(0));
}

/// Timer callback of namespace `number`.
fn tick(number: u64) {
    with_worker(|worker| worker.tick(usize::try_from(number).unwrap_or(usize::MAX)));
}

/// Takes the results of the thread, and the replies of brokers.
fn take_results(_: u64) {
    let replies = with_worker(|worker| {
        worker.wake.clear();
        worker.take_results();
        if worker.unsent() > 0 {
            // The queues may have room again for unsent questions.
            worker.end_of_turn.post();
        }
        let replies = worker.clients.iter().flat_map(|it| it.client.replies());
        let ended = core::mem::take(&mut worker.ended);
        (worker.go_on, replies.collect::<Vec<_>>(), ended)
    });
    // Called without a borrow, since resumed requests may ask again.
    if let Some((go_on, replies, ended)) = replies {
        go_on(replies);
        for (waiter, report) in ended {
            (waiter.done)(waiter.id, report);
        }
    }
}

fn with_worker<T>(callback: impl FnOnce(&mut Worker) -> T) -> Option<T> {
    let mut worker = WORKER.0.borrow_mut();
    let worker = worker.as_mut()?;
    let table = worker.namespaces.first().map(|(it, _)| it.namespace.table());
    Some(measured(table, || callback(worker)))
}

/// Asks a decider about request `id`, which waits for the answer until `deadline`, in milliseconds
/// of nginx's monotonic clock. Without an `id`, nothing waits. Returns whether the question was
/// queued.
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

/// Makes a decider charge or refund hits, without waiting for an answer. Returns whether the
/// question was queued.
pub(super) fn tell(decider: usize, question: &Question) -> bool {
    ask(decider, None, 0, question)
}

/// Makes a decider charge hits that were counted without it, once it answers again.
pub(super) fn charge_later(decider: usize, question: &Question) {
    with_client(decider, |worker, client, decider| {
        worker.end_of_turn.post();
        if !client.charge_later(decider, question) {
            worker.count_dropped(question);
        }
    });
}

/// Returns whether the circuit of a decider is closed. Starts a probe if one is due.
pub(super) fn check_circuit(decider: usize) -> bool {
    with_client(decider, |worker, client, decider| {
        let may_ask = client.check_circuit(decider, now_millis());
        // The decider may have to be probed.
        if !may_ask && client.unsent() > 0 {
            worker.end_of_turn.post();
        }
        may_ask
    })
    .unwrap_or(false)
}

/// Returns the time of a decider's store; `None` if the store has not sent it.
pub(super) fn store_time(decider: usize) -> Option<UnixMillis> {
    with_client(decider, |_, client, decider| client.store_time(decider, now_millis()))?
}

/// Returns the log of a process that serves a configuration.
pub(super) fn serving_log() -> Option<Log<'static>> {
    Some(SERVING.0.borrow().as_ref()?.log)
}

/// Returns the log for messages about stores; `None` if this worker uses no store.
pub(super) fn log() -> Option<Log<'static>> {
    Some(WORKER.0.borrow().as_ref()?.log)
}

/// Records that a decider has missed a deadline, which this worker notices `after` the deadline. If
/// that is very late, the worker itself was stopped, and the timeout says nothing about the store.
pub(super) fn record_timeout(decider: usize, after: Duration) {
    if after > STOPPED {
        return;
    }
    with_client(decider, |worker, client, decider| {
        worker.end_of_turn.post();
        client.record_timeout(decider, now_millis());
    });
}

/// Calls `callback` with the client of a decider, and the decider's number in it; `None` if the
/// decider cannot be asked.
fn with_client<T>(
    decider: usize,
    callback: impl FnOnce(&Worker, &Client, usize) -> T,
) -> Option<T> {
    let worker = WORKER.0.borrow();
    let worker = worker.as_ref()?;
    // Clients are in the order of their first numbers.
    let mut clients = worker.clients.iter().rev();
    let known = clients.find_map(|it| Some((&it.client, decider.checked_sub(it.first)?)));
    let (client, decider) = known?;
    Some(callback(worker, client, decider))
}

/// Sends or collects questions at the end of a turn of the event loop.
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
            start_again: EventTimer::new(log, take_results, 0).cancelable(),
            wake,
            namespaces: Vec::new(),
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
            let number = self.namespaces.len() as u64;
            // nginx does not delay its exit for this timer.
            let timer = EventTimer::new(self.log, tick, number).cancelable();
            if !namespace.waits_for_caller {
                timer.set(AT_ONCE);
            }
            self.namespaces.push((namespace, timer));
        }
    }

    /// Begins a cycle of a namespace if the node was not synced in this period, and sets the timer
    /// for the next period.
    fn tick(&mut self, number: usize) {
        if let Some((namespace, timer)) = self.namespaces.get(number) {
            timer.set(u64::try_from(namespace.period.as_millis()).unwrap_or(u64::MAX));
        }
        // A thread that has ended wakes the event loop, which starts another one.
        let _ = self.thread.tick(number);
    }

    /// Starts to sync a namespace that a caller has defined, and to ask its store if that decides.
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

    /// Starts to ask a store for this worker only.
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

    /// Returns the number of words that are not sent to brokers yet.
    fn unsent(&self) -> usize {
        self.clients.iter().map(|it| it.client.unsent()).sum()
    }

    /// Sends the collected questions. If this turn has added some, waits for one more turn first,
    /// since the events that are ready may add others.
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

    /// Counts the hits that a question would have charged as lost.
    fn count_dropped(&self, question: &Question) {
        for counter in &question.counters {
            let mut namespaces = self.namespaces.iter().map(|(it, _)| it.namespace);
            let namespace = namespaces.find(|it| *it.name() == counter.shard.namespace);
            if let Some(namespace) = namespace {
                let table = namespace.table();
                table.count_dropped(namespace.index(), counter.cost);
            }
        }
    }

    /// Syncs a namespace as soon as possible. Returns false if it is not synced here.
    fn sync_now(&mut self, namespace: &str, waiter: Option<SyncWaiter>) -> bool {
        let number = self.number_of(namespace);
        number.is_some_and(|number| self.thread.sync(number, waiter))
    }

    /// Makes cycles of a namespace recur. Returns false if it is not synced here.
    fn start_timer(&mut self, namespace: &str) -> bool {
        let Some(number) = self.number_of(namespace) else {
            return false;
        };
        if let Some((namespace, _)) = self.namespaces.get_mut(number)
            && core::mem::take(&mut namespace.waits_for_caller)
        {
            self.tick(number);
        }
        true
    }

    /// Returns the number of a namespace in the thread. Starts the thread again if it has ended.
    fn number_of(&mut self, namespace: &str) -> Option<usize> {
        if self.thread.has_ended() {
            self.start_again();
        }
        self.namespaces.iter().position(|(it, _)| *it.name == *namespace)
    }

    /// Takes the thread's results.
    fn take_results(&mut self) {
        for done in self.thread.done() {
            self.note(done);
        }
        self.log_store_events();
        if self.thread.has_ended() {
            self.start_again();
        }
    }

    /// Logs the new events of stores.
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

    /// Starts another thread in place of one that has panicked.
    #[cold]
    fn start_again(&mut self) {
        let message = "ratelimit: the thread that syncs has ended, it is started again";
        log::error(NGX_LOG_ERR, self.log, message);
        let Ok(mut thread) = Thread::start(self.wake.eventfd(), self.bell.clone()) else {
            self.start_again.set(START_AGAIN.as_millis() as u64);
            return;
        };
        let namespaces: Vec<_> = self.namespaces.iter().map(|(it, _)| it.clone()).collect();
        thread.sync_also(&namespaces);
        for broker in &self.brokers {
            thread.ask(broker.clone());
        }
        self.thread = thread;
        // The last cycle may be lost.
        for (namespace, timer) in &self.namespaces {
            if !namespace.waits_for_caller {
                timer.set(AT_ONCE);
            }
        }
    }

    /// Logs the end of a cycle, and keeps its waiter.
    fn note(&mut self, done: Done) {
        let Done { number, report, waiter } = done;
        if let Some(waiter) = waiter {
            self.ended.push((waiter, report));
        } else if let Some(Report { pushed, fetched, .. }) = report
            && let Some((SyncedNamespace { name, .. }, _)) = self.namespaces.get(number)
        {
            log::debug(self.log, || {
                format!("ratelimit_namespace \"{name}\": {pushed} pushed, {fetched} fetched")
            });
        }
    }
}

/// Returns the time of nginx's monotonic clock, which all processes share.
fn now_millis() -> MonotonicMillis {
    MonotonicMillis(monotonic_millis())
}
