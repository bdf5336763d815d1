//! For how long the module's callbacks hold a worker's event loop: the longest time is kept.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use crate::table::CounterTable;

/// Of so many requests, one is measured: to look at a clock twice costs a good part of what
/// counting a hit does.
const SAMPLE: u32 = 64;

/// Calls `callback`, and keeps in `table` how long it took.
pub(super) fn measured<T>(table: Option<&CounterTable<'_>>, callback: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = callback();
    note(table, start);
    result
}

/// The time, for one of [`SAMPLE`] calls.
#[inline]
pub(super) fn sample() -> Option<Instant> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Only the thread of the event loop calls this.
    let calls = CALLS.load(Relaxed).wrapping_add(1);
    CALLS.store(calls, Relaxed);
    calls.is_multiple_of(SAMPLE).then(Instant::now)
}

/// Keeps in `table` how long it took since `start`.
#[cold]
pub(super) fn note(table: Option<&CounterTable<'_>>, start: Instant) {
    if let Some(table) = table {
        table.note_hold(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}
