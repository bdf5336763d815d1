//! The task of a decider: it connects, sends one exchange after another, and probes the store while
//! it is down.

use core::any::Any;
use core::cell::RefCell;
use core::fmt;
use core::ops::Range;
use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, FutureExt as _, select};

use super::backlog::{Backlog, Gathered};
use super::batching::BatchingDelay;
use super::dispatcher::{Dispatcher, WaitingRequest};
use super::store_event::{Observer, StoreWatch, WatchedStore};
use crate::broker::shared::shared_queues::DeciderState;
use crate::broker::shared::store_clock::LearnedClock;
use crate::broker::wake::Timer;
use crate::policy::reserve::Grants;
use crate::store::contract::decision::{AskedCounter, Decided, Decider, Few, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Epoch, NodeId, Shard};
use crate::store::retry::Retries;
use crate::table::words::fail::fail_point;
use crate::table::words::system::random_number;
use crate::table::{CounterTable, NamespaceIndex, SyncState};

/// Interval in which the workers' rings are drained while a store is down, so that they do not fill
/// up.
const COLLECT: Duration = Duration::from_millis(50);
/// Interval in which an idle task checks whether a newer configuration serves.
const LOOK: Duration = Duration::from_millis(500);
/// Idle time after which a task of an old configuration closes its connection. Requests that were
/// begun before a reload mostly ask within it, and do not wait for a new connection.
const LINGER: Duration = Duration::from_secs(5);

/// Asks one decider, for all workers.
pub(super) struct DeciderTask {
    pub(super) dispatcher: Rc<Dispatcher>,
    /// The decider's store.
    pub(super) store: Arc<WatchedStore>,
    /// The numbers of all deciders of the store.
    pub(super) siblings: Range<usize>,
    pub(super) decider: usize,
    /// Questions of a probe, which finds out whether the store answers.
    pub(super) probe: Vec<Question>,
    /// Questions that require the same of the store as those of requests.
    pub(super) trial: Vec<Question>,
    /// The namespaces of the store.
    pub(super) namespaces: Rc<[DecidedNamespace]>,
    /// See [`DecidingStore`](super::serve::DecidingStore).
    pub(super) is_superseded: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A namespace that a store decides.
#[derive(Clone)]
pub struct DecidedNamespace {
    /// The name.
    pub name: Arc<str>,
    /// The table with its counters.
    pub table: &'static CounterTable<'static>,
    /// The namespace's index in the table's directory.
    pub index: NamespaceIndex,
    /// Sync states of its shards, if hits are reserved; otherwise empty.
    pub granted: Vec<SyncState<'static>>,
    /// The time for which a request waits for its answer.
    pub timeout: Duration,
    /// Keeps the mapped table alive.
    pub lent: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DecidedNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DecidedNamespace").field(&self.name).finish()
    }
}

type DeciderBacklog = Backlog<WaitingRequest>;

/// The clients of a store's tasks, which share their connections if the store's clients can.
pub(super) struct StoreClients<S> {
    connect: Box<dyn Fn() -> S>,
    /// A client whose connections the others share; `None` before the first one.
    shared: RefCell<Option<S>>,
}

impl<S: Decider> StoreClients<S> {
    pub(super) fn new(connect: impl Fn() -> S + 'static) -> StoreClients<S> {
        StoreClients { connect: Box::new(connect), shared: RefCell::default() }
    }

    /// Returns another client, which connects at its first use.
    fn client(&self) -> S {
        let mut shared = self.shared.borrow_mut();
        let shared = shared.get_or_insert_with(&self.connect);
        shared.share().unwrap_or_else(&self.connect)
    }

    /// Lets shared connections close when the last client that uses them is dropped.
    fn release(&self) {
        self.shared.take();
    }
}

/// The state of a running task.
struct Served<'t, D> {
    clients: Rc<StoreClients<D>>,
    /// `None` if the task needs no connection.
    client: Option<D>,
    node: NodeId,
    state: DeciderState<'t>,
    backlog: &'t DeciderBacklog,
    retries: Retries,
    watch: StoreWatch,
}

/// The pauses of a task between exchanges.
struct Pauses {
    delay: BatchingDelay,
    /// Time at which the rate was last computed.
    learned: Duration,
    /// `None` if the system has no timer left; then there are no pauses.
    timer: Option<Timer>,
}

