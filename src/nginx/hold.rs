//! For how long the module's callbacks hold a worker's event loop: the longest time is kept.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::table::CounterTable;

/// Number of requests of which one is measured: two looks at a clock cost a good part of counting a
/// hit.
const SAMPLE: u32 = 256;

/// Calls `callback`, and keeps in `table` how long it took.
pub(super) fn measured<T>(table: Option<&CounterTable<'_>>, callback: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = callback();
    if let Some(table) = table {
        table.record_hold(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    result
}

/// Counts a request; returns whether it is the one of [`SAMPLE`] that is to be measured.
#[inline]
pub(super) fn sample() -> bool {
    static LEFT: AtomicU32 = AtomicU32::new(SAMPLE);
    // Only the thread of the event loop counts.
    let left = LEFT.load(Relaxed).wrapping_sub(1);
    LEFT.store(left, Relaxed);
    if left == 0 {
        LEFT.store(SAMPLE, Relaxed);
    }
    left == 0
}
