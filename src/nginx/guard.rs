//! Stops panics before they reach nginx.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback of nginx. If it panics, which is a bug, returns `fallback`; the panic's message
/// is on stderr, which mostly is nginx's error log.
#[inline]
pub(super) fn guard<T>(fallback: T, callback: impl FnOnce() -> T) -> T {
    // Unwind-safe: an interrupted callback leaves behind only atomics, which are always valid, and
    // state of a request that the fallback ends.
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(fallback)
}
