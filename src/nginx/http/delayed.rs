//! Requests that are admitted, and held back until their rates have caught up.
//!
//! The decision is made and kept before; all that is left is to go on, which a timer does. A request that
//! ends before is forgotten.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::time::Instant;

use nginx_sys::{NGX_AGAIN, ngx_int_t};

use super::super::conf::EvaluationError;
use super::super::event_loop::{EventTimer, OfEventLoop};
use super::super::log;
use super::super::request::Request;
use super::super::waiters::Waiters;
use super::answer::answer;
use super::context::{Context, Response};
use super::held::Waiting;
use crate::engine::BoundLimit;
use crate::table::Outcome;

const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;

/// Those that are held back.
static DELAYED: OfEventLoop<RefCell<Waiters<NonNull<Delayed<'static>>>>> =
    OfEventLoop(RefCell::new(Waiters::new()));

/// A request that is held back, which owns this.
struct Delayed<'r> {
    /// The number by which it is found.
    id: u64,
    /// When it goes on.
    timer: EventTimer<'r>,
    since: Instant,
    context: &'r Context<'r>,
    waiting: Cell<Option<Waiting>>,
}

/// Answers a request that was decided on; or has it wait first, if it is admitted, and a rate holds it
/// back.
pub(super) fn answer_in_time<'r>(
    request: &Request<'r>,
    context: &'r Context<'r>,
) -> Result<ngx_int_t, EvaluationError> {
    let answer = answer(request, context);
    match delay_of(context) {
        0 => Ok(answer),
        delay => hold(request, context, delay).ok_or(EvaluationError),
    }
}

/// For how many milliseconds a request is held back: the longest time of all limits.
fn delay_of(context: &Context<'_>) -> u64 {
    let is_dry = context.settings.refusal == Outcome::RejectedDryRun;
    if is_dry || context.response != Response::Admit {
        return 0;
    }
    let admitted = context.verdicts().filter(|verdict| verdict.admitted);
    let delays = admitted.map(|verdict| verdict.delay());
    delays.max().unwrap_or(0)
}

/// Has a request wait for so many milliseconds. `None`: no memory, or nginx cannot watch its connection.
fn hold<'r>(request: &Request<'r>, context: &'r Context<'r>, delay: u64) -> Option<ngx_int_t> {
    log::debug(request.log(), || {
        format!("ratelimit: delayed for {delay} ms")
    });
    let id = DELAYED.0.borrow_mut().next_id();
    let delayed = request.own(Delayed {
        id,
        timer: EventTimer::new(request.log(), go_on, id),
        since: Instant::now(),
        context,
        waiting: Cell::new(None),
    })?;
    DELAYED.0.borrow_mut().add(NonNull::from(delayed).cast());
    // SAFETY: the main request owns this; what is left of its subrequests ends with it.
    let waiting = unsafe { Waiting::begin(request) }?;
    delayed.waiting.set(Some(waiting));
    delayed.timer.set(delay);
    for_each_namespace(context, BoundLimit::count_delayed);
    Some(AGAIN)
}

/// Has a request go on that was held back long enough.
fn go_on(id: u64) {
    let delayed = DELAYED.0.borrow().get(id).copied();
    let waiting = delayed.and_then(|delayed| {
        // SAFETY: those that are registered were not dropped; nothing in here ends a request.
        let delayed = unsafe { delayed.as_ref() };
        let time = delayed.since.elapsed();
        for_each_namespace(delayed.context, |bound| bound.count_wait(time));
        delayed.waiting.take()
    });
    DELAYED.0.borrow_mut().remove(id);
    if let Some(waiting) = waiting {
        // SAFETY: the event loop calls this; nothing here refers to a request any more.
        unsafe { waiting.resume() };
    }
}

/// Calls `count` with a limit of each namespace in which a rate holds the request back.
fn for_each_namespace(context: &Context<'_>, count: impl Fn(&BoundLimit<'static>)) {
    let mut counted: Vec<&str> = Vec::new();
    for charge in context.charges {
        let (bound, verdict) = (charge.bound(), charge.verdict());
        if verdict.admitted && verdict.delay() > 0 && !counted.contains(&bound.namespace()) {
            counted.push(bound.namespace());
            count(bound);
        }
    }
}

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        DELAYED.0.borrow_mut().remove(self.id);
    }
}
