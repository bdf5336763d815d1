//! Asks a store about hits, in the store thread. Waiting questions are asked together.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::definition::DefinedNamespace;
use crate::broker::UnsentHits;
use crate::engine::{Env as _, Machine};
use crate::store::contract::decision::{Answer, Certainty, Decided, Decider, Question};
use crate::store::contract::error::StoreError;
use crate::store::contract::strategy::{Epoch, NodeId, Shard};
use crate::store::retry::Retries;
use crate::table::MonotonicMillis;

/// Most counters that are charged at once for hits that were counted without the store.
const UNSENT_AT_ONCE: usize = 32;

/// A command of a caller.
pub(super) enum StoreCommand {
    /// Decide about hits.
    Decide(AskedQuestion),
    /// Find out whether the store answers.
    Probe,
}

/// A question about hits.
pub(super) struct AskedQuestion {
    pub(super) question: Question,
    /// Sends the answer to the waiting caller; `None` if no answer is needed. Dropped without an
    /// answer.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// The caller's deadline, in time of the machine's monotonic clock.
    pub(super) deadline: Duration,
    /// Time of the question.
    pub(super) at: MonotonicMillis,
}

/// The receiver of an answer, its deadline, and the time of the question.
type AskedBy = (Option<oneshot::Sender<Answer>>, Duration, MonotonicMillis);

impl AskedQuestion {
    /// Returns whether the question is obsolete: its caller has decided otherwise, or its hits do
    /// not count any more.
    fn is_late(&self, now: MonotonicMillis) -> bool {
        let sizes = self.question.counters.iter().map(|it| it.size.millis());
        match &self.reply {
            Some(reply) => reply.is_closed(),
            None => sizes.min().is_some_and(|it| now.0.saturating_sub(self.at.0) > it),
        }
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
    pub(super) asked: UnboundedReceiver<StoreCommand>,
    pub(super) is_away: IsAway,
    /// Hits that were counted without the store.
    pub(super) unsent: UnsentHits,
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
        let (mut waiting, mut retries) = (Vec::new(), Retries::default());
        // Connects before a hit waits for it.
        if self.ask(&mut store, &probe).await.is_err() {
            self.wait_for(&mut store, &probe, &mut waiting, &mut retries).await;
        }
        while self.gather(&mut waiting).await {
            // First, since these are few enough to be asked all at once.
            let unsent = self.unsent.take(UNSENT_AT_ONCE, Machine.monotonic());
            let began = Machine.uptime();
            let (questions, replies) = self.take(&unsent, &mut waiting);
            let asked = match &*questions {
                // Without questions, asks whether the store is up.
                [] => &probe,
                questions => questions,
            };
            match self.ask(&mut store, asked).await {
                Ok(Decided { answers, .. }) => {
                    let now = Machine.uptime();
                    // Time by which another two exchanges would have ended.
                    let then = now.saturating_add(now.saturating_sub(began).saturating_mul(2));
                    let asked = questions.into_iter().zip(answers).skip(unsent.len());
                    for ((reply, deadline, at), (question, answer)) in
                        replies.into_iter().zip(asked)
                    {
                        let is_again = answer.certainty == Certainty::Raced && deadline > then;
                        match reply {
                            Some(reply) if is_again => waiting.push(AskedQuestion {
                                question,
                                reply: Some(reply),
                                deadline,
                                at,
                            }),
                            // The caller may be gone.
                            reply => drop(reply.map(|reply| reply.send(answer))),
                        }
                    }
                }
                Err(error) => {
                    if !error.may_have_applied() {
                        self.unsent.put_back();
                        let of_nobody = replies.iter().zip(asked.iter().skip(unsent.len()));
                        let of_nobody = of_nobody.filter(|((reply, ..), _)| reply.is_none());
                        for ((_, deadline, at), question) in of_nobody {
                            let asked = AskedQuestion {
                                question: question.clone(),
                                reply: None,
                                deadline: *deadline,
                                at: *at,
                            };
                            self.keep(asked, &mut waiting);
                        }
                    }
                    drop(replies);
                    // The store is back when the failed operation succeeds, not when it answers
                    // something else.
                    let trial = match asked {
                        asked if *asked == probe => probe.to_vec(),
                        asked => Question::trials(asked),
                    };
                    self.wait_for(&mut store, &trial, &mut waiting, &mut retries).await;
                }
            }
            self.count_dropped();
        }
        self.unsent.forget();
        self.count_dropped();
    }

