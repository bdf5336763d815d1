//! The work of a request in the table: charge, read and refund.
//!
//! - [`counting`]: windows, and the front page of all kinds; [`leveling`]: levels; [`log_counting`]: logs
//! - [`reserve`]: hits that a store has charged ahead
//! - [`reset`]: sets a counter to zero, in each of the [`counted_sizes`]
//! - [`rejections`]: counts rejected keys

pub(super) mod counted_sizes;
pub(super) mod counting;
pub(super) mod leveling;
pub(super) mod log_counting;
pub(super) mod rejections;
pub(super) mod reserve;
pub(super) mod reset;
