//! All requests of this worker that wait for a store: found again by a number, woken at their
//! deadlines, and forgotten when they end.

use core::cell::RefCell;

use nginx_sys::ngx_uint_t;
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::suspension::Suspension;
use super::waiting::{OwnedWait, RequestWait, WaitingRequests};
use crate::broker::Asker;
use crate::nginx::conf::Conf;
use crate::nginx::event_loop::EventTimer;
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;

/// Suspended requests.
static SUSPENDED: WaitingRequests<Suspended<'static>> = WaitingRequests::of(Asker::Request);

/// A main request that is suspended.
pub(crate) struct Suspended<'r> {
    /// Timer after which it is decided without the store.
    pub(crate) deadline: EventTimer<'r>,
    pub(crate) suspension: RefCell<Suspension<'r>>,
}

/// Place of a main request's suspension.
pub(crate) type SuspensionSlot<'r> = RequestSlot<'r, OwnedSuspended<'r>>;

/// A suspension with its number.
type OwnedSuspended<'r> = OwnedWait<'r, Suspended<'static>>;

/// Adds that place to the requests of the configuration being read; returns its number. `None`: no
/// memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit suspension"))
}

/// Returns that place of the main request of `request`. `None`: it has no configuration.
pub(crate) fn slot_of<'r>(request: &Request<'r>) -> Option<SuspensionSlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` made it for suspensions, in the configuration that says its number.
    Some(unsafe { request.main().slot(conf.suspension_slot) })
}

/// Has the main request of `request` wait, until `time_out` is called with its number. `None`: there is
/// no memory.
pub(crate) fn add<'r>(
    request: &Request<'r>,
    suspension: Suspension<'r>,
    time_out: fn(u64),
) -> Option<&'r OwnedSuspended<'r>> {
    SUSPENDED.add(request, |id| Suspended {
        deadline: EventTimer::new(request.log(), time_out, id),
        suspension: RefCell::new(suspension),
    })
}

/// Calls `callback` with what request `id` is suspended for, if it waits. No request is called
/// meanwhile.
pub(crate) fn with<T>(id: u64, callback: impl FnOnce(&mut Suspension<'_>) -> T) -> Option<T> {
    SUSPENDED.with(id, |suspended| callback(&mut suspended.suspension.borrow_mut()))
}

/// Request `id` needs no deadline any more.
pub(crate) fn unset_deadline(id: u64) {
    SUSPENDED.with(id, |suspended| suspended.deadline.unset());
}

/// Request `id` does not wait any more.
pub(crate) fn remove(id: u64) {
    SUSPENDED.remove(id);
}

/// The numbers of all that wait.
pub(crate) fn ids() -> Vec<u64> {
    SUSPENDED.ids()
}

impl RequestWait for Suspended<'static> {
    type Of<'r> = Suspended<'r>;
}
