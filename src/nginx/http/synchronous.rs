//! The path of a synchronous request, from top to bottom: evaluate, ask the store, wait, resume. If
//! the store does not answer in time, the decision is made without it.
//!
//! While a request waits, this module's event handlers replace nginx's, so nginx does not run its
//! phases. A resumed request runs its phases once more, and the handler finds the suspension in the
//! request.

use nginx_sys::{NGX_DECLINED, ngx_int_t};

use super::context::{Context, ContextSlot, Room};
use super::delayed;
use super::evaluate;
use super::held::suspension;
use super::held::suspension::SuspensionSlot;
use super::held::suspension::{RequestChecks, Suspension};
use super::reserves;
use crate::broker::shared::message::Reply;
use crate::nginx::conf::{EvaluationError, LocationConf, RuleSet};
use crate::nginx::request::Request;
use crate::store::contract::decision::Few;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;

/// Decides on a request whose limits include some of a store, or suspends it until the store has
/// decided.
#[cold]
pub(super) fn decide<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let place = suspension::slot_of(request).ok_or(EvaluationError)?;
    if let Some(suspended) = place.get() {
        let mut suspension = suspended.suspension.borrow_mut();
        if suspension.is_waiting() {
            return suspension.wait(request);
        }
        let context = suspension.finish(request);
        drop(suspension);
        return answer_if_decided(request, context);
    }
    let mut evaluated = evaluate(request, conf, rules)?;
    if rules.active().is_reserving {
        match reserves::decide(request, slot, conf, rules, evaluated) {
            Ok(context) => return delayed::answer_in_time(request, context),
            Err(asked) => evaluated = asked,
        }
    }
    let mut suspension = Suspension::new(slot, evaluated, conf, rules);
    if !suspension.prepare() {
        return answer_if_decided(request, suspension.finish(request));
    }
    suspend(request, place, suspension)
}

/// Answers a request. Admits it if another part of the same main request was decided on before.
fn answer_if_decided<'r>(
    request: &Request<'r>,
    context: Option<&'r Context<'r>>,
) -> Result<ngx_int_t, EvaluationError> {
    match context {
        Some(context) => delayed::answer_in_time(request, context),
        None => Ok(DECLINED),
    }
}

/// Evaluates the keys, limits and costs of a request.
fn evaluate<'r>(
    request: &Request<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<RequestChecks<'r>, EvaluationError> {
    let active = rules.active();
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut checks = Few::with_capacity(active.limit_count);
    evaluate::each_limit::<true>(request, conf, active, &mut keys, |check| checks.push(check))?;
    Ok(RequestChecks { room, checks, renamed: keys.renamed() })
}

/// Suspends a request until the first part of its question is answered.
fn suspend<'r>(
    request: &Request<'r>,
    slot: SuspensionSlot<'r>,
    suspension: Suspension<'r>,
) -> Result<ngx_int_t, EvaluationError> {
    let suspended = suspension::add(request, suspension, time_out).ok_or(EvaluationError)?;
    slot.set(Some(suspended));
    let mut suspension = suspended.suspension.borrow_mut();
    suspended.wait.begin(suspension.timeout);
    suspension.ask(&suspended.wait);
    if !suspension.is_waiting() {
        suspended.wait.end();
        suspension::remove(suspended.id);
        let context = suspension.finish(request);
        drop(suspension);
        return answer_if_decided(request, context);
    }
    if let Some(checks) = suspension.reserving() {
        reserves::ask_along(checks);
    }
    suspension.wait(request)
}

/// Passes stores' replies to the suspended requests, and resumes those that are decided on.
pub(crate) fn take_replies(replies: Vec<Reply>) {
    for (id, answer) in replies {
        // A request that has ended, or was decided on without the store, is not registered any
        // more.
        suspension::with(id, |suspension, wait| suspension.take(answer, wait));
        wake_if_decided(id);
    }
}

/// Resumes all requests that wait for the decision on request `id`, if it is made.
fn wake_if_decided(id: u64) {
    let decided = suspension::with(id, |suspension, wait| {
        if suspension.is_waiting() {
            return None;
        }
        // The wait ends once: another reply may come while requests are resumed.
        wait.end().map(|waited| suspension.count_wait(waited))
    });
    if decided.flatten().is_none() {
        return;
    }
    // Resuming the last one can end the main request, and with it all others.
    while let Some(waiting) = suspension::with(id, |it, _| it.next_waiting()).flatten() {
        // SAFETY: the event loop calls this function, which holds no reference to a request.
        unsafe { waiting.resume() };
    }
    suspension::remove(id);
}

/// Decides on a request without its store, which has not answered in time.
fn time_out(id: u64) {
    suspension::with(id, |suspension, wait| {
        wait.record_timeout();
        suspension.fail();
    });
    wake_if_decided(id);
}

/// Decides on all suspended requests without their stores, which will not answer any more.
pub(crate) fn fail_all() {
    let ids = suspension::ids();
    take_replies(ids.into_iter().map(|id| (id, None)).collect());
}
