//! The limit that a call tells of, and what it said of hits.

use serde::Serialize;

use super::json::Thousandths;
use super::request::KeyCall;
use crate::engine::{BoundLimit, Charge, Evaluation, Namespace};
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock, WindowSize};
use crate::table::Outcome;

/// The limit of a call; of one that has none, what counts whatever comes.
#[derive(Debug)]
pub(super) struct CallLimit<'m> {
    pub(super) bound: BoundLimit<'m>,
    /// The most hits, or the rate.
    pub(super) hits: Hits,
    /// Whether it is none.
    pub(super) is_unlimited: bool,
}

/// The body of an answer about a decision on hits.
#[derive(Serialize)]
pub(super) struct DecidedBody {
    admitted: bool,
    reset: Option<Thousandths>,
}

impl DecidedBody {
    /// Returns the body as `on_error allow` has it: the hits are admitted.
    pub(super) fn admitting(self) -> DecidedBody {
        DecidedBody { admitted: true, ..self }
    }
}

impl<'m> CallLimit<'m> {
    /// Creates the limit of `call`, in windows of this size; none, if the call only reads.
    pub(super) fn new(call: &KeyCall, namespace: &Namespace<'m>, size: WindowSize) -> Self {
        let given = call.limit.filter(|_| call.increment.is_some());
        let algorithm = call.algorithm;
        let most = given.unwrap_or(Hits::MAX);
        let (hits, burst) = match algorithm.is_of_rates() {
            true => (call.rate, most.minus(Hits::ONE)),
            false => (most.min(algorithm.max_limit()), Hits::ZERO),
        };
        let limit = Limit {
            // No rule has this one: rejections are not those of a policy.
            name: "".into(),
            size,
            algorithm,
            burst: Burst {
                hits: burst,
                delay: None,
                rate: algorithm.is_of_rates().then_some(hits),
            },
        };
        CallLimit {
            bound: BoundLimit::new(limit, namespace, []),
            hits,
            is_unlimited: given.is_none(),
        }
    }

    /// Ends the evaluation of this limit, and counts its outcome; what was read, and what it said.
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
        said(&charges)
    }
}

/// Returns the reading, and the body of a call's limit.
pub(super) fn said(charges: &[Charge<'_, '_>]) -> (Reading, DecidedBody) {
    let verdict = charges.first().map(Charge::verdict);
    let reset = verdict.and_then(|verdict| verdict.reset(verdict.remaining()));
    let decided = DecidedBody {
        admitted: verdict.is_none_or(|verdict| verdict.admitted),
        reset: reset.map(Thousandths::of),
    };
    let reading = verdict.map(|verdict| verdict.reading);
    (reading.unwrap_or_default(), decided)
}
