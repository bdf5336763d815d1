//! Bells that wake the threads of a node's workers, so that one of them pushes early.

use std::io;

use super::eventfd::EventFd;

/// One for each worker. Made before the workers, and used by them alike.
#[derive(Debug)]
pub struct Bells(Vec<EventFd>);

impl Bells {
    /// Creates the bells of so many workers.
    ///
    /// # Errors
    ///
    /// If the system has no descriptors left.
    pub fn new(workers: usize) -> io::Result<Bells> {
        let bells = (0..workers).map(|_| EventFd::new());
        bells.collect::<io::Result<_>>().map(Bells)
    }

    /// Returns the bell of a worker; `None` if there is no such worker.
    pub fn of(&self, worker: usize) -> Option<&EventFd> {
        self.0.get(worker)
    }

    /// Wakes the thread of a worker, if there is one of this number.
    pub fn ring(&self, worker: u16) {
        if let Some(bell) = self.of(worker.into()) {
            bell.wake();
        }
    }
}
