//! All requests of this worker that are suspended: found again by a number, woken at their deadlines,
//! and forgotten when they end.

use core::cell::RefCell;
use core::ffi::c_void;
use core::ptr::NonNull;
use std::collections::{BTreeMap, BTreeSet};

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

/// All requests of this worker that are suspended, or were.
pub(super) struct Suspensions {
    next_id: u64,
    by_id: BTreeMap<u64, NonNull<Suspension>>,
    /// Deadlines of those that wait, with their numbers.
    deadlines: BTreeSet<(u64, u64)>,
    timer: Option<Box<Timer>>,
    /// Who was over a limit a moment ago.
    pub(super) refusals: Option<Refusals>,
}

struct Timer {
    event: ngx_event_t,
    /// The event's `data`, of which nginx logs the descriptor when it debugs events.
    connection: ngx_connection_t,
}

/// Not a thread-local variable: see [`sync`](super::super::sync).
static SUSPENSIONS: OfEventLoop<RefCell<Suspensions>> = OfEventLoop(RefCell::new(Suspensions {
    next_id: 0,
    by_id: BTreeMap::new(),
    deadlines: BTreeSet::new(),
    timer: None,
    refusals: None,
}));

/// nginx's callback when a deadline has passed.
unsafe extern "C" fn expired(_event: *mut ngx_event_t) {
    guard((), || {
        let now = now_millis();
        while let Some(id) = with_suspensions(|all| all.next_expired(now)) {
            synchronous::time_out(id);
        }
        with_suspensions(Suspensions::set_timer);
    });
}

/// nginx's callback when a request ends: `data` is what it was suspended for.
pub(super) unsafe extern "C" fn forget(data: *mut c_void) {
    guard((), || {
        let suspension = data.cast::<Suspension>();
        // SAFETY: it was written there when it was made.
        let id = unsafe { (*suspension).id };
        with_suspensions(|all| {
            all.end_wait(id);
            all.by_id.remove(&id);
        });
        // SAFETY: nobody finds it any more, and nginx calls this once, before it frees the memory.
        unsafe { suspension.drop_in_place() };
    });
}

/// Calls `callback` with all of them. No request is called meanwhile.
pub(super) fn with_suspensions<T>(callback: impl FnOnce(&mut Suspensions) -> T) -> T {
    callback(&mut SUSPENSIONS.0.borrow_mut())
}

impl Suspensions {
    /// A number that no request had, neither of this worker nor of one before it whose place it took:
    /// that may still be answered.
    pub(super) fn next_id(&mut self) -> u64 {
        if self.next_id == 0 {
            let [first, _] = random().unwrap_or_default();
            self.next_id = first;
        }
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    /// Adds one that waits, and has [`forget`] called when it has ended.
    pub(super) fn add(&mut self, suspension: NonNull<Suspension>) {
        // SAFETY: it was just made, and nobody changes it meanwhile.
        let Suspension { id, deadline, .. } = unsafe { suspension.as_ref() };
        self.by_id.insert(*id, suspension);
        self.deadlines.insert((*deadline, *id));
        self.set_timer();
    }

    /// One that has not ended.
    pub(super) fn known(&self, id: u64) -> Option<NonNull<Suspension>> {
        self.by_id.get(&id).copied()
    }

    /// The numbers of those that wait.
    pub(super) fn all_waiting(&self) -> Vec<u64> {
        self.deadlines.iter().map(|(_, id)| *id).collect()
    }

    /// A suspension that waits.
    pub(super) fn waiting(&self, id: u64) -> Option<NonNull<Suspension>> {
        let suspension = self.by_id.get(&id).copied()?;
        // SAFETY: those that are registered were not freed, and nobody changes them meanwhile.
        unsafe { suspension.as_ref() }
            .is_waiting
            .then_some(suspension)
    }

    fn next_expired(&mut self, now: u64) -> Option<u64> {
        let &(deadline, id) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        Some(id)
    }

    /// A suspension does not wait any more.
    pub(super) fn end_wait(&mut self, id: u64) {
        if let Some(suspension) = self.by_id.get(&id) {
            // SAFETY: as above.
            let deadline = unsafe { suspension.as_ref() }.deadline;
            self.deadlines.remove(&(deadline, id));
            if self.deadlines.is_empty() {
                self.set_timer();
            }
        }
    }

    /// Has [`expired`] called at the first deadline. A timer that nobody needs would keep a worker
    /// that is to end.
    fn set_timer(&mut self) {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        let timer = match (&mut self.timer, first) {
            (Some(timer), _) => timer,
            (None, None) => return,
            (none, Some(_)) => none.insert(Timer::new()),
        };
        match first {
            // One that is set fires earlier, and is set anew then.
            Some(first) if timer.event.timer_set() == 0 => {
                let after = first.saturating_sub(now_millis()).max(1);
                // SAFETY: the event stays where it is; this is the thread of nginx's event loop.
                unsafe { ngx_add_timer(&mut timer.event, after as ngx_msec_t) };
            }
            None if timer.event.timer_set() != 0 => {
                // SAFETY: as above; it is set.
                unsafe { ngx_del_timer(&mut timer.event) };
            }
            Some(_) | None => {}
        }
    }
}

impl Timer {
    fn new() -> Box<Timer> {
        // SAFETY: all-zero is a valid event, and a valid connection.
        let mut timer: Box<Timer> = Box::new(unsafe { core::mem::zeroed() });
        timer.connection.fd = -1;
        timer.event.data = (&raw mut timer.connection).cast();
        timer.event.handler = Some(expired);
        // SAFETY: nginx has a cycle while it serves, whose log outlives its workers' timers.
        timer.event.log = unsafe { (*nginx_sys::ngx_cycle).log };
        timer
    }
}

/// Where what a main request is suspended for is kept: null, or what was added to [`Suspensions`].
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
