//! What the thread does for synchronous namespaces: asks a store about all requests that wait.
//!
//! What is asked while the event loop has requests to handle is sent when it has no more of them, so
//! that the thread wakes once for it. While an exchange is under way, further questions gather, and
//! travel in the next one. Each shard of a
//! cluster is asked for itself, so that one whose server is away keeps no other waiting.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::super::conf::DecidingStore;
use super::thread::System;
use super::wake::Inbox;
use crate::engine::Surroundings as _;
use crate::store::decision::{Answer, Decider, Question};
use crate::store::options::Strategy as Kind;
use crate::store::postgres::Postgres;
use crate::store::redis::Redis;
use crate::store::strategy::{Epoch, NodeId, Strategy as _};

/// How many questions are asked at once.
const MAX_QUESTIONS: usize = 128;
/// How long after a failure, and after each that follows, it is looked whether the store is back.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];

/// A question about a request.
pub(in super::super) struct Ask {
    /// The number of the request; `None`: nobody waits for the answer.
    pub(in super::super) id: Option<u64>,
    pub(in super::super) question: Question,
    /// When nobody waits any more.
    pub(in super::super) deadline: Instant,
}

/// What is said about a request; `None`: the store has failed.
pub(in super::super) type Reply = (u64, Option<Answer>);

/// The event loop's end of a store, or of a shard of one.
pub(super) struct Desk {
    asks: UnboundedSender<Vec<Ask>>,
    is_down: Arc<AtomicBool>,
    /// What was asked since the last time that something was sent.
    outbox: RefCell<Vec<Ask>>,
}

/// The thread's end.
pub(super) struct Clerk {
    /// What is asked to find out whether there is an answer.
    probe: Vec<Question>,
    asks: UnboundedReceiver<Vec<Ask>>,
    is_down: Arc<AtomicBool>,
    replies: Inbox<Reply>,
}

/// A store with its clerks, on their way to the thread.
pub(super) struct Office {
    store: DecidingStore,
    clerks: Vec<Clerk>,
}

/// Both ends of a store, one of each for each of its deciders.
pub(super) fn open(store: DecidingStore, replies: &Inbox<Reply>) -> (Vec<Desk>, Office) {
    let probes = match &store.shards {
        None => vec![Vec::new()],
        Some(shards) => {
            let shards = shards.iter().cloned();
            shards.map(|it| vec![Question::probe(it)]).collect()
        }
    };
    let ends = probes.into_iter().map(|probe| open_one(probe, replies));
    let (desks, clerks) = ends.unzip();
    (desks, Office { store, clerks })
}

fn open_one(probe: Vec<Question>, replies: &Inbox<Reply>) -> (Desk, Clerk) {
    let (sender, asks) = unbounded_channel();
    let is_down = Arc::<AtomicBool>::default();
    let desk = Desk {
        asks: sender,
        is_down: is_down.clone(),
        outbox: RefCell::default(),
    };
    let clerk = Clerk {
        probe,
        asks,
        is_down,
        replies: replies.clone(),
    };
    (desk, clerk)
}

impl Office {
    /// Has the clerks serve, as tasks.
    pub(super) fn open(self, tasks: &LocalSet) {
        let DecidingStore { options, node, .. } = &self.store;
        let node = NodeId(*node);
        match &options.strategy {
            Kind::Redis(own) => {
                let store = Redis::new(options, own);
                for clerk in self.clerks {
                    // Those of a cluster have one connection to each of its nodes.
                    let shared = store.share();
                    let store = shared.unwrap_or_else(|| Redis::new(options, own));
                    tasks.spawn_local(clerk.serve(store, node));
                }
            }
            Kind::Postgres(own) => {
                for clerk in self.clerks {
                    tasks.spawn_local(clerk.serve(Postgres::new(options, own), node));
                }
            }
        }
    }
}

impl Desk {
    /// Asks with the next [`Desk::send`]; returns whether there is somebody to answer.
    pub(super) fn ask(&self, ask: Ask) -> bool {
        self.outbox.borrow_mut().push(ask);
        !self.asks.is_closed()
    }

    /// How many questions were not sent yet.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.borrow().len()
    }

    /// Sends what was asked since the last time.
    pub(super) fn send(&self) {
        let asks = self.outbox.take();
        if !asks.is_empty() {
            // If there is nobody, those who wait are told by the time.
            let _ = self.asks.send(asks);
        }
    }

    /// Whether the store did not answer in time, and has not since.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    /// Notes that the store did not answer in time.
    pub(super) fn set_down(&self) {
        self.is_down.store(true, Relaxed);
        // What comes of it tells whether it is so.
        let ask = Ask {
            id: None,
            question: Question::nothing(),
            deadline: Instant::now(),
        };
        let _ = self.asks.send(vec![ask]);
    }
}

impl Clerk {
    /// Answers until the other end is closed.
    async fn serve(mut self, mut store: impl Decider, node: NodeId) {
        // Connects before anybody waits for it.
        let probe = store.decide(node, Epoch(System.random()), &self.probe);
        if probe.await.is_err() {
            self.is_down.store(true, Relaxed);
            self.wait_for(&mut store, node).await;
        }
        let mut asked: VecDeque<Ask> = VecDeque::new();
        loop {
            if asked.is_empty() {
                let Some(asks) = self.asks.recv().await else {
                    return;
                };
                asked.extend(asks);
            }
            while let Ok(asks) = self.asks.try_recv() {
                asked.extend(asks);
            }
            let now = Instant::now();
            // Those that nobody waits for any more were answered otherwise.
            asked.retain(|ask| ask.id.is_none() || ask.deadline > now);
            let mut questions = Vec::new();
            let mut ids = Vec::new();
            let count = asked.len().min(MAX_QUESTIONS);
            for Ask { id, question, .. } in asked.drain(..count) {
                if !question.counters.is_empty() {
                    ids.push(id);
                    questions.push(question);
                }
            }
            if questions.is_empty() {
                questions.clone_from(&self.probe);
            }
            let proposed = Epoch(System.random());
            match store.decide(node, proposed, &questions).await {
                Ok(decided) => {
                    self.is_down.store(false, Relaxed);
                    // Before their requests go on, which then are the last to have the keys: memory is
                    // best freed where it was allocated.
                    drop(questions);
                    let answers = ids.into_iter().zip(decided.answers);
                    let replies = answers.filter_map(|(id, answer)| Some((id?, Some(answer))));
                    self.replies.push(replies);
                }
                Err(_) => {
                    self.is_down.store(true, Relaxed);
                    self.replies
                        .push(ids.into_iter().filter_map(|id| Some((id?, None))));
                    self.wait_for(&mut store, node).await;
                }
            }
        }
    }

    /// Waits until there are answers again: what is asked meanwhile finds that it is down.
    async fn wait_for(&self, store: &mut impl Decider, node: NodeId) {
        let last = PAUSES.last().copied().unwrap_or_default();
        for pause in PAUSES.into_iter().chain(core::iter::repeat(last)) {
            if self.asks.is_closed() {
                return;
            }
            tokio::time::sleep(pause).await;
            let probe = store.decide(node, Epoch(System.random()), &self.probe);
            if probe.await.is_ok() {
                self.is_down.store(false, Relaxed);
                return;
            }
        }
    }
}
