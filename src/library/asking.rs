//! Asks a namespace's store to decide about hits, and waits for the decision.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::datastore::Datastore;
use super::definition::DefinedNamespace;
use super::error::CallError;
use super::options::DecisionOptions;
use super::store_tasks::{AskedQuestion, IsAway, QuestionTask, QuestionTasks};
use crate::engine::{
    AskedHits, Committed, Deciders, Env as _, Incoming, Increment, Limiter, Machine, StoreQuestion,
    TellDecider,
};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::store::contract::decision::{Answer, Question};
use crate::table::MonotonicMillis;

/// The store's decisions, for callers in any thread.
#[derive(Debug)]
pub(super) struct StoreDecisions {
    store: Datastore,
    deciders: Deciders,
    /// Questions to each shard, by its number.
    shards: Vec<ShardQuestions>,
    options: DecisionOptions,
    /// The thread that exchanges with stores. Its runtime has the timers of deadlines.
    thread: Handle,
}

#[derive(Debug)]
struct ShardQuestions {
    asked: UnboundedSender<AskedQuestion>,
    is_away: IsAway,
}

impl StoreDecisions {
    /// Creates the questions of a namespace, and the tasks that ask the store.
    pub(super) fn new(
        namespace: &Arc<DefinedNamespace>,
        store: &Datastore,
        options: DecisionOptions,
        thread: Handle,
    ) -> (StoreDecisions, QuestionTasks) {
        let count = store.shards();
        let shards = (0..count).map(|shard| {
            let ((asked, receiver), is_away) = (unbounded_channel(), IsAway::default());
            let task = QuestionTask {
                namespace: namespace.clone(),
                shard,
                asked: receiver,
                is_away: is_away.clone(),
            };
            (ShardQuestions { asked, is_away }, task)
        });
        let (shards, tasks) = shards.unzip();
        let decisions = StoreDecisions {
            store: store.clone(),
            // Each task serves one namespace only, so the shard's number is the decider's.
            deciders: Deciders { first: 0, shards: count },
            shards,
            options,
            thread,
        };
        (decisions, QuestionTasks(tasks))
    }

    /// Returns whether the store decides by this algorithm.
    pub(super) fn are_by(&self, algorithm: Algorithm) -> bool {
        self.store.decides_by(algorithm)
    }

    /// Lets the store decide about hits under a limit. Without its answer, the configured
    /// `on_error` decides.
    pub(super) async fn incoming<'l>(
        &self,
        limiter: &Limiter<'l>,
        asked: AskedHits<'_>,
    ) -> Result<(Incoming, Option<Committed<'l>>), CallError> {
        if let Some(question) = limiter.question(asked, self.deciders)
            && let Some(answer) = self.answer(limiter, &question).await
        {
            return Ok(limiter.answered(asked, self.deciders, (question, &answer), &Machine));
        }
        let (store, on_error) = ((self.deciders, self), self.options.on_error);
        let decided = limiter.without_store(asked, on_error, store, &Machine);
        decided.ok_or(CallError::NoAnswer)
    }

    /// Returns the store's answer, if it comes in time.
    async fn answer(&self, limiter: &Limiter<'_>, asked: &StoreQuestion) -> Option<Answer> {
        let shard = self.shards.get(asked.decider)?;
        if shard.is_away.get() {
            return None;
        }
        let begin = Machine.uptime();
        let (reply, answer) = oneshot::channel();
        let deadline = begin.saturating_add(self.options.timeout);
        if !shard.ask(asked.question.clone(), Some(reply), deadline) {
            return None;
        }
        let answer = self.in_time(answer).await;
        let waited = Machine.uptime().saturating_sub(begin);
        limiter.bound().count_wait(waited);
        if answer.is_none() && !shard.is_away.set(true) {
            // The probe finds out whether the store answers again. Asking fails only if the task
            // has ended.
            shard.ask(Question::nothing(), None, Duration::ZERO);
        }
        answer
    }

    /// Waits for an answer until its deadline. `None` if none can come.
    fn in_time(
        &self,
        answer: oneshot::Receiver<Answer>,
    ) -> impl Future<Output = Option<Answer>> + use<> {
        // The timer belongs to this runtime, whatever executor polls the future. If the runtime
        // ends, so does the task that would answer; the answer is polled first.
        let _thread = self.thread.enter();
        let answer = timeout(self.options.timeout, answer);
        async move { answer.await.ok()?.ok() }
    }
}

impl TellDecider for StoreDecisions {
    fn tell(&self, decider: usize, question: &Question) -> bool {
        let shard = self.shards.get(decider);
        shard.is_some_and(|it| it.ask(question.clone(), None, Duration::ZERO))
    }

    fn charge_later(&self, decider: usize, charge: &Question) {
        // Telling fails only if the task has ended, and with it the instance.
        self.tell(decider, charge);
    }
}

impl ShardQuestions {
    /// Sends a question to the task. Returns whether the task exists.
    fn ask(
        &self,
        question: Question,
        reply: Option<oneshot::Sender<Answer>>,
        deadline: Duration,
    ) -> bool {
        let deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let deadline = MonotonicMillis(deadline);
        let asked = AskedQuestion { question, reply, deadline, at: Machine.monotonic() };
        self.asked.send(asked).is_ok()
    }
}

/// The outcome of `increment`.
pub(super) enum IncrementOutcome {
    /// The rate, counted in memory.
    Here(Hits),
    ByStore(AskedIncrement),
}

/// An increment that a store counts.
pub(super) struct AskedIncrement {
    pub(super) namespace: Arc<DefinedNamespace>,
    pub(super) decisions: Arc<StoreDecisions>,
}

impl AskedIncrement {
    /// Makes the store count. Returns the rate.
    pub(super) async fn count(&self, increment: &Increment<'_>) -> Result<Hits, CallError> {
        let limiter = self.namespace.unlimited(increment.size)?;
        let (incoming, _) = self.decisions.incoming(limiter, increment.asked).await?;
        Ok(incoming.rate)
    }
}

/// Wakes the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until `future` is ready. A future that is ready at once costs no more than its poll.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
        return value;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
