//! All requests of this worker that wait for a store. They are found by number, resumed at their
//! deadlines, and removed when they end.

use core::cell::RefCell;

use nginx_sys::ngx_uint_t;
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::suspension::Suspension;
use super::waiting::{OwnedWait, RequestWait, WaitingRequests};
use crate::broker::Asker;
use crate::nginx::conf::Conf;
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;
use crate::nginx::store_wait::StoreWait;

/// The suspended requests of this worker.
static SUSPENDED: WaitingRequests<Suspended<'static>> = WaitingRequests::of(Asker::Request);

/// A suspended main request.
pub(crate) struct Suspended<'r> {
    /// The wait for the stores' answers. At its deadline, the request is decided on without them.
    pub(crate) wait: StoreWait<'r>,
    pub(crate) suspension: RefCell<Suspension<'r>>,
}

/// The place of a main request's suspension.
pub(crate) type SuspensionSlot<'r> = RequestSlot<'r, OwnedSuspended<'r>>;

/// A suspension with its number.
type OwnedSuspended<'r> = OwnedWait<'r, Suspended<'static>>;

/// Adds a place for the suspension to each request of the configuration being read. Returns its
/// number; `None` without memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit suspension"))
}

/// Returns the place of the suspension of `request`'s main request. `None` if the module has no
/// configuration.
pub(crate) fn slot_of<'r>(request: &Request<'r>) -> Option<SuspensionSlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` reserved this number for suspensions in the request's configuration.
    Some(unsafe { request.main().slot(conf.suspension_slot) })
}

/// Suspends the main request of `request`. At the deadline, `time_out` is called with the number of
/// the suspension. `None` without memory.
pub(crate) fn add<'r>(
    request: &Request<'r>,
    suspension: Suspension<'r>,
    time_out: fn(u64),
) -> Option<&'r OwnedSuspended<'r>> {
    SUSPENDED.add(request, |id| Suspended {
        wait: StoreWait::new(request.log(), time_out, id),
        suspension: RefCell::new(suspension),
    })
}

/// Calls `callback` with the suspension of request `id` and its wait, if it waits. `callback` must
/// not resume any request.
pub(crate) fn with<T>(
    id: u64,
    callback: impl for<'r> FnOnce(&mut Suspension<'r>, &StoreWait<'r>) -> T,
) -> Option<T> {
    SUSPENDED.with(id, |it| callback(&mut it.suspension.borrow_mut(), &it.wait))
}

/// Removes request `id` from the waiting requests.
pub(crate) fn remove(id: u64) {
    SUSPENDED.remove(id);
}

/// Returns the numbers of all waiting requests.
pub(crate) fn ids() -> Vec<u64> {
    SUSPENDED.ids()
}

impl RequestWait for Suspended<'static> {
    type Of<'r> = Suspended<'r>;
}
