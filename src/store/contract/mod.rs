//! The contract between a node and its datastores.
//!
//! - [`strategy`]: what each datastore does; start here
//! - [`batch`], [`shard`], [`page`]: what is pushed and fetched; [`channel`]: pushes of others as they happen
//! - [`decision`]: questions that a datastore decides
//! - [`options`], [`server`]: settings and addresses; [`error`], [`failure`]: what can go wrong

pub(super) mod batch;
pub mod channel;
pub mod decision;
pub mod error;
#[cfg(not(loom))]
pub(super) mod failure;
pub mod options;
#[cfg(not(loom))]
pub(super) mod page;
pub mod server;
pub(super) mod shard;
pub mod strategy;
