//! A store for the tests, whose behaviour they choose.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicUsize, Ordering::SeqCst};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use smallvec::smallvec;

use crate::broker::{DeciderSource, DeciderTasks};
use crate::policy::algorithm::{Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{Answer, Certainty, Decided, Decider, Question};
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{
    Added, Batch, Changes, Count, Epoch, NodeId, Pushed, Shard, Strategy as StoreStrategy,
};
use crate::store::registry::StoreVisitor as _;

/// The behaviour of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Answers,
    /// It refuses at once.
    Refuses,
    /// It answers, and refuses charges.
    IsFull,
    /// It decides, and the answer is lost.
    LosesAnswers,
    /// It does not answer until the client's timeout.
    IsSilent,
    /// The thread that asks is blocked until the test lets it continue, and is then answered.
    Holds,
}

pub(super) const MOODS: [Mood; 6] =
    [Mood::Answers, Mood::Refuses, Mood::IsFull, Mood::LosesAnswers, Mood::IsSilent, Mood::Holds];

/// A store that records the questions to it.
#[derive(Default)]
pub(super) struct Store(pub(super) Arc<Inner>, Option<Connection>);

/// A client's connection.
struct Connection(Arc<Inner>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, SeqCst);
    }
}

/// Creates a client that is not connected.
impl Clone for Store {
    fn clone(&self) -> Store {
        Store(self.0.clone(), None)
    }
}

#[derive(Default)]
pub(super) struct Inner {
    /// Index of its mood.
    pub(super) mood: AtomicU8,
    pub(super) decided: Mutex<HashMap<u64, usize>>,
    /// Whether a thread is blocked, and whether it may continue.
    pub(super) is_holding: AtomicBool,
    pub(super) lets_go: AtomicBool,
    /// Number of exchanges.
    pub(super) exchanges: AtomicUsize,
    /// Hits charged to logs, in whole hits.
    pub(super) charged: AtomicI64,
    /// Number of times that each question races before it is decided.
    pub(super) races: AtomicUsize,
    /// Whether a newer configuration serves.
    pub(super) is_superseded: AtomicBool,
    /// Number of clients that have asked and are not dropped.
    pub(super) connections: AtomicUsize,
}

impl Store {
    pub(super) fn set(&self, mood: Mood) {
        let index = MOODS.iter().position(|it| *it == mood).unwrap();
        self.0.mood.store(index.try_into().unwrap(), SeqCst);
    }

    pub(super) fn mood(&self) -> Mood {
        MOODS[usize::from(self.0.mood.load(SeqCst))]
    }
}

fn is_charged(questions: &[Question]) -> bool {
    let mut counters = questions.iter().flat_map(|it| &it.counters);
    counters.any(|counter| counter.cost != Hits::ZERO)
}

impl DeciderSource for Store {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        let store = self.clone();
        tasks.visit(move || store.clone());
    }
}

impl Decider for Store {
    const KINDS: &'static [StoredKind] = StoredKind::ALL;

    async fn decide(
        &mut self,
        _: NodeId,
        _: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let mut mood = match self.mood() {
            Mood::IsFull if !is_charged(questions) => Mood::Answers,
            mood => mood,
        };
        self.0.exchanges.fetch_add(1, SeqCst);
        self.1.get_or_insert_with(|| {
            self.0.connections.fetch_add(1, SeqCst);
            Connection(self.0.clone())
        });
        if mood == Mood::Holds {
            self.0.is_holding.store(true, SeqCst);
            while !self.0.lets_go.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            mood = Mood::Answers;
        }
        if mood == Mood::IsSilent {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if matches!(mood, Mood::Answers | Mood::LosesAnswers) {
            let mut decided = self.0.decided.lock().unwrap();
            for question in questions {
                let counter = &question.counters[0];
                // A trial has another key.
                if let Ok(key) = counter.key.as_slice().try_into() {
                    *decided.entry(u64::from_le_bytes(key)).or_default() += 1;
                }
                if counter.kind == StoredKind::Log {
                    self.0.charged.fetch_add(counter.cost.whole(), SeqCst);
                }
            }
        }
        // Others may ask meanwhile.
        tokio::task::yield_now().await;
        if mood != Mood::Answers {
            let failure = match mood {
                Mood::IsFull => Failure::Refused(Refusal::OutOfMemory),
                _ => Failure::TimedOut(Duration::from_millis(20)),
            };
            return Err(StoreError::new(ServerAddress::Unix("/".into()), failure));
        }
        let decided = self.0.decided.lock().unwrap();
        let races = self.0.races.load(SeqCst);
        let answers = questions.iter().map(|question| {
            let key = question.counters[0].key.as_slice().try_into();
            let times = key.map_or(usize::MAX, |key: [u8; 8]| decided[&u64::from_le_bytes(key)]);
            Answer {
                admitted: smallvec![times > races],
                readings: smallvec![Reading::default()],
                certainty: match times > races {
                    true => Certainty::Settled,
                    false => Certainty::Raced,
                },
            }
        });
        Ok(Decided { now: UnixMillis(0), answers: answers.collect() })
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
