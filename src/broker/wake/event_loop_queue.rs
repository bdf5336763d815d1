//! A queue from a background thread to its process's event loop, which an eventfd wakes.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::eventfd::EventFd;

/// The writer may wait for the reader; the event loop, which reads, never waits.
#[derive(Debug)]
pub struct EventLoopQueue<T> {
    items: Arc<Mutex<Vec<T>>>,
    eventfd: EventFd,
}

/// Clones refer to the same queue.
impl<T> Clone for EventLoopQueue<T> {
    fn clone(&self) -> Self {
        EventLoopQueue { items: self.items.clone(), eventfd: self.eventfd.clone() }
    }
}

impl<T> EventLoopQueue<T> {
    /// Creates an empty queue, whose reader `eventfd` wakes.
    pub fn new(eventfd: EventFd) -> EventLoopQueue<T> {
        EventLoopQueue { items: Arc::default(), eventfd }
    }

    /// Adds values, and wakes the reader.
    pub fn push(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(more);
        drop(items);
        // After the lock is released, and always: a reader that found it held is woken to try
        // again.
        self.eventfd.wake();
    }

    /// Takes all values, without waiting. If the lock is held, wakes the event loop again.
    pub fn take(&self) -> Vec<T> {
        match self.items.try_lock() {
            Ok(mut items) => core::mem::take(&mut *items),
            Err(TryLockError::Poisoned(items)) => core::mem::take(&mut *items.into_inner()),
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }
}
