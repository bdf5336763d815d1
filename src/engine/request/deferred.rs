//! Hits that are known only with the response: those of `charge=`, and the difference between an
//! estimate (`cost=` with `charge=`) and the hits that replace it.

use smallvec::smallvec;

use super::bound_limit::BoundLimit;
use super::charge::Charge;
use super::synchronous::Deciders;
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::store::contract::decision::{AskedCounter, Question};
use crate::table::{Admission, Identity};

/// Hits to charge under a limit, or to give back.
#[derive(Clone, Copy, Debug)]
pub struct DeferredHits<'a, 'c, 'm> {
    charge: &'a Charge<'c, 'm>,
    /// The hits that were charged with the decision.
    estimate: Hits,
    /// The hits that replace the estimate.
    value: Hits,
}

/// Returns the hits that were unknown at the decision. `value_of` returns the hits of a limit;
/// `None` if those of the decision stay. A counter that several limits share is charged once, as in
/// the [`Evaluation`](super::evaluation::Evaluation). Counts the hits of estimates that are final now.
///
/// `is_charged_by_store` returns whether a store has charged the cost.
pub fn deferred_hits<'a, 'c, 'm>(
    charges: &'a [Charge<'c, 'm>],
    mut value_of: impl FnMut(&BoundLimit<'m>) -> Option<Hits>,
    is_charged_by_store: impl Fn(&Charge<'c, 'm>) -> bool,
) -> Vec<DeferredHits<'a, 'c, 'm>> {
    let cost_of = |charge: &Charge<'c, 'm>| match is_charged_by_store(charge) {
        true => charge.cost(),
        false => charge.charged(),
    };
    // Each counter, with the index of the limit that charged it.
    let mut charged: Vec<(Identity, usize)> = Vec::new();
    for (index, charge) in charges.iter().enumerate() {
        let identity = charge.identity();
        if cost_of(charge) > Hits::ZERO && !charged.iter().any(|(it, _)| *it == identity) {
            charged.push((identity, index));
        }
    }
    let mut deferred = Vec::new();
    for (index, charge) in charges.iter().enumerate() {
        let identity = charge.identity();
        let by = charged.iter().find(|(it, _)| *it == identity).map(|(_, by)| *by);
        let estimate = match by {
            Some(by) if by == index && charge.bound.is_estimated() => cost_of(charge),
            // Another limit has charged the request in this counter.
            Some(_) => continue,
            None => Hits::ZERO,
        };
        // A store only fills a bucket with hits that it refuses, by an unknown part of them.
        let is_filled = is_charged_by_store(charge) && !charge.counted.admitted;
        let value = match is_filled && charge.counter().kind().is_bucket() {
            true => estimate,
            false => value_of(charge.bound).unwrap_or(estimate),
        };
        charge.bound.count_hits(value.min(estimate));
        if by.is_none() && value > Hits::ZERO {
            charged.push((identity, index));
        }
        if value != estimate {
            deferred.push(DeferredHits { charge, estimate, value });
        }
    }
    deferred
}

impl<'a, 'c, 'm> DeferredHits<'a, 'c, 'm> {
    /// Returns the limit.
    pub fn bound(&self) -> &'c BoundLimit<'m> {
        self.charge.bound
    }

    /// Returns the hits to charge; at most zero if there are none.
    fn more(&self) -> Hits {
        self.value.minus(self.estimate)
    }

    /// Charges the hits in this node's counter, if there are more than the estimated ones.
    pub fn charge(&self, clock: &impl Clock) {
        let DeferredHits { charge, .. } = *self;
        let (table, counter, more) = (charge.bound.table, charge.counter(), self.more());
        if more > Hits::ZERO {
            let admission = Admission::Regardless(charge.hits);
            table.add(&counter, *charge.key, clock, more, admission);
            table.count_hits(&counter, more);
        }
    }

