//! Requests that are admitted, and held back until their rates have caught up.
//!
//! The decision is made and kept before; all that is left is to go on, which a timer does. A request that
//! ends before is forgotten.

use core::cell::Cell;
use std::time::Instant;

use nginx_sys::{NGX_AGAIN, ngx_int_t};

use super::super::conf::EvaluationError;
use super::super::event_loop::EventTimer;
use super::super::request::Request;
use super::answer::{answer, log_delay};
use super::context::Context;
use super::held::Waiting;
use super::waiting::{RequestWait, WaitingRequests};
use crate::broker::Asker;
use crate::engine::BoundLimit;

const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;

/// Those that are held back.
static DELAYED: WaitingRequests<Delayed<'static>> = WaitingRequests::of(Asker::Request);

/// A request that is held back.
struct Delayed<'r> {
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
    let Some(delay) = context.delay() else {
        return Ok(answer);
    };
    log_delay(request, context, &delay);
    match context.is_dry_run() {
        true => Ok(answer),
        false => hold(request, context, delay.millis).ok_or(EvaluationError),
    }
}

/// Has a request wait for so many milliseconds. `None`: no memory, or nginx cannot watch its connection.
fn hold<'r>(request: &Request<'r>, context: &'r Context<'r>, delay: u64) -> Option<ngx_int_t> {
    let delayed = DELAYED.add(request, |id| Delayed {
        timer: EventTimer::new(request.log(), go_on, id),
        since: Instant::now(),
        context,
        waiting: Cell::new(None),
    })?;
    // SAFETY: the main request owns this; what is left of its subrequests ends with it.
    let waiting = unsafe { Waiting::begin(request) }?;
    delayed.waiting.set(Some(waiting));
    delayed.timer.set(delay);
    for_each_namespace(context, BoundLimit::count_delayed);
    Some(AGAIN)
}

/// Has a request go on that was held back long enough.
fn go_on(id: u64) {
    let waiting = DELAYED.with(id, |delayed| {
        let time = delayed.since.elapsed();
        for_each_namespace(delayed.context, |bound| bound.count_wait(time));
        delayed.waiting.take()
    });
    DELAYED.remove(id);
    if let Some(waiting) = waiting.flatten() {
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

impl RequestWait for Delayed<'static> {
    type Of<'r> = Delayed<'r>;
}
