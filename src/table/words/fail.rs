//! Fail points: named places between all writes to shared memory, and before each write under a
//! lease, at which a test can abort or stop the process.
//!
//! They do nothing except in tests, and in a module that was built with `--cfg fail_points`
//! ([`fail_driver`](super::fail_driver)).

#[cfg(all(test, not(loom)))]
mod armed {
    use std::cell::Cell;

    thread_local! {
        static ARMED: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
        static PAUSES: Cell<bool> = const { Cell::new(false) };
        static SEEN: Cell<Option<fn(&'static str)>> = const { Cell::new(None) };
    }

    /// Aborts the process when this thread reaches `point` for the `nth` time, counted from 1.
    pub(crate) fn arm(point: &'static str, nth: u32) {
        ARMED.set(Some((point, nth)));
    }

    /// Stops the process when this thread reaches `point` for the `nth` time, until another process
    /// continues it.
    pub(crate) fn pause_at(point: &'static str, nth: u32) {
        PAUSES.set(true);
        arm(point, nth);
    }

    /// Calls `seen` for each point that this thread reaches.
    pub(crate) fn observe(seen: Option<fn(&'static str)>) {
        SEEN.set(seen);
    }

    pub(crate) fn reach(point: &'static str) {
        if let Some(seen) = SEEN.get() {
            seen(point);
        }
        match ARMED.get() {
            Some((armed, 1)) if armed == point => {
                ARMED.set(None);
                match PAUSES.get() {
                    // SAFETY: stops this process until it is continued; has no other effect.
                    true => drop(unsafe { libc::raise(libc::SIGSTOP) }),
                    false => std::process::abort(),
                }
            }
            Some((armed, left)) if armed == point => {
                ARMED.set(Some((armed, left.saturating_sub(1))));
            }
            _ => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) use armed::*;

#[cfg(all(fail_points, not(test), not(loom)))]
pub(crate) use super::fail_driver::reach;

/// A place at which a test can abort or stop the process.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(all(any(test, fail_points), not(loom)))]
        $crate::table::words::fail::reach($name);
    };
}
pub(crate) use fail_point;
