//! Connections to the servers of a datastore.
//!
//! - [`servers`]: the order of servers; [`connect`], [`tls`]: one attempt; [`greeting`]: detects
//!   other protocols; [`current`]: the connection in use
//! - `stream`: bytes to a server whose protocol is spoken here

#[cfg(not(loom))]
pub(super) mod connect;
#[cfg(not(loom))]
pub(super) mod current;
#[cfg(not(loom))]
pub(super) mod greeting;
#[cfg(not(loom))]
pub(super) mod servers;
#[cfg(all(any(feature = "etcd", feature = "memcached"), not(loom)))]
pub(super) mod stream;
#[cfg(not(loom))]
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
