//! What a store is asked about hits, in the thread that talks to stores: what waits is asked at once.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::definition::DefinedNamespace;
use crate::broker::{UnsentHits, pauses};
use crate::engine::{Machine, Surroundings as _};
use crate::store::decision::{Answer, Certainty, Decided, Decider, Question};
use crate::store::error::StoreError;
use crate::store::strategy::{Epoch, NodeId, Shard};

/// How many counters are charged at once of those that were counted without the store: others wait.
const UNSENT_AT_ONCE: usize = 32;

/// What a caller asks.
pub(super) enum StoreCommand {
    /// About hits.
    Decide(AskedQuestion),
    /// Whether there are answers.
    Probe,
}

/// A question about hits.
pub(super) struct AskedQuestion {
    pub(super) question: Question,
    /// To a caller that waits; `None`: no answer is needed. When it is dropped, there will be none.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// Until when the caller waits, by the machine's monotonic clock.
    pub(super) deadline: Duration,
}

/// Where an answer goes, and until when the caller waits for it.
type ReplyBy = (Option<oneshot::Sender<Answer>>, Duration);

/// Whether the store is known not to answer.
#[derive(Clone, Debug, Default)]
pub(super) struct IsAway(Arc<AtomicBool>);

impl IsAway {
    // Relaxed, both: nothing else is read because of what it says.

    pub(super) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Returns whether it was known before.
    pub(super) fn set(&self, is_away: bool) -> bool {
        self.0.swap(is_away, Relaxed)
    }
}

/// The questions about one shard of a namespace.
pub(super) struct QuestionTask {
    pub(super) namespace: Arc<DefinedNamespace>,
    pub(super) shard: u16,
    pub(super) asked: UnboundedReceiver<StoreCommand>,
    pub(super) is_away: IsAway,
    /// What was counted without the store.
    pub(super) unsent: UnsentHits,
}

/// Those about all shards.
pub(super) struct QuestionTasks(pub(super) Vec<QuestionTask>);

impl QuestionTasks {
    /// Answers until all callers are gone. `connect` makes a decider, which connects when it is used.
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
        let mut waiting = Vec::new();
        // Connects before a hit waits for it.
        if self.ask(&mut store, &probe).await.is_err() {
            self.wait_for(&mut store, &probe, &mut waiting).await;
        }
        while self.gather(&mut waiting).await {
            let unsent = self.unsent.take(UNSENT_AT_ONCE, Machine.monotonic());
            waiting.extend(unsent.into_iter().map(|question| AskedQuestion {
                question,
                reply: None,
                deadline: Duration::ZERO,
            }));
            let began = Machine.uptime();
            let (questions, replies) = take(&mut waiting);
            let asked = match &*questions {
                // A probe, or what nothing waits for any more: is the store there?
                [] => &probe,
                questions => questions,
            };
            match self.ask(&mut store, asked).await {
                Ok(Decided { answers, .. }) => {
                    let now = Machine.uptime();
                    // When another two exchanges may be over.
                    let then = now.saturating_add(now.saturating_sub(began).saturating_mul(2));
                    let asked = questions.into_iter().zip(replies).zip(answers);
                    for ((question, (reply, deadline)), answer) in asked {
                        let is_again = answer.certainty == Certainty::Raced && deadline > then;
                        match reply {
                            Some(reply) if is_again => waiting.push(AskedQuestion {
                                question,
                                reply: Some(reply),
                                deadline,
                            }),
                            // The caller may be gone.
                            reply => drop(reply.map(|reply| reply.send(answer))),
                        }
                    }
                }
                Err(_) => {
                    drop(replies);
                    self.wait_for(&mut store, &probe, &mut waiting).await;
                }
            }
        }
    }

    /// Adds what was asked to what waits; where nothing does, waits for something. Returns false if there
    /// will be nothing more.
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
        let decided = store
            .decide(NodeId(node), Epoch::proposed(), questions)
            .await;
        self.is_away.set(decided.is_err());
        decided
    }

    /// Waits until there are answers again, or nobody is left to ask. Keeps what is counted meanwhile.
    async fn wait_for(
        &mut self,
        store: &mut impl Decider,
        probe: &[Question],
        waiting: &mut Vec<AskedQuestion>,
    ) {
        for pause in pauses() {
            sleep(pause).await;
            self.keep(waiting);
            if self.asked.is_closed() || self.ask(store, probe).await.is_ok() {
                return;
            }
        }
    }

    /// Keeps what was counted without the store; the rest of what was asked waits.
    fn keep(&mut self, waiting: &mut Vec<AskedQuestion>) {
        let now = Machine.monotonic();
        while let Ok(command) = self.asked.try_recv() {
            let StoreCommand::Decide(asked) = command else {
                continue;
            };
            let is_unsent = asked.reply.is_none() && UnsentHits::are(&asked.question);
            if !is_unsent || !self.unsent.add(&asked.question, now) {
                waiting.push(asked);
            }
        }
    }
}

/// Takes so many questions as are asked at once, without those that nothing waits for any more: their hits
/// were decided otherwise.
fn take(waiting: &mut Vec<AskedQuestion>) -> (Vec<Question>, Vec<ReplyBy>) {
    let is_late = |it: &AskedQuestion| it.reply.as_ref().is_some_and(oneshot::Sender::is_closed);
    waiting.retain(|it| !is_late(it));
    let all = waiting
        .drain(..)
        .map(|it| (it.question, (it.reply, it.deadline)));
    let (mut questions, mut replies): (Vec<_>, Vec<_>) = all.unzip();
    let count = Question::at_once(&questions);
    let later = questions.drain(count..).zip(replies.drain(count..));
    waiting.extend(later.map(|(question, (reply, deadline))| AskedQuestion {
        question,
        reply,
        deadline,
    }));
    (questions, replies)
}
