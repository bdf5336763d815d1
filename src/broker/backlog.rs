//! The backlog of a decider: questions of all workers that the next exchange may have.

use core::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::message::Ask;
use super::unsent::UnsentHits;
use crate::store::decision::Question;
use crate::table::MonotonicMillis;

/// How many counters an exchange charges of those that were counted while the store was away: others wait.
const UNSENT_AT_ONCE: usize = 32;

/// What was asked of a decider, and is not sent yet.
#[derive(Default)]
pub(super) struct Backlog {
    gathered: RefCell<Gathered>,
    /// Whether nothing is sent.
    is_away: Cell<bool>,
    /// What was counted without the store.
    unsent: RefCell<UnsentHits>,
    /// For how many questions the task waits.
    pub(super) awaited: Cell<usize>,
    /// There are so many, or there is another reason to look.
    pub(super) ready: Notify,
}

/// Questions for one exchange, and where each answer goes.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) questions: Vec<Question>,
    /// For each question.
    pub(super) reply_to: Vec<ReplyTo>,
    /// Whether a probe is due, too.
    pub(super) is_probed: bool,
}

/// Where the answer to a question goes.
pub(super) struct ReplyTo {
    /// The number of the worker.
    pub(super) worker: usize,
    /// The number of the request; `None`: it needs no answer.
    pub(super) id: Option<u64>,
    deadline: u64,
}

impl Backlog {
    pub(super) fn put(&self, worker: usize, ask: Ask, now: impl FnOnce() -> MonotonicMillis) {
        if self.is_away.get() && self.keep(ask.id, &ask.question, now) {
            return;
        }
        let mut gathered = self.gathered.borrow_mut();
        let Ask {
            id,
            deadline,
            question,
            ..
        } = ask;
        if question.counters.is_empty() {
            gathered.is_probed = true;
        } else {
            gathered.questions.push(question);
            gathered.reply_to.push(ReplyTo {
                worker,
                id,
                deadline,
            });
        }
        // The task takes all there is when it is woken once.
        if gathered.is_probed || gathered.questions.len() == self.awaited.get() {
            self.ready.notify_one();
        }
    }

    /// Puts questions first that are to be asked once more.
    pub(super) fn put_back(&self, questions: Vec<Question>, reply_to: Vec<ReplyTo>) {
        let mut gathered = self.gathered.borrow_mut();
        gathered.questions.splice(0..0, questions);
        gathered.reply_to.splice(0..0, reply_to);
    }

    /// Keeps what a question charges until the store is back; returns whether that is to be done.
    fn keep(
        &self,
        id: Option<u64>,
        question: &Question,
        now: impl FnOnce() -> MonotonicMillis,
    ) -> bool {
        let is_unsent = id.is_none() && !question.counters.is_empty() && UnsentHits::are(question);
        is_unsent && self.unsent.borrow_mut().add(question, now())
    }

    /// Nothing is sent for a while.
    pub(super) fn leave(&self, now: MonotonicMillis) {
        self.is_away.set(true);
        let mut gathered = self.gathered.borrow_mut();
        let Gathered {
            questions,
            reply_to,
            ..
        } = &mut *gathered;
        let all = questions.drain(..).zip(reply_to.drain(..));
        let others = all.filter(|(question, to)| !self.keep(to.id, question, || now));
        let others: Vec<_> = others.collect();
        (*questions, *reply_to) = others.into_iter().unzip();
    }

    /// The store is back.
    pub(super) fn come_back(&self) {
        self.is_away.set(false);
    }

    /// Whether something is to be charged that was counted without the store.
    fn has_unsent(&self) -> bool {
        !self.is_away.get() && !self.unsent.borrow().is_empty()
    }

    /// How many questions there are.
    pub(super) fn waiting(&self) -> usize {
        self.gathered.borrow().questions.len()
    }

    /// How many questions the task still waits for; `None` if for none.
    pub(super) fn lacking(&self) -> Option<usize> {
        let gathered = self.gathered.borrow();
        let more = self.awaited.get().saturating_sub(gathered.questions.len());
        (more > 0 && !gathered.is_probed && !self.has_unsent()).then_some(more)
    }

    /// So many questions as are asked at once, without those whose deadline is past: their requests were
    /// decided otherwise.
    pub(super) fn take(&self, now: MonotonicMillis) -> Gathered {
        let has_unsent = self.has_unsent();
        if !has_unsent && self.gathered.borrow().is_nothing() {
            return Gathered::default();
        }
        let mut gathered = self.gathered.replace(Gathered {
            questions: Vec::with_capacity(Question::MAX_AT_ONCE),
            reply_to: Vec::with_capacity(Question::MAX_AT_ONCE),
            is_probed: false,
        });
        let is_late = |reply_to: &ReplyTo| reply_to.id.is_some() && reply_to.deadline <= now.0;
        if gathered.reply_to.iter().any(is_late) {
            let all = gathered.questions.into_iter().zip(gathered.reply_to);
            let in_time = all.filter(|(_, reply_to)| !is_late(reply_to));
            (gathered.questions, gathered.reply_to) = in_time.unzip();
        }
        if has_unsent {
            for question in self.unsent.borrow_mut().take(UNSENT_AT_ONCE, now) {
                gathered.questions.push(question);
                gathered.reply_to.push(ReplyTo {
                    worker: 0,
                    id: None,
                    deadline: 0,
                });
            }
        }
        let count = Question::at_once(&gathered.questions);
        let mut others = self.gathered.borrow_mut();
        others.questions.extend(gathered.questions.drain(count..));
        others.reply_to.extend(gathered.reply_to.drain(count..));
        drop(others);
        gathered
    }
}

impl ReplyTo {
    /// Returns whether a request still waits for the answer at this moment.
    pub(super) fn waits_at(&self, moment: MonotonicMillis) -> bool {
        self.id.is_some() && self.deadline > moment.0
    }
}

impl Gathered {
    pub(super) fn is_nothing(&self) -> bool {
        self.questions.is_empty() && !self.is_probed
    }
}
