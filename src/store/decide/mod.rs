//! Decisions that this side computes from a datastore's counts.
//!
//! - [`asked`]: the counters of some questions; [`stored`], [`stored_log`]: the stored state of a
//!   counter, and its change by a question

#[cfg(not(loom))]
pub(super) mod asked;
#[cfg(not(loom))]
pub(super) mod stored;
pub(super) mod stored_log;
