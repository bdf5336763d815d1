//! Long responses, such as the metrics. They are written in steps over several turns of the event
//! loop, so that no step blocks the worker for long, and sent when they are complete.

use core::cell::RefCell;
use core::time::Duration;
use std::time::Instant;

use nginx_sys::{
    NGX_DONE, NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_ALLOWED,
    NGX_HTTP_OK, ngx_http_request_t, ngx_int_t, ngx_uint_t,
};
use ngx::http::HttpModuleMainConf as _;

use crate::broker::Asker;
use crate::engine::report::prometheus::{MEDIA_TYPE, Page};
use crate::engine::report::status::Status;
use crate::nginx::conf::Look;
use crate::nginx::event_loop::{EventTimer, guard, measured};
use crate::nginx::http::held::{Held, RequestWait, WaitingRequests};
use crate::nginx::http::respond::put;
use crate::nginx::http::{held, respond};
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::table::CounterTable;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Pieces of a text. Each takes far less than a [`TURN`] to make, and may be empty.
pub(super) type Steps = Box<dyn Iterator<Item = String>>;

/// Longest time of one turn.
const TURN: Duration = Duration::from_micros(250);

/// The unfinished pages of this worker.
static PAGES: WaitingRequests<UnfinishedPage<'static>> = WaitingRequests::of(Asker::Request);

/// Writes the body of one response.
struct PageWriter {
    /// Table that records how long each turn blocked the event loop.
    table: Option<&'static CounterTable<'static>>,
    media_type: &'static str,
    steps: Steps,
    pieces: Vec<String>,
}

/// A page that is still being written.
struct UnfinishedPage<'r> {
    /// Timer for the next turn. nginx does not exit before it fires.
    timer: EventTimer<'r>,
    /// `None` once the page is complete.
    page: RefCell<Option<(Held, PageWriter)>>,
}

/// Collects the whole status first, then writes it with `page`.
pub(super) fn of_status<P: Iterator<Item = String> + 'static>(
    mut look: Look,
    page: impl Fn(Status<'static>) -> P + 'static,
) -> Steps {
    let mut seen = None;
    Box::new(core::iter::from_fn(move || match &mut seen {
        Some(page) => P::next(page),
        None => {
            if !look.go_on() {
                seen = Some(page(look.take_status()));
            }
            Some(String::new())
        }
    }))
}

/// Answers with the pieces of `steps`: at once if one turn is enough. Returns the content handler's
/// return value.
pub(super) fn answer(
    request: &Request<'_>,
    table: Option<&'static CounterTable<'static>>,
    media_type: &'static str,
    steps: Steps,
) -> ngx_int_t {
    if let Err(status) = respond::discard_body(request) {
        return status;
    }
    let mut page = PageWriter { table, media_type, steps, pieces: Vec::new() };
    if page.go_on() {
        return page.send(request);
    }
    match wait(request, page) {
        Some(()) => NGX_DONE as ngx_int_t,
        None => SERVER_ERROR,
    }
}

/// Suspends a request until its page is complete. `None` without memory.
fn wait(request: &Request<'_>, page: PageWriter) -> Option<()> {
    let unfinished = PAGES.add(request, |id| UnfinishedPage {
        timer: EventTimer::new(request.log(), take_turn, id),
        // SAFETY: the request owns the page.
        page: RefCell::new(Some((unsafe { Held::new(request) }, page))),
    })?;
    held::stay(request);
    unfinished.wait();
    Some(())
}

impl PageWriter {
    /// Writes for one turn. Returns whether the page is complete.
    fn go_on(&mut self) -> bool {
        measured(self.table, || {
            let start = Instant::now();
            while start.elapsed() < TURN {
                match self.steps.next() {
                    Some(piece) if piece.is_empty() => {}
                    Some(piece) => self.pieces.push(piece),
                    None => return true,
                }
            }
            false
        })
    }

    /// Sends the pieces. Returns the status to finalize the request with.
    fn send(self, request: &Request<'_>) -> ngx_int_t {
        match request.own(self.pieces) {
            Some(pieces) => {
                let status = NGX_HTTP_OK as ngx_int_t;
                respond::with_pieces(request, status, self.media_type, pieces)
            }
            None => SERVER_ERROR,
        }
    }
}

impl UnfinishedPage<'_> {
    /// Schedules the next turn after the other pending events.
    fn wait(&self) {
        // A timer of 0 ms would fire before the other events.
        self.timer.set(1);
    }

    /// Writes for one turn. Returns the page and its request when the page is complete.
    fn go_on(&self) -> Option<(Held, PageWriter)> {
        let mut page = self.page.try_borrow_mut().ok()?;
        if page.as_mut().is_some_and(|(_, page)| page.go_on()) {
            return page.take();
        }
        self.wait();
        None
    }
}

impl RequestWait for UnfinishedPage<'static> {
    type Of<'r> = UnfinishedPage<'r>;
}

/// Continues page `id` in a later turn of the event loop.
fn take_turn(id: u64) {
    let Some((held, page)) = PAGES.with(id, |page| page.go_on()).flatten() else {
        return;
    };
    let sent = held.with(|request| page.send(request));
    // SAFETY: the event loop calls this function as a timer; no reference to the request is left.
    unsafe { held.finalize(sent) };
}

/// nginx's callback for the content of a location with `ratelimit_metrics`: this node's metrics for
/// Prometheus.
pub(crate) unsafe extern "C" fn handle_metrics(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(SERVER_ERROR, || {
        // SAFETY: nginx passes a live request, and `answer_metrics` does not end it.
        unsafe { Request::with(request, answer_metrics) }
    })
}

fn answer_metrics(request: &Request<'_>) -> ngx_int_t {
    if request.method() & (NGX_HTTP_GET | NGX_HTTP_HEAD) as ngx_uint_t == 0 {
        return match put(request, "Allow", b"GET, HEAD") {
            Some(()) => NGX_HTTP_NOT_ALLOWED as ngx_int_t,
            None => SERVER_ERROR,
        };
    }
    let Some(conf) = Module::main_conf(request) else {
        return SERVER_ERROR;
    };
    let steps = of_status(conf.look(true), Page::new);
    answer(request, conf.any_table(), MEDIA_TYPE, steps)
}
