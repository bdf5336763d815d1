//! The answer to a request for the count of a key, or to one that counts hits of it.

use serde::Serialize;

use super::call_limit::{CallLimit, DecidedBody};
use super::counting::Counting;
use super::json::{ApiError, Thousandths, json};
use super::request::KeyCall;
use crate::engine::{Evaluation, Namespace, RateLimiting, RateLimitingError};
use crate::policy::algorithm::{Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::{counted_name, is_accounted};
use crate::policy::window::{Clock, WindowSize};

/// Answers [`ApiCall::Key`](super::ApiCall::Key) for a counter of `namespace` from this node's table.
///
/// # Errors
///
/// 400 if the window or the algorithm is none of the namespace's or the key is empty, 404 if no rule has the counter.
pub fn key(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    counting.check_counter(call.counter.as_deref())?;
    let size = counting.window_of(call)?;
    let call = &call.in_window(size);
    if call.increment.is_some() {
        counting.check(call.algorithm)?;
        namespace.record_counted(call.algorithm, size, call.rate);
    }
    if let (Some(value), Some(_)) = (call.increment, call.limit) {
        check_key(&call.key)?;
        let limit = CallLimit::new(call, namespace, size);
        let name = counted_name(&call.key, call.counter.as_deref());
        let key = namespace.table().key(&name);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        evaluation.charge(&limit.bound, limit.hits, &key, value, clock);
        let (reading, decided) = limit.finish(evaluation, clock);
        return answer(call, namespace, size, &reading, Some(decided), clock);
    }
    if let Some(value) = call.increment {
        library(call, namespace)
            .increment(&call.key, size, value, call.algorithm, clock)
            .map_err(not_accounted)?;
    }
    read(call, namespace, size, clock)
}

/// Returns the answer about a counter that is only read.
pub(super) fn read(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    size: WindowSize,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    let library = library(call, namespace);
    let reading = library.reading(&call.key, call.algorithm.kind(), size, clock);
    let reading = reading.map_err(not_accounted)?;
    answer(call, namespace, size, &reading, None, clock)
}

/// Returns the library's functions for the counter that a call is about.
fn library<'n, 'm>(call: &'n KeyCall, namespace: &'n Namespace<'m>) -> RateLimiting<'n, 'm> {
    let library = RateLimiting::new(namespace).in_counter(call.counter.as_deref());
    library.at_rate(call.rate)
}

/// Returns the answer about a counter with this reading, and with the decision of its limit if it has one.
pub(super) fn answer(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    size: WindowSize,
    reading: &Reading,
    decided: Option<DecidedBody>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    #[derive(Serialize)]
    struct KeyBody {
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
    let rate = call.algorithm.rate(size, reading);
    let (current, previous, diff) = match call.algorithm.kind() {
        StoredKind::Windows => {
            let counts = reading.windows();
            let library = library(call, namespace);
            let diff = library.unsent(&call.key, size, counts.window, clock);
            (counts.current, counts.previous, diff.map_err(not_accounted)?)
        }
        StoredKind::Level(_) | StoredKind::Log | StoredKind::Holds => {
            // They are not synced. In a local namespace, all hits are this node's; else the store has them.
            let is_local = namespace.sync_states().is_empty();
            let diff = if is_local { rate } else { Hits::ZERO };
            (rate, Hits::ZERO, diff)
        }
    };
    let remaining = call.limit.map(|limit| {
        let most = limit.min(call.algorithm.max_limit());
        call.algorithm.remaining(size, reading, most)
    });
    Ok(json(&KeyBody {
        rate: rate.into(),
        current: current.into(),
        previous: previous.into(),
        diff: diff.into(),
        sync: current.minus(diff).into(),
        window_start: Thousandths::of(call.algorithm.start(size, reading).0),
        // Whole hits, as in headers.
        remaining: remaining.map(|hits| Thousandths(hits.whole().saturating_mul(1000))),
        decided,
    }))
}

/// Checks that a key is accounted, which an empty one is not.
pub(super) fn check_key(key: &[u8]) -> Result<(), ApiError> {
    match is_accounted(key) {
        true => Ok(()),
        false => Err(not_accounted(RateLimitingError::NotAccounted)),
    }
}

/// Returns the 400 for a key that is not accounted.
pub(super) fn not_accounted(error: RateLimitingError) -> ApiError {
    ApiError::new(400, error.to_string())
}
