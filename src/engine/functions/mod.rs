//! The functions of the specification's library.
//!
//! - [`ratelimiting`]: `increment`, `sliding_window`; [`window_counters`]: the same for one size, again and again
//! - [`limiter`]: one limit, asked again and again; [`arguments`]: arguments as other languages pass them

pub mod arguments;
pub(super) mod limiter;
pub(super) mod ratelimiting;
pub(super) mod window_counters;
