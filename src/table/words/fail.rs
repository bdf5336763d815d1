//! Named points between every two writes to shared memory, and before each that a lease covers, at which a test ends
//! the process, or stops it.
//!
//! Outside tests a point is nothing at all.

#[cfg(all(test, not(loom)))]
mod armed {
    use std::cell::Cell;

    thread_local! {
        static ARMED: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
        static PAUSES: Cell<bool> = const { Cell::new(false) };
        static SEEN: Cell<Option<fn(&'static str)>> = const { Cell::new(None) };
    }

    /// From now on, the `nth` time (from 1) that this thread reaches `point` it aborts the process.
    pub(crate) fn arm(point: &'static str, nth: u32) {
        ARMED.set(Some((point, nth)));
    }

    /// From now on, the `nth` time that this thread reaches `point` it stops the process, which goes on when another
    /// one continues it.
    pub(crate) fn pause_at(point: &'static str, nth: u32) {
        PAUSES.set(true);
        arm(point, nth);
    }

    /// From now on, `seen` is told of every point that this thread reaches.
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
                    // SAFETY: stops this process, until it is continued.
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

/// A place at which a test may end the process.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(all(test, not(loom)))]
        $crate::table::words::fail::reach($name);
    };
}
pub(crate) use fail_point;
