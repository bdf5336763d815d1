//! The arithmetic of rate limiting as pure functions of counts and time: no I/O, no nginx, no clock.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod budget;
pub mod calendar;
pub(crate) mod fnv;
pub mod headers;
pub mod hits;
pub mod key;
pub mod limit;
pub mod namespace;
pub mod options;
pub mod printable;
pub mod query;
pub mod reserve;
pub mod share;
pub mod window;
