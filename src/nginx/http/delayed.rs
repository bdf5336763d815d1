//! Delays admitted requests until their rates have caught up.
//!
//! The decision is made and stored before the delay; a timer then resumes the request. Subrequests
//! of the same main request that reach rules during the delay resume with it. If the request ends
//! during the delay, its wait is dropped.

use core::cell::{Cell, RefCell};
use std::time::Instant;

use nginx_sys::{NGX_AGAIN, NGX_DECLINED, ngx_int_t, ngx_uint_t};
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::answer::{answer, log_delay};
use super::context::{Context, Delay};
use super::held::{
    OwnedWait, RequestWait, Waiting, WaitingParts, WaitingRequests, for_each_namespace,
};
use crate::broker::Asker;
use crate::engine::{BoundLimit, Charge};
use crate::nginx::conf::{Conf, EvaluationError};
use crate::nginx::event_loop::EventTimer;
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;

const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;
const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;

/// The delayed requests of this worker.
static DELAYED: WaitingRequests<Delayed<'static>> = WaitingRequests::of(Asker::Request);

/// A delayed request.
struct Delayed<'r> {
    /// Timer that resumes the request.
    timer: EventTimer<'r>,
    since: Instant,
    context: &'r Context<'r>,
    is_over: Cell<bool>,
    /// The request that the decision is about, and other parts of the same main request that
    /// reached rules during the delay.
    waiting: RefCell<WaitingParts>,
}

/// The place of a main request's delay.
type DelaySlot<'r> = RequestSlot<'r, OwnedWait<'r, Delayed<'static>>>;

/// Adds a place for the delay to each request of the configuration being read. Returns its number;
/// `None` without memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit delay"))
}

/// Returns the place of the delay of `request`'s main request. `None` if the module has no
/// configuration.
fn slot_of<'r>(request: &Request<'r>) -> Option<DelaySlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` reserved this number for delays in the request's configuration.
    Some(unsafe { request.main().slot(conf.delay_slot) })
}

/// Answers a request after the decision about it, or delays it first if it is admitted and a rate
/// demands that.
pub(super) fn answer_in_time<'r>(
    request: &Request<'r>,
    context: &'r Context<'r>,
) -> Result<ngx_int_t, EvaluationError> {
    let answer = answer(request, context);
    let Some(delay) = context.delay() else {
        return Ok(answer);
    };
    log_delay(request, context, &delay);
    match delay.is_dry_run {
        true => Ok(answer),
        false => hold(request, context, &delay).ok_or(EvaluationError),
    }
}

/// Suspends a subrequest until the delay of its main request is over.
pub(super) fn wait_too(request: &Request<'_>) -> Result<ngx_int_t, EvaluationError> {
    match slot_of(request).and_then(Cell::get) {
        Some(delayed) if !delayed.is_over.get() => delayed.wait(request).ok_or(EvaluationError),
        _ => Ok(DECLINED),
    }
}

/// Delays a request. `None` without memory, or if nginx cannot watch its connection.
fn hold<'r>(
    request: &Request<'r>,
    context: &'r Context<'r>,
    delay: &Delay<'r>,
) -> Option<ngx_int_t> {
    let delayed = DELAYED.add(request, |id| Delayed {
        timer: EventTimer::new(request.log(), go_on, id),
        since: Instant::now(),
        context,
        is_over: Cell::new(false),
        waiting: RefCell::default(),
    })?;
    slot_of(request)?.set(Some(delayed));
    let answer = delayed.wait(request)?;
    delayed.timer.set(delay.millis);
    for_each_namespace(delaying(context), BoundLimit::count_delayed);
    Some(answer)
}

impl Delayed<'_> {
    /// Suspends `request`, which is the delayed request or another part of the same main request.
    /// `None` if nginx cannot watch its connection.
    fn wait(&self, request: &Request<'_>) -> Option<ngx_int_t> {
        // SAFETY: the main request owns `self`, and its subrequests end no later than it does.
        unsafe { self.waiting.borrow_mut().add(request) }?;
        Some(AGAIN)
    }
}

/// Resumes a request after its delay.
fn go_on(id: u64) {
    DELAYED.with(id, |delayed| {
        delayed.is_over.set(true);
        let time = delayed.since.elapsed();
        for_each_namespace(delaying(delayed.context), |bound| bound.count_wait(time));
    });
    let next = |delayed: &Delayed<'_>| -> Option<Waiting> { delayed.waiting.borrow_mut().next() };
    // Resuming the last one can end the main request, and with it all others.
    while let Some(waiting) = DELAYED.with(id, next).flatten() {
        // SAFETY: the event loop calls this function, which holds no reference to a request.
        unsafe { waiting.resume() };
    }
    DELAYED.remove(id);
}

/// Returns the limits that delay a request.
fn delaying<'r>(context: &'r Context<'r>) -> impl Iterator<Item = &'r BoundLimit<'static>> {
    let delaying = context.charges.iter().filter(|charge| {
        let verdict = charge.verdict();
        verdict.admitted && verdict.delay() > 0 && !context.is_tried(charge)
    });
    delaying.map(Charge::bound)
}

impl RequestWait for Delayed<'static> {
    type Of<'r> = Delayed<'r>;
}
