//! nginx's event loop, in whose thread nginx calls us: its clock, its timers, and calls at the end of its turns.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::time::Duration;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_current_msec, ngx_del_timer, ngx_delete_posted_event,
    ngx_event_t, ngx_msec_t, ngx_post_event, ngx_posted_events, ngx_posted_next_events,
};

use super::guard::guard;
use super::log::Log;

/// A value that only the thread of nginx's event loop uses. Not a thread-local variable: the first use
/// of one allocates, in every nginx that loads the module.
pub(super) struct OfEventLoop<T>(pub(super) T);

// SAFETY: nginx calls us from its only thread, in which it runs its event loop; the thread that syncs
// knows nothing of these values.
unsafe impl<T> Sync for OfEventLoop<T> {}

/// nginx's monotonic clock, as of this turn of the event loop.
pub(super) fn monotonic() -> Duration {
    Duration::from_millis(monotonic_millis())
}

/// Returns the monotonic time in milliseconds.
pub(super) fn monotonic_millis() -> u64 {
    // SAFETY: nginx's own variable, in its own thread.
    unsafe { ngx_current_msec as u64 }
}

/// An event that calls a function of ours with a number.
struct CallEvent<'l> {
    /// nginx has its address while it waits for the event.
    call: Box<UnsafeCell<Call>>,
    log: PhantomData<Log<'l>>,
}

/// The part of a callback that nginx has: the rest is found by the event.
#[repr(C)]
struct Call {
    event: ngx_event_t,
    then: fn(u64),
    number: u64,
}

/// Connection in the `data` of events: nginx logs its descriptor when it debugs them.
static NO_CONNECTION: OfEventLoop<NoConnection> = OfEventLoop(NoConnection::new());

struct NoConnection(UnsafeCell<ngx_connection_t>);

impl NoConnection {
    const fn new() -> NoConnection {
        // SAFETY: all-zero is a valid connection.
        let mut connection: ngx_connection_t = unsafe { core::mem::zeroed() };
        connection.fd = -1;
        NoConnection(UnsafeCell::new(connection))
    }
}

impl<'l> CallEvent<'l> {
    fn new(log: Log<'l>, then: fn(u64), number: u64) -> CallEvent<'l> {
        // SAFETY: all-zero is a valid event.
        let mut event: ngx_event_t = unsafe { core::mem::zeroed() };
        event.handler = Some(call);
        event.data = NO_CONNECTION.0.0.get().cast();
        event.log = log.as_ptr();
        CallEvent {
            call: Box::new(UnsafeCell::new(Call { event, then, number })),
            log: PhantomData,
        }
    }

    fn as_ptr(&self) -> *mut ngx_event_t {
        self.call.get().cast()
    }
}

/// nginx's callback for an event that calls.
unsafe extern "C" fn call(event: *mut ngx_event_t) {
    // SAFETY: the event is that of a `Call`, which nginx would not have if it was dropped.
    let (then, number) = unsafe {
        let call = event.cast::<Call>();
        ((*call).then, (*call).number)
    };
    // By now nothing refers to the event, which may be dropped.
    guard((), || then(number));
}

/// A timer of the event loop, which calls a function with a number. Dropped, it calls nothing any more.
pub(super) struct EventTimer<'l>(CallEvent<'l>);

impl<'l> EventTimer<'l> {
    /// Creates a timer that is not set, of an owner that writes to `log`.
    pub(super) fn new(log: Log<'l>, then: fn(u64), number: u64) -> EventTimer<'l> {
        EventTimer(CallEvent::new(log, then, number))
    }

    /// Has a worker that is to end not wait for it.
    pub(super) fn cancelable(self) -> EventTimer<'l> {
        // SAFETY: it is not set yet: nothing else refers to it.
        unsafe { (*self.0.as_ptr()).set_cancelable(1) };
        self
    }

    /// Schedules the call after `millis` milliseconds, at least one, in place of an earlier schedule.
    pub(super) fn set(&self, millis: u64) {
        // Times are compared by their differences: nginx takes a later one for one that is over.
        const LONGEST: ngx_msec_t = ngx_msec_t::MAX / 4;
        let millis = ngx_msec_t::try_from(millis).map_or(LONGEST, |it| it.min(LONGEST));
        // SAFETY: the event stays where it is until it is dropped, which unsets it; this is the thread
        // of nginx's event loop.
        unsafe { ngx_add_timer(self.0.as_ptr(), millis.max(1)) };
    }

    /// Has it call nothing. A timer that is set keeps a worker from exiting.
    pub(super) fn unset(&self) {
        // SAFETY: as above.
        unsafe {
            if (*self.0.as_ptr()).timer_set() != 0 {
                ngx_del_timer(self.0.as_ptr());
            }
        }
    }
}

impl Drop for EventTimer<'_> {
    fn drop(&mut self) {
        self.unset();
    }
}

/// A call when nginx has handled what was ready in a turn of its event loop. Dropped, it is none.
pub(super) struct EndOfTurn<'l>(CallEvent<'l>);

impl<'l> EndOfTurn<'l> {
    /// Creates an end of turn that is not asked for yet, of an owner that writes to `log`.
    pub(super) fn new(log: Log<'l>, then: fn(u64), number: u64) -> EndOfTurn<'l> {
        EndOfTurn(CallEvent::new(log, then, number))
    }

    /// Has it come in this turn; one that is to come already stays where it is.
    pub(super) fn post(&self) {
        // SAFETY: the event stays where it is until it is dropped, which takes it back; this is the
        // thread of nginx's event loop, and nginx's own list.
        unsafe { ngx_post_event(self.0.as_ptr(), &raw mut ngx_posted_events) };
    }

    /// Has it come in the next turn, which waits for nothing; otherwise as above.
    pub(super) fn post_next(&self) {
        // SAFETY: as above.
        unsafe { ngx_post_event(self.0.as_ptr(), &raw mut ngx_posted_next_events) };
    }
}

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        let event = self.0.as_ptr();
        // SAFETY: the event may be in a list of nginx's, which must not have it any longer.
        unsafe {
            if (*event).posted() != 0 {
                ngx_delete_posted_event(event);
            }
        }
    }
}
