//! Datastores: what the nodes of a cluster count together.
//!
//! - [`options`], [`server`]: the settings of a datastore, and the addresses of its servers
//! - [`strategy`], [`error`]: what every datastore does for the nodes, and what can go wrong
//! - [`tls`]: TLS, which each of them speaks
//! - `greeting`: whether a server speaks the protocol that is expected
//! - [`redis`]: Redis and Valkey; [`postgres`]: PostgreSQL
//! - [`block`], `syntax`: how they are read from directives, and from words
#![forbid(unsafe_code)]

pub mod block;
#[cfg(test)]
mod block_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod conformance;
pub mod decision;
pub mod error;
#[cfg(not(loom))]
mod greeting;
pub mod options;
#[cfg(not(loom))]
pub mod postgres;
#[cfg(all(test, not(loom)))]
mod proxy;
#[cfg(not(loom))]
pub mod redis;
pub mod server;
pub mod strategy;
mod syntax;
#[cfg(not(loom))]
pub mod tls;
#[cfg(all(test, not(loom)))]
mod tls_testing;
#[cfg(all(test, not(loom)))]
mod tls_tests;
