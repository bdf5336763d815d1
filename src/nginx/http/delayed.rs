//! Requests that are admitted, and held back until their rates have caught up.
//!
//! The decision is made and kept before; all that is left is to go on, which a timer does. Subrequests of the same
//! request that reach rules meanwhile go on with it. A request that ends before is forgotten.

use core::cell::{Cell, RefCell};
use std::time::Instant;

use nginx_sys::{NGX_AGAIN, NGX_DECLINED, ngx_int_t, ngx_uint_t};
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::answer::{answer, log_delay};
use super::context::{Context, Delay};
use super::held::waiting::{OwnedWait, RequestWait, WaitingRequests};
use super::held::{Waiting, WaitingParts};
use crate::broker::Asker;
use crate::engine::BoundLimit;
use crate::nginx::conf::{Conf, EvaluationError};
use crate::nginx::event_loop::EventTimer;
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;

const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;
const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;

/// The requests of this worker that are held back.
static DELAYED: WaitingRequests<Delayed<'static>> = WaitingRequests::of(Asker::Request);

/// A request that is held back.
struct Delayed<'r> {
    /// Timer with which it goes on.
    timer: EventTimer<'r>,
    since: Instant,
    context: &'r Context<'r>,
    is_over: Cell<bool>,
    /// The request that was decided on, and others of the same main request that reached rules meanwhile.
    waiting: RefCell<WaitingParts>,
}

/// The place where a main request has what holds it back.
type DelaySlot<'r> = RequestSlot<'r, OwnedWait<'r, Delayed<'static>>>;

/// Adds that place to the requests of the configuration being read; returns its number. `None`: no
/// memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit delay"))
}

/// Returns that place of the main request of `request`. `None`: it has no configuration.
fn slot_of<'r>(request: &Request<'r>) -> Option<DelaySlot<'r>> {
    let conf = Module::main_conf(request)?;
    // SAFETY: `add_slot` made it for delays, in the configuration that says its number.
    Some(unsafe { request.main().slot(conf.delay_slot) })
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
        false => hold(request, context, &delay).ok_or(EvaluationError),
    }
}

/// Has a subrequest of a request that is held back wait as long as that does.
pub(super) fn wait_too(request: &Request<'_>) -> Result<ngx_int_t, EvaluationError> {
    match slot_of(request).and_then(Cell::get) {
        Some(delayed) if !delayed.is_over.get() => delayed.wait(request).ok_or(EvaluationError),
        _ => Ok(DECLINED),
    }
}

/// Has a request wait. `None`: no memory, or nginx cannot watch its connection.
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
    for_each_namespace(context, BoundLimit::count_delayed);
    Some(answer)
}

impl Delayed<'_> {
    /// Has a request wait: the one that was decided on, or another one of the same main request. `None`: nginx
    /// cannot watch its connection.
    fn wait(&self, request: &Request<'_>) -> Option<ngx_int_t> {
        // SAFETY: the main request owns this; what is left of its subrequests ends with it.
        unsafe { self.waiting.borrow_mut().add(request) }?;
        Some(AGAIN)
    }
}

/// Has a request go on that was held back long enough.
fn go_on(id: u64) {
    DELAYED.with(id, |delayed| {
        delayed.is_over.set(true);
        let time = delayed.since.elapsed();
        for_each_namespace(delayed.context, |bound| bound.count_wait(time));
    });
    let next = |delayed: &Delayed<'_>| -> Option<Waiting> { delayed.waiting.borrow_mut().next() };
    // The last one may end the main request, and all others with it.
    while let Some(waiting) = DELAYED.with(id, next).flatten() {
        // SAFETY: the event loop calls this; nothing here refers to a request any more.
        unsafe { waiting.resume() };
    }
    DELAYED.remove(id);
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