    /// Adds new questions to `waiting`; if that is empty, waits for one. Returns false when no more
    /// can come.
    async fn gather(&mut self, waiting: &mut Vec<AskedQuestion>) -> bool {
        let has_none = waiting.is_empty() && self.unsent.is_empty();
        let mut next = match has_none {
            true => self.asked.recv().await,
            false => self.asked.try_recv().ok(),
        };
        let is_more = next.is_some() || !has_none;
        while let Some(asked) = next {
            if let StoreCommand::Decide(question) = asked {
                waiting.push(question);
            }
            next = self.asked.try_recv().ok();
        }
        is_more
    }

    async fn ask(
        &self,
        store: &mut impl Decider,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let node = self.namespace.counters().namespace.table().node();
        let decided = store.decide(NodeId(node), Epoch::proposed(), questions).await;
        self.is_away.set(decided.is_err());
        decided
    }

    /// Waits until the store answers `trial`, or all callers are gone. Meanwhile keeps charges for
    /// the store.
    async fn wait_for(
        &mut self,
        store: &mut impl Decider,
        trial: &[Question],
        waiting: &mut Vec<AskedQuestion>,
        retries: &mut Retries,
    ) {
        for asked in core::mem::take(waiting) {
            self.keep(asked, waiting);
        }
        retries.begin(Machine.uptime());
        loop {
            let pause = retries.pause(Machine.random().get());
            if self.keep_for(pause, waiting).await {
                return;
            }
            if self.ask(store, trial).await.is_ok() {
                return retries.end(Machine.uptime());
            }
        }
    }

    /// Keeps charges for the store during `pause`. Returns whether all callers are gone.
    async fn keep_for(&mut self, pause: Duration, waiting: &mut Vec<AskedQuestion>) -> bool {
        let until = Machine.uptime().saturating_add(pause);
        loop {
            let left = until.saturating_sub(Machine.uptime());
            if left.is_zero() {
                break;
            }
            match timeout(left, self.asked.recv()).await {
                Ok(Some(StoreCommand::Decide(asked))) => self.keep(asked, waiting),
                Ok(Some(StoreCommand::Probe)) => {}
                Ok(None) => return true,
                Err(_) => break,
            }
        }
        self.forget_late(waiting);
        self.count_dropped();
        false
    }

    /// Keeps a charge that was made without the store, if there is room. Other questions wait.
    fn keep(&mut self, asked: AskedQuestion, waiting: &mut Vec<AskedQuestion>) {
        let AskedQuestion { question, reply, deadline, at } = asked;
        let question = match reply.is_none() && UnsentHits::are(&question) {
            true => self.unsent.add(&question, at),
            false => Some(question),
        };
        let Some(question) = question else { return };
        let kept = self.unsent.len().saturating_add(waiting.len());
        if reply.is_none() && kept >= UnsentHits::MOST {
            return self.drop_hits(&question);
        }
        waiting.push(AskedQuestion { question, reply, deadline, at });
    }

    /// Removes questions that are too late, and counts hits that nobody waits for as lost.
    fn forget_late(&self, waiting: &mut Vec<AskedQuestion>) {
        let now = Machine.monotonic();
        waiting.retain(|asked| {
            let is_late = asked.is_late(now);
            if is_late && asked.reply.is_none() {
                self.drop_hits(&asked.question);
            }
            !is_late
        });
    }

    /// Counts the hits of a question as lost.
    fn drop_hits(&self, question: &Question) {
        let namespace = &self.namespace.counters().namespace;
        for counter in &question.counters {
            namespace.table().count_dropped(namespace.index(), counter.cost);
        }
    }

    /// Counts the hits that `unsent` has dropped as lost.
    fn count_dropped(&mut self) {
        let namespace = &self.namespace.counters().namespace;
        for (_, hits) in self.unsent.take_dropped() {
            namespace.table().count_dropped(namespace.index(), hits);
        }
    }

    /// Takes as many questions as are asked at once, after those in `unsent`, with their callers
    /// and times.
    fn take(
        &self,
        unsent: &[Question],
        waiting: &mut Vec<AskedQuestion>,
    ) -> (Vec<Question>, Vec<AskedBy>) {
        self.forget_late(waiting);
        let mut questions = unsent.to_vec();
        let first = waiting.iter().take(Question::MAX_AT_ONCE);
        questions.extend(first.map(|it| it.question.clone()));
        questions.truncate(Question::at_once(&questions).max(unsent.len()));
        let asked = waiting.drain(..questions.len().saturating_sub(unsent.len()));
        (questions, asked.map(|it| (it.reply, it.deadline, it.at)).collect())
    }
}
