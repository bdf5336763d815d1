//! Serves as the broker: asks the stores about the waiting requests of all workers of this
//! configuration. It is passed a clock, and sources of deciders.
//!
//! One worker's thread serves; those of the others wait to replace it. During an exchange further
//! questions are collected for the next one, so the more there are, the less each costs. Each shard
//! of a cluster is asked separately, so that a server which is down does not delay the others.

use core::pin::pin;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt as _, join, select};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::dispatcher::Dispatcher;
use super::exchange::{DecidedNamespace, DeciderTask, StoreClients};
use super::store_event::{StoreEvent, WatchedStore};
use super::turn::Turn;
use crate::broker::shared::shared_queues::SharedQueues;
use crate::broker::wake::EventLoopQueue;
use crate::policy::algorithm::StoredKind;
use crate::store::contract::decision::{Decider, Question};
use crate::store::contract::strategy::{NodeId, Shard};
use crate::store::registry::{StoreSettings, StoreVisitor};

/// A worker's candidate for the broker, which serves when its [turn](super::turn) comes.
#[derive(Clone)]
pub struct Broker {
    /// Memory that the workers share.
    pub queues: Arc<SharedQueues>,
    /// The number of this worker.
    pub worker: usize,
    /// The stores to ask.
    pub stores: Vec<DecidingStore>,
    /// Returns the time of a clock that is never set and that all processes of the machine share.
    pub uptime: fn() -> Duration,
}

/// A store that decides about requests, with one or several deciders.
#[derive(Clone)]
pub struct DecidingStore {
    /// The store for log lines.
    pub store: Arc<WatchedStore>,
    /// Source of its deciders.
    pub source: Arc<dyn DeciderSource>,
    /// The identity of this node's decisions.
    pub node: NodeId,
    /// The shards of its namespaces.
    pub shards: Vec<Shard>,
    /// Whether each shard has a decider; otherwise, one decider has all shards.
    pub is_divided: bool,
    /// The namespaces that it decides.
    pub namespaces: Vec<DecidedNamespace>,
    /// Returns whether a newer configuration serves, so that only the last requests of this one may
    /// still ask.
    pub is_superseded: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A source of a store's deciders, by which the broker connects to the store.
pub trait DeciderSource: Send + Sync {
    /// Starts `tasks` with deciders of the store, which connect at their first use.
    fn connect(&self, tasks: DeciderTasks<'_>);
}

impl DeciderSource for StoreSettings {
    fn connect(&self, tasks: DeciderTasks<'_>) {
        self.visit(tasks);
    }
}

/// The tasks of a store, which get their deciders by [`StoreVisitor`].
pub struct DeciderTasks<'t> {
    tasks: Vec<DeciderTask>,
    node: NodeId,
    running: &'t mut JoinSet<()>,
}

/// Starts each task with a decider of its own.
impl StoreVisitor for DeciderTasks<'_> {
    type Output = ();

    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) {
        let clients = Rc::new(StoreClients::new(connect));
        for task in self.tasks {
            self.running.spawn_local(task.serve(clients.clone(), self.node));
        }
    }
}

impl Broker {
    /// Serves whenever it is this process's turn, until `ending` is closed.
    pub async fn serve(self, ending: oneshot::Receiver<()>, events: EventLoopQueue<StoreEvent>) {
        let Broker { queues, worker, stores, uptime } = self;
        let ending = ending.map(drop).shared();
        let namespaces = stores.iter().flat_map(|it| &it.namespaces);
        let timeout = namespaces.map(|it| it.timeout).max().unwrap_or_default();
        let mut turn = Turn::new(queues.clone(), worker, timeout);
        // The tasks of terms in which this process was replaced. They charge what they keep for a
        // store that is down, and delay no further term.
        let mut replaced = Vec::new();
        while let Some((term, has_replaced)) = turn.wait(ending.clone()).await {
            let served_by = (worker, term);
            let dispatcher = Dispatcher::new(queues.clone(), served_by, events.clone(), uptime);
            let dispatcher = Rc::new(dispatcher);
            if has_replaced {
                events.push(stores.iter().map(|it| it.store.other_broker()));
            }
            dispatcher.take_over();
            let mut tasks = spawn_tasks(&dispatcher, &stores);
            let close = async {
                select(ending.clone(), pin!(dispatcher.answer_bell())).await;
                // The questions asked so far are still answered.
                dispatcher.close();
            };
            // If a task panics, so does this; the thread that replaces it gets the lock at once.
            let serving = async { join(close, join_all(&mut tasks)).await };
            let beats = async {
                dispatcher.beat(|| turn.has_lock()).await;
                if dispatcher.is_serving() {
                    core::future::pending::<()>().await;
                }
            };
            select(pin!(serving), pin!(beats)).await;
            dispatcher.end();
            turn.end();
            replaced.push((dispatcher, tasks));
            replaced.retain_mut(|(_, tasks)| {
                while tasks.try_join_next().is_some() {}
                !tasks.is_empty()
            });
        }
        turn.end();
        for (dispatcher, mut tasks) in replaced {
            dispatcher.give_up();
            join_all(&mut tasks).await;
        }
    }
}

/// Waits for tasks, and panics if one of them has.
async fn join_all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Spawns a task for each decider.
fn spawn_tasks(dispatcher: &Rc<Dispatcher>, stores: &[DecidingStore]) -> JoinSet<()> {
    let mut running = JoinSet::new();
    for deciding in stores {
        let DecidingStore { store: watched, source, node, shards, is_divided, .. } = deciding;
        // The probe and the trial of each decider.
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
        let namespaces: Rc<[DecidedNamespace]> = deciding.namespaces.as_slice().into();
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
            is_superseded: deciding.is_superseded.clone(),
        });
        source.connect(DeciderTasks { tasks: tasks.collect(), node: *node, running: &mut running });
    }
    running
}
