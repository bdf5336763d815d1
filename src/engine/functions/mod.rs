//! The functions of the specification's library.
//!
//! - [`ratelimiting`]: `increment` and `sliding_window`; [`window_counters`]: both for windows of
//!   one size
//! - [`limiter`]: limiters; [`committed`]: hits that callers give back; [`arguments`]: validation of
//!   arguments

pub mod arguments;
pub(super) mod committed;
pub(super) mod limiter;
pub(super) mod ratelimiting;
pub(super) mod window_counters;
