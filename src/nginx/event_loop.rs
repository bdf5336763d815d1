//! nginx's event loop, in whose thread nginx calls us: its clock and its timers.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::time::Duration;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_current_msec, ngx_del_timer, ngx_event_t, ngx_log_t,
    ngx_msec_t,
};

use super::guard::guard;

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

/// The same in milliseconds.
pub(super) fn monotonic_millis() -> u64 {
    // SAFETY: nginx's own variable, in its own thread.
    unsafe { ngx_current_msec as u64 }
}

/// A timer of the event loop, which calls a function with a number. Dropped, it calls nothing any more.
pub(super) struct EventTimer<'l> {
    /// nginx has its address while it is set.
    inner: Box<UnsafeCell<TimerEvent>>,
    log: PhantomData<&'l ngx_log_t>,
}

/// What nginx has of a timer: it finds the rest by the event.
#[repr(C)]
struct TimerEvent {
    event: ngx_event_t,
    then: fn(u64),
    number: u64,
}

/// Of an event's `data`, nginx logs the descriptor when it debugs events.
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

impl<'l> EventTimer<'l> {
    /// One that is not set, of something that writes to `log`.
    ///
    /// # Safety
    ///
    /// The log lives as long as `'l`.
    pub(super) unsafe fn new(log: *mut ngx_log_t, then: fn(u64), number: u64) -> EventTimer<'l> {
        // SAFETY: all-zero is a valid event.
        let mut event: ngx_event_t = unsafe { core::mem::zeroed() };
        event.handler = Some(expired);
        event.data = NO_CONNECTION.0.0.get().cast();
        event.log = log;
        EventTimer {
            inner: Box::new(UnsafeCell::new(TimerEvent {
                event,
                then,
                number,
            })),
            log: PhantomData,
        }
    }

    /// Has a worker that is to end not wait for it.
    pub(super) fn cancelable(self) -> EventTimer<'l> {
        // SAFETY: it is not set yet: nobody else has it.
        unsafe { (*self.event()).set_cancelable(1) };
        self
    }

    /// Has the function called after so many milliseconds, at least one, instead of any other time.
    pub(super) fn set(&self, millis: u64) {
        let millis = ngx_msec_t::try_from(millis).unwrap_or(ngx_msec_t::MAX / 4);
        // SAFETY: the event stays where it is until it is dropped, which unsets it; this is the thread
        // of nginx's event loop.
        unsafe { ngx_add_timer(self.event(), millis.max(1)) };
    }

    /// Has it call nothing. A timer that nobody needs would keep a worker that is to end.
    pub(super) fn unset(&self) {
        // SAFETY: as above.
        unsafe {
            if (*self.event()).timer_set() != 0 {
                ngx_del_timer(self.event());
            }
        }
    }

    fn event(&self) -> *mut ngx_event_t {
        self.inner.get().cast()
    }
}

impl Drop for EventTimer<'_> {
    fn drop(&mut self) {
        self.unset();
    }
}

/// nginx's callback when the time of a timer has come.
unsafe extern "C" fn expired(event: *mut ngx_event_t) {
    // SAFETY: the event is that of a timer, or it would not be set.
    let (then, number) = unsafe {
        let timer = event.cast::<TimerEvent>();
        ((*timer).then, (*timer).number)
    };
    // By now it refers to nothing of the timer, which may be dropped.
    guard((), || then(number));
}
