//! The sync of a namespace with its datastore.
//!
//! - [`syncer`]: a cycle of all shards; [`cycle`]: the cycle of one, from top to bottom; start there
//! - [`shard_sync`], [`sync_search`]: what one cycle works on, and where it looks for changes
//! - [`subscriber`], [`poll_schedule`]: news of others, heard or asked for
//! - [`last_push`]: the push of a process that ends; [`sync_outcome`]: reports and errors; [`side_by_side`]: futures

pub(super) mod cycle;
#[cfg(not(loom))]
pub(super) mod last_push;
pub(super) mod poll_schedule;
pub(super) mod shard_sync;
pub(super) mod side_by_side;
pub(super) mod subscriber;
pub(super) mod sync_outcome;
pub(super) mod sync_search;
pub(super) mod syncer;
