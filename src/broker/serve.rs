//! The broker: asks the stores about all requests of synchronous namespaces that wait, of all workers of
//! this configuration. It needs a clock, and what connects to a store.
//!
//! The thread of one worker serves as the broker, those of the others wait to take its place. While an exchange is under
//! way, further questions gather, and travel in the next one: the more there are, the less each costs.
//! Each shard of a cluster is asked for itself, so that one whose server is away keeps no other
//! waiting.

use core::pin::pin;
use core::sync::atomic::{AtomicU8, Ordering::AcqRel};
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, FutureExt as _, join, select};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_blocking};

use super::dispatcher::Dispatcher;
use super::event_loop_queue::EventLoopQueue;
use super::exchange::{DeciderTask, DeciderTasks};
use super::shared_queues::SharedQueues;
use super::source::DeciderSource;
use super::store_event::{StoreEvent, WatchedStore};
use crate::store::decision::Question;
use crate::store::strategy::{NodeId, Shard};

/// How often a worker that ends looks whether its last questions were taken.
const LAST_LOOK: Duration = Duration::from_millis(5);
/// How soon a worker tries again to wait for its turn, if the system refuses that.
const NO_LOCK: Duration = Duration::from_millis(100);

/// A worker's candidate: it serves once it has the lock of the [`SharedQueues`].
#[derive(Clone)]
pub struct Broker {
    /// What the workers share.
    pub queues: Arc<SharedQueues>,
    /// The number of this worker.
    pub worker: usize,
    /// The stores that are asked.
    pub stores: Vec<DecidingStore>,
    /// A clock that is never set, from a moment that all processes of the machine share.
    pub uptime: fn() -> Duration,
}

/// A store that decides about requests: one decider, or several.
#[derive(Clone)]
pub struct DecidingStore {
    /// The store, as the log names it.
    pub store: Arc<WatchedStore>,
    /// What connects to it.
    pub source: Arc<dyn DeciderSource>,
    /// The identity of this node.
    pub node: NodeId,
    /// The shards that it is divided into, each of which has a decider; `None`: there is one.
    pub shards: Option<Vec<Shard>>,
}

impl Broker {
    /// Asks the stores for all workers, once this process has the lock, until `ending` is closed.
    pub async fn serve(self, ending: oneshot::Receiver<()>, events: EventLoopQueue<StoreEvent>) {
        let Broker {
            queues,
            worker,
            stores,
            uptime,
        } = self;
        let ending = ending.map(drop).shared();
        if !wait_for_lock(&queues, worker, ending.clone()).await {
            return;
        }
        let dispatcher = Rc::new(Dispatcher::new(queues.clone(), events, uptime));
        let tasks = spawn_tasks(&dispatcher, &stores);
        let close = async {
            select(ending, pin!(dispatcher.answer_bell())).await;
            // What was asked until now is still answered.
            dispatcher.close();
        };
        // If a task panics, so does this; the thread that follows has the lock at once.
        join(close, tasks.join_all()).await;
        queues.unlock();
    }
}

/// Spawns a task for each decider.
fn spawn_tasks(dispatcher: &Rc<Dispatcher>, stores: &[DecidingStore]) -> JoinSet<()> {
    let mut running = JoinSet::new();
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
        let first = running.len();
        let siblings = first..first.saturating_add(probes.len());
        let tasks = siblings
            .clone()
            .zip(probes)
            .map(|(decider, probe)| DeciderTask {
                dispatcher: dispatcher.clone(),
                store: watched.clone(),
                siblings: siblings.clone(),
                decider,
                probe,
            });
        source.connect(DeciderTasks {
            tasks: tasks.collect(),
            node: *node,
            running: &mut running,
        });
    }
    running
}

/// Waits until this process has the lock. Returns false if the process ends first, and has nothing left
/// to ask.
async fn wait_for_lock(
    queues: &Arc<SharedQueues>,
    worker: usize,
    ending: impl Future<Output = ()> + Unpin,
) -> bool {
    const LOCKED: u8 = 1;
    const GIVEN_UP: u8 = 2;
    let outcome = Arc::<AtomicU8>::default();
    let mut locked = spawn_blocking({
        let (queues, outcome) = (queues.clone(), outcome.clone());
        move || {
            // There are too many locks.
            while queues.lock().is_err() {
                std::thread::sleep(NO_LOCK);
            }
            if outcome.swap(LOCKED, AcqRel) == GIVEN_UP {
                queues.unlock();
            }
        }
    });
    if let Either::Left((locked, _)) = select(&mut locked, ending).await {
        return locked.is_ok();
    }
    // Another process has to take what this worker asked last.
    let worker_queues = queues.of_worker(worker);
    while worker_queues.is_some_and(|it| !it.questions.is_empty()) {
        if let Ok(locked) = tokio::time::timeout(LAST_LOOK, &mut locked).await {
            return locked.is_ok();
        }
    }
    if outcome.swap(GIVEN_UP, AcqRel) == LOCKED {
        queues.unlock();
    }
    false
}
