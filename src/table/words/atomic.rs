//! The atomics of the table and of the broker's queues: those of the standard library, or of loom,
//! which explores all interleavings of their users.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use core::sync::atomic::Ordering;

/// Event counters, which order no other memory, so that loom need not explore them.
pub(crate) use core::sync::atomic::AtomicU64 as EventCounter;
