//! The contract between a node and its datastores.
//!
//! - [`strategy`]: the trait of datastores; start here
//! - [`batch`], [`shard`]: pushed and fetched data; [`channel`]: other nodes' pushes
//! - [`decision`]: questions that a datastore decides
//! - [`options`], [`server`]: settings and addresses; [`error`], [`failure`]: errors

pub(super) mod batch;
pub mod channel;
pub mod decision;
pub mod error;
#[cfg(not(loom))]
pub(super) mod failure;
pub mod options;
pub mod server;
pub(super) mod shard;
pub mod strategy;
