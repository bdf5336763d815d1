//! The state of a node.
//!
//! - [`bans`]: the banned keys of a namespace
//! - [`status`]: zones, namespaces and stores; [`prometheus`]: the page for Prometheus, with its [`families`] in their
//!   [`text`] format

// Not with loom, for which the configuration is not compiled.
#[cfg(not(loom))]
pub mod bans;
pub(super) mod families;
pub mod prometheus;
pub mod status;
pub(super) mod text;
