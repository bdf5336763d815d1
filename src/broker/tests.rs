//! The broker as it is, without nginx: two workers that ask, on threads of their own, and one thread
//! that asks a store for both. Whatever happens to that thread and to the store, each question is
//! answered once, or has failed once, and when all is well again, questions are answered again.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use futures_util::future::{Either, select};
use proptest::prelude::{Just, ProptestConfig, prop, prop_oneof, proptest};
use proptest::strategy::Strategy as _;
use smallvec::smallvec;
use tokio::io::unix::AsyncFd;
use tokio::runtime::LocalRuntime;
use tokio::sync::oneshot;

use super::{
    Broker, Client, DeciderSource, DeciderTasks, DecidingStore, EventFd, EventLoopQueue,
    SharedQueues, WatchedStore,
};
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::decision::{Answer, AskedCounter, Decided, Decider, Question};
use crate::store::error::{Failure, StoreError};
use crate::store::options::StoreOptions;
use crate::store::registry::StoreVisitor as _;
use crate::store::server::ServerAddress;
use crate::store::strategy::{
    Added, Batch, Changes, Count, Epoch, NodeId, Pushed, Shard, Strategy as StoreStrategy,
};
use crate::table::MonotonicMillis;

/// How long anything may take before the test says that it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn uptime() -> Duration {
    // Not zero, which is no time to a breaker.
    START.elapsed() + Duration::from_secs(1)
}

fn now() -> MonotonicMillis {
    MonotonicMillis(u64::try_from(uptime().as_millis()).unwrap())
}

/// What a store does with what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    /// It refuses, at once.
    Refuses,
    /// It decides, and the answer is lost.
    LosesAnswers,
    /// It says nothing until the client's timeout.
    IsSilent,
}

const MOODS: [Mood; 4] = [
    Mood::Answers,
    Mood::Refuses,
    Mood::LosesAnswers,
    Mood::IsSilent,
];

/// A store that notes which questions it was asked.
#[derive(Clone, Default)]
struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The index of its mood.
    mood: AtomicU8,
    decided: Mutex<HashMap<u64, usize>>,
}

impl Store {
    fn set(&self, mood: Mood) {
        let index = MOODS.iter().position(|it| *it == mood).unwrap();
        self.0.mood.store(index.try_into().unwrap(), SeqCst);
    }

    fn mood(&self) -> Mood {
        MOODS[usize::from(self.0.mood.load(SeqCst))]
    }
}

impl DeciderSource for Store {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        let store = self.clone();
        tasks.visit(move || store.clone());
    }
}

impl Decider for Store {
    async fn decide(
        &mut self,
        _: NodeId,
        _: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let mood = self.mood();
        if mood == Mood::IsSilent {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if matches!(mood, Mood::Answers | Mood::LosesAnswers) {
            let mut decided = self.0.decided.lock().unwrap();
            for question in questions {
                let key = question.counters[0].key.as_slice().try_into().unwrap();
                *decided.entry(u64::from_le_bytes(key)).or_default() += 1;
            }
        }
        // Others may ask meanwhile.
        tokio::task::yield_now().await;
        if mood != Mood::Answers {
            let failure = Failure::TimedOut(Duration::from_millis(20));
            return Err(StoreError::new(ServerAddress::Unix("/".into()), failure));
        }
        let answer = Answer {
            admitted: smallvec![],
            readings: smallvec![Reading::default()],
        };
        Ok(Decided {
            now: UnixMillis(0),
            answers: vec![answer; questions.len()],
        })
    }
}

impl StoreStrategy for Store {
    type Options = ();
    type Step = ();
    type Changes = Changes;
    type Counts = Added;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    fn connects(&self) -> u64 {
        0
    }

    fn server(&self) -> Option<String> {
        None
    }

    fn shards(&self) -> u16 {
        1
    }

    async fn push_diffs(&mut self, _: &Shard, _: &Batch, _: usize) -> Result<Pushed, StoreError> {
        unreachable!("nothing is synced")
    }

    async fn open_epoch(
        &mut self,
        _: &Shard,
        _: Option<Epoch>,
        _: Epoch,
    ) -> Result<Epoch, StoreError> {
        unreachable!("nothing is synced")
    }

    async fn get_counters(
        &mut self,
        _: &Shard,
        _: Epoch,
        _: &[(WindowSize, u64)],
        (): (),
    ) -> Result<(Vec<Count>, Option<()>), StoreError> {
        unreachable!("nothing is synced")
    }

    async fn get_window(
        &mut self,
        _: &Shard,
        _: &[u8],
        _: WindowSize,
        _: u64,
    ) -> Result<Hits, StoreError> {
        unreachable!("nothing is synced")
    }

