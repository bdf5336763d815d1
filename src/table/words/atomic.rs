//! The atomics of the table and of the broker's queues: those of the standard library, or of loom,
//! which explores all interleavings of their users. A file of its own, as the boundary between the two.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use core::sync::atomic::Ordering;

/// Event counters, which order no other memory, so that loom need not explore them.
pub(crate) use core::sync::atomic::AtomicU64 as EventCounter;

/// Replaces a word while its owner `is_held`: a claim, a lock or a lease. Returns the previous value; `None` if it is lost.
///
/// Loads the word, then checks the owner, then swaps. A process that takes over changes the word too, so that the swap
/// fails.
#[inline]
pub(crate) fn replace_held(
    word: &AtomicU64,
    is_held: impl Fn() -> bool,
    new: impl Fn(u64) -> u64,
) -> Option<u64> {
    let mut old = word.load(Ordering::Acquire);
    while is_held() {
        match word.compare_exchange(old, new(old), Ordering::AcqRel, Ordering::Acquire) {
            Ok(old) => return Some(old),
            Err(changed) => old = changed,
        }
    }
    None
}
