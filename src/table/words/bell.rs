//! The bell by which a worker has another push before its time, as its process has it.

use core::fmt;

/// A function that wakes the thread of a worker of this number.
type WakeWorker = dyn Fn(u16) + Send + Sync;

/// The bell as this process has it.
pub(crate) struct Bell {
    pub(crate) own: u16,
    pub(crate) wake: Box<WakeWorker>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bell of {}", self.own)
    }
}
