//! Asks a namespace's store to decide about hits, and waits for the decision.

use core::time::Duration;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::datastore::Datastore;
use super::definition::DefinedNamespace;
use super::error::CallError;
use super::options::DecisionOptions;
use super::question_task::{AskedQuestion, IsAway, QuestionTask, QuestionTasks, StoreCommand};
use crate::broker::UnsentHits;
use crate::engine::{
    AskedHits, Deciders, Env as _, Incoming, Increment, Limiter, Machine, Refund, StoreQuestion,
};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::store::contract::decision::{Answer, Question};

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
    asked: UnboundedSender<StoreCommand>,
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
                unsent: UnsentHits::default(),
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
        &'l self,
        limiter: &'l Limiter<'l>,
        asked: AskedHits<'_>,
    ) -> Result<(Incoming, Option<CommittedHits<'l>>), CallError> {
        let question = limiter.question(asked, self.deciders);
        let answer = match &question {
            Some(question) => self.answer(limiter, question).await,
            None => None,
        };
        let Some(answer) = answer else {
            let decided = limiter.without_store(asked, self.options.on_error, &Machine);
            let (incoming, refund) = decided.ok_or(CallError::NoAnswer)?;
            let unsent = limiter.unsent(asked, self.deciders);
            let unsent = unsent.filter(|_| refund.is_some());
            if let Some((shard, charge)) = &unsent {
                self.charge_later(*shard, charge);
            }
            let committed = refund.map(|refund| match unsent {
                Some((shard, charge)) => CommittedHits::Unsent(self, refund, shard, charge.into()),
                None => CommittedHits::Here(refund),
            });
            return Ok((incoming, committed));
        };
        let incoming = limiter.answered(asked, self.deciders, &answer, &Machine);
        let is_charged = asked.commit && incoming.is_admitted;
        let committed = question.filter(|_| is_charged);
        let committed = committed.map(|question| CommittedHits::InStore(self, question.into()));
        Ok((incoming, committed))
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
            // The probe finds out whether the store answers again. Sending fails only if the task
            // has ended.
            let _ = shard.asked.send(StoreCommand::Probe);
        }
        answer
    }

    /// Makes the store charge hits that were counted without it, once it answers again.
    fn charge_later(&self, shard: usize, charge: &Question) {
        if let Some(shard) = self.shards.get(shard) {
            // Sending fails only if the task has ended, and with it the instance.
            shard.ask(charge.clone(), None, Duration::ZERO);
        }
    }

    /// Makes the store refund the hits that a question charged. Returns whether it was asked.
    fn refund(&self, charged: &StoreQuestion) -> bool {
        let shard = self.shards.get(charged.decider);
        shard.is_some_and(|it| it.ask(charged.refund(), None, Duration::ZERO))
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

impl ShardQuestions {
    /// Sends a question to the task. Returns whether the task exists.
    fn ask(
        &self,
        question: Question,
        reply: Option<oneshot::Sender<Answer>>,
        deadline: Duration,
    ) -> bool {
        let at = Machine.monotonic();
        let asked = AskedQuestion { question, reply, deadline, at };
        self.asked.send(StoreCommand::Decide(asked)).is_ok()
    }
}

/// Hits that were counted and can be refunded. The variants for stores are boxed, since most
/// decisions are made in memory and this value is copied.
#[derive(Debug)]
pub(super) enum CommittedHits<'l> {
    /// Hits in the memory.
    Here(Refund<'l>),
    /// Hits in the memory, and the charge by which the shard's store will be told of them.
    Unsent(&'l StoreDecisions, Refund<'l>, usize, Box<Question>),
    /// Hits that a store charged for this question.
    InStore(&'l StoreDecisions, Box<StoreQuestion>),
}

impl CommittedHits<'_> {
    /// Refunds the hits. Returns whether they were refunded, or the store was asked to.
    pub(super) fn give_back(self) -> bool {
        match self {
            CommittedHits::Here(refund) => refund.refund(),
            CommittedHits::Unsent(decisions, refund, shard, charge) => {
                let is_refunded = refund.refund();
                if is_refunded {
                    decisions.charge_later(shard, &charge.refund());
                }
                is_refunded
            }
            CommittedHits::InStore(decisions, question) => decisions.refund(&question),
        }
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
