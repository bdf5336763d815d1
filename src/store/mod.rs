//! Datastores: what the nodes of a cluster count together.
//!
//! - [`options`], [`server`]: the settings of a datastore, and the addresses of its servers
//! - [`block`], `syntax`: how they are read from directives, and from words
#![forbid(unsafe_code)]

pub mod block;
#[cfg(test)]
mod block_tests;
pub mod options;
pub mod server;
mod syntax;
