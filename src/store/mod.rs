//! Datastores: what the nodes of a cluster count together.
//!
//! - [`options`], [`server`]: the settings of a datastore, and the addresses of its servers
//! - [`strategy`], [`error`]: what every datastore does for the nodes, and what can go wrong; `batch`,
//!   `shard`: in what terms
//! - `page`: how far a reading of all counters is
//! - [`channel`]: what is heard of others' pushes as they happen
//! - [`decision`], `asked`, `stored`: questions that a datastore decides, their counters, and what it has of them
//! - [`tls`]: TLS, which each of them speaks
//! - `servers`, `connect`, `current`: servers that are tried in turn, what one attempt takes, and the
//!   connection that comes of it
//! - `failure`: what a failure means, by when it came; `greeting`: whether a server speaks the protocol that is
//!   expected
//! - `redis`: Redis and Valkey; `postgres`: PostgreSQL; `cassandra`: Apache Cassandra
//! - [`retry`]: how soon one that failed is tried again
//! - [`registry`]: the kinds of datastores that there are; [`kind`]: what each says of itself
//! - [`block`], [`common`], `syntax`: how settings are read from directives, and from words; those of
//!   one kind are in its folder
#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod asked;
mod batch;
#[cfg(not(loom))]
pub mod block;
#[cfg(all(test, not(loom)))]
mod block_error_tests;
#[cfg(all(test, not(loom)))]
mod block_tests;
#[cfg(all(feature = "cassandra", not(loom)))]
pub mod cassandra;
pub mod channel;
#[cfg(not(loom))]
pub mod common;
#[cfg(all(any(test, feature = "conformance"), not(loom)))]
pub mod conformance;
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod current;
pub mod decision;
pub mod error;
#[cfg(not(loom))]
mod failure;
#[cfg(not(loom))]
mod greeting;
#[cfg(not(loom))]
pub mod kind;
pub mod options;
#[cfg(not(loom))]
mod page;
#[cfg(all(feature = "postgres", not(loom)))]
pub mod postgres;
#[cfg(all(test, not(loom)))]
mod proxy;
#[cfg(all(feature = "redis", not(loom)))]
pub mod redis;
#[cfg(not(loom))]
pub mod registry;
pub mod retry;
pub mod server;
#[cfg(all(test, not(loom)))]
mod server_tests;
#[cfg(not(loom))]
mod servers;
mod shard;
#[cfg(not(loom))]
mod stored;
mod stored_log;
pub mod strategy;
#[cfg(not(loom))]
mod syntax;
#[cfg(not(loom))]
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
#[cfg(all(test, not(loom)))]
mod tls_testing;
#[cfg(all(test, not(loom)))]
mod tls_tests;
