//! The words of shared memory, and what a process needs to use them.
//!
//! - [`word`]: a window's column; [`meta`]: a slot's occupant; [`slot`]: the 64 bytes that contain
//!   both
//! - [`held`]: the words of a counter of holds
//! - [`identity`]: the keyed hash under which hits count together
//! - [`atomic`]: the atomics of the standard library, or of loom; [`fail`]: fail points, and
//!   `fail_driver`, by which another process arms them
//! - [`mapping`], [`system`]: the system's memory, clock and
//!   random numbers

pub(crate) mod atomic;
pub(crate) mod fail;
#[cfg(all(fail_points, not(test), not(loom)))]
mod fail_driver;
pub(super) mod held;
pub(super) mod identity;
#[cfg(not(loom))]
pub(super) mod mapping;
pub(super) mod meta;
pub(super) mod slot;
#[cfg(not(loom))]
pub mod system;
pub(super) mod word;
