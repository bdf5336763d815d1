//! The atomics that the table, and the queues of the broker, are made of: the standard library's, or loom's where loom explores
//! every interleaving of their own code.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use core::sync::atomic::Ordering;

/// Counts of events, on which nothing else depends: not worth loom's exploring.
pub(crate) use core::sync::atomic::AtomicU64 as EventCounter;
