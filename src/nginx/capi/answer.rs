//! Conversions of a limiter's arguments and results from and to C.

use core::ffi::c_int;

use super::types::{OK, REJECTED, RawResult, SLIDING};
use crate::engine::Incoming;

/// Writes a limiter's answer to `result`. Returns its code.
pub(super) fn tell(incoming: &Incoming, result: &mut RawResult) -> c_int {
    let seconds = |millis: u64| millis as f64 / 1000.0;
    *result = RawResult {
        rate: incoming.rate.to_f64(),
        remaining: incoming.remaining.to_f64(),
        delay: seconds(incoming.delay),
        retry_after: incoming.retry_after.map_or(-1.0, seconds),
    };
    match incoming.is_admitted {
        true => OK,
        false => REJECTED,
    }
}

/// Converts a weight: `NGX_RATE_LIMITING_SLIDING` stands for a sliding window's own weight.
#[inline]
pub(super) fn weight(given: f64) -> Option<f64> {
    (given != SLIDING).then_some(given)
}
