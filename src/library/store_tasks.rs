//! The tasks of the store thread: one asks about the hits of a shard, and one syncs a namespace.

use core::pin::pin;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::{join, join_all, select};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::definition::{DefinedNamespace, NamespaceCounters};
use crate::broker::{Backlog, Gathered};
use crate::engine::Env as _;
use crate::engine::{
    ChannelObserver, LastPush, Machine, Subscriber, SyncCommand, SyncDriver, SyncTimes, Syncer,
    listen,
};
use crate::store::contract::decision::{Answer, Decided, Decider, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Epoch, NodeId, Shard, Strategy};
use crate::store::retry::Retries;
use crate::table::{EarlyShare, MonotonicMillis, SyncState};

/// A question about hits.
pub(super) struct AskedQuestion {
    /// Without counters, it only finds out whether the store answers.
    pub(super) question: Question,
    /// Sends the answer to the waiting caller; `None` if no answer is needed. Dropped without an
    /// answer.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// The caller's deadline, in time of the machine's monotonic clock.
    pub(super) deadline: MonotonicMillis,
    /// Time of the question.
    pub(super) at: MonotonicMillis,
}

/// The questions to a shard, with the callers that wait for answers.
type QuestionBacklog = Backlog<oneshot::Sender<Answer>>;

impl AskedQuestion {
    fn put_into(self, waiting: &QuestionBacklog) {
        waiting.put(self.question, self.reply, self.deadline.0, || self.at);
    }
}

/// Whether the store is known not to answer.
#[derive(Clone, Debug, Default)]
pub(super) struct IsAway(Arc<AtomicBool>);

impl IsAway {
    // Both accesses are relaxed: the flag orders no other memory.

    pub(super) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Sets the flag. Returns its previous value.
    pub(super) fn set(&self, is_away: bool) -> bool {
        self.0.swap(is_away, Relaxed)
    }
}

/// The task that asks about one shard of a namespace.
pub(super) struct QuestionTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    pub(super) shard: u16,
    pub(super) asked: UnboundedReceiver<AskedQuestion>,
    pub(super) is_away: IsAway,
}

/// The tasks of all shards.
pub(super) struct QuestionTasks(pub(super) Vec<QuestionTask>);

impl QuestionTasks {
    /// Answers until all callers are gone. `connect` creates a decider, which connects at its first
    /// use.
    pub(super) async fn run<S: Decider>(self, connect: impl Fn() -> S) {
        let store = connect();
        let tasks = self.0.into_iter();
        let tasks = tasks.map(|task| task.run(store.share().unwrap_or_else(&connect)));
        join_all(tasks).await;
    }
}

impl QuestionTask {
    async fn run(mut self, mut store: impl Decider) {
        let probe = [Question::probe(Shard {
            namespace: self.namespace.name.as_ref().into(),
            number: self.shard,
        })];
        let (waiting, mut retries) = (QuestionBacklog::default(), Retries::default());
        waiting.awaited.set(1);
        // Connects before a hit waits for it.
        let mut is_back = self.ask(&mut store, &probe).await.is_ok()
            || self.wait_for(&mut store, &probe, &waiting, &mut retries).await;
        while is_back && self.gather(&waiting).await {
            let gathered = waiting.take(Machine.monotonic());
            self.count_dropped(&waiting);
            if gathered.is_nothing() {
                continue;
            }
            let asked = match &*gathered.questions {
                [] => &probe,
                questions => questions,
            };
            let began = Machine.uptime();
            match self.ask(&mut store, asked).await {
                Ok(Decided { answers, .. }) => {
                    let took = Machine.uptime().saturating_sub(began);
                    let now = Machine.monotonic();
                    let (reply_to, answers, _) = waiting.ask_again(gathered, answers, took, now);
                    for (reply_to, answer) in reply_to.into_iter().zip(answers) {
                        // The caller may be gone.
                        drop(reply_to.to.map(|reply| reply.send(answer)));
                    }
                }
                Err(error) => {
                    // The store is back when the failed operation succeeds, not when it answers
                    // something else.
                    let trial = match &*gathered.questions {
                        [] => probe.to_vec(),
                        questions => Question::trials(questions),
                    };
                    waiting.leave(gathered, !error.may_have_applied(), Machine.monotonic());
                    is_back = self.wait_for(&mut store, &trial, &waiting, &mut retries).await;
                }
            }
        }
        waiting.forget_charges();
        self.count_dropped(&waiting);
    }

    /// Adds new questions to `waiting`; if that is empty, waits for one. Returns false when no more
    /// can come.
    async fn gather(&mut self, waiting: &QuestionBacklog) -> bool {
        let has_none = waiting.lacking().is_some();
        let mut next = match has_none {
            true => self.asked.recv().await,
            false => self.asked.try_recv().ok(),
        };
        let is_more = next.is_some() || !has_none;
        while let Some(asked) = next {
            asked.put_into(waiting);
            next = self.asked.try_recv().ok();
        }
        is_more
    }

    async fn ask(
        &self,
        store: &mut impl Decider,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let node = self.namespace.counters().namespace.table().decider();
        let decided = store.decide(NodeId(node), Epoch::proposed(), questions).await;
        self.is_away.set(decided.is_err());
        decided
    }

