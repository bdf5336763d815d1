//! The sync of a namespace with its datastore.
//!
//! - [`driver`]: runs the cycles when they are due; [`syncer`]: a cycle of all shards; [`cycle`]: the cycle of one shard, from top to bottom;
//!   start there
//! - [`shard_sync`], [`sync_search`]: one shard's sync, and its search for changes
//! - [`listener`], [`subscriber`]: other nodes' pushes, from the channel; [`poll_schedule`]: by polling
//! - [`last_push`]: the push before a process ends; [`sync_outcome`]: reports and errors;
//!   [`side_by_side`]: concurrent futures

pub(super) mod cycle;
#[cfg(not(loom))]
pub(super) mod driver;
#[cfg(not(loom))]
pub(super) mod last_push;
#[cfg(not(loom))]
pub(super) mod listener;
pub(super) mod poll_schedule;
pub(super) mod shard_sync;
pub(super) mod side_by_side;
pub(super) mod subscriber;
pub(super) mod sync_outcome;
pub(super) mod sync_search;
pub(super) mod syncer;
