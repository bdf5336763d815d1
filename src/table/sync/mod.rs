//! The table's side of a sync.
//!
//! - [`sync_slots`]: which sync has which words; [`division`]: which counters are of which shard
//! - [`changes`], [`pending`]: counters that changed; [`batches`]: batches on their way
//! - [`progress`]: what the node knows of its store; [`store_state`]: the same for all its workers
//! - [`own_share`]: what the node admits alone while the store is away
//! - [`channel_lease`]: which worker listens to the store

pub(super) mod batches;
pub(super) mod changes;
pub(super) mod channel_lease;
pub(super) mod division;
pub(super) mod own_share;
pub(super) mod pending;
pub(super) mod progress;
pub(super) mod store_state;
pub(super) mod sync_slots;
