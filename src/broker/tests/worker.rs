//! A worker that asks, and records the results of its questions.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use smallvec::smallvec;
use tokio::io::unix::AsyncFd;
use tokio::runtime::LocalRuntime;

use crate::broker::{Client, EventFd, SharedQueues};
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::decision::{AskedCounter, Question};
use crate::store::contract::strategy::Shard;

use super::store::Store;
use super::{PATIENCE, now, uptime};

/// The outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    /// The store has failed.
    Failed,
    /// No answer came until the deadline.
    Late,
    /// The circuit was open.
    NotAsked,
}

/// The progress of a worker, for tests that wait for it.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) answered: AtomicUsize,
    pub(super) ended: AtomicUsize,
    pub(super) stop: AtomicBool,
}

/// A worker with its event loop.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) eventfd: AsyncFd<EventFd>,
    pub(super) deadline: u64,
    pub(super) next: u64,
    pub(super) waiting: HashMap<u64, u64>,
    pub(super) ends: HashMap<u64, End>,
    pub(super) replies: HashMap<u64, usize>,
    pub(super) progress: Arc<Progress>,
}

/// Returns a question about a hit of a key.
pub(super) fn charge(key: u64, kind: StoredKind) -> Question {
    let shard = Shard { namespace: "api".into(), number: 0 };
    let counter = AskedCounter {
        shard,
        key: smallvec::SmallVec::from_slice(&key.to_le_bytes()),
        kind,
        size: WindowSize::from_millis(WindowSize::MAX_MILLIS).unwrap(),
        cost: Hits::ONE,
    };
    Question { counters: smallvec![counter], ..Question::nothing() }
}

impl Worker {
    /// Creates a worker. Must be called in a runtime.
    pub(super) fn new(
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

    pub(super) fn end(&mut self, id: u64, end: End) {
        assert_eq!(self.ends.insert(id, end), None, "{id} has ended twice");
        self.progress.ended.fetch_add(1, SeqCst);
        if end == End::Answered {
            self.progress.answered.fetch_add(1, SeqCst);
        }
    }

    pub(super) fn ask(&mut self) {
        let id = self.next;
        self.next += 1;
        if !self.client.check_circuit(0, now()) {
            return self.end(id, End::NotAsked);
        }
        let question = charge(id, StoredKind::Windows);
        let deadline = now().0 + self.deadline;
        assert!(self.client.ask(0, Some(id), deadline, &question));
        self.waiting.insert(id, deadline);
    }

    /// Runs one turn: sends the questions, and records the answers.
    pub(super) async fn turn(&mut self) {
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
            self.client.record_timeout(0, now());
            self.end(id, End::Late);
        }
    }

    pub(super) async fn settle(&mut self) {
        let begin = uptime();
        while !self.waiting.is_empty() {
            self.turn().await;
            assert!(uptime() - begin < PATIENCE, "{} wait", self.waiting.len());
        }
    }

    /// Checks that each question got one result, and was decided at most once.
    pub(super) fn check(&self, store: &Store) {
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

/// Starts a worker that asks this number of questions at a time until it is told to stop, and then
/// checks all results.
pub(super) fn spawn_worker(
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