    async fn purge(&mut self, _: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        unreachable!("nothing is synced")
    }
}

/// The thread that asks for all.
struct Asker {
    kill: oneshot::Sender<()>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Asker {
    fn start(queues: &Arc<SharedQueues>, store: &Store) -> Asker {
        let broker = Broker {
            queues: queues.clone(),
            worker: 0,
            stores: vec![DecidingStore {
                store: Arc::new(WatchedStore {
                    name: "store".into(),
                    without_it: String::new(),
                    state: None,
                }),
                source: Arc::new(store.clone()),
                node: NodeId([1, 2]),
                shards: None,
            }],
            uptime,
        };
        let (kill, killed) = oneshot::channel();
        let (end, ending) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = LocalRuntime::new().unwrap();
            runtime.block_on(async {
                let events = EventLoopQueue::new(EventFd::new().unwrap());
                let served = tokio::task::spawn_local(broker.serve(ending, events));
                // What was taken and not answered is gone with the one that is killed.
                if let Either::Left((ended, _)) = select(served, killed).await {
                    ended.unwrap();
                }
            });
        });
        Asker { kill, end, thread }
    }

    /// Drops it where it is.
    fn kill(self) {
        let Asker { kill, end, thread } = self;
        kill.send(()).unwrap();
        thread.join().unwrap();
        drop(end);
    }

    /// Lets it answer what was asked.
    fn end(self) {
        let Asker { kill, end, thread } = self;
        drop(end);
        thread.join().unwrap();
        drop(kill);
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answered,
    /// The store has failed.
    Failed,
    /// Nobody answered until the deadline.
    Late,
    /// The circuit was open.
    NotAsked,
}

/// How far a worker is, for whoever waits for that.
#[derive(Default)]
struct Progress {
    answered: AtomicUsize,
    ended: AtomicUsize,
    stop: AtomicBool,
}

/// A worker, with its event loop.
struct Worker {
    client: Client,
    eventfd: AsyncFd<EventFd>,
    deadline: u64,
    next: u64,
    waiting: HashMap<u64, u64>,
    ends: HashMap<u64, End>,
    replies: HashMap<u64, usize>,
    progress: Arc<Progress>,
}

impl Worker {
    /// To be called in a runtime.
    fn new(
        queues: &Arc<SharedQueues>,
        number: usize,
        deadline: Duration,
        of: &Arc<Progress>,
    ) -> Worker {
        let client = Client::new(queues.clone(), number).unwrap();
        let eventfd = client.eventfd().unwrap().listen().unwrap();
        Worker {
            client,
            eventfd,
            deadline: deadline.as_millis().try_into().unwrap(),
            next: (number as u64) << 32,
            waiting: HashMap::new(),
            ends: HashMap::new(),
            replies: HashMap::new(),
            progress: of.clone(),
        }
    }

    fn end(&mut self, id: u64, end: End) {
        assert_eq!(self.ends.insert(id, end), None, "{id} has ended twice");
        self.progress.ended.fetch_add(1, SeqCst);
        if end == End::Answered {
            self.progress.answered.fetch_add(1, SeqCst);
        }
    }

    fn ask(&mut self) {
        let id = self.next;
        self.next += 1;
        if !self.client.check_circuit(0, now()) {
            return self.end(id, End::NotAsked);
        }
        let shard = Shard {
            namespace: "api".into(),
            number: 0,
        };
        let counter = AskedCounter {
            shard,
            key: smallvec::SmallVec::from_slice(&id.to_le_bytes()),
            size: WindowSize::MIN,
            cost: Hits::ONE,
        };
        let question = Question {
            counters: smallvec![counter],
            ..Question::nothing()
        };
        let deadline = now().0 + self.deadline;
        assert!(self.client.ask(0, Some(id), deadline, &question));
        self.waiting.insert(id, deadline);
    }

    /// One turn: what was asked is sent, and what is answered is noted.
    async fn turn(&mut self) {
        self.client.send();
        let wait = Duration::from_millis(5);
        if let Ok(ready) = tokio::time::timeout(wait, self.eventfd.readable()).await {
            ready.unwrap().clear_ready();
            self.eventfd.get_ref().clear();
            for (id, answer) in self.client.replies() {
                *self.replies.entry(id).or_default() += 1;
                if self.waiting.remove(&id).is_some() {
                    let end = answer.map_or(End::Failed, |_| End::Answered);
                    self.end(id, end);
                }
            }
        }
        let late: Vec<u64> = {
            let late = self.waiting.iter().filter(|(_, at)| **at <= now().0);
            late.map(|(id, _)| *id).collect()
        };
        for id in late {
            self.waiting.remove(&id);
            self.client.note_timeout(0, now());
            self.end(id, End::Late);
        }
    }

    async fn settle(&mut self) {
        let begin = uptime();
        while !self.waiting.is_empty() {
            self.turn().await;
            assert!(uptime() - begin < PATIENCE, "{} wait", self.waiting.len());
        }
    }

