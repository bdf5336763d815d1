//! The limit of a call, and its verdict on the call's hits.

use serde::Serialize;

use super::json::Thousandths;
use super::request::KeyCall;
use crate::engine::{BoundLimit, Charge, Evaluation, Namespace};
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock, WindowSize};
use crate::table::Outcome;

/// The limit of a call. Without `limit` and `rate`, it is a limit that admits everything.
#[derive(Debug)]
pub(super) struct CallLimit<'m> {
    pub(super) bound: BoundLimit<'m>,
    /// The maximum number of hits, or the rate.
    pub(super) hits: Hits,
    /// Whether the call has no limit.
    pub(super) is_unlimited: bool,
}

/// The part of an answer that reports a decision on hits.
#[derive(Serialize)]
pub(super) struct DecidedBody {
    admitted: bool,
    reset: Option<Thousandths>,
}

impl DecidedBody {
    /// Returns the body with the hits admitted, as by `on_error allow`.
    pub(super) fn admitting(self) -> DecidedBody {
        DecidedBody { admitted: true, ..self }
    }
}

impl<'m> CallLimit<'m> {
    /// Creates the limit of `call`, in windows of this size. A call that only reads has no limit.
    pub(super) fn new(call: &KeyCall, namespace: &Namespace<'m>, size: WindowSize) -> Self {
        let given = call.limit.filter(|_| call.increment.is_some());
        let algorithm = call.algorithm;
        let most = given.unwrap_or(Hits::MAX);
        let (hits, burst) = match algorithm.is_of_rates() {
            true => (call.rate, most.minus(Hits::ONE)),
            false => (most.min(algorithm.max_limit()), Hits::ZERO),
        };
        let limit = Limit {
            // The limit belongs to no rule: its rejections are not counted for a policy.
            name: "".into(),
            size,
            algorithm,
            burst: Burst {
                hits: burst,
                delay: None,
                rate: algorithm.is_of_rates().then_some(hits),
            },
            of_rule: None,
        };
        CallLimit {
            bound: BoundLimit::new(limit, namespace, []),
            hits,
            is_unlimited: given.is_none(),
        }
    }

    /// Ends the evaluation of this limit, and counts its outcome. Returns the reading and the decision.
    pub(super) fn finish<'c>(
        &self,
        evaluation: Evaluation<Vec<Charge<'c, 'm>>>,
        clock: &impl Clock,
    ) -> (Reading, DecidedBody)
    where
        'm: 'c,
    {
        let (outcome, charges) = evaluation.finish(Outcome::Rejected, clock);
        if outcome == Outcome::Rejected {
            self.bound.count_rejection();
        }
        reading_and_decision(&charges)
    }
}

/// Returns the reading and the decision of a call's only charge.
pub(super) fn reading_and_decision(charges: &[Charge<'_, '_>]) -> (Reading, DecidedBody) {
    let verdict = charges.first().map(Charge::verdict);
    let reset = verdict.and_then(|verdict| verdict.reset(verdict.remaining()));
    let decided = DecidedBody {
        admitted: verdict.is_none_or(|verdict| verdict.admitted),
        reset: reset.map(Thousandths::of),
    };
    let reading = verdict.map(|verdict| verdict.reading);
    (reading.unwrap_or_default(), decided)
}
