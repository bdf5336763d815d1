//! Answers that may be long: written in steps over several turns of the event loop, so that none of
//! them holds a worker, and sent when they are whole.

use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::time::Instant;

use nginx_sys::{
    NGX_DONE, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, NGX_OK, ngx_add_timer,
    ngx_alloc_chain_link, ngx_buf_t, ngx_chain_t, ngx_del_timer, ngx_event_t,
    ngx_http_discard_request_body, ngx_http_finalize_request, ngx_http_request_t,
    ngx_http_run_posted_requests, ngx_http_test_reading, ngx_int_t, ngx_pcalloc,
    ngx_pool_cleanup_add,
};

use super::super::conf::Look;
use super::super::guard::guard;
use super::super::hold::measured;
use super::{is_main, respond};
use crate::engine::status::Status;
use crate::table::CounterTable;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Pieces of a text, each of them made in far less than a [`TURN`]; they may be empty.
pub(super) type Steps = Box<dyn Iterator<Item = String>>;

/// After so long, the event loop has its turn.
const TURN: Duration = Duration::from_micros(250);

/// What is written of a request's answer, in its memory.
struct Page {
    /// A timer as long as the answer is not whole: it also keeps a worker that is to end.
    event: ngx_event_t,
    request: *mut ngx_http_request_t,
    /// Where it is noted for how long the event loop was held.
    table: Option<&'static CounterTable<'static>>,
    media_type: &'static str,
    steps: Steps,
    /// What is sent: it stays as long as the request.
    pieces: Vec<String>,
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
    request: *mut ngx_http_request_t,
    table: Option<&'static CounterTable<'static>>,
    media_type: &'static str,
    steps: Steps,
) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended.
    let discarded = unsafe { ngx_http_discard_request_body(request) };
    if discarded != NGX_OK as ngx_int_t {
        return discarded;
    }
    // SAFETY: as above; the memory is the main request's, which ends last.
    let cleanup =
        unsafe { ngx_pool_cleanup_add((*(*request).main).pool, size_of::<Page>()).as_mut() };
    let Some(cleanup) = cleanup else {
        return SERVER_ERROR;
    };
    let Some(place) = NonNull::new(cleanup.data.cast::<Page>()) else {
        return SERVER_ERROR;
    };
    const { assert!(align_of::<Page>() <= align_of::<usize>()) };
    let page = Page {
        // SAFETY: all-zero is a valid event.
        event: unsafe { core::mem::zeroed() },
        request,
        table,
        media_type,
        steps,
        pieces: Vec::new(),
    };
    // SAFETY: the memory is as large as was asked for, and aligned for a word, like all of a pool's.
    unsafe { place.write(page) };
    cleanup.handler = Some(forget);
    // SAFETY: it was just made, and is dropped by `forget` only; nobody else has it now.
    let page = unsafe { &mut *place.as_ptr() };
    if page.go_on() {
        return page.send();
    }
    page.event.handler = Some(take_turn);
    // SAFETY: as above; `take_turn` gives the reference back that is taken here.
    unsafe {
        let main = &mut *(*request).main;
        main.set_count(main.count().wrapping_add(1));
        // Of which nginx logs the descriptor when it debugs events.
        page.event.data = (*request).connection.cast();
        page.event.log = (*(*request).connection).log;
        // A body that is thrown away has to be read; if the client goes, that notices it, too.
        if is_main(request) && (*request).discard_body() == 0 {
            (*request).read_event_handler = Some(ngx_http_test_reading);
        }
    }
    page.wait();
    NGX_DONE as ngx_int_t
}

impl Page {
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

    /// Has it go on when the event loop has looked at everything else.
    fn wait(&mut self) {
        // SAFETY: this is the thread of nginx's event loop; `forget` takes the timer away. One of no time
        // would be called before anything else is looked at.
        unsafe { ngx_add_timer(&raw mut self.event, 1) };
    }

    /// Sends the pieces, and returns what the request is finalized with.
    fn send(&self) -> ngx_int_t {
        let mut chain: *mut ngx_chain_t = ptr::null_mut();
        for piece in self.pieces.iter().rev() {
            // SAFETY: the request has not ended, and its memory lives as long; so do the pieces, which
            // nobody changes any more, and nobody may write to what is in `memory`.
            unsafe {
                let pool = (*self.request).pool;
                let buffer = ngx_pcalloc(pool, size_of::<ngx_buf_t>()).cast::<ngx_buf_t>();
                let link = ngx_alloc_chain_link(pool);
                let (Some(buf), Some(new)) = (buffer.as_mut(), link.as_mut()) else {
                    return SERVER_ERROR;
                };
                buf.pos = piece.as_ptr().cast_mut();
                buf.last = buf.pos.add(piece.len());
                (buf.start, buf.end) = (buf.pos, buf.last);
                buf.set_memory(1);
                if chain.is_null() {
                    buf.set_last_buf(u32::from(is_main(self.request)));
                    buf.set_last_in_chain(1);
                }
                *new = ngx_chain_t {
                    buf: buffer,
                    next: chain,
                };
                chain = link;
            }
        }
        let lengths = self.pieces.iter().map(String::len);
        let length = lengths.fold(0, usize::saturating_add);
        let status = NGX_HTTP_OK as ngx_int_t;
        // SAFETY: the chain was just made, of so many bytes.
        unsafe { respond::with_chain(self.request, status, self.media_type, chain, length) }
    }
}

/// nginx's callback in a later turn of the event loop.
unsafe extern "C" fn take_turn(event: *mut ngx_event_t) {
    guard((), || {
        // SAFETY: the event is in a page, of which `forget` was not called, or the timer would not be
        // set; nobody has it now.
        let page = unsafe { &mut *event.byte_sub(offset_of!(Page, event)).cast::<Page>() };
        if !page.go_on() {
            page.wait();
            return;
        }
        let (request, sent) = (page.request, page.send());
        // SAFETY: the request has not ended, nor has its connection, and a reference to it was taken.
        // Nothing of ours refers to it after this.
        unsafe {
            let connection = (*request).connection;
            ngx_http_finalize_request(request, sent);
            ngx_http_run_posted_requests(connection);
        }
    });
}

/// nginx's callback when the request ends: `data` is its page.
unsafe extern "C" fn forget(data: *mut core::ffi::c_void) {
    guard((), || {
        let page = data.cast::<Page>();
        // SAFETY: it was written there when it was made; nginx calls this once, before it frees the
        // memory, and nobody has the page now.
        unsafe {
            if (*page).event.timer_set() != 0 {
                ngx_del_timer(&raw mut (*page).event);
            }
            page.drop_in_place();
        }
    });
}
