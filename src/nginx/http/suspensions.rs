//! All requests of this worker that wait for a store: found again by a number, woken at their
//! deadlines, and forgotten when they end.

use core::cell::RefCell;
use core::ptr::NonNull;

use nginx_sys::ngx_uint_t;
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::super::conf::Conf;
use super::super::event_loop::{EventTimer, OfEventLoop};
use super::super::module::Module;
use super::super::request::Request;
use super::super::slot::{self, RequestSlot};
use super::super::waiters::Waiters;
use super::suspension::Suspension;

/// Those that wait.
static WAITING: OfEventLoop<RefCell<Waiters<NonNull<Suspended<'static>>>>> =
    OfEventLoop(RefCell::new(Waiters::new()));

/// A main request that is suspended, which owns this.
pub(super) struct Suspended<'r> {
    /// The number by which it is found.
    pub(super) id: u64,
    /// When it is decided without the store.
    pub(super) deadline: EventTimer<'r>,
    pub(super) suspension: RefCell<Suspension<'r>>,
}

/// Where a main request has what it is suspended for.
pub(super) type SuspensionSlot<'r> = RequestSlot<'r, Suspended<'r>>;

/// Adds that place to the requests of the configuration being read; returns its number. `None`: no
/// memory.
pub(in super::super) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit suspension"))
}

/// That place of the main request of `request`. `None`: it has no configuration.
pub(super) fn slot_of<'r>(request: &Request<'r>) -> Option<SuspensionSlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` made it for suspensions, in the configuration that says its number.
    Some(unsafe { request.slot(conf.suspension_slot) })
}

/// Has the main request of `request` wait, until `time_out` is called with its number. `None`: there is
/// no memory.
pub(super) fn add<'r>(
    request: &Request<'r>,
    suspension: Suspension<'r>,
    time_out: fn(u64),
) -> Option<&'r Suspended<'r>> {
    let id = WAITING.0.borrow_mut().next_id();
    let suspended = request.own(Suspended {
        id,
        deadline: EventTimer::new(request.log(), time_out, id),
        suspension: RefCell::new(suspension),
    })?;
    WAITING.0.borrow_mut().add(NonNull::from(suspended).cast());
    Some(suspended)
}

/// Calls `callback` with what request `id` is suspended for, if it waits. No request is called
/// meanwhile.
pub(super) fn with<T>(id: u64, callback: impl FnOnce(&mut Suspension<'_>) -> T) -> Option<T> {
    find(id, |suspended| {
        callback(&mut suspended.suspension.borrow_mut())
    })
}

/// Request `id` needs no deadline any more.
pub(super) fn unset_deadline(id: u64) {
    find(id, |suspended| suspended.deadline.unset());
}

fn find<T>(id: u64, callback: impl FnOnce(&Suspended<'_>) -> T) -> Option<T> {
    let suspended = WAITING.0.borrow().get(id).copied()?;
    // SAFETY: those that are registered were not dropped; nothing in here ends a request.
    Some(callback(unsafe { suspended.as_ref() }))
}

/// Request `id` does not wait any more.
pub(super) fn remove(id: u64) {
    WAITING.0.borrow_mut().remove(id);
}

/// The numbers of all that wait.
pub(super) fn ids() -> Vec<u64> {
    WAITING.0.borrow().ids()
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        remove(self.id);
    }
}
