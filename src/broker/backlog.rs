//! The backlog of a decider: questions of all workers that the next exchange may have.

use core::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::message::Ask;
use crate::store::decision::Question;
use crate::table::MonotonicMillis;

/// What was asked of a decider, and is not sent yet.
#[derive(Default)]
pub(super) struct Backlog {
    asked: RefCell<Asked>,
    /// For how many questions the task waits.
    pub(super) awaited: Cell<usize>,
    /// There are so many, or there is another reason to look.
    pub(super) ready: Notify,
}

/// Questions, and who asks each.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) questions: Vec<Question>,
    pub(super) askers: Vec<Asker>,
    /// Whether it is asked, too, if the store answers at all.
    pub(super) is_probed: bool,
}

/// Who asks a question.
pub(super) struct Asker {
    /// The number of the worker.
    pub(super) worker: usize,
    /// The number of the request; `None`: nobody waits for the answer.
    pub(super) id: Option<u64>,
    deadline: u64,
}

impl Backlog {
    pub(super) fn put(&self, worker: usize, ask: Ask) {
        let mut asked = self.asked.borrow_mut();
        let Ask {
            id,
            deadline,
            question,
            ..
        } = ask;
        if question.counters.is_empty() {
            asked.is_probed = true;
        } else {
            asked.questions.push(question);
            asked.askers.push(Asker {
                worker,
                id,
                deadline,
            });
        }
        // Who is told once looks for all there is.
        if asked.is_probed || asked.questions.len() == self.awaited.get() {
            self.ready.notify_one();
        }
    }

    /// How many questions there are.
    pub(super) fn waiting(&self) -> usize {
        self.asked.borrow().questions.len()
    }

    /// How many questions the task still waits for; `None` if for none.
    pub(super) fn lacking(&self) -> Option<usize> {
        let asked = self.asked.borrow();
        let more = self.awaited.get().saturating_sub(asked.questions.len());
        (more > 0 && !asked.is_probed).then_some(more)
    }

    /// So many questions as are asked at once, without those that nobody waits for any more: they were
    /// answered otherwise.
    pub(super) fn take(&self, now: MonotonicMillis) -> Asked {
        if self.asked.borrow().is_nothing() {
            return Asked::default();
        }
        let mut asked = self.asked.replace(Asked {
            questions: Vec::with_capacity(Question::MAX_AT_ONCE),
            askers: Vec::with_capacity(Question::MAX_AT_ONCE),
            is_probed: false,
        });
        let is_late = |asker: &Asker| asker.id.is_some() && asker.deadline <= now.0;
        if asked.askers.iter().any(is_late) {
            let all = asked.questions.into_iter().zip(asked.askers);
            let in_time = all.filter(|(_, asker)| !is_late(asker));
            (asked.questions, asked.askers) = in_time.unzip();
        }
        let count = Question::at_once(&asked.questions);
        let mut others = self.asked.borrow_mut();
        others.questions.extend(asked.questions.drain(count..));
        others.askers.extend(asked.askers.drain(count..));
        drop(others);
        asked
    }
}

impl Asked {
    pub(super) fn is_nothing(&self) -> bool {
        self.questions.is_empty() && !self.is_probed
    }
}
