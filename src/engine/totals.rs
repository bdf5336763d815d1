//! Writes a store's total of a key into a node's table.

use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::table::{Counter, CounterTable, IsHeld, Key, LeaseLost};

/// Notes in the table what a store has counted of a key in a window, and with it what of that is not
/// this node's own. Returns whether it could be noted: what others count in a window that is still to
/// come here has no place yet.
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
    // A full zone has no place for what only others count.
    if let Some(counter) = table.make_room_for(counter, key, clock) {
        let ours = table.pushed_of(counter, window);
        table.set_remote(counter, window, total.minus(ours), now, is_held)?;
    }
    Ok(true)
}

/// Notes what a store has counted of a key in a window, as it told when it decided about a request: under no lease.
/// Nothing but what is admitted while the store is away depends on it.
pub(super) fn record_decided(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    (window, total): (u64, Hits),
    clock: &impl Clock,
) {
    // No lease is lost.
    let _ = record_total(table, counter, key, window, total, clock, &|| true);
}
