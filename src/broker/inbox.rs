//! What a thread has for the event loop of its process, which it wakes for it.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::eventfd::EventFd;

/// A queue from a thread that may wait to one that must not.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Arc<Mutex<Vec<T>>>,
    eventfd: EventFd,
}

/// The same queue.
impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Inbox {
            items: self.items.clone(),
            eventfd: self.eventfd.clone(),
        }
    }
}

impl<T> Inbox<T> {
    /// An empty one, whose reader `eventfd` wakes.
    pub fn new(eventfd: EventFd) -> Inbox<T> {
        Inbox {
            items: Arc::default(),
            eventfd,
        }
    }

    /// Adds to it.
    pub fn push(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(more);
        drop(items);
        // Not before, and always: who found the lock taken looks again then.
        self.eventfd.wake();
    }

    /// What came since the last look. Never waits: if there is more in this moment, the event loop is
    /// woken again.
    pub fn take(&self) -> Vec<T> {
        match self.items.try_lock() {
            Ok(mut items) => core::mem::take(&mut *items),
            Err(TryLockError::Poisoned(items)) => core::mem::take(&mut *items.into_inner()),
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }
}
