//! What the thread does for synchronous namespaces: asks the stores about all requests that wait, of
//! all workers of this configuration. It needs a clock, and what connects to a store.
//!
//! One worker's thread does it for all, the others wait to take its place. While an exchange is under
//! way, further questions gather, and travel in the next one: the more there are, the less each costs.
//! Each shard of a cluster is asked for itself, so that one whose server is away keeps no other
//! waiting.

use core::cell::{Cell, RefCell};
use core::hash::BuildHasher as _;
use core::num::NonZeroU64;
use core::ops::Range;
use core::pin::pin;
use core::sync::atomic::{AtomicU8, Ordering::AcqRel};
use core::time::Duration;
use std::hash::RandomState;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, FutureExt as _, join, select};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinSet, spawn_blocking};

use super::batching::BatchingDelay;
use super::common::{Common, State, write_messages};
use super::inbox::Inbox;
use super::message::{Ask, Reader, messages, write_reply};
use super::news::{Finder, News, Watched};
use super::source::Source;
use super::timer::Timer;
use crate::store::decision::{Answer, Decider, Question};
use crate::store::error::StoreError;
use crate::store::registry::StoreVisitor;
use crate::store::strategy::{Epoch, NodeId, Shard};
use crate::table::MonotonicMillis;

/// How long after a failure, and after each that follows, it is looked whether the store is back.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
/// How often a worker that ends looks whether its last questions were taken.
const LAST_LOOK: Duration = Duration::from_millis(5);
/// How soon a worker tries again to wait for its turn, if the system refuses that.
const NO_LOCK: Duration = Duration::from_millis(100);
/// How soon it is tried again to leave answers with a worker that has not read those before.
const NO_ROOM: Duration = Duration::from_millis(1);

/// What it takes to ask for all workers.
#[derive(Clone)]
pub struct Asking {
    /// What the workers share.
    pub common: Arc<Common>,
    /// The number of this worker.
    pub worker: usize,
    /// Those that are asked.
    pub stores: Vec<DecidingStore>,
    /// The time that nobody sets, from a moment that all processes of the machine share.
    pub uptime: fn() -> Duration,
}

/// A store that decides about requests: one decider, or several.
#[derive(Clone)]
pub struct DecidingStore {
    /// What the log tells of.
    pub store: Arc<Watched>,
    /// What connects to it.
    pub source: Arc<dyn Source>,
    /// What tells this node from others.
    pub node: NodeId,
    /// The shards that it is divided into, each of which has a decider; `None`: there is one.
    pub shards: Option<Vec<Shard>>,
}

impl Asking {
    /// Asks the stores for all workers, when it is this worker's turn, until `ending` is closed.
    pub async fn serve(self, ending: oneshot::Receiver<()>, news: Inbox<News>) {
        let Asking {
            common,
            worker,
            stores,
            uptime,
        } = self;
        let ending = ending.map(drop).shared();
        if !wait_for_turn(&common, worker, ending.clone()).await {
            return;
        }
        let office = Rc::new(Office::new(common.clone(), news, uptime));
        let clerks = office.clerks(&stores);
        let close = async {
            select(ending, pin!(office.answer_bell())).await;
            // What was asked until now is still answered.
            office.close();
        };
        // If a clerk panics, so does this; the thread that follows has the lock at once.
        join(close, clerks.join_all()).await;
        common.unlock();
    }
}

/// Waits until this process is the one that asks. Returns false if it ends first, and has nothing left
/// to ask.
async fn wait_for_turn(
    common: &Arc<Common>,
    worker: usize,
    ending: impl Future<Output = ()> + Unpin,
) -> bool {
    const LOCKED: u8 = 1;
    const GIVEN_UP: u8 = 2;
    let outcome = Arc::<AtomicU8>::default();
    let mut locked = spawn_blocking({
        let (common, outcome) = (common.clone(), outcome.clone());
        move || {
            // There are too many locks.
            while common.lock().is_err() {
                std::thread::sleep(NO_LOCK);
            }
            if outcome.swap(LOCKED, AcqRel) == GIVEN_UP {
                common.unlock();
            }
        }
    });
    if let Either::Left((locked, _)) = select(&mut locked, ending).await {
        return locked.is_ok();
    }
    // Somebody has to take what this worker asked last.
    let line = common.line(worker);
    while line.is_some_and(|line| !line.questions.is_empty()) {
        if let Ok(locked) = tokio::time::timeout(LAST_LOOK, &mut locked).await {
            return locked.is_ok();
        }
    }
    if outcome.swap(GIVEN_UP, AcqRel) == LOCKED {
        common.unlock();
    }
    false
}

