//! Requests that are suspended, and resume in a later turn of nginx's event loop; and their waits.
//!
//! A request owns its wait. The event loop finds a wait by a number, which timers and stores pass
//! back; so no stale pointer is ever followed.

pub(crate) mod suspension;

use core::cell::RefCell;
use core::ops::Deref;
use core::ptr::{NonNull, fn_addr_eq};

use nginx_sys::{
    NGX_HTTP_CLIENT_CLOSED_REQUEST, NGX_OK, ngx_handle_read_event, ngx_http_core_run_phases,
    ngx_http_event_handler_pt, ngx_http_finalize_request, ngx_http_log_ctx_t, ngx_http_request_t,
    ngx_http_run_posted_requests, ngx_http_special_response_handler, ngx_http_test_reading,
    ngx_int_t, ngx_post_event, ngx_posted_events,
};

use super::request_bits;
use crate::broker::{Asker, Waiters};
use crate::engine::BoundLimit;
use crate::nginx::event_loop::OfEventLoop;
use crate::nginx::request::Request;
use crate::store::contract::decision::Few;

/// A request that is kept from one callback to another. Resuming consumes it, since the request may
/// end.
pub(super) struct Held(*mut ngx_http_request_t);

impl Held {
    /// # Safety
    ///
    /// The request must own the place that the value is stored in ([`Request::own`]), or be counted
    /// for it ([`stay`]), so that the value is not used after the request has ended.
    pub(super) unsafe fn new(request: &Request<'_>) -> Held {
        Held(request.as_ptr())
    }

    /// Returns whether this is `request`.
    fn is(&self, request: &Request<'_>) -> bool {
        self.0 == request.as_ptr()
    }

    /// Calls `callback` with the request.
    pub(super) fn with<T>(&self, callback: impl FnOnce(&Request<'_>) -> T) -> T {
        // SAFETY: the request is live, by the contract of `new`; code that ends a request takes the
        // `Held` first.
        unsafe { Request::with(self.0, callback) }
    }

    /// Finalizes the request, or its part in a response, with `status`.
    ///
    /// # Safety
    ///
    /// Only the event loop may call this, not a callback with a request: no reference may exist to
    /// any request or to anything that a request owns.
    pub(super) unsafe fn finalize(self, status: ngx_int_t) {
        // SAFETY: the request is live, by the contract of `new`; its connection ends after it.
        unsafe {
            let connection = (*self.0).connection;
            ngx_http_finalize_request(self.0, status);
            ngx_http_run_posted_requests(connection);
        }
    }

    /// Runs the phases of the request.
    ///
    /// # Safety
    ///
    /// See [`Held::finalize`].
    unsafe fn run_phases(self) {
        self.be_logged();
        // SAFETY: as in [`Held::finalize`].
        unsafe {
            let connection = (*self.0).connection;
            ngx_http_core_run_phases(self.0);
            ngx_http_run_posted_requests(connection);
        }
    }

    /// Makes the connection's log lines name this request.
    fn be_logged(&self) {
        // SAFETY: the request is live, by the contract of `new`. Its connection and the
        // connection's log end after it, and the log's `data` is an `ngx_http_log_ctx_t`.
        unsafe {
            let log = (*(*self.0).connection).log;
            let context = (*log).data.cast::<ngx_http_log_ctx_t>();
            (*context).current_request = self.0;
        }
    }
}

/// Keeps the request alive until [`Held::finalize`], and lets nginx detect that the client has
/// closed the connection.
pub(super) fn stay(request: &Request<'_>) {
    // SAFETY: the request is live.
    unsafe {
        let main = request.main().as_ptr();
        (*main).set_count((*main).count().wrapping_add(1));
        if request.is_main() {
            watch_client(request);
        }
    }
}

/// Makes nginx detect that the client has closed the connection. Returns the read handler that this
/// replaces; `None` if it replaces none.
fn watch_client(request: &Request<'_>) -> Option<ngx_http_event_handler_pt> {
    // While nginx discards the body, its read handler must stay; that one detects a closed
    // connection too.
    if request_bits::discards_body(request) {
        return None;
    }
    let request = request.as_ptr();
    // SAFETY: the request is live.
    unsafe {
        let before = (*request).read_event_handler;
        (*request).read_event_handler = Some(ngx_http_test_reading);
        Some(before)
    }
}

/// A request that is suspended in a phase. nginx does not run its phases until it is resumed.
pub(crate) struct Waiting {
    request: Held,
    /// The request's own read handler; `None` if it was not replaced.
    read_event_handler: Option<ngx_http_event_handler_pt>,
}

impl Waiting {
    /// Suspends a request. `None` if nginx cannot watch its connection.
    ///
    /// # Safety
    ///
    /// See [`Held::new`].
    pub(super) unsafe fn begin(request: &Request<'_>) -> Option<Waiting> {
        // SAFETY: the request and its connection are live.
        unsafe {
            let read = (*request.connection()).read;
            // As in nginx's limit_req: no event will report bytes that have already arrived.
            if (*read).ready() != 0 {
                ngx_post_event(read, &raw mut ngx_posted_events);
            } else if ngx_handle_read_event(read, 0) != NGX_OK as ngx_int_t {
                return None;
            }
            let read_event_handler = watch_client(request);
            (*request.as_ptr()).write_event_handler = Some(WHILE_WAITING);
            Some(Waiting {
                // SAFETY: by the caller's contract.
                request: Held::new(request),
                read_event_handler,
            })
        }
    }

