//! The numbers that are locked during decisions about keys.

use std::collections::BTreeSet;

use crate::store::contract::strategy::Shard;
use crate::store::decide::asked::AskedPlaces;

/// Upper 32 bits of all locks, since others may lock numbers in the same database.
const LOCKS: i64 = 0x7261_7465 << 32;
/// Number of locks for the keys of a shard. A server has room for a few thousand.
const LOCKS_OF_SHARD: u16 = 1024;

/// Returns the locks for a decision about these places, in order.
pub(super) fn of(asked: &AskedPlaces<'_>) -> Vec<i64> {
    let locks = asked.places.iter().filter_map(|place| {
        let shard = asked.shards.get(place.shard)?;
        Some(lock(shard, place.key))
    });
    Vec::from_iter(locks.collect::<BTreeSet<_>>())
}

/// Returns the lock of a key. All nodes must agree on it.
pub(super) fn lock(shard: &Shard, key: &[u8]) -> i64 {
    let mut name = shard.namespace.as_bytes().to_vec();
    name.extend(shard.number.to_be_bytes());
    let of_shard = i64::from(Shard::number_of(&name, u16::MAX)) << 16;
    LOCKS | of_shard | i64::from(Shard::number_of(key, LOCKS_OF_SHARD))
}
