//! The backlog of a decider: questions of all workers that the next exchange may have.

use core::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::message::Ask;
use crate::store::decision::Question;
use crate::table::MonotonicMillis;

/// What was asked of a decider, and is not sent yet.
#[derive(Default)]
pub(super) struct Backlog {
    gathered: RefCell<Gathered>,
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
    pub(super) fn put(&self, worker: usize, ask: Ask) {
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

    /// How many questions there are.
    pub(super) fn waiting(&self) -> usize {
        self.gathered.borrow().questions.len()
    }

    /// How many questions the task still waits for; `None` if for none.
    pub(super) fn lacking(&self) -> Option<usize> {
        let gathered = self.gathered.borrow();
        let more = self.awaited.get().saturating_sub(gathered.questions.len());
        (more > 0 && !gathered.is_probed).then_some(more)
    }

    /// So many questions as are asked at once, without those whose deadline is past: their requests were
    /// decided otherwise.
    pub(super) fn take(&self, now: MonotonicMillis) -> Gathered {
        if self.gathered.borrow().is_nothing() {
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
        let count = Question::at_once(&gathered.questions);
        let mut others = self.gathered.borrow_mut();
        others.questions.extend(gathered.questions.drain(count..));
        others.reply_to.extend(gathered.reply_to.drain(count..));
        drop(others);
        gathered
    }
}

impl Gathered {
    pub(super) fn is_nothing(&self) -> bool {
        self.questions.is_empty() && !self.is_probed
    }
}
