//! The values of counters and levels, and their sums with diffs. `None` is a value that somebody else wrote.

use core::time::Duration;
use std::collections::BTreeMap;

use super::name::CounterId;
use crate::policy::algorithm::Level;
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::strategy::{Batch, Count, MAX_TOTAL};
use crate::store::decide::stored::StoredCount;
use crate::table::words::system::unix_millis;

/// Counters: their totals in thousandths, and the time for which each matters.
pub(crate) type NewTotals<'a> = BTreeMap<CounterId<'a>, (i64, Duration)>;

/// Returns the time by this machine's clock, since the store does not tell its own.
pub(crate) fn now() -> UnixMillis {
    UnixMillis(unix_millis())
}

/// Parses the total of a counter, zero if it does not exist.
pub(crate) fn total(value: Option<&[u8]>) -> Option<i64> {
    let Some(value) = value else { return Some(0) };
    let total: i64 = str::from_utf8(value).ok()?.parse().ok()?;
    Some(total.clamp(-MAX_TOTAL, MAX_TOTAL))
}

/// Parses a level, an empty one if it does not exist.
pub(crate) fn level(value: Option<&[u8]>) -> Option<StoredCount> {
    let Some(value) = value else {
        return Some(StoredCount::Level(Level::default()));
    };
    let mut numbers = str::from_utf8(value).ok()?.splitn(3, ' ').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(StoredCount::level(next()?, next()?, next()?))
}

pub(crate) fn of_level(level: &Level) -> String {
    // A bucket that leaks nothing is never empty.
    let mark = level.mark.millis().0.min(i64::MAX.cast_unsigned());
    format!("{} {} {mark}", level.hits.thousandths(), level.at.0)
}

/// Returns the counters whose totals are negative.
pub(crate) fn overdrawn(totals: &NewTotals<'_>) -> Vec<Count> {
    let negative = totals.iter().filter(|(_, (total, _))| *total < 0);
    let counts = negative.map(|((size, window, key), (total, _))| Count {
        key: (*key).into(),
        size: *size,
        window: *window,
        total: Hits::from_thousandths(*total),
    });
    counts.collect()
}

/// Returns the totals after the diffs of a batch, each counter once. `before` are the totals before.
pub(crate) fn sums<'a>(
    batch: &Batch,
    diffs: &NewTotals<'a>,
    before: impl Iterator<Item = Option<i64>>,
) -> Option<NewTotals<'a>> {
    let totals = diffs.iter().zip(before).map(|((name, (diff, life)), before)| {
        let before = before?;
        // A refund makes no count negative.
        let is_refund = batch.grants.is_some() && *diff < 0;
        let least = if is_refund { before.min(0) } else { -MAX_TOTAL };
        let total = before.saturating_add(*diff).max(least);
        Some((*name, (total.clamp(-MAX_TOTAL, MAX_TOTAL), *life)))
    });
    totals.collect()
}
