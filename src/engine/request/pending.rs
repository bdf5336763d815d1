//! The decision of stores on one request while it is pending: which question comes next, and what
//! follows from the answers, or from their absence.

use std::sync::Arc;

use smallvec::smallvec;

use super::charge::Charges;
use super::evaluation::Evaluation;
use super::rejection_cache::RejectionCache;
use super::synchronous::{Answered, LimitCheck, StoreQuestion, conclude, questions};
use crate::policy::namespace::OnError;
use crate::policy::window::Clock;
use crate::store::contract::decision::{Answer, Few};

/// A decision on a request in which stores take part. They are asked one after the other. It ends with the last answer,
/// with the first that does not admit the request, and with the first that does not come.
///
/// All methods take the checks that it was created with.
#[derive(Debug)]
pub struct PendingDecision {
    counts_rejected: bool,
    /// Questions, one for each decider, in the order in which they are asked. At the end, those that charged the request.
    questions: Few<StoreQuestion>,
    /// The index of the question that is to be answered next.
    next: usize,
    /// The answers, by check.
    answered: Few<Option<Answered>>,
    /// `None` while a store is to be asked.
    ending: Option<Ending>,
}

/// How a pending decision ended.
#[derive(Debug)]
enum Ending {
    /// All stores have answered that were to be asked.
    Decided,
    /// The store of this namespace has not answered.
    Failed(Option<Arc<str>>),
}

impl PendingDecision {
    /// Creates the decision on a request with these checks. It is pending if a store decides about one of them.
    ///
    /// With `counts_rejected`, each store charges the request, whether it is admitted or not, so that all are asked.
    pub fn new(checks: &[LimitCheck<'_, '_>], counts_rejected: bool) -> PendingDecision {
        let questions = questions(checks, counts_rejected);
        PendingDecision {
            counts_rejected,
            ending: questions.is_empty().then_some(Ending::Decided),
            questions,
            next: 0,
            answered: smallvec![None; checks.len()],
        }
    }

    /// Whether a store is still to be asked.
    pub fn is_pending(&self) -> bool {
        self.ending.is_none()
    }

    /// Returns the question that is to be asked, or answered, now; `None` at the end.
    pub fn question(&self) -> Option<&StoreQuestion> {
        self.questions.get(self.next).filter(|_| self.is_pending())
    }

    /// Returns the deciders that are still to be asked, in this order; none at the end.
    pub fn deciders(&self) -> impl Iterator<Item = usize> {
        let ahead = self.questions.get(self.next..).filter(|_| self.is_pending());
        ahead.unwrap_or_default().iter().map(|it| it.decider)
    }

    /// Decides by what stores said a moment ago, if that is enough to reject the request. A rejection that is to be
    /// charged is not decided so.
    pub fn recall(
        &mut self,
        known: Option<&RejectionCache>,
        checks: &[LimitCheck<'_, '_>],
        now: core::time::Duration,
    ) {
        let known = known.filter(|_| self.is_pending() && !self.counts_rejected);
        if let Some(answered) = known.and_then(|known| known.recall(checks, now)) {
            self.answered = answered;
            self.questions.clear();
            self.ending = Some(Ending::Decided);
        }
    }

    /// Takes the answer to the present question, and writes what the store has counted to the node's table. Returns
    /// whether the store admits the request; at the end, nothing changes.
    pub fn answer(
        &mut self,
        answer: &Answer,
        checks: &[LimitCheck<'_, '_>],
        clock: &impl Clock,
    ) -> bool {
        let Some(question) = self.questions.get(self.next).filter(|_| self.ending.is_none()) else {
            return true;
        };
        let is_admitted = question.note(answer, checks, &mut self.answered, clock);
        if !is_admitted && !self.counts_rejected {
            // A store that rejects the request has not charged it.
            self.questions.truncate(self.next);
        } else {
            self.next = self.next.saturating_add(1);
        }
        if self.next >= self.questions.len() {
            self.ending = Some(Ending::Decided);
        }
        is_admitted
    }

    /// Ends the decision: this decider, which is still to be asked, does not answer.
    pub fn fail(&mut self, decider: usize) {
        if self.is_pending() {
            let silent = self.questions.iter().find(|it| it.decider == decider);
            let counter = silent.and_then(|it| it.question.counters.first());
            self.ending = Some(Ending::Failed(counter.map(|it| it.shard.namespace.clone())));
            self.questions.truncate(self.next);
        }
    }

    /// Whether a store has not answered.
    pub fn has_failed(&self) -> bool {
        matches!(self.ending, Some(Ending::Failed(_)))
    }

    /// Returns the namespace whose store has not answered.
    pub fn silent_namespace(&self) -> Option<&str> {
        match &self.ending {
            Some(Ending::Failed(namespace)) => namespace.as_deref(),
            Some(Ending::Decided) | None => None,
        }
    }

    /// Returns the answers so far, by check.
    pub fn answered(&self) -> &[Option<Answered>] {
        &self.answered
    }

    /// Adds the decision to `evaluation`: by the stores' answers, and by the other limits here.
    pub fn conclude<'c, 'm: 'c, L: Charges<'c, 'm>>(
        &self,
        evaluation: &mut Evaluation<L>,
        checks: &[LimitCheck<'c, 'm>],
        clock: &impl Clock,
    ) {
        conclude(evaluation, checks, &self.answered, clock);
    }

    /// Takes the questions by which stores have charged the request. They are to be refunded if it is rejected without
    /// being counted, or decided without the stores.
    pub fn take_charged(&mut self) -> Few<StoreQuestion> {
        core::mem::take(&mut self.questions)
    }
}

/// Charges a request that `on_error` decides: under all limits if this node decides, else under those that no store
/// decides about; not at all if the request is denied.
pub fn fall_back<'c, 'm: 'c, L: Charges<'c, 'm>>(
    evaluation: &mut Evaluation<L>,
    checks: &[LimitCheck<'c, 'm>],
    on_error: OnError,
    clock: &impl Clock,
) {
    for LimitCheck { bound, hits, key, cost, store } in checks {
        let is_counted_here = store.is_none() || on_error == OnError::Local;
        if is_counted_here && on_error != OnError::Deny {
            evaluation.charge(bound, *hits, key, *cost, clock);
        }
    }
}
