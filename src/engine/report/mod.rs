//! The state of a node.
//!
//! - [`status`]: its zones, namespaces and stores; [`prometheus`]: the page for Prometheus, of [`families`] in its
//!   [`text`] format

pub(super) mod families;
pub mod prometheus;
pub mod status;
pub(super) mod text;