    /// Returns whether this is `request`.
    fn is(&self, request: &Request<'_>) -> bool {
        self.request.is(request)
    }

    /// Resumes the request by running its phases, unless it does not wait any more.
    ///
    /// # Safety
    ///
    /// See [`Held::finalize`].
    pub(super) unsafe fn resume(self) {
        if self.end() {
            // SAFETY: by the caller's contract.
            unsafe { self.request.run_phases() };
        }
    }

    /// Makes nginx answer the request with an error of this status, by the page of `error_page` if
    /// there is one.
    ///
    /// # Safety
    ///
    /// See [`Held::finalize`].
    pub(super) unsafe fn answer_error(self, status: ngx_int_t) {
        if self.end() {
            self.request.be_logged();
            // SAFETY: by the caller's contract; the request is live. Finalizing with nginx's return
            // value ends the wait.
            unsafe {
                let answer = ngx_http_special_response_handler(self.request.0, status);
                self.request.finalize(answer);
            }
        }
    }

    /// Restores the event handlers of the request. Returns whether it still waited.
    fn end(&self) -> bool {
        self.request.with(|request| {
            let request = request.as_ptr();
            // SAFETY: the request is live.
            unsafe {
                // nginx terminates a main request whose frames HTTP/2 still sends, and frees it later: its
                // parts must not go on.
                if (*(*request).main).count() == 0 {
                    return false;
                }
                let handler = (*request).write_event_handler;
                // Otherwise nginx has moved the request on, such as to a `post_action` after its
                // client closed the connection.
                let does_wait = handler.is_some_and(|it| fn_addr_eq(it, WHILE_WAITING));
                if does_wait {
                    if let Some(handler) = self.read_event_handler {
                        (*request).read_event_handler = handler;
                    }
                    (*request).write_event_handler = Some(ngx_http_core_run_phases);
                }
                does_wait
            }
        })
    }
}

/// A main request and subrequests of it that wait for the same thing.
#[derive(Default)]
pub(super) struct WaitingParts(Few<Waiting>);

impl WaitingParts {
    /// Suspends `request` as well. `None` if nginx cannot watch its connection.
    ///
    /// # Safety
    ///
    /// See [`Held::new`].
    pub(super) unsafe fn add(&mut self, request: &Request<'_>) -> Option<()> {
        // SAFETY: by the caller's contract.
        let waiting = unsafe { Waiting::begin(request) }?;
        // nginx may run the phases of a request that waits already.
        if !self.0.iter().any(|it| it.is(request)) {
            self.0.push(waiting);
        }
        Some(())
    }

    /// Takes the next part to resume.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

/// Write handler of a suspended request. nginx calls it when the connection is writable, or when
/// the subrequest's turn in the response comes.
static WHILE_WAITING: unsafe extern "C" fn(*mut ngx_http_request_t) = while_waiting;

unsafe extern "C" fn while_waiting(request: *mut ngx_http_request_t) {
    // SAFETY: nginx passes a live request with its connection. Finalizing may free the request and
    // its suspension, to which no reference is left.
    unsafe {
        if (*(*request).connection).error() != 0 {
            ngx_http_finalize_request(request, NGX_HTTP_CLIENT_CLOSED_REQUEST as ngx_int_t);
        }
    }
}

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

/// Calls `count` with the first limit of each namespace among `bounds`.
pub(super) fn for_each_namespace<'c>(
    bounds: impl Iterator<Item = &'c BoundLimit<'static>>,
    count: impl Fn(&BoundLimit<'static>),
) {
    let mut counted: Vec<&str> = Vec::new();
    for bound in bounds {
        if !counted.contains(&bound.namespace()) {
            counted.push(bound.namespace());
            count(bound);
        }
    }
}
