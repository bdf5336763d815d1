//! Measures how long callbacks of the module block a worker's event loop, and records the longest
//! time.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::table::CounterTable;

/// One of this many requests is measured: reading the clock twice costs almost as much as counting
/// a hit.
const SAMPLE: u32 = 256;

/// Calls `callback`, and records its time in `table`.
pub(super) fn measured<T>(table: Option<&CounterTable<'_>>, callback: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = callback();
    if let Some(table) = table {
        table.record_hold(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    result
}

/// Counts a request. Returns whether it is the one of [`SAMPLE`] to measure.
#[inline]
pub(super) fn sample() -> bool {
    static LEFT: AtomicU32 = AtomicU32::new(SAMPLE);
    // Only the event loop's thread writes it, so a load and a store suffice.
    let left = LEFT.load(Relaxed).wrapping_sub(1);
    LEFT.store(left, Relaxed);
    if left == 0 {
        LEFT.store(SAMPLE, Relaxed);
    }
    left == 0
}
