//! The atomics that the table is made of: the standard library's, or loom's where loom explores
//! every interleaving of the table's own code.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(super) use core::sync::atomic::Ordering;

/// Counts of events, on which nothing else depends: not worth loom's exploring.
pub(super) use core::sync::atomic::AtomicU64 as EventCounter;
