//! The state of a node.
//!
//! - [`status`]: zones, namespaces and stores; [`prometheus`]: the page for Prometheus, with its [`families`] in their
//!   [`text`] format

pub(super) mod families;
pub mod prometheus;
pub mod status;
pub(super) mod text;
