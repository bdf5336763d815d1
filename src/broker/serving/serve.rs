//! The broker: asks the stores about all requests of synchronous namespaces that wait, of all workers of
//! this configuration. It needs a clock, and what connects to a store.
//!
//! The thread of one worker serves as the broker, those of the others wait to take its place. While an exchange is under
//! way, further questions gather, and travel in the next one: the more there are, the less each costs.
//! Each shard of a cluster is asked for itself, so that one whose server is away keeps no other
//! waiting.

use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt as _, join, select};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::decided::DecidedNamespace;
use super::dispatcher::Dispatcher;
use super::exchange::{DeciderTask, DeciderTasks};
use super::source::DeciderSource;
use super::store_event::{StoreEvent, WatchedStore};
use super::turn::Turn;
use crate::broker::shared::shared_queues::SharedQueues;
use crate::broker::wake::event_loop_queue::EventLoopQueue;
use crate::policy::algorithm::StoredKind;
use crate::store::contract::decision::Question;
use crate::store::contract::strategy::{NodeId, Shard};

/// A worker's candidate: it serves when it is its [turn](super::turn).
#[derive(Clone)]
pub struct Broker {
    /// Memory that the workers share.
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
    /// Source of its deciders.
    pub source: Arc<dyn DeciderSource>,
    /// The identity of this node.
    pub node: NodeId,
    /// The shards of its namespaces.
    pub shards: Vec<Shard>,
    /// Whether each of them has a decider; otherwise, there is one for all.
    pub is_divided: bool,
    /// The namespaces that it decides about.
    pub namespaces: Vec<DecidedNamespace>,
}

impl Broker {
    /// Asks the stores for all workers whenever it is this process's turn, until `ending` is closed.
    pub async fn serve(self, ending: oneshot::Receiver<()>, events: EventLoopQueue<StoreEvent>) {
        let Broker { queues, worker, stores, uptime } = self;
        let ending = ending.map(drop).shared();
        let mut turn = Turn::new(queues.clone(), worker);
        while let Some((term, has_replaced)) = turn.wait(ending.clone()).await {
            let served_by = (worker, term);
            let dispatcher = Dispatcher::new(queues.clone(), served_by, events.clone(), uptime);
            let dispatcher = Rc::new(dispatcher);
            if has_replaced {
                events.push(stores.iter().map(|it| it.store.other_broker()));
            }
            dispatcher.take_over();
            let tasks = spawn_tasks(&dispatcher, &stores);
            let close = async {
                select(ending.clone(), pin!(dispatcher.answer_bell())).await;
                // What was asked until now is still answered.
                dispatcher.close();
            };
            // If a task panics, so does this; the thread that follows has the lock at once.
            let serving = pin!(join(close, tasks.join_all()));
            let beats = async {
                dispatcher.beat(|| turn.has_lock()).await;
                core::future::pending::<()>().await;
            };
            select(serving, pin!(beats)).await;
            dispatcher.end();
            turn.end();
        }
        turn.end();
    }
}

/// Spawns a task for each decider.
fn spawn_tasks(dispatcher: &Rc<Dispatcher>, stores: &[DecidingStore]) -> JoinSet<()> {
    let mut running = JoinSet::new();
    for DecidingStore { store: watched, source, node, shards, is_divided, namespaces } in stores {
        // What each decider is asked to be probed, and tried.
        let of_each = shards.iter().cloned();
        let of_each = of_each.map(|shard| {
            let trial = Question::trial(shard.clone(), StoredKind::Windows);
            (Question::probe(shard), trial)
        });
        let questions: Vec<(Vec<Question>, Vec<Question>)> = match is_divided {
            false => {
                let (mut probe, mut trial): (Vec<_>, Vec<_>) = of_each.unzip();
                probe.truncate(Question::at_once(&probe));
                trial.truncate(Question::at_once(&trial));
                vec![(probe, trial)]
            }
            true => of_each.map(|(probe, trial)| (vec![probe], vec![trial])).collect(),
        };
        let namespaces: Rc<[DecidedNamespace]> = namespaces.as_slice().into();
        let first = running.len();
        let siblings = first..first.saturating_add(questions.len());
        let tasks = siblings.clone().zip(questions).map(|(decider, (probe, trial))| DeciderTask {
            dispatcher: dispatcher.clone(),
            store: watched.clone(),
            siblings: siblings.clone(),
            decider,
            probe,
            trial,
            namespaces: namespaces.clone(),
        });
        source.connect(DeciderTasks { tasks: tasks.collect(), node: *node, running: &mut running });
    }
    running
}
