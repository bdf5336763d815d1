//! Waits of requests. The request owns its wait. The event loop finds a wait by a number, which
//! timers and stores pass back; so no stale pointer is ever followed.

use core::cell::RefCell;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::broker::{Asker, Waiters};
use crate::nginx::event_loop::OfEventLoop;
use crate::nginx::request::Request;

/// A kind of wait, as a type for each lifetime of a request.
pub(crate) trait RequestWait: Sized + 'static {
    /// The wait of one request.
    type Of<'r>: 'r;
}

/// All waits of one kind in this worker.
pub(crate) struct WaitingRequests<W: RequestWait>(
    OfEventLoop<RefCell<Waiters<NonNull<W::Of<'static>>>>>,
);

/// The wait of a request, owned by the request.
pub(crate) struct OwnedWait<'r, W: RequestWait> {
    /// The number by which the wait is found.
    pub(crate) id: u64,
    all: &'static WaitingRequests<W>,
    wait: W::Of<'r>,
}

impl<W: RequestWait> WaitingRequests<W> {
    /// Creates an empty set. A store's replies to it carry `asker`.
    pub(crate) const fn of(asker: Asker) -> Self {
        WaitingRequests(OfEventLoop(RefCell::new(Waiters::of(asker))))
    }

    /// Registers a wait, which `make` creates for its number, and which the main request of
    /// `request` owns. `None` without memory.
    pub(crate) fn add<'r>(
        &'static self,
        request: &Request<'r>,
        make: impl FnOnce(u64) -> W::Of<'r>,
    ) -> Option<&'r OwnedWait<'r, W>> {
        let id = self.0.0.borrow_mut().next_id();
        let owned = request.own(OwnedWait { id, all: self, wait: make(id) })?;
        self.0.0.borrow_mut().add(NonNull::from(&owned.wait).cast());
        Some(owned)
    }

    /// Calls `callback` with the wait of request `id`, if it is registered.
    pub(crate) fn with<T>(
        &self,
        id: u64,
        callback: impl for<'r> FnOnce(&W::Of<'r>) -> T,
    ) -> Option<T> {
        let wait = self.0.0.borrow().get(id).copied()?;
        // SAFETY: dropping a wait unregisters it, so a registered wait is live. Code that ends a
        // request holds no reference to anything that the request owns.
        Some(callback(unsafe { wait.as_ref() }))
    }

    /// Unregisters the wait of request `id`.
    pub(crate) fn remove(&self, id: u64) {
        self.0.0.borrow_mut().remove(id);
    }

    /// Returns the numbers of all waits.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.0.0.borrow().ids()
    }
}

impl<'r, W: RequestWait> Deref for OwnedWait<'r, W> {
    type Target = W::Of<'r>;

    fn deref(&self) -> &W::Of<'r> {
        &self.wait
    }
}

impl<W: RequestWait> Drop for OwnedWait<'_, W> {
    fn drop(&mut self) {
        self.all.remove(self.id);
    }
}