impl DeciderTask {
    /// Answers questions until the dispatcher is closed.
    pub(super) async fn serve<D: Decider>(self, clients: Rc<StoreClients<D>>, node: NodeId) {
        let (Some(state), Some(backlog)) = (
            self.dispatcher.queues.decider(self.decider),
            self.dispatcher.backlogs.get(self.decider),
        ) else {
            return;
        };
        let retries = Retries::default();
        let watch = StoreWatch::new(self.store.clone(), Observer::Broker);
        let mut served = Served { clients, client: None, node, state, backlog, retries, watch };
        // Connects before a request waits for it. A store that is lost may answer but refuse, so it
        // gets the trial.
        let first = match self.store.is_lost() {
            true => &self.trial,
            false => &self.probe,
        };
        if !(self.is_superseded)() && self.ask(&mut served, first).await.is_err() {
            self.wait_for(&mut served, first).await;
        }
        let mut pauses = Pauses::new((self.dispatcher.uptime)());
        let mut clock = LearnedClock::default();
        while let Some(gathered) = self.next(&mut served, &mut pauses).await {
            let questions = match &*gathered.questions {
                [] => &self.probe,
                questions => questions,
            };
            pauses.delay.note(questions.len());
            let began = (self.dispatcher.uptime)();
            match self.ask(&mut served, questions).await {
                Ok(Decided { now, answers }) => {
                    let ended = (self.dispatcher.uptime)();
                    if self.dispatcher.is_serving() {
                        state.clock.set(clock.learn(now, ended));
                    }
                    let took = ended.saturating_sub(began);
                    let now = self.dispatcher.now();
                    let decided = backlog.ask_again(gathered, answers, took, now);
                    let (reply_to, answers, has_raced) = decided;
                    self.dispatcher.reply(&reply_to, answers.into_iter().map(Some));
                    if has_raced && !self.dispatcher.is_closed.get() {
                        // The racing requests ask again too, at other random times.
                        tokio::time::sleep(took.mul_f32(fraction())).await;
                    }
                }
                Err(error) => {
                    let replies = core::iter::repeat(None);
                    self.dispatcher.reply(&gathered.reply_to, replies);
                    // The store is back when the failed operation succeeds, not when it answers
                    // something else.
                    let trial = match &*gathered.questions {
                        [] => self.probe.clone(),
                        questions => Question::trials(questions),
                    };
                    let is_undone = !error.may_have_applied();
                    backlog.leave(gathered, is_undone, self.dispatcher.now());
                    self.wait_for(&mut served, &trial).await;
                }
            }
        }
        // The process ends, and the kept charges with it.
        backlog.forget_charges();
        self.count_dropped(backlog);
    }

    /// Asks questions, and records whether they were answered.
    async fn ask(
        &self,
        served: &mut Served<'_, impl Decider>,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let Served { clients, client, node, watch, .. } = served;
        let store = client.get_or_insert_with(|| clients.client());
        watch.begin();
        let granted = self.granted(questions);
        for (shard, grants, _) in &granted {
            match grants {
                Grants::None => store.follow(shard, None),
                Grants::UpTo(witness) => store.follow(shard, Some(*witness)),
                // Reserves whose charges are lost must be voided first.
                Grants::Lost => {}
            }
        }
        let asked = store.decide(*node, Epoch::proposed(), questions);
        let decided = asked.await;
        fail_point!("broker.decided");
        // Before the answer is passed on, so that the state of the charges is never behind the
        // granted hits.
        for (shard, before, state) in granted {
            if let Some(history) = store.take_history(&shard).filter(|_| decided.is_ok()) {
                let after = match history.is_whole {
                    true => Grants::UpTo(history.witness),
                    false => Grants::Lost,
                };
                state.record_grants(before, after);
            }
        }
        fail_point!("broker.granted");
        self.note(decided.as_ref().err(), served);
        fail_point!("broker.noted");
        decided
    }

