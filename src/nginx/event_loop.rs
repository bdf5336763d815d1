//! nginx's event loop, whose thread calls this module: its clock, timers and random numbers, calls at
//! the end of its turns, and guards around callbacks.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_current_msec, ngx_del_timer, ngx_delete_posted_event,
    ngx_event_t, ngx_msec_t, ngx_post_event, ngx_posted_events, ngx_posted_next_events,
    ngx_timeofday,
};

use super::log::Log;
use crate::engine::Machine;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::CounterTable;

/// A value that only the thread of nginx's event loop uses. It is not a thread-local variable,
/// since the first use of one allocates memory in every nginx that loads the module.
pub(super) struct OfEventLoop<T>(pub(super) T);

// SAFETY: nginx calls this module only from the thread that runs its event loop; the sync thread
// does not use these values.
unsafe impl<T> Sync for OfEventLoop<T> {}

/// Returns the time of nginx's monotonic clock at the start of this turn of the event loop.
pub(super) fn monotonic() -> Duration {
    Duration::from_millis(monotonic_millis())
}

/// Returns the time of nginx's monotonic clock in milliseconds.
pub(super) fn monotonic_millis() -> u64 {
    // SAFETY: only nginx's thread changes this variable, and it is this thread.
    unsafe { ngx_current_msec as u64 }
}

/// An event that calls a function with a number.
struct CallEvent<'l> {
    /// Boxed, since nginx stores its address while the event is scheduled.
    call: Box<UnsafeCell<Call>>,
    log: PhantomData<Log<'l>>,
}

/// The event that nginx stores a pointer to. The function is found by the event's address.
#[repr(C)]
struct Call {
    event: ngx_event_t,
    then: fn(u64),
    number: u64,
}

/// A connection for the `data` of events: nginx's debug log reads its descriptor.
static NO_CONNECTION: OfEventLoop<NoConnection> = OfEventLoop(NoConnection::new());

struct NoConnection(UnsafeCell<ngx_connection_t>);

impl NoConnection {
    const fn new() -> NoConnection {
        // SAFETY: an all-zero connection is valid.
        let mut connection: ngx_connection_t = unsafe { core::mem::zeroed() };
        connection.fd = -1;
        NoConnection(UnsafeCell::new(connection))
    }
}

