//! Tests of the library's interface.

mod anything;
mod arguments;
mod decisions;
mod early;
mod functions;
mod killed;
mod limiters;
mod random;
mod stores;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use super::{Instance, Memory, NewOptions, new_instance};
use crate::engine::{Env as _, Machine};

/// A window so long that a test crosses its end with a probability of one in a million.
const WINDOW: Duration = Duration::from_secs(366 * 86_400);

/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates an instance that no other test uses.
fn instance() -> Instance {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    new_instance(&format!("test {number}")).unwrap()
}

fn memory() -> Memory {
    Memory::heap(256 << 10).unwrap()
}

/// Creates an instance with a local namespace `default`.
fn local() -> Instance {
    let instance = instance();
    instance.new(&NewOptions::new(&memory())).unwrap();
    instance
}

/// Waits until `is_so` returns true.
#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begin = Machine.uptime();
    while !is_so() {
        assert!(Machine.uptime() - begin < PATIENCE, "it never happens");
        std::thread::yield_now();
    }
}
