//! Answers that may be long: written in steps over several turns of the event loop, so that none of
//! them holds a worker, and sent when they are whole.

use core::cell::RefCell;
use core::time::Duration;
use std::time::Instant;

use nginx_sys::{NGX_DONE, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_int_t};

use crate::broker::Asker;
use crate::engine::report::status::Status;
use crate::nginx::conf::Look;
use crate::nginx::event_loop::EventTimer;
use crate::nginx::hold::measured;
use crate::nginx::http::held;
use crate::nginx::http::held::Held;
use crate::nginx::http::held::waiting::{RequestWait, WaitingRequests};
use crate::nginx::http::respond;
use crate::nginx::request::Request;
use crate::table::CounterTable;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Pieces of a text, each of them made in far less than a [`TURN`]; they may be empty.
pub(super) type Steps = Box<dyn Iterator<Item = String>>;

/// After so long, the event loop has its turn.
const TURN: Duration = Duration::from_micros(250);

/// All answers of this worker that are not whole.
static PAGES: WaitingRequests<UnfinishedPage<'static>> = WaitingRequests::of(Asker::Request);

/// A writer of a request's answer.
struct PageWriter {
    /// Table that records for how long the event loop was held.
    table: Option<&'static CounterTable<'static>>,
    media_type: &'static str,
    steps: Steps,
    pieces: Vec<String>,
}

/// A page that is not whole.
struct UnfinishedPage<'r> {
    /// It also keeps a worker that is to end.
    timer: EventTimer<'r>,
    /// `None` when it is whole.
    page: RefCell<Option<(Held, PageWriter)>>,
}

/// First looks at everything, then writes what was seen as `page` does.
pub(super) fn of_status<P: Iterator<Item = String> + 'static>(
    mut look: Look,
    page: fn(Status<'static>) -> P,
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

/// Answers with what `steps` write: at once if that takes less than a turn. Returns what the content
/// handler is to return.
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

/// Has a request wait until its page is whole. `None`: there is no memory.
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
    /// Writes for a turn; returns whether the answer is whole.
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

    /// Sends the pieces, and returns what the request is finalized with.
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
    /// Has it go on when the event loop has looked at everything else.
    fn wait(&self) {
        // A timer of no time would be called before anything else is looked at.
        self.timer.set(1);
    }

    /// Writes for a turn; returns the page, and whose it is, if it is whole.
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

/// Goes on with page `id` in a later turn of the event loop.
fn take_turn(id: u64) {
    let Some((held, page)) = PAGES.with(id, |page| page.go_on()).flatten() else {
        return;
    };
    let sent = held.with(|request| page.send(request));
    // SAFETY: this is a timer of the event loop; nothing here refers to the request any more.
    unsafe { held.finalize(sent) };
}
