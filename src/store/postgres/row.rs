//! Converts shards, epochs and numbers to and from columns. A file of its own, since all statements need it.

use core::num::NonZeroU64;

use tokio_postgres::{Error, Row};

use crate::store::contract::strategy::{Epoch, Shard};

/// Returns a shard's namespace, and its number.
pub(super) fn name(shard: &Shard) -> (&str, i32) {
    (&*shard.namespace, i32::from(shard.number))
}

/// Returns the epoch in a column; `None` without one.
pub(super) fn epoch(row: &Row) -> Result<Option<Epoch>, Error> {
    let epoch: i64 = row.try_get("epoch")?;
    Ok(NonZeroU64::new(epoch.cast_unsigned()).map(Epoch))
}

/// Converts a number for Postgres, to which one can still be added.
pub(super) fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX - 1)
}
