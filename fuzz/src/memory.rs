//! Bounds the memory of a target. libFuzzer does so only with AddressSanitizer.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
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

/// Allocations of at least so many bytes only reserve addresses, and are not counted.
static RESERVES: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Runs an input of a target, which is aborted when it allocates too much.
pub fn bounded<T>(run: impl FnOnce() -> T) -> T {
    LIMIT.store(USED.load(Ordering::Relaxed).saturating_add(MOST), Ordering::Relaxed);
    let result = run();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    result
}

/// As [`bounded`], but for allocations of at least a megabyte: they are not counted, and are only addresses until they are
/// written to, so that they succeed on any machine. For the only target of a process.
pub fn but_for_reserves<T>(run: impl FnOnce() -> T) -> T {
    RESERVES.store(1 << 20, Ordering::Relaxed);
    bounded(run)
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

fn is_reserve(bytes: usize) -> bool {
    bytes >= RESERVES.load(Ordering::Relaxed)
}

/// Maps zeroed memory, of which the system promises nothing.
fn reserve(bytes: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { ptr::null_mut() } else { start.cast() }
}

// SAFETY: all calls are passed on to the system's allocator, but those of large blocks, which have mappings of their own.
// `RESERVES` changes once, before a target allocates any.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_reserve(layout.size()) {
            return reserve(layout.size());
        }
        allocated(layout.size());
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_reserve(layout.size()) {
            return reserve(layout.size());
        }
        allocated(layout.size());
        // SAFETY: by the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_reserve(layout.size()) {
            // SAFETY: a mapping of this length, by the caller's contract.
            unsafe { libc::munmap(start.cast(), layout.size()) };
            return;
        }
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_reserve(layout.size().max(size)) {
            // SAFETY: by the caller's contract, `size` is a legal one, and `start` has the bytes of `layout`.
            unsafe {
                let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(start, layout.size().min(size));
                    self.dealloc(start, layout);
                }
                return moved;
            }
        }
        allocated(size);
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(start, layout, size) }
    }
}