impl<'l> CallEvent<'l> {
    fn new(log: Log<'l>, then: fn(u64), number: u64) -> CallEvent<'l> {
        // SAFETY: an all-zero event is valid.
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

/// nginx's callback for such an event.
unsafe extern "C" fn call(event: *mut ngx_event_t) {
    // SAFETY: the event belongs to a `Call`, whose drop would have removed it from nginx.
    let (then, number) = unsafe {
        let call = event.cast::<Call>();
        ((*call).then, (*call).number)
    };
    // No reference to the event is left, so `then` may drop it.
    guard((), || then(number));
}

/// A timer of the event loop, which calls a function with a number. Dropping it unsets it.
pub(super) struct EventTimer<'l>(CallEvent<'l>);

impl<'l> EventTimer<'l> {
    /// Creates an unset timer, for an owner whose messages go to `log`.
    pub(super) fn new(log: Log<'l>, then: fn(u64), number: u64) -> EventTimer<'l> {
        EventTimer(CallEvent::new(log, then, number))
    }

    /// Makes a worker exit without waiting for this timer.
    pub(super) fn cancelable(self) -> EventTimer<'l> {
        // SAFETY: the timer is not set yet, so nothing else refers to it.
        unsafe { (*self.0.as_ptr()).set_cancelable(1) };
        self
    }

    /// Schedules the call after `millis` milliseconds, at least 1. Replaces an earlier schedule.
    pub(super) fn set(&self, millis: u64) {
        // nginx compares times by their difference, so a very late time would count as past.
        const LONGEST: ngx_msec_t = ngx_msec_t::MAX / 4;
        let millis = ngx_msec_t::try_from(millis).map_or(LONGEST, |it| it.min(LONGEST));
        // nginx leaves a timer that is set where it is, if the new time is less than 300 ms away.
        self.unset();
        // SAFETY: the event stays in place until it is dropped, which unsets it; this is the event
        // loop's thread.
        unsafe { ngx_add_timer(self.0.as_ptr(), millis.max(1)) };
    }

    /// Cancels the call. A worker does not exit while a timer is set.
    pub(super) fn unset(&self) {
        // SAFETY: as in `set`.
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

/// A call after nginx has handled the ready events of a turn. Dropping it cancels the call.
pub(super) struct EndOfTurn<'l>(CallEvent<'l>);

impl<'l> EndOfTurn<'l> {
    /// Creates a call that is not scheduled, for an owner whose messages go to `log`.
    pub(super) fn new(log: Log<'l>, then: fn(u64), number: u64) -> EndOfTurn<'l> {
        EndOfTurn(CallEvent::new(log, then, number))
    }

    /// Schedules the call in this turn, unless it is scheduled already.
    pub(super) fn post(&self) {
        // SAFETY: the event stays in place until it is dropped, which removes it; this is the event
        // loop's thread, and the list is nginx's.
        unsafe { ngx_post_event(self.0.as_ptr(), &raw mut ngx_posted_events) };
    }

    /// Schedules the call in the next turn, which then does not block, unless the call is scheduled
    /// already.
    pub(super) fn post_next(&self) {
        // SAFETY: as in `post`.
        unsafe { ngx_post_event(self.0.as_ptr(), &raw mut ngx_posted_next_events) };
    }
}

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        let event = self.0.as_ptr();
        // SAFETY: if the event is posted, this removes it from nginx's list before it is freed.
        unsafe {
            if (*event).posted() != 0 {
                ngx_delete_posted_event(event);
            }
        }
    }
}

/// The time of day: nginx's time at the start of this turn of the event loop, or the system's.
pub(super) struct NgxClock;

impl Clock for NgxClock {
    #[inline]
    fn now(&self) -> UnixMillis {
        let time = ngx_timeofday();
        // Times before 1970 count as 1970.
        let seconds = u64::try_from(time.sec).unwrap_or(0);
        UnixMillis(seconds.wrapping_mul(1000).wrapping_add(time.msec as u64))
    }

    fn fresh(&self) -> UnixMillis {
        Machine.now()
    }
}

/// Returns a random number from 0 to `most`, which is at most a day in milliseconds.
#[cold]
pub(super) fn random_up_to(most: u64) -> u64 {
    // SAFETY: `rand` has no arguments, and nginx has seeded it for this worker.
    let random = unsafe { libc::rand() }.unsigned_abs();
    // Of 31 random bits, the remainder is uniform enough.
    u64::from(random).checked_rem(most.saturating_add(1)).unwrap_or(0)
}

/// Runs a callback of nginx. If it panics, which is a bug, returns `fallback`; the panic's message
/// is on stderr, which mostly is nginx's error log.
#[inline]
pub(super) fn guard<T>(fallback: T, callback: impl FnOnce() -> T) -> T {
    // Unwind-safe: an interrupted callback leaves behind only atomics, which are always valid, and
    // state of a request that the fallback ends.
    catch_unwind(AssertUnwindSafe(callback)).unwrap_or(fallback)
}

/// One of this many requests is measured: reading the clock twice costs almost as much as counting
/// a hit.
const SAMPLE: u32 = 256;

/// Calls `callback`, and records its time in `table`.
pub(super) fn measured<T>(table: Option<&CounterTable<'_>>, callback: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = callback();
    if let Some(table) = table {
        table.record_hold(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    result
}

/// Counts a request. Returns whether it is the one of [`SAMPLE`] to measure.
#[inline]
pub(super) fn sample() -> bool {
    static LEFT: AtomicU32 = AtomicU32::new(SAMPLE);
    // Only the event loop's thread writes it, so a load and a store suffice.
    let left = LEFT.load(Relaxed).wrapping_sub(1);
    LEFT.store(left, Relaxed);
    if left == 0 {
        LEFT.store(SAMPLE, Relaxed);
    }
    left == 0
}