    /// Gives back the estimated hits that were too many, as far as they still count. The decision
    /// was at most `age` milliseconds ago. Returns the question with which the decider of a store
    /// gives them back, with its number.
    pub fn give_back(
        &self,
        store: Option<Deciders>,
        age: u64,
        clock: &impl Clock,
    ) -> Option<(usize, Question)> {
        let DeferredHits { charge, estimate, .. } = *self;
        let (bound, counter, reading) = (charge.bound, charge.counter(), charge.counted.reading);
        let algorithm = bound.limit.algorithm;
        let left = algorithm.left_of(bound.limit.size, &reading, estimate, age);
        let less = Hits::ZERO.minus(self.more()).min(left);
        if less <= Hits::ZERO {
            return None;
        }
        if let Some(receipt) = &charge.counted.receipt {
            bound.table.refund(&counter, &receipt.part(less));
            return None;
        }
        let deciders = store?;
        match counter.kind() {
            StoredKind::Windows => {
                let window = reading.windows().window;
                bound.table.give_back(&counter, *charge.key, window, less, clock);
                None
            }
            StoredKind::Level(_) => {
                let cost = Hits::ZERO.minus(less);
                let counter = deciders.counter(bound, counter.kind(), charge.key(), cost);
                Some(asked(&deciders, counter))
            }
            // A store removes the newest hits of a log, which may be another request's.
            StoredKind::Log | StoredKind::Holds => None,
        }
    }
}

/// Returns the question that charges a counter, with the number of its decider.
fn asked(deciders: &Deciders, counter: AskedCounter) -> (usize, Question) {
    let decider = deciders.number_of(&counter.key);
    (decider, Question { counters: smallvec![counter], ..Question::nothing() })
}

/// A charge of deferred hits by a decider.
#[derive(Debug)]
pub struct DeferredCharge<'a, 'c, 'm> {
    /// The number of the decider.
    pub decider: usize,
    /// The question that charges them.
    pub question: Question,
    pub(super) hits: Vec<DeferredHits<'a, 'c, 'm>>,
}

/// Returns the charges of hits by deciders, one for each. `store_of` returns the deciders of a
/// limit; hits that this node charges are left out.
pub fn deferred_charges<'a, 'c, 'm>(
    hits: &[DeferredHits<'a, 'c, 'm>],
    store_of: impl Fn(&BoundLimit<'m>) -> Option<Deciders>,
) -> Vec<DeferredCharge<'a, 'c, 'm>> {
    let mut charges: Vec<DeferredCharge<'a, 'c, 'm>> = Vec::new();
    for deferred in hits.iter().filter(|it| it.more() > Hits::ZERO) {
        let (charge, bound) = (deferred.charge, deferred.bound());
        let Some(deciders) = store_of(bound) else {
            continue;
        };
        let (kind, more) = (charge.counter().kind(), deferred.more());
        let (decider, question) =
            asked(&deciders, deciders.counter(bound, kind, charge.key(), more));
        match charges.iter_mut().find(|it| it.decider == decider) {
            Some(charge) => {
                charge.question.counters.extend(question.counters);
                charge.hits.push(*deferred);
            }
            None => charges.push(DeferredCharge { decider, question, hits: vec![*deferred] }),
        }
    }
    charges
}

impl<'m> DeferredCharge<'_, '_, 'm> {
    /// Returns the question by which the decider later charges the hits in counters that no sync
    /// pushes, because it does not answer now. `None` without such counters.
    pub fn unsent(&self) -> Option<Question> {
        let mut question = self.question.clone();
        question.counters.retain(|it| it.kind != StoredKind::Windows);
        (!question.counters.is_empty()).then_some(question)
    }

    /// Counts the hits as this node's, after they were sent.
    pub fn count(&self, clock: &impl Clock) {
        for deferred in &self.hits {
            let (charge, more) = (deferred.charge, deferred.more());
            charge.bound.count_hits(more);
            charge.bound.log_charged(charge.hits, charge.key(), more, clock);
        }
    }

    /// Charges the hits in this node's counters, because the decider does not answer.
    pub fn charge_here(&self, clock: &impl Clock) {
        self.hits.iter().for_each(|deferred| deferred.charge(clock));
    }

    /// Returns the hits of each counter of the question, with the limit.
    pub(super) fn each<'s>(
        &'s mut self,
    ) -> impl Iterator<Item = (&'s Charge<'s, 'm>, Hits, &'s mut AskedCounter)> {
        let hits = self.hits.iter().map(|it| (it.charge, it.more()));
        let counters = self.question.counters.iter_mut();
        hits.zip(counters).map(|((charge, more), counter)| (charge, more, counter))
    }
}