    /// Waits until the store answers `trial`. Meanwhile charges are kept for the store. Returns false
    /// if all callers are gone.
    async fn wait_for(
        &mut self,
        store: &mut impl Decider,
        trial: &[Question],
        waiting: &QuestionBacklog,
        retries: &mut Retries,
    ) -> bool {
        waiting.leave(Gathered::default(), false, Machine.monotonic());
        retries.begin(Machine.uptime());
        loop {
            let pause = retries.pause(Machine.random().get());
            if self.keep_for(pause, waiting).await {
                return false;
            }
            if self.ask(store, trial).await.is_ok() {
                retries.end(Machine.uptime());
                waiting.come_back();
                return true;
            }
        }
    }

    /// Adds new questions to `waiting` during `pause`. Returns whether all callers are gone.
    async fn keep_for(&mut self, pause: Duration, waiting: &QuestionBacklog) -> bool {
        let until = Machine.uptime().saturating_add(pause);
        loop {
            let left = until.saturating_sub(Machine.uptime());
            match timeout(left, self.asked.recv()).await {
                Ok(Some(asked)) => asked.put_into(waiting),
                Ok(None) => return true,
                Err(_) => break,
            }
        }
        waiting.forget_late(Machine.monotonic());
        self.count_dropped(waiting);
        false
    }

    /// Counts the lost hits.
    fn count_dropped(&self, waiting: &QuestionBacklog) {
        let namespace = &self.namespace.counters().namespace;
        for (_, hits) in waiting.take_dropped() {
            namespace.table().count_dropped(namespace.index(), hits);
        }
    }
}

/// Longest last push of a dropped instance.
const LONGEST: Duration = Duration::from_secs(2);
/// Interval in which hits that were counted without a deciding store are pushed.
const PUSH_PERIOD: Duration = Duration::from_secs(1);

/// Mask of the numbers of users.
const WORKERS: u16 = 0x7fff;

/// A namespace to sync.
pub(super) struct StoreTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    /// `None` if the store decides; then only hits that were counted without it are pushed.
    pub(super) period: Option<Duration>,
    pub(super) lease_lifetime: Duration,
    /// Woken when counters of the namespace's memory are due early.
    pub(super) bell: watch::Receiver<()>,
    /// Sender to the task itself.
    pub(super) sender: WeakUnboundedSender<SyncCommand>,
    pub(super) commands: UnboundedReceiver<SyncCommand>,
}

impl StoreTask {
    /// Serves commands until all callers are gone, and then pushes the remaining hits. `connect`
    /// creates a strategy, which connects at its first use.
    pub(super) async fn run<S: Strategy>(self, connect: impl Fn() -> S) {
        let StoreTask { namespace, period, lease_lifetime, bell, sender, mut commands } = self;
        let NamespaceCounters { namespace: counters, channel, budget, .. } = namespace.counters();
        let syncer = Syncer::new(counters, &namespace.sizes, lease_lifetime);
        let (Some(mut syncer), Some(state)) = (syncer, counters.sync_state()) else {
            return;
        };
        if period.is_none() {
            syncer = syncer.pushing_only();
        }
        let is_early = counters.early_share() != EarlyShare::OFF;
        if is_early {
            // A number that hardly another user of the memory has, in any process.
            syncer =
                syncer.telling().within(*budget).by_worker(Machine.random().get() as u16 & WORKERS);
        }
        let times = SyncTimes {
            period: period.unwrap_or(PUSH_PERIOD),
            // Otherwise a caller starts the timer.
            recurs: period.is_none(),
            polls: is_early,
            patience: lease_lifetime.saturating_mul(2),
        };
        let mut driver = SyncDriver::new(syncer, times, Machine, &connect, ());
        let early = async {
            if let Some(lease) = channel {
                let subscribers = || {
                    let subscriber = Subscriber::new(counters, &namespace.sizes);
                    subscriber.map(|it| it.within(*budget)).into_iter().collect()
                };
                let store = ListenedStore(state);
                let listening = listen(subscribers, *lease, &connect, &Machine, &store);
                join(listening, push_early(state, bell, sender)).await;
            } else if is_early {
                push_early(state, bell, sender).await;
            }
            core::future::pending::<()>().await;
        };
        select(pin!(driver.run(&mut commands)), pin!(early)).await;
        let limits = LastPush { began: Machine.uptime(), longest: LONGEST };
        // Hits of a failed last push are lost, as those of a process that ends.
        driver.finish(limits).await;
    }
}

/// Sends a command to a namespace's task when its bell is rung, while the task has other senders.
async fn push_early(
    state: SyncState<'_>,
    mut bell: watch::Receiver<()>,
    task: WeakUnboundedSender<SyncCommand>,
) {
    while bell.changed().await.is_ok() {
        let Some(task) = task.upgrade() else { return };
        if state.is_rung() && task.send(SyncCommand::Early).is_err() {
            return;
        }
    }
}

/// The state of a namespace's store, for its listener. Nobody is told of a missing channel: the
/// syncs fetch the same counts, but later.
struct ListenedStore<'m>(SyncState<'m>);

impl ChannelObserver for ListenedStore<'_> {
    fn is_store_up(&self) -> bool {
        self.0.stats().is_up() == Some(true)
    }

    fn channel_unavailable(&self, _: &StoreError) {}
}
