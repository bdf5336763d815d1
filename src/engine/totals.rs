//! Records a store's total of a key in a node's table.

use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::table::{Counter, CounterTable, IsHeld, Key, LeaseLost};

/// Records a store's total of a key in a window, from which the other nodes' hits are computed.
/// Returns whether it could be recorded: hits in a window that has not begun here have no place
/// yet.
///
/// # Errors
///
/// [`LeaseLost`].
pub(super) fn record_total(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    window: u64,
    total: Hits,
    clock: &impl Clock,
    is_held: IsHeld<'_>,
) -> Result<bool, LeaseLost> {
    let (size, now) = (counter.size(), clock.now());
    let at = size.at(now);
    if window.saturating_add(1) < at.number {
        return Ok(true);
    }
    if window > at.number && !at.is_before_next(size) {
        return Ok(false);
    }
    // A full zone has no slot for a counter with only other nodes' hits.
    if let Some(counter) = table.make_room_for(counter, key, clock) {
        let ours = table.pushed_of(counter, window);
        table.set_remote(counter, window, total.minus(ours), now, is_held)?;
    }
    Ok(true)
}

/// Records a store's total of a key in a window, from its decision about a request. Needs no lease,
/// since only decisions while the store is down depend on it.
pub(super) fn record_decided(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    (window, total): (u64, Hits),
    clock: &impl Clock,
) {
    // Cannot fail: no lease is involved.
    let _ = record_total(table, counter, key, window, total, clock, &|| true);
}
