//! Datastores, in which the nodes of a cluster count together.
//!
//! A folder uses only those above it in this list:
//!
//! - [`contract`]: the interface of all datastores; start at [`contract::strategy`]
//! - `decide`: decisions that this side computes
//! - [`net`]: connections to servers
//! - [`settings`]: settings of all kinds of datastores
//! - `keyed`: parts of stores that only read and write values of keys
//! - `redis`: Redis and Valkey; `postgres`: PostgreSQL; `cassandra`: Apache Cassandra; `memcached`: memcached;
//!   `etcd`: etcd
//!
//! [`registry`] lists the kinds of datastores, [`block`] reads a `ratelimit_store` block, and
//! [`retry`] has the pauses before a failed store is tried again.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub mod block;
#[cfg(all(feature = "cassandra", not(loom)))]
pub mod cassandra;
pub mod contract;
mod decide;
#[cfg(all(feature = "etcd", not(loom)))]
pub mod etcd;
#[cfg(all(any(feature = "etcd", feature = "memcached"), not(loom)))]
mod keyed;
#[cfg(all(feature = "memcached", not(loom)))]
pub mod memcached;
pub mod net;
#[cfg(all(feature = "postgres", not(loom)))]
pub mod postgres;
#[cfg(all(feature = "redis", not(loom)))]
pub mod redis;
#[cfg(not(loom))]
pub mod registry;
pub mod retry;
#[cfg(not(loom))]
pub mod settings;
#[cfg(all(test, not(loom)))]
mod tests;
