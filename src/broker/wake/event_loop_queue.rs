//! A queue from the background thread of a process to its event loop, which an eventfd wakes.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::eventfd::EventFd;

/// The writer may wait for the other side; the event loop, which reads, never does.
#[derive(Debug)]
pub struct EventLoopQueue<T> {
    items: Arc<Mutex<Vec<T>>>,
    eventfd: EventFd,
}

/// Clones the handle of one queue.
impl<T> Clone for EventLoopQueue<T> {
    fn clone(&self) -> Self {
        EventLoopQueue { items: self.items.clone(), eventfd: self.eventfd.clone() }
    }
}

impl<T> EventLoopQueue<T> {
    /// An empty one, whose reader `eventfd` wakes.
    pub fn new(eventfd: EventFd) -> EventLoopQueue<T> {
        EventLoopQueue { items: Arc::default(), eventfd }
    }

    /// Adds to it.
    pub fn push(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(more);
        drop(items);
        // After the lock is free, and always: a reader that found it taken looks again then.
        self.eventfd.wake();
    }

    /// Takes everything since the last call, without waiting. If there is more at the moment, the
    /// event loop is woken again.
    pub fn take(&self) -> Vec<T> {
        match self.items.try_lock() {
            Ok(mut items) => core::mem::take(&mut *items),
            Err(TryLockError::Poisoned(items)) => core::mem::take(&mut *items.into_inner()),
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }
}
