//! Conversions of a limiter's arguments and results from and to C.

use core::ffi::c_int;

use super::types::{OK, REJECTED, RawResult, SLIDING};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Incoming};
use crate::nginx::conf::LibraryError;
use crate::policy::algorithm::Weight;
use crate::policy::hits::Hits;

/// Parses the hits that a caller asks for.
pub(super) fn asked(key: &[u8], cost: f64, commit: c_int) -> Result<AskedHits<'_>, LibraryError> {
    Ok(AskedHits {
        key: arguments::key(key)?,
        cost: arguments::some_hits("cost", cost)?,
        commit: commit != 0,
        weight: Weight::default(),
    })
}

/// Writes a limiter's answer to `result`. Returns its code.
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

/// Parses a weight: `NGX_RATE_LIMITING_SLIDING` stands for a sliding window's own weight.
#[inline]
pub(super) fn weight(given: f64) -> Result<Weight, ArgumentError> {
    arguments::weight((given != SLIDING).then_some(given))
}

/// Converts hits to a floating point number, with three decimals.
#[inline]
pub(super) fn number(hits: Hits) -> f64 {
    hits.thousandths() as f64 / 1000.0
}
