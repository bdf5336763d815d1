//! Waits of requests. The request owns its wait, and the event loop finds it by a number, which
//! timers and stores give back; never by a pointer that was elsewhere meanwhile.

use core::cell::RefCell;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::broker::{Asker, Waiters};
use crate::nginx::event_loop::OfEventLoop;
use crate::nginx::request::Request;

/// The wait of one kind of requests: a type for each lifetime of a request.
pub(crate) trait RequestWait: Sized + 'static {
    /// Wait of one request.
    type Of<'r>: 'r;
}

/// All requests of one kind that wait in this worker.
pub(crate) struct WaitingRequests<W: RequestWait>(
    OfEventLoop<RefCell<Waiters<NonNull<W::Of<'static>>>>>,
);

/// The wait of a request, which owns this value.
pub(crate) struct OwnedWait<'r, W: RequestWait> {
    /// The number by which it is found.
    pub(crate) id: u64,
    all: &'static WaitingRequests<W>,
    wait: W::Of<'r>,
}

impl<W: RequestWait> WaitingRequests<W> {
    /// Creates the waits of which a store may be asked as this kind of asker.
    pub(crate) const fn of(asker: Asker) -> Self {
        WaitingRequests(OfEventLoop(RefCell::new(Waiters::of(asker))))
    }

    /// Has the main request of `request` wait with what `make` makes for its number. `None`: there is no memory.
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

    /// Calls `callback` with what request `id` waits with, if it does.
    pub(crate) fn with<T>(
        &self,
        id: u64,
        callback: impl for<'r> FnOnce(&W::Of<'r>) -> T,
    ) -> Option<T> {
        let wait = self.0.0.borrow().get(id).copied()?;
        // SAFETY: what is registered was not dropped, which takes it from here. What ends a request meanwhile has
        // promised that nothing refers to what one owns.
        Some(callback(unsafe { wait.as_ref() }))
    }

    /// Request `id` does not wait any more.
    pub(crate) fn remove(&self, id: u64) {
        self.0.0.borrow_mut().remove(id);
    }

    /// The numbers of all that wait.
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
