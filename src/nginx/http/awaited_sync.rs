//! Requests that have a namespace synced, and are answered when that is done.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use core::time::Duration;

use nginx_sys::{NGX_DONE, NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_int_t};

use super::super::event_loop::{EventTimer, OfEventLoop};
use super::super::request::Request;
use super::super::sync::{self, SyncWaiter};
use super::super::waiters::Waiters;
use super::held::{self, Held};
use super::respond;
use crate::engine::Report;
use crate::engine::api::{self, MEDIA_TYPE};

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Those of this worker.
static AWAITED: OfEventLoop<RefCell<Waiters<NonNull<AwaitedSync<'static>>>>> =
    OfEventLoop(RefCell::new(Waiters::new()));

/// A sync that a request waits for, which owns this.
struct AwaitedSync<'r> {
    /// The number by which it is found.
    id: u64,
    /// When it is answered that the store has not. It also keeps a worker that is to end.
    deadline: EventTimer<'r>,
    request: Cell<Option<Held>>,
}

/// Has `namespace` synced, and answers when that is done, or has not been for so long. Returns what the
/// content handler is to return.
pub(super) fn answer(request: &Request<'_>, namespace: &str, timeout: Duration) -> ngx_int_t {
    if let Err(status) = respond::discard_body(request) {
        return status;
    }
    match wait(request, namespace, timeout) {
        Some(true) => NGX_DONE as ngx_int_t,
        Some(false) => send(request, None),
        None => SERVER_ERROR,
    }
}

/// Has a request wait. `Some(false)`: there is nothing to wait for, since this process syncs nothing.
/// `None`: there is no memory.
fn wait(request: &Request<'_>, namespace: &str, timeout: Duration) -> Option<bool> {
    let id = AWAITED.0.borrow_mut().next_id();
    let awaited = request.own(AwaitedSync {
        id,
        deadline: EventTimer::new(request.log(), time_out, id),
        // SAFETY: the request owns this.
        request: Cell::new(Some(unsafe { Held::new(request) })),
    })?;
    AWAITED.0.borrow_mut().add(NonNull::from(awaited).cast());
    if !sync::sync_for(namespace, SyncWaiter { done, id }) {
        AWAITED.0.borrow_mut().remove(id);
        return Some(false);
    }
    held::stay(request);
    let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    awaited.deadline.set(millis);
    Some(true)
}

/// Answers all requests that wait: this process syncs no more.
pub(in super::super) fn fail_all() {
    let ids = AWAITED.0.borrow().ids();
    ids.into_iter().for_each(time_out);
}

fn time_out(id: u64) {
    done(id, None);
}

/// Answers request `id`, if that waits: its sync has ended, or not in time.
fn done(id: u64, report: Option<Report>) {
    let awaited = AWAITED.0.borrow().get(id).copied();
    let held = awaited.and_then(|awaited| {
        // SAFETY: those that are registered were not dropped; nothing in here ends a request.
        let awaited = unsafe { awaited.as_ref() };
        awaited.deadline.unset();
        awaited.request.take()
    });
    AWAITED.0.borrow_mut().remove(id);
    if let Some(held) = held {
        let sent = held.with(|request| send(request, report));
        // SAFETY: the event loop calls this; nothing here refers to the request any more.
        unsafe { held.finalize(sent) };
    }
}

fn send(request: &Request<'_>, report: Option<Report>) -> ngx_int_t {
    let (status, body) = api::synced(report);
    let status = ngx_int_t::try_from(status).unwrap_or(SERVER_ERROR);
    respond::with_body(request, status, MEDIA_TYPE, body.as_bytes())
}

impl Drop for AwaitedSync<'_> {
    fn drop(&mut self) {
        AWAITED.0.borrow_mut().remove(self.id);
    }
}