    /// Returns the shards in which these questions reserve hits, with the state of their charges.
    fn granted(&self, questions: &[Question]) -> Few<(Shard, Grants, SyncState<'static>)> {
        let mut granted: Few<(Shard, Grants, SyncState<'static>)> = Few::new();
        if self.namespaces.iter().all(|it| it.granted.is_empty()) {
            return granted;
        }
        for AskedCounter { shard, .. } in questions.iter().flat_map(|it| &it.counters) {
            if granted.iter().any(|(it, ..)| it == shard) {
                continue;
            }
            let mut namespaces = self.namespaces.iter();
            let namespace = namespaces.find(|it| it.name == shard.namespace);
            let state = namespace.and_then(|it| it.granted.get(usize::from(shard.number)));
            if let Some(state) = state {
                granted.push((shard.clone(), state.grants(), *state));
            }
        }
        granted
    }

    /// Records the store's success or failure.
    fn note(&self, error: Option<&StoreError>, served: &mut Served<'_, impl Decider>) {
        // If this process was stopped, its result may be outdated.
        if !self.dispatcher.is_serving() {
            return;
        }
        let Served { state, client, watch, .. } = served;
        let event = match error {
            Some(error) => {
                state.breaker.open(self.dispatcher.now());
                watch.fail(error, error.is_disconnected())
            }
            None => {
                state.breaker.close();
                let queues = &self.dispatcher.queues;
                let mut all = self.siblings.clone().filter_map(|it| queues.decider(it));
                if !all.all(|it| it.breaker.is_closed()) {
                    // Not all of the store is back.
                    return;
                }
                watch.succeed(|| client.as_ref().and_then(|it| it.server()))
            }
        };
        if event.is_some() {
            self.dispatcher.events.push(event);
        }
    }

    /// Waits for the next questions; `None` when no more can come.
    async fn next(
        &self,
        served: &mut Served<'_, impl Decider>,
        pauses: &mut Pauses,
    ) -> Option<Gathered<WaitingRequest>> {
        let Served { state, backlog, .. } = *served;
        loop {
            self.dispatcher.collect();
            self.count_dropped(backlog);
            if let Some((questions, pause)) =
                pauses.awaits(backlog.waiting(), (self.dispatcher.uptime)())
            {
                select(pin!(pause), pin!(self.gather(backlog, state, questions))).await;
                self.dispatcher.collect();
            }
            let gathered = backlog.take(self.dispatcher.now());
            if !gathered.is_nothing() {
                let unset = state.doorbell.unset(self.dispatcher.term);
                self.dispatcher.unless_replaced(unset);
                return Some(gathered);
            }
            if self.dispatcher.is_closed.get() {
                return None;
            }
            let asked = self.gather(backlog, state, 1);
            if served.client.is_none() {
                asked.await;
            } else if let Either::Right(_) = select(pin!(asked), pin!(self.idle())).await {
                served.client = None;
                served.clients.release();
            }
        }
    }

    /// Waits until an idle task needs no connection.
    async fn idle(&self) {
        while !(self.is_superseded)() {
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(LINGER).await;
    }

    /// Waits until there are `questions` questions, or another reason to continue.
    async fn gather(&self, backlog: &DeciderBacklog, state: DeciderState<'_>, questions: usize) {
        backlog.awaited.set(questions);
        while let Some(more) = backlog.lacking()
            && !self.dispatcher.is_closed.get()
        {
            let set = state.doorbell.set(self.dispatcher.term, more as u64);
            self.dispatcher.unless_replaced(set);
            self.dispatcher.collect();
            if backlog.lacking() == Some(more) {
                self.dispatcher.wait(backlog).await;
            }
        }
    }

    /// Waits until the store executes `trial` again. Meanwhile requests find the circuit open, and
    /// charges made without the store are kept.
    async fn wait_for(&self, served: &mut Served<'_, impl Decider>, trial: &[Question]) {
        let backlog = served.backlog;
        backlog.leave(Gathered::default(), false, self.dispatcher.now());
        served.retries.begin((self.dispatcher.uptime)());
        loop {
            let is_serving = self.dispatcher.is_serving();
            if is_serving {
                served.state.breaker.open(self.dispatcher.now());
            }
            // If another process serves, only the charges that are kept here still need the store.
            if !self.dispatcher.may_wait() || !is_serving && !backlog.keeps_charges() {
                return backlog.forget_charges();
            }
            self.pause(served.retries.pause(random_number().get()), backlog).await;
            // The first failure may have been before other processes found the store up.
            if self.ask(served, trial).await.is_ok() {
                served.retries.end((self.dispatcher.uptime)());
                return backlog.come_back();
            }
        }
    }

    async fn pause(&self, pause: Duration, backlog: &DeciderBacklog) {
        let mut left = pause;
        while left > Duration::ZERO && self.dispatcher.may_wait() {
            let part = left.min(COLLECT);
            tokio::time::sleep(part).await;
            self.dispatcher.collect();
            backlog.forget_late(self.dispatcher.now());
            self.count_dropped(backlog);
            left = left.saturating_sub(part);
        }
    }

    /// Counts the lost hits.
    fn count_dropped(&self, backlog: &DeciderBacklog) {
        for (name, hits) in backlog.take_dropped() {
            let mut namespaces = self.namespaces.iter();
            if let Some(namespace) = namespaces.find(|it| it.name == name) {
                namespace.table.count_dropped(namespace.index, hits);
            }
        }
    }
}

/// Returns a random number from 0 to 1.
fn fraction() -> f32 {
    let word = random_number().get() >> 48;
    f32::from(u16::try_from(word).unwrap_or(0)) / f32::from(u16::MAX)
}

impl Pauses {
    fn new(now: Duration) -> Pauses {
        Pauses { delay: BatchingDelay::default(), learned: now, timer: Timer::new().ok() }
    }

    /// Returns how many questions to wait for, and until when; `None` if a pause is not worthwhile.
    fn awaits(
        &mut self,
        waiting: usize,
        now: Duration,
    ) -> Option<(usize, impl Future<Output = ()>)> {
        if self.delay.learn(now.saturating_sub(self.learned)) {
            self.learned = now;
        }
        let questions = self.delay.awaits(waiting)?;
        // If the timer fails, there is no pause.
        let pause = self.timer.as_ref()?.sleep(BatchingDelay::PAUSE).map(drop);
        Some((questions, pause))
    }
}