/// Where questions are sorted by who answers them.
struct Office {
    common: Arc<Common>,
    /// That of each clerk.
    mail: Vec<Mail>,
    reader: RefCell<Reader>,
    words: RefCell<Vec<u64>>,
    /// What is said to each worker, and has not had room yet.
    outboxes: RefCell<Vec<Vec<u64>>>,
    /// What the log is to tell of stores.
    news: Inbox<News>,
    /// The clock.
    uptime: fn() -> Duration,
    is_closed: Cell<bool>,
}

/// What a clerk is to answer.
#[derive(Default)]
struct Mail {
    asked: RefCell<Asked>,
    /// For how many questions the clerk waits.
    awaited: Cell<usize>,
    /// There are so many, or there is another reason to look.
    news: Notify,
}

/// Questions, and who asks each.
#[derive(Default)]
struct Asked {
    questions: Vec<Question>,
    askers: Vec<Asker>,
    /// Whether it is asked, too, if the store answers at all.
    is_probed: bool,
}

/// Who asks a question.
struct Asker {
    /// The number of the worker.
    worker: usize,
    /// The number of the request; `None`: nobody waits for the answer.
    id: Option<u64>,
    deadline: u64,
}

/// Who asks one decider.
struct Clerk {
    office: Rc<Office>,
    /// The store that has the decider.
    store: Arc<Watched>,
    /// All deciders that it has.
    siblings: Range<usize>,
    decider: usize,
    /// What is asked to find out whether there is an answer.
    probe: Vec<Question>,
}

/// The clerks of a store, none of which has a decider yet.
pub struct Clerks<'t> {
    clerks: Vec<Clerk>,
    node: NodeId,
    tasks: &'t mut JoinSet<()>,
}

/// Has each serve with a decider of its own.
impl StoreVisitor for Clerks<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let store = connect();
        for clerk in self.clerks {
            let store = store.share().unwrap_or_else(&connect);
            self.tasks.spawn_local(clerk.serve(store, self.node));
        }
    }
}

/// When a clerk waits for more questions.
struct Pauses {
    delay: BatchingDelay,
    /// When that was last told how much time passed.
    learned: Duration,
    /// `None`: the system had none left, and there are no pauses.
    timer: Option<Timer>,
}

impl Office {
    fn new(common: Arc<Common>, news: Inbox<News>, uptime: fn() -> Duration) -> Office {
        let mail = (0..common.deciders()).map(|_| Mail::default());
        let outboxes = common.lines().map(|_| Vec::new());
        Office {
            mail: mail.collect(),
            outboxes: RefCell::new(outboxes.collect()),
            common,
            reader: RefCell::default(),
            words: RefCell::default(),
            news,
            uptime,
            is_closed: Cell::new(false),
        }
    }

    fn now(&self) -> MonotonicMillis {
        let millis = (self.uptime)().as_millis();
        MonotonicMillis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Has clerks serve, as tasks: one for each decider.
    fn clerks(self: &Rc<Self>, stores: &[DecidingStore]) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for DecidingStore {
            store: watched,
            source,
            node,
            shards,
        } in stores
        {
            let probes = match shards {
                None => vec![Vec::new()],
                Some(shards) => {
                    let shards = shards.iter().cloned();
                    shards.map(|it| vec![Question::probe(it)]).collect()
                }
            };
            let first = tasks.len();
            let siblings = first..first.saturating_add(probes.len());
            let clerks = siblings.clone().zip(probes).map(|(decider, probe)| Clerk {
                office: self.clone(),
                store: watched.clone(),
                siblings: siblings.clone(),
                decider,
                probe,
            });
            source.connect(Clerks {
                clerks: clerks.collect(),
                node: *node,
                tasks: &mut tasks,
            });
        }
        tasks
    }

    /// Takes what workers have asked, and tells the clerks; nothing more when this is closed.
    fn collect(&self) {
        if self.is_closed.get() {
            return;
        }
        let (mut reader, mut words) = (self.reader.borrow_mut(), self.words.borrow_mut());
        for (worker, line) in self.common.lines().enumerate() {
            words.clear();
            line.questions.read(&mut words);
            for ask in messages(&words).filter_map(|it| reader.ask(it)) {
                if let Some(mail) = self.mail.get(ask.decider) {
                    mail.put(worker, ask);
                }
            }
        }
    }

