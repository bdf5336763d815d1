//! Warnings about legal directives that are probably mistakes.
//!
//! - [`sharing`]: limits that share a counter; [`unmeant`]: other mistakes

pub mod sharing;
pub(super) mod unmeant;
