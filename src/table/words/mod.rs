//! The words of shared memory, and what a process needs to use them.
//!
//! - [`word`]: a column of a window; [`meta`]: who occupies a slot; [`slot`]: the 64 bytes that both are in
//! - [`identity`]: the keyed hash by which two hits count together
//! - [`part`]: the counters that one sync is about
//! - [`atomic`]: the atomics of the standard library, or of loom; [`fail`]: fail points
//! - [`bell`]: the bell for early pushes; [`mapping`], [`system`]: the system's memory, clock and
//!   random numbers

pub(crate) mod atomic;
pub(super) mod bell;
pub(crate) mod fail;
pub(super) mod identity;
#[cfg(not(loom))]
pub(super) mod mapping;
pub(super) mod meta;
pub(super) mod part;
pub(super) mod slot;
#[cfg(not(loom))]
pub mod system;
pub(super) mod word;