    /// Each was told once what became of it, and was decided at most once.
    fn check(&self, store: &Store) {
        let decided = store.0.decided.lock().unwrap();
        assert_eq!(self.ends.len() as u64, self.next & u64::from(u32::MAX));
        for (id, end) in &self.ends {
            let replies = self.replies.get(id).copied().unwrap_or(0);
            let times = decided.get(id).copied().unwrap_or(0);
            assert!(replies <= 1 && times <= 1, "{id}: {replies}, {times}");
            match end {
                End::Answered => assert_eq!((replies, times), (1, 1), "{id}"),
                End::Failed => assert_eq!(replies, 1, "{id}"),
                End::NotAsked => assert_eq!((replies, times), (0, 0), "{id}"),
                End::Late => {}
            }
        }
    }
}

/// A worker that asks, so many at a time, until it is told to stop; then all of it is checked.
fn spawn_worker(
    queues: &Arc<SharedQueues>,
    number: usize,
    store: &Store,
    bursts: Vec<usize>,
) -> (Arc<Progress>, JoinHandle<()>) {
    let progress = Arc::<Progress>::default();
    let (queues, store, of) = (queues.clone(), store.clone(), progress.clone());
    let thread = std::thread::spawn(move || {
        LocalRuntime::new().unwrap().block_on(async {
            let mut worker = Worker::new(&queues, number, Duration::from_millis(100), &of);
            for burst in bursts.iter().cycle() {
                if of.stop.load(SeqCst) {
                    break;
                }
                (0..*burst).for_each(|_| worker.ask());
                worker.turn().await;
            }
            worker.settle().await;
            worker.check(&store);
        });
    });
    (progress, thread)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = uptime();
    while !is_so() {
        assert!(uptime() - begin < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn queues() -> Arc<SharedQueues> {
    Arc::new(SharedQueues::new(2, 1).unwrap())
}

/// What happens while workers ask.
#[derive(Clone, Copy, Debug)]
enum Event {
    Store(Mood),
    /// The thread that asks is dropped, and another takes its place a while later.
    Kill,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn each_question_ends_once_whatever_becomes_of_the_store_and_of_who_asks_it(
        bursts in prop::collection::vec(1..40_usize, 1..6),
        events in prop::collection::vec(
            prop_oneof![
                prop::sample::select(&MOODS[..]).prop_map(Event::Store),
                Just(Event::Kill),
            ],
            1..6,
        ),
    ) {
        let (queues, store) = (queues(), Store::default());
        let mut asker = Asker::start(&queues, &store);
        let workers = [0, 1].map(|number| spawn_worker(&queues, number, &store, bursts.clone()));
        let all = |count: fn(&Progress) -> &AtomicUsize, more: usize| {
            let goals = workers.each_ref().map(|(it, _)| count(it).load(SeqCst) + more);
            wait_until("nothing ends, or nothing is answered any more", || {
                workers.iter().zip(goals).all(|((it, _), goal)| {
                    count(it).load(SeqCst) >= goal
                })
            });
        };
        all(|it| &it.answered, 20);
        for event in events {
            match event {
                Event::Store(mood) => store.set(mood),
                Event::Kill => {
                    asker.kill();
                    all(|it| &it.ended, 20);
                    asker = Asker::start(&queues, &store);
                }
            }
            all(|it| &it.ended, 20);
        }
        store.set(Mood::Answers);
        // No breaker stays open.
        all(|it| &it.answered, 20);
        for (progress, _) in &workers {
            progress.stop.store(true, SeqCst);
        }
        for (_, thread) in workers {
            thread.join().unwrap();
        }
        asker.end();
    }
}

/// Runs `with` as a worker whose questions wait as long as the test does.
fn patient(queues: &Arc<SharedQueues>, with: impl AsyncFnOnce(&mut Worker)) {
    let progress = Arc::default();
    LocalRuntime::new().unwrap().block_on(async {
        let mut worker = Worker::new(queues, 0, 2 * PATIENCE, &progress);
        with(&mut worker).await;
    });
}

#[test]
fn no_wakeup_is_lost() {
    let (queues, store) = (queues(), Store::default());
    let asker = Asker::start(&queues, &store);
    // One at a time: whoever asks finds the other about to sleep. Each waits for its answer alone, and
    // nothing else wakes anybody.
    patient(&queues, async |worker| {
        for burst in (0..2000).map(|it| 1 + it % 3) {
            (0..burst).for_each(|_| worker.ask());
            worker.settle().await;
        }
        assert!(worker.ends.values().all(|it| *it == End::Answered));
        worker.check(&store);
    });
    asker.end();
}

#[test]
fn what_has_no_room_in_a_ring_is_asked_when_it_has() {
    let (queues, store) = (queues(), Store::default());
    patient(&queues, async |worker| {
        // Nobody reads yet.
        (0..6000).for_each(|_| worker.ask());
        worker.client.send();
        assert!(worker.client.unsent() > 0);
        let asker = Asker::start(&queues, &store);
        worker.settle().await;
        assert!(worker.ends.values().all(|it| *it == End::Answered));
        worker.check(&store);
        asker.end();
    });
}

#[test]
fn who_ends_has_answered_what_was_asked() {
    let (queues, store) = (queues(), Store::default());
    let asker = Asker::start(&queues, &store);
    patient(&queues, async |worker| {
        worker.ask();
        worker.settle().await;
        (0..100).for_each(|_| worker.ask());
        worker.client.send();
        let (told, ended) = mpsc::channel();
        std::thread::spawn(move || {
            asker.end();
            let _ = told.send(());
        });
        worker.settle().await;
        ended.recv_timeout(PATIENCE).unwrap();
        worker.check(&store);
    });
}
