//! Warnings about directives that are legal, and that nobody means.
//!
//! - [`sharing`]: limits that share a counter; [`unmeant`]: each of the others

pub mod sharing;
pub(super) mod unmeant;
