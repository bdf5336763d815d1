//! A request's decision while stores are asked about it: the next question, and the result of the
//! answers or of their absence.

use core::time::Duration;
use std::sync::Arc;

use smallvec::smallvec;

use super::charge::Charges;
use super::evaluation::Evaluation;
use super::rejection_cache::RejectionCache;
use super::synchronous::{Answered, LimitCheck, StoreQuestion, conclude, each_unbanned, questions};
use crate::policy::namespace::OnError;
use crate::policy::window::Clock;
use crate::store::contract::decision::{Answer, Few};

/// A decision about a request that stores take part in. They are asked one after another. The
/// decision ends with the last answer, with the first one that does not admit the request, or with
/// the first missing one.
///
/// All methods require the checks with which the decision was created.
#[derive(Debug)]
pub struct PendingDecision {
    counts_rejected: bool,
    /// The questions, one for each decider, in order. At the end, those whose stores have charged
    /// the request.
    questions: Few<StoreQuestion>,
    /// Questions whose stores have charged a rule that is tried alone and has banned the key.
    banned: Few<StoreQuestion>,
    /// Index of the question to be answered next.
    next: usize,
    /// The answers, by check.
    answered: Few<Option<Answered>>,
    /// `None` while a store must be asked.
    ending: Option<Ending>,
}

/// The end of a pending decision.
#[derive(Debug)]
enum Ending {
    /// All stores that had to be asked have answered.
    Decided,
    /// The store of this namespace has not answered.
    Failed(Option<Arc<str>>),
}

impl PendingDecision {
    /// Creates the decision about a request with these checks. It is pending if a store decides one
    /// of them.
    ///
    /// With `counts_rejected`, all stores are asked, since each charges the request even if it is
    /// rejected.
    ///
    /// No store is asked about a key that this node knows to be banned.
    pub fn new(checks: &[LimitCheck<'_, '_>], counts_rejected: bool) -> PendingDecision {
        let mut bans = checks.iter().filter(|check| check.bound.is_of_bans());
        let questions = match bans.any(|ban| ban.store.is_none() && ban.trial.is_none()) {
            true => Few::new(),
            false => questions(checks, counts_rejected),
        };
        PendingDecision {
            counts_rejected,
            ending: questions.is_empty().then_some(Ending::Decided),
            questions,
            banned: Few::new(),
            next: 0,
            answered: smallvec![None; checks.len()],
        }
    }

    /// Returns whether a store must still be asked.
    pub fn is_pending(&self) -> bool {
        self.ending.is_none()
    }

    /// Returns the current question, to be asked or answered; `None` at the end.
    pub fn question(&self) -> Option<&StoreQuestion> {
        self.questions.get(self.next).filter(|_| self.is_pending())
    }

    /// Returns the deciders that must still be asked, in order; none at the end.
    pub fn deciders(&self) -> impl Iterator<Item = usize> {
        let ahead = self.questions.get(self.next..).filter(|_| self.is_pending());
        ahead.unwrap_or_default().iter().map(|it| it.decider)
    }

    /// Decides by the rejection cache, if that suffices to reject the request. Does nothing if
    /// rejected requests are charged, since the store must then charge them.
    pub fn recall(
        &mut self,
        known: Option<&RejectionCache>,
        checks: &[LimitCheck<'_, '_>],
        now: Duration,
    ) {
        let known = known.filter(|_| self.is_pending() && !self.counts_rejected);
        if let Some(answered) = known.and_then(|known| known.recall(checks, now)) {
            self.answered = answered;
            self.questions.clear();
            self.ending = Some(Ending::Decided);
        }
    }

    /// Takes the answer to the current question, and records the store's counts in the node's
    /// table. Returns whether the store admits the request. Changes nothing at the end.
    pub fn answer(
        &mut self,
        answer: &Answer,
        checks: &[LimitCheck<'_, '_>],
        clock: &impl Clock,
    ) -> bool {
        let Some(question) = self.questions.get_mut(self.next).filter(|_| self.ending.is_none())
        else {
            return true;
        };
        let is_trial = question.is_trial;
        let is_admitted = question.note(answer, checks, &mut self.answered, clock);
        if !is_admitted && question.ignore_ended_bans(answer, checks) {
            // Asked again.
            return true;
        }
        if is_trial && self.counts_rejected && question.is_banned(checks, clock) {
            question.forget_charges(&mut self.answered);
            let banned = self.questions.remove(self.next);
            self.banned.push(banned);
            self.end_after_last();
            return true;
        }
        if is_trial && (is_admitted || self.counts_rejected) {
            let charged = question.question.counters.clone();
            let later = self.questions.iter_mut().skip(self.next.saturating_add(1));
            later.for_each(|question| question.follow(&charged));
        }
        // A store that rejects the request has not charged it.
        if is_admitted || self.counts_rejected {
            self.next = self.next.saturating_add(1);
        } else if is_trial {
            self.questions.remove(self.next);
        } else {
            self.questions.truncate(self.next);
        }
        self.end_after_last();
        is_admitted
    }

    /// Ends the decision if all stores have answered.
    fn end_after_last(&mut self) {
        if self.next >= self.questions.len() {
            self.ending = Some(Ending::Decided);
        }
    }

    /// Ends the decision because this decider, which must still be asked, does not answer.
    pub fn fail(&mut self, decider: usize) {
        if self.is_pending() {
            let silent = self.questions.iter().find(|it| it.decider == decider);
            let counter = silent.and_then(|it| it.question.counters.first());
            self.ending = Some(Ending::Failed(counter.map(|it| it.shard.namespace.clone())));
            self.questions.truncate(self.next);
        }
    }

    /// Returns whether a store has not answered.
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

    /// Adds the decision to `evaluation`: the stores' answers, and this node's decisions about the
    /// other limits.
    pub fn conclude<'c, 'm: 'c, L: Charges<'c, 'm>>(
        &self,
        evaluation: &mut Evaluation<L>,
        checks: &[LimitCheck<'c, 'm>],
        clock: &impl Clock,
    ) {
        conclude(evaluation, checks, &self.answered, clock);
    }

    /// Takes the questions whose stores have charged a banned key, and must be refunded whatever the
    /// decision is.
    pub fn take_banned(&mut self) -> Few<StoreQuestion> {
        core::mem::take(&mut self.banned)
    }

    /// Takes the questions whose stores have charged the request. They must be refunded if the
    /// request is rejected without being counted, or decided without the stores.
    pub fn take_charged(&mut self) -> Few<StoreQuestion> {
        core::mem::take(&mut self.questions)
    }
}

/// Charges a request that `on_error` decides: under all limits if this node decides, otherwise
/// under those that no store decides; not at all if the request is denied.
pub fn fall_back<'c, 'm: 'c, L: Charges<'c, 'm>>(
    evaluation: &mut Evaluation<L>,
    checks: &[LimitCheck<'c, 'm>],
    on_error: OnError,
    clock: &impl Clock,
) {
    each_unbanned(evaluation, checks, &[], clock, |evaluation, check, _| {
        let LimitCheck { bound, hits, key, cost, store, .. } = *check;
        let is_counted_here = store.is_none() || on_error == OnError::Local;
        if is_counted_here && on_error != OnError::Deny {
            evaluation.charge(bound, hits, key, cost, clock);
        }
    });
}