    /// Collects what is asked while a clerk has nothing to do.
    async fn answer_bell(&self) {
        let Ok(bell) = self.common.bell().listen() else {
            return;
        };
        while let Ok(mut rung) = bell.readable().await {
            rung.clear_ready();
            self.collect();
        }
    }

    /// Tells workers what was said about their requests.
    fn reply(&self, askers: &[Asker], answers: impl Iterator<Item = Option<Answer>>) {
        let mut outboxes = self.outboxes.borrow_mut();
        for (asker, answer) in askers.iter().zip(answers) {
            if let (Some(outbox), Some(id)) = (outboxes.get_mut(asker.worker), asker.id) {
                write_reply(outbox, &(id, answer));
            }
        }
        drop(outboxes);
        self.deliver();
    }

    /// Leaves with workers what is said to them; returns whether all of it had room.
    fn deliver(&self) -> bool {
        let mut is_all = true;
        let mut outboxes = self.outboxes.borrow_mut();
        for (outbox, line) in outboxes.iter_mut().zip(self.common.lines()) {
            if !outbox.is_empty() {
                write_messages(&line.answers, outbox);
                line.eventfd.wake();
                is_all &= outbox.is_empty();
            }
        }
        is_all
    }

    /// Waits until there is something new for a clerk.
    async fn wait(&self, mail: &Mail) {
        while !self.deliver() {
            if tokio::time::timeout(NO_ROOM, mail.news.notified())
                .await
                .is_ok()
            {
                return;
            }
        }
        mail.news.notified().await;
    }

    /// Has the clerks leave when they have answered what was asked until now.
    fn close(&self) {
        self.collect();
        self.is_closed.set(true);
        for mail in &self.mail {
            mail.news.notify_one();
        }
    }
}

impl Clerk {
    /// Answers until the office is closed.
    async fn serve(self, mut store: impl Decider, node: NodeId) {
        let (Some(state), Some(mail)) = (
            self.office.common.state(self.decider),
            self.office.mail.get(self.decider),
        ) else {
            return;
        };
        // Connects before anybody waits for it.
        let probe = self.probe(&mut store, node).await;
        self.note(probe.as_ref().err(), state, &store);
        if probe.is_err() {
            self.wait_for(&mut store, node, state).await;
        }
        let mut pauses = Pauses::new((self.office.uptime)());
        while let Some(asked) = self.next(mail, state, &mut pauses).await {
            let Asked {
                mut questions,
                askers,
                ..
            } = asked;
            if questions.is_empty() {
                questions.clone_from(&self.probe);
            }
            pauses.delay.note(questions.len());
            match store.decide(node, proposal(), &questions).await {
                Ok(decided) => {
                    self.note(None, state, &store);
                    let answers = decided.answers.into_iter().map(Some);
                    self.office.reply(&askers, answers);
                }
                Err(error) => {
                    self.note(Some(&error), state, &store);
                    self.office.reply(&askers, core::iter::repeat(None));
                    self.wait_for(&mut store, node, state).await;
                }
            }
        }
    }

    /// Notes whether the store has answered, or why not.
    fn note(&self, error: Option<&StoreError>, state: State<'_>, store: &impl Decider) {
        let result = match error {
            Some(error) => {
                state.breaker.open(self.office.now());
                Err(error)
            }
            None => {
                state.breaker.close();
                Ok(())
            }
        };
        let common = &self.office.common;
        let mut all = self.siblings.clone().filter_map(|it| common.state(it));
        if result.is_ok() && !all.all(|it| it.breaker.is_closed()) {
            // It is not there as a whole.
            return;
        }
        let news = self.store.note(Finder::Asker, result, || store.server());
        if news.is_some() {
            self.office.news.push(news);
        }
    }

    /// What is to be asked now; `None` if there will be nothing more.
    async fn next(&self, mail: &Mail, state: State<'_>, pauses: &mut Pauses) -> Option<Asked> {
        loop {
            self.office.collect();
            if let Some((questions, pause)) = pauses.awaits(mail.waiting(), (self.office.uptime)())
            {
                select(pin!(pause), pin!(self.gather(mail, state, questions))).await;
                self.office.collect();
            }
            let asked = mail.take(self.office.now());
            if !asked.is_nothing() {
                state.doorbell.unset();
                return Some(asked);
            }
            if self.office.is_closed.get() {
                return None;
            }
            self.gather(mail, state, 1).await;
        }
    }

