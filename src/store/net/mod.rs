//! Connections to the servers of a datastore.
//!
//! - [`servers`]: which server is tried next; [`connect`], [`tls`]: one attempt; [`greeting`]: whether the server speaks the
//!   protocol; [`current`]: the connection in use

#[cfg(not(loom))]
pub(super) mod connect;
#[cfg(not(loom))]
pub(super) mod current;
#[cfg(not(loom))]
pub(super) mod greeting;
#[cfg(not(loom))]
pub(super) mod servers;
#[cfg(not(loom))]
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
