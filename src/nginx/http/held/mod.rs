//! Requests that nginx leaves for a while, and that go on in a later turn of its event loop.

pub(super) mod suspension;
pub(crate) mod suspensions;
pub(super) mod waiting;

use core::ptr::fn_addr_eq;

use nginx_sys::{
    NGX_HTTP_CLIENT_CLOSED_REQUEST, NGX_OK, ngx_handle_read_event, ngx_http_core_run_phases,
    ngx_http_event_handler_pt, ngx_http_finalize_request, ngx_http_log_ctx_t, ngx_http_request_t,
    ngx_http_run_posted_requests, ngx_http_special_response_handler, ngx_http_test_reading,
    ngx_int_t, ngx_post_event, ngx_posted_events,
};

use crate::nginx::request::Request;
use crate::store::contract::decision::Few;

/// A request that is kept from one callback to another. Resuming consumes it: the request may end.
pub(super) struct Held(*mut ngx_http_request_t);

impl Held {
    /// # Safety
    ///
    /// The request owns what keeps it ([`Request::own`]), or counts it: so it is not used after the
    /// request has ended.
    pub(super) unsafe fn new(request: &Request<'_>) -> Held {
        Held(request.as_ptr())
    }

    /// Whether it is that request.
    fn is(&self, request: &Request<'_>) -> bool {
        self.0 == request.as_ptr()
    }

    /// Calls `callback` with the request.
    pub(super) fn with<T>(&self, callback: impl FnOnce(&Request<'_>) -> T) -> T {
        // SAFETY: as `new` was promised; what ends a request takes it from here.
        unsafe { Request::with(self.0, callback) }
    }

    /// Ends the request, or its part in a response, with `status`.
    ///
    /// # Safety
    ///
    /// This is called by the event loop, not by a callback with a request: nothing refers to any
    /// request, nor to what one owns.
    pub(super) unsafe fn finalize(self, status: ngx_int_t) {
        // SAFETY: it has not ended, as `new` was promised; its connection ends later.
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
    /// As of [`Held::finalize`].
    unsafe fn run_phases(self) {
        self.be_logged();
        // SAFETY: as above.
        unsafe {
            let connection = (*self.0).connection;
            ngx_http_core_run_phases(self.0);
            ngx_http_run_posted_requests(connection);
        }
    }

    /// Has lines of the log be about the request.
    fn be_logged(&self) {
        // SAFETY: it has not ended, as `new` was promised; its connection and the log of that end later, and the log has
        // a context that says about which request the lines are.
        unsafe {
            let log = (*(*self.0).connection).log;
            let context = (*log).data.cast::<ngx_http_log_ctx_t>();
            (*context).current_request = self.0;
        }
    }
}

/// Has the request stay until [`Held::finalize`], and be told when its client goes.
pub(super) fn stay(request: &Request<'_>) {
    // SAFETY: a request that has not ended.
    unsafe {
        let main = request.main().as_ptr();
        (*main).set_count((*main).count().wrapping_add(1));
        if request.is_main() {
            watch_client(request);
        }
    }
}

/// Has nginx notice if the client goes. Returns what it did before when there was something to read;
/// `None`: it still does.
fn watch_client(request: &Request<'_>) -> Option<ngx_http_event_handler_pt> {
    let request = request.as_ptr();
    // SAFETY: a request that has not ended.
    unsafe {
        // A body that is thrown away has to be read; if the client goes, that notices it, too.
        if (*request).discard_body() != 0 {
            return None;
        }
        let before = (*request).read_event_handler;
        (*request).read_event_handler = Some(ngx_http_test_reading);
        Some(before)
    }
}

/// A request that waits in a phase: nginx runs its phases no more until it is resumed.
pub(crate) struct Waiting {
    request: Held,
    /// Read handler that it has otherwise; `None`: it is still set.
    read_event_handler: Option<ngx_http_event_handler_pt>,
}

impl Waiting {
    /// Has a request wait. `None`: nginx cannot watch its connection.
    ///
    /// # Safety
    ///
    /// As of [`Held::new`].
    pub(super) unsafe fn begin(request: &Request<'_>) -> Option<Waiting> {
        // SAFETY: a request that has not ended, with its connection.
        unsafe {
            let read = (*request.connection()).read;
            // As limit_req does: what has come already is not told of again.
            if (*read).ready() != 0 {
                ngx_post_event(read, &raw mut ngx_posted_events);
            } else if ngx_handle_read_event(read, 0) != NGX_OK as ngx_int_t {
                return None;
            }
            let read_event_handler = watch_client(request);
            (*request.as_ptr()).write_event_handler = Some(WHILE_WAITING);
            Some(Waiting {
                // SAFETY: the caller's promise.
                request: Held::new(request),
                read_event_handler,
            })
        }
    }

    /// Whether it is that request.
    fn is(&self, request: &Request<'_>) -> bool {
        self.request.is(request)
    }

    /// Has the request run its phases, once: nginx does so only of requests that do not wait.
    ///
    /// # Safety
    ///
    /// As of [`Held::finalize`].
    pub(super) unsafe fn resume(self) {
        if self.end() {
            // SAFETY: the caller's promise.
            unsafe { self.request.run_phases() };
        }
    }

    /// Has nginx answer the request as it does errors of this status, by the page of `error_page` if there is one.
    ///
    /// # Safety
    ///
    /// As of [`Held::finalize`].
    pub(super) unsafe fn answer_error(self, status: ngx_int_t) {
        if self.end() {
            self.request.be_logged();
            // SAFETY: the caller's promise; the request has not ended. Its part in what is going on ends with what nginx
            // says of the answer.
            unsafe {
                let answer = ngx_http_special_response_handler(self.request.0, status);
                self.request.finalize(answer);
            }
        }
    }

    /// Gives the request its event handlers back. Returns whether it still waited.
    fn end(&self) -> bool {
        self.request.with(|request| {
            let request = request.as_ptr();
            // SAFETY: a request that has not ended.
            unsafe {
                let handler = (*request).write_event_handler;
                // If not, nginx took it elsewhere, such as to a `post_action`, since its client went.
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

/// A main request or subrequests of it that wait for the same thing.
#[derive(Default)]
pub(super) struct WaitingParts(Few<Waiting>);

impl WaitingParts {
    /// Has a request wait, too. `None`: nginx cannot watch its connection.
    ///
    /// # Safety
    ///
    /// As of [`Held::new`].
    pub(super) unsafe fn add(&mut self, request: &Request<'_>) -> Option<()> {
        // SAFETY: the caller's promise.
        let waiting = unsafe { Waiting::begin(request) }?;
        // Its phases may be run although nothing has woken it.
        if !self.0.iter().any(|it| it.is(request)) {
            self.0.push(waiting);
        }
        Some(())
    }

    /// Takes the next one that is to go on.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

/// Handler that nginx calls where a waiting request could write: because its connection can, or
/// because it is its turn among the subrequests of a response.
static WHILE_WAITING: unsafe extern "C" fn(*mut ngx_http_request_t) = while_waiting;

unsafe extern "C" fn while_waiting(request: *mut ngx_http_request_t) {
    // SAFETY: nginx passes a request that has not ended, with its connection. It may free it then, with
    // what it was suspended for, to which nothing refers now.
    unsafe {
        if (*(*request).connection).error() != 0 {
            ngx_http_finalize_request(request, NGX_HTTP_CLIENT_CLOSED_REQUEST as ngx_int_t);
        }
    }
}
