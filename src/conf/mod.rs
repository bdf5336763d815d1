//! The configuration: text to parsed to resolved to immutable, without nginx.
#![forbid(unsafe_code)]

pub mod namespace;
pub mod rule;
pub mod sharing;
