//! Eventfds that wake the threads of a node's workers for early pushes.

use std::io;

use super::eventfd::EventFd;

/// One eventfd for each worker. The workers inherit them from the master.
#[derive(Debug)]
pub struct Bells(Vec<EventFd>);

impl Bells {
    /// Creates the eventfds of `workers` workers.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new(workers: usize) -> io::Result<Bells> {
        let bells = (0..workers).map(|_| EventFd::new());
        bells.collect::<io::Result<_>>().map(Bells)
    }

    /// Returns the eventfd of a worker; `None` if there is no such worker.
    pub fn of(&self, worker: usize) -> Option<&EventFd> {
        self.0.get(worker)
    }

    /// Wakes the thread of a worker, if there is such a worker.
    pub fn ring(&self, worker: u16) {
        if let Some(bell) = self.of(worker.into()) {
            bell.wake();
        }
    }
}
