//! The last pushes of a worker that are running. The event loop waits for them, and the thread runs them.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// The number of namespaces whose last push is running.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPushes(Arc<AtomicUsize>);

/// Counts a running last push until it is dropped.
pub(super) struct Running(LastPushes);

// All accesses are relaxed: the number orders no other memory.
impl LastPushes {
    /// Returns whether any last push is running.
    pub(super) fn are_running(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// Counts a last push as running, until the result is dropped.
    pub(super) fn begin(&self) -> Running {
        self.0.fetch_add(1, Relaxed);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let LastPushes(count) = &self.0;
        count.fetch_sub(1, Relaxed);
    }
}
