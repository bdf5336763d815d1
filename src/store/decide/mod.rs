//! Decisions that this side computes, from counts that a datastore has.
//!
//! - [`asked`]: the counters of some questions; [`stored`], [`stored_log`]: what the datastore has of them, and what a
//!   question makes of it

#[cfg(not(loom))]
pub(super) mod asked;
#[cfg(not(loom))]
pub(super) mod stored;
pub(super) mod stored_log;
