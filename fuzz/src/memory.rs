//! Bounds the memory of a target. libFuzzer does so only with AddressSanitizer.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

/// Most bytes that an input may have allocated at the same time, beside those that were allocated before.
const MOST: usize = 128 << 20;

/// The allocator of the system, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are allocated.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Bytes that may be allocated.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Runs an input of a target, which is aborted when it allocates too much.
pub fn bounded<T>(run: impl FnOnce() -> T) -> T {
    LIMIT.store(USED.load(Ordering::Relaxed).saturating_add(MOST), Ordering::Relaxed);
    let result = run();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    result
}

fn allocated(bytes: usize) {
    let used = USED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if used > LIMIT.load(Ordering::Relaxed) {
        LIMIT.store(usize::MAX, Ordering::Relaxed);
        eprintln!("the input allocates too much: {used} bytes are in use with the last {bytes}");
        eprintln!("{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: by the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size);
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(start, layout, size) }
    }
}
