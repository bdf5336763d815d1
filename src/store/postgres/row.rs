//! Shards, epochs and numbers as rows of the tables have them.

use core::num::NonZeroU64;

use tokio_postgres::{Error, Row};

use crate::store::contract::strategy::{Epoch, Shard};

/// The namespace of a shard and its number in it.
pub(super) fn name(shard: &Shard) -> (&str, i32) {
    (&*shard.namespace, i32::from(shard.number))
}

/// The epoch of a row that has a column of that name; `None`: there is none.
pub(super) fn epoch(row: &Row) -> Result<Option<Epoch>, Error> {
    let epoch: i64 = row.try_get("epoch")?;
    Ok(NonZeroU64::new(epoch.cast_unsigned()).map(Epoch))
}

/// A number of things as Postgres has it: one may still be added to it.
pub(super) fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX - 1)
}
