//! What is counted of a key: the answer to a request for it.

use serde::Serialize;

use super::super::{BoundLimit, Evaluation, Namespace, RateLimiting, RateLimitingError};
use super::counting::Counting;
use super::error::ApiError;
use super::json::{Thousandths, json};
use super::request::KeyCall;
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::{counted_name, is_accounted};
use crate::policy::limit::{Burst, Limit};
use crate::policy::namespace::SyncMode;
use crate::policy::window::{Clock, WindowSize};
use crate::table::Outcome;

/// Answers [`ApiCall::Key`](super::ApiCall::Key) for a counter of `namespace`, which counts so.
///
/// # Errors
///
/// 400 if the window or the key is none of the namespace's; 501 where its store is to decide.
pub fn key(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    #[derive(Serialize)]
    struct CounterBody {
        rate: Thousandths,
        current: Thousandths,
        previous: Thousandths,
        diff: Thousandths,
        sync: Thousandths,
        window_start: Thousandths,
        remaining: Option<Thousandths>,
        #[serde(flatten)]
        decided: Option<DecidedBody>,
    }
    let size = counting.window_of(call)?;
    let library = RateLimiting::new(namespace).in_counter(call.counter.as_deref());
    let library = library.at_rate(call.rate);
    let (reading, decided) = match (call.increment, call.limit) {
        (Some(value), Some(limit)) => {
            check_mode(call.algorithm, counting.sync)?;
            if !is_accounted(&call.key) {
                return Err(not_accounted(RateLimitingError::NotAccounted));
            }
            let (reading, decided) = decide(call, namespace, size, limit, value, clock);
            (reading, Some(decided))
        }
        (increment, _) => {
            if let Some(value) = increment {
                library
                    .increment(&call.key, size, value, call.algorithm, clock)
                    .map_err(not_accounted)?;
            }
            let reading = library.reading(&call.key, call.algorithm.kind(), size, clock);
            (reading.map_err(not_accounted)?, None)
        }
    };
    let rate = call.algorithm.rate(size, &reading);
    let (current, previous, diff) = match call.algorithm.kind() {
        StoredKind::Windows => {
            let counts = reading.windows();
            let diff = library.unsent(&call.key, size, counts.window, clock);
            (
                counts.current,
                counts.previous,
                diff.map_err(not_accounted)?,
            )
        }
        StoredKind::Level(_) | StoredKind::Log => {
            // What no store is told of is this node's.
            let is_local = namespace.sync_states().is_empty();
            let diff = if is_local { rate } else { Hits::ZERO };
            (rate, Hits::ZERO, diff)
        }
    };
    let remaining = call.limit.map(|limit| {
        let most = limit.min(call.algorithm.max_limit());
        call.algorithm.remaining(size, &reading, most)
    });
    Ok(json(&CounterBody {
        rate: rate.into(),
        current: current.into(),
        previous: previous.into(),
        diff: diff.into(),
        sync: current.minus(diff).into(),
        window_start: Thousandths::of(call.algorithm.start(size, &reading).0),
        // Whole hits, as in headers.
        remaining: remaining.map(|hits| Thousandths(hits.whole().saturating_mul(1000))),
        decided,
    }))
}

/// A 400 for a key that is not accounted.
pub(super) fn not_accounted(error: RateLimitingError) -> ApiError {
    ApiError::new(400, error.to_string())
}

/// What a limit said of hits.
#[derive(Serialize)]
struct DecidedBody {
    admitted: bool,
    reset: Option<Thousandths>,
}

/// Checks that this node is to decide by `algorithm`, as `nginx.conf` does of rules.
fn check_mode(algorithm: Algorithm, sync: SyncMode) -> Result<(), ApiError> {
    match sync {
        SyncMode::Local => Ok(()),
        SyncMode::Periodic(_) if algorithm.kind() == StoredKind::Windows => Ok(()),
        SyncMode::Periodic(_) => {
            let word = match algorithm {
                Algorithm::Bucket => "rate".into(),
                _ => format!("window_type={}", algorithm.name()),
            };
            let message = format!(
                "{word} does not go with \"sync_rate {sync}\" of the namespace: expected a sliding or \
                 fixed window"
            );
            Err(ApiError::new(400, message))
        }
        SyncMode::Synchronous => {
            let message =
                "a limit in a namespace with sync_rate 0 is not supported by this version";
            Err(ApiError::new(501, message))
        }
    }
}

/// Has a limit decide about `value` hits, as rules do about requests, and counts them if it admits them.
fn decide(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    size: WindowSize,
    limit: Hits,
    value: Hits,
    clock: &impl Clock,
) -> (Reading, DecidedBody) {
    let algorithm = call.algorithm;
    let (hits, burst) = match algorithm {
        Algorithm::Bucket => (call.rate, limit.minus(Hits::ONE)),
        _ => (limit.min(algorithm.max_limit()), Hits::ZERO),
    };
    let limit = Limit {
        // No rule has this one: rejections are not those of a policy.
        name: "".into(),
        size,
        algorithm,
        burst: Burst {
            hits: burst,
            delay: None,
        },
    };
    let bound = BoundLimit::new(limit, namespace, []);
    let name = counted_name(&call.key, call.counter.as_deref());
    let key = namespace.table().key(&name);
    let mut evaluation = Evaluation::new(Vec::new(), false);
    evaluation.charge(&bound, hits, &key, value, clock);
    let (outcome, charges) = evaluation.finish(Outcome::Rejected, clock);
    if outcome == Outcome::Rejected {
        bound.count_rejection();
    }
    let verdict = charges.first().map(|charge| charge.verdict());
    let reset = verdict.and_then(|verdict| verdict.reset(verdict.remaining()));
    let decided = DecidedBody {
        admitted: outcome == Outcome::Passed,
        reset: reset.map(Thousandths::of),
    };
    let reading = verdict.map(|verdict| verdict.reading);
    (reading.unwrap_or_default(), decided)
}
