//! The table's part of a sync.
//!
//! - [`sync_slots`]: assigns words to syncs; [`division`]: divides counters among shards
//! - [`changes`], [`pending`]: changed counters; [`batches`]: batches to the store
//! - [`progress`]: the sync's state of the store; [`store_state`]: whether the store is up, for all
//!   workers
//! - [`own_share`]: hits that the node admits alone while the store is down
//! - [`channel_lease`]: the lease for the store's channel
//! - [`exchange_budget`]: the node's budget of exchanges with a store

pub(super) mod batches;
pub(super) mod changes;
pub(super) mod channel_lease;
pub(super) mod division;
pub(super) mod exchange_budget;
pub(super) mod own_share;
pub(super) mod pending;
pub(super) mod progress;
pub(super) mod store_state;
pub(super) mod sync_slots;
