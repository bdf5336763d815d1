//! Charges, reads and refunds hits in the table.
//!
//! - [`counting`]: windows, and the entry points for all algorithms; [`leveling`]: levels;
//!   [`log_counting`]: logs
//! - [`holding`]: requests that are under way; `held_sweep`: a look at all of them;
//!   `telling`: their number for other nodes
//! - [`reserve`]: hits that a store has charged ahead
//! - [`reset`]: sets a counter to zero, in all [`counted_sizes`]
//! - [`rejections`]: counts rejected keys
//! - [`named_counters`]: lists the counters with names

pub(super) mod counted_sizes;
pub(super) mod counting;
#[cfg(not(loom))]
pub(super) mod held_sweep;
pub(super) mod holding;
pub(super) mod leveling;
pub(super) mod log_counting;
pub(super) mod named_counters;
pub(super) mod rejections;
pub(super) mod reserve;
pub(super) mod reset;
pub(super) mod telling;
