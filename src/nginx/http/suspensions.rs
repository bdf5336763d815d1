//! All requests of this worker that wait for a store: found again by a number, woken at their
//! deadlines, and forgotten when they end.

use core::cell::RefCell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::NonNull;
use std::collections::VecDeque;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_current_msec, ngx_del_timer, ngx_event_t,
    ngx_http_request_t, ngx_msec_t,
};
use ngx::http::HttpModuleMainConf as _;

use super::super::guard::guard;
use super::super::module::Module;
use super::super::random::random;
use super::super::sync::OfEventLoop;
use super::synchronous::{self, Suspension};
use crate::engine::Refusals;

/// All requests of this worker that wait.
pub(super) struct Suspensions {
    /// The number of the first of them; `None` until there was one.
    first_id: Option<u64>,
    /// In the order of their numbers, with gaps where one waits no more.
    waiting: VecDeque<Option<NonNull<Suspension>>>,
    /// Who was over a limit a moment ago.
    pub(super) refusals: Option<Refusals>,
}

/// Not a thread-local variable: see [`sync`](super::super::sync).
static SUSPENSIONS: OfEventLoop<RefCell<Suspensions>> = OfEventLoop(RefCell::new(Suspensions {
    first_id: None,
    waiting: VecDeque::new(),
    refusals: None,
}));

/// Calls `callback` with all of them. No request is called meanwhile.
pub(super) fn with_suspensions<T>(callback: impl FnOnce(&mut Suspensions) -> T) -> T {
    callback(&mut SUSPENSIONS.0.borrow_mut())
}

impl Suspensions {
    /// Adds one, and returns its number, which no request had, neither of this worker nor of one before
    /// it whose place it took: that may still be answered.
    pub(super) fn add(&mut self, suspension: NonNull<Suspension>) -> u64 {
        let first = self.first_id.get_or_insert_with(|| {
            let [first, _] = random().unwrap_or_default();
            first
        });
        let id = first.wrapping_add(self.waiting.len() as u64);
        self.waiting.push_back(Some(suspension));
        id
    }

    /// The one of this number.
    pub(super) fn get(&self, id: u64) -> Option<NonNull<Suspension>> {
        let index = id.wrapping_sub(self.first_id?);
        *self.waiting.get(usize::try_from(index).ok()?)?
    }

    /// The one of this number does not wait any more.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(first) = &mut self.first_id else {
            return;
        };
        let index = usize::try_from(id.wrapping_sub(*first)).ok();
        if let Some(place) = index.and_then(|index| self.waiting.get_mut(index)) {
            *place = None;
        }
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            *first = first.wrapping_add(1);
        }
    }

    /// All of them.
    pub(super) fn ids(&self) -> Vec<u64> {
        let ids = (0..self.waiting.len() as u64).filter_map(|index| {
            let id = self.first_id?.wrapping_add(index);
            self.get(id).map(|_| id)
        });
        ids.collect()
    }
}

/// What wakes a request at its deadline.
pub(super) struct Deadline(ngx_event_t);

impl Deadline {
    /// One that is not set.
    pub(super) fn new() -> Deadline {
        // SAFETY: all-zero is a valid event.
        Deadline(unsafe { core::mem::zeroed() })
    }

    /// Has a request decided without its store after `timeout` milliseconds.
    ///
    /// # Safety
    ///
    /// The suspension stays where it is until it is dropped, and nobody else has it now. The connection
    /// lives longer.
    pub(super) unsafe fn set(
        suspension: NonNull<Suspension>,
        connection: *mut ngx_connection_t,
        timeout: u64,
    ) {
        // SAFETY: as the caller says; this is the thread of nginx's event loop.
        unsafe {
            let event = &raw mut (*suspension.as_ptr()).until.0;
            (*event).handler = Some(expired);
            // Of which nginx logs the descriptor when it debugs events.
            (*event).data = connection.cast();
            (*event).log = (*connection).log;
            ngx_add_timer(event, timeout.max(1) as ngx_msec_t);
        }
    }

    /// The request does not wait any more. A timer that nobody needs would keep a worker that is to
    /// end.
    pub(super) fn unset(&mut self) {
        let Deadline(event) = self;
        if event.timer_set() != 0 {
            // SAFETY: it is set, in this thread.
            unsafe { ngx_del_timer(event) };
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.unset();
    }
}

/// nginx's callback when a deadline has passed.
unsafe extern "C" fn expired(event: *mut ngx_event_t) {
    guard((), || {
        // SAFETY: the event is in a suspension, which was not dropped; nobody has it now.
        let id = unsafe {
            let suspension = event.byte_sub(offset_of!(Suspension, until.0));
            (*suspension.cast::<Suspension>()).id
        };
        synchronous::time_out(id);
    });
}

/// nginx's callback when a request ends: `data` is what it was suspended for.
pub(super) unsafe extern "C" fn forget(data: *mut c_void) {
    guard((), || {
        let suspension = data.cast::<Suspension>();
        // SAFETY: it was written there when it was made.
        let id = unsafe { (*suspension).id };
        with_suspensions(|all| all.remove(id));
        // SAFETY: nobody finds it any more, and nginx calls this once, before it frees the memory.
        unsafe { suspension.drop_in_place() };
    });
}

/// Where what a main request is suspended for is kept: null, or what [`forget`] frees.
#[derive(Clone, Copy)]
pub(super) struct SuspensionSlot(NonNull<*mut Suspension>);

impl SuspensionSlot {
    pub(super) fn set(self, suspension: NonNull<Suspension>) {
        // SAFETY: the slot lives as long as the request, which is being called.
        unsafe { self.0.write(suspension.as_ptr()) };
    }

    pub(super) fn suspension<'s>(self) -> Option<&'s mut Suspension> {
        // SAFETY: as above; `forget` frees it when the request has ended. Nobody else has it while a
        // handler of the request is called.
        unsafe { self.0.read().as_mut() }
    }
}

/// That place of the main request of `request`.
pub(super) fn slot_of(request: *mut ngx_http_request_t) -> Option<SuspensionSlot> {
    // SAFETY: a request that has not ended has the configuration of its cycle.
    let conf = Module::main_conf(unsafe { &*request })?;
    // SAFETY: a request that has not ended has values for all variables of its configuration, which
    // are zeroed when it begins. Nobody else uses `data` of this one.
    let data = unsafe { &raw mut (*(*request).variables.add(conf.suspension_slot)).data };
    NonNull::new(data.cast()).map(SuspensionSlot)
}

/// nginx's monotonic clock, as of this turn of the event loop.
pub(super) fn now_millis() -> u64 {
    // SAFETY: nginx's own variable, in its own thread.
    unsafe { ngx_current_msec as u64 }
}
