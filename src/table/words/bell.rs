//! The bell for early pushes, in each process: how to wake another worker.

use core::fmt;

/// Wakes the thread of the worker with this number.
type WakeWorker = dyn Fn(u16) + Send + Sync;

/// The bell in this process.
pub(crate) struct Bell {
    pub(crate) own: u16,
    pub(crate) wake: Box<WakeWorker>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bell of {}", self.own)
    }
}