    /// Waits until there are so many questions, or another reason to go on.
    async fn gather(&self, mail: &Mail, state: State<'_>, questions: usize) {
        mail.awaited.set(questions);
        while let Some(more) = mail.lacking()
            && !self.office.is_closed.get()
        {
            state.doorbell.set(more as u64);
            self.office.collect();
            if mail.lacking() == Some(more) {
                self.office.wait(mail).await;
            }
        }
    }

    /// Waits until there are answers again: what is to be asked meanwhile finds the circuit open.
    async fn wait_for(&self, store: &mut impl Decider, node: NodeId, state: State<'_>) {
        let last = PAUSES.last().copied().unwrap_or_default();
        for pause in PAUSES.into_iter().chain(core::iter::repeat(last)) {
            state.breaker.open(self.office.now());
            if self.office.is_closed.get() {
                return;
            }
            tokio::time::sleep(pause).await;
            if self.probe(store, node).await.is_ok() {
                return self.note(None, state, store);
            }
        }
    }

    /// Finds out whether there are answers.
    async fn probe(&self, store: &mut impl Decider, node: NodeId) -> Result<(), StoreError> {
        let probe = store.decide(node, proposal(), &self.probe);
        probe.await.map(drop)
    }
}

impl Pauses {
    fn new(now: Duration) -> Pauses {
        Pauses {
            delay: BatchingDelay::default(),
            learned: now,
            timer: Timer::new().ok(),
        }
    }

    /// For how many questions to wait while so many are there, and until when; `None` if that is not
    /// worthwhile.
    fn awaits(
        &mut self,
        waiting: usize,
        now: Duration,
    ) -> Option<(usize, impl Future<Output = ()>)> {
        if self.delay.learn(now.saturating_sub(self.learned)) {
            self.learned = now;
        }
        let questions = self.delay.awaits(waiting)?;
        // If it fails, there is no pause.
        let pause = self.timer.as_ref()?.sleep(BatchingDelay::PAUSE).map(drop);
        Some((questions, pause))
    }
}

/// An epoch that nobody else proposes. Asks the system for random numbers only once.
fn proposal() -> Epoch {
    let number = RandomState::new().hash_one(());
    Epoch(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
}

impl Mail {
    fn put(&self, worker: usize, ask: Ask) {
        let mut asked = self.asked.borrow_mut();
        let Ask {
            id,
            deadline,
            question,
            ..
        } = ask;
        if question.counters.is_empty() {
            asked.is_probed = true;
        } else {
            asked.questions.push(question);
            asked.askers.push(Asker {
                worker,
                id,
                deadline,
            });
        }
        // Who is told once looks for all there is.
        if asked.is_probed || asked.questions.len() == self.awaited.get() {
            self.news.notify_one();
        }
    }

    /// How many questions there are.
    fn waiting(&self) -> usize {
        self.asked.borrow().questions.len()
    }

    /// How many questions the clerk still waits for; `None` if for none.
    fn lacking(&self) -> Option<usize> {
        let asked = self.asked.borrow();
        let more = self.awaited.get().saturating_sub(asked.questions.len());
        (more > 0 && !asked.is_probed).then_some(more)
    }

    /// So many questions as are asked at once, without those that nobody waits for any more: they were
    /// answered otherwise.
    fn take(&self, now: MonotonicMillis) -> Asked {
        if self.asked.borrow().is_nothing() {
            return Asked::default();
        }
        let mut asked = self.asked.replace(Asked {
            questions: Vec::with_capacity(Question::MAX_AT_ONCE),
            askers: Vec::with_capacity(Question::MAX_AT_ONCE),
            is_probed: false,
        });
        let is_late = |asker: &Asker| asker.id.is_some() && asker.deadline <= now.0;
        if asked.askers.iter().any(is_late) {
            let all = asked.questions.into_iter().zip(asked.askers);
            let in_time = all.filter(|(_, asker)| !is_late(asker));
            (asked.questions, asked.askers) = in_time.unzip();
        }
        let count = Question::at_once(&asked.questions);
        let mut others = self.asked.borrow_mut();
        others.questions.extend(asked.questions.drain(count..));
        others.askers.extend(asked.askers.drain(count..));
        drop(others);
        asked
    }
}

impl Asked {
    fn is_nothing(&self) -> bool {
        self.questions.is_empty() && !self.is_probed
    }
}
