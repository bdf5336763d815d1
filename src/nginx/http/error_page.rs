//! Error pages (`error_page`) for statuses that have another meaning as a phase handler's return
//! value.

use core::cell::Cell;

use nginx_sys::{NGX_AGAIN, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_http_err_page_t, ngx_int_t};
use ngx::http::HttpModuleLocationConf as _;
use ngx::http::NgxHttpCoreModule;

use super::held::{RequestWait, Waiting, WaitingRequests};
use super::request_bits;
use crate::broker::Asker;
use crate::nginx::event_loop::EndOfTurn;
use crate::nginx::request::Request;

/// Returns whether the location of a request has an `error_page` for `status`, and nginx may
/// redirect the request to it.
pub(super) fn is_named(request: &Request<'_>, status: ngx_int_t) -> bool {
    let Some(core) = NgxHttpCoreModule::location_conf(request) else {
        return false;
    };
    // nginx makes the same test before it redirects to an error page.
    if !request_bits::can_redirect_error(request) {
        return false;
    }
    // SAFETY: a non-empty `ngx_array_t` has `nelts` elements, which live as long as the
    // configuration.
    let pages = unsafe {
        match core.error_pages.as_ref() {
            Some(pages) if pages.nelts > 0 => {
                core::slice::from_raw_parts(pages.elts.cast::<ngx_http_err_page_t>(), pages.nelts)
            }
            _ => return false,
        }
    };
    pages.iter().any(|page| page.status == status)
}

/// The requests of this worker that get an error page after their phases.
static DUE: WaitingRequests<DuePage<'static>> = WaitingRequests::of(Asker::Request);

/// A request that waits for its phases to stop.
struct DuePage<'r> {
    event: EndOfTurn<'r>,
    status: ngx_int_t,
    waiting: Cell<Option<Waiting>>,
}

/// Makes nginx answer a request with the error page for `status` when its phases have stopped.
/// Returns the phase handler's return value, which stops them.
pub(super) fn answer_later(request: &Request<'_>, status: ngx_int_t) -> ngx_int_t {
    let due = DUE.add(request, |id| DuePage {
        event: EndOfTurn::new(request.log(), answer, id),
        status,
        waiting: Cell::new(None),
    });
    // SAFETY: the main request owns `due`, and its subrequests end no later than it does.
    let waiting = unsafe { Waiting::begin(request) };
    let (Some(due), Some(waiting)) = (due, waiting) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };
    due.waiting.set(Some(waiting));
    due.event.post();
    NGX_AGAIN as ngx_int_t
}

/// Sends the error page to request `id`.
fn answer(id: u64) {
    let due = DUE.with(id, |due| (due.waiting.take(), due.status));
    DUE.remove(id);
    if let Some((Some(waiting), status)) = due {
        // SAFETY: the event loop calls this function, which holds no reference to a request.
        unsafe { waiting.answer_error(status) };
    }
}

impl RequestWait for DuePage<'static> {
    type Of<'r> = DuePage<'r>;
}
