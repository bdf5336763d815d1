//! Questions to a limiter and its answers, as callers have them.

use core::ffi::c_int;

use super::types::{OK, REJECTED, RawResult, SLIDING};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Incoming};
use crate::nginx::conf::LibraryError;
use crate::policy::algorithm::Weight;
use crate::policy::hits::Hits;

/// The hits that a limiter is asked for.
pub(super) fn asked(key: &[u8], cost: f64, commit: c_int) -> Result<AskedHits<'_>, LibraryError> {
    Ok(AskedHits {
        key: arguments::key(key)?,
        cost: arguments::some_hits("cost", cost)?,
        commit: commit != 0,
        weight: Weight::default(),
    })
}

/// Tells what a limiter says; returns the code of it.
pub(super) fn tell(incoming: &Incoming, result: &mut RawResult) -> c_int {
    let seconds = |millis: u64| millis as f64 / 1000.0;
    *result = RawResult {
        rate: number(incoming.rate),
        remaining: number(incoming.remaining),
        delay: seconds(incoming.delay),
        retry_after: incoming.retry_after.map_or(-1.0, seconds),
    };
    match incoming.is_admitted {
        true => OK,
        false => REJECTED,
    }
}

/// Returns the weight that a caller passes: `NGX_RATE_LIMITING_SLIDING` is that of a sliding window.
#[inline]
pub(super) fn weight(given: f64) -> Result<Weight, ArgumentError> {
    arguments::weight((given != SLIDING).then_some(given))
}

/// Hits as a floating point number: the one that is printed so.
#[inline]
pub(super) fn number(hits: Hits) -> f64 {
    hits.thousandths() as f64 / 1000.0
}
