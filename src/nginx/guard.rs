//! No panic crosses into nginx.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback of nginx's; `fallback` is its result should it panic, which is a bug that the
/// panic's message on stderr (nginx's error log, mostly) tells of.
#[inline]
pub(super) fn guard<T>(fallback: T, callback: impl FnOnce() -> T) -> T {
    // Unwind-safe: what a callback leaves half done is atomics, which are valid at any time, or
    // belongs to a request that the fallback ends.
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(fallback)
}
