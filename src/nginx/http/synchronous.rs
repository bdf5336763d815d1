//! The path of a synchronous request, from top to bottom: evaluate, ask the store, wait, go on; or
//! decide without it, when it does not answer in time.
//!
//! While a request waits, nothing that nginx does about it runs its phases: its event handlers are
//! ours. When it goes on, it runs them once, and finds what it was suspended for kept with it.

use nginx_sys::{NGX_DECLINED, ngx_int_t};

use super::context::{Context, ContextSlot, Room};
use super::delayed;
use super::evaluate;
use super::held::suspension::{RequestChecks, Suspension};
use super::held::suspensions;
use super::held::suspensions::SuspensionSlot;
use super::reserves;
use crate::broker::shared::message::Reply;
use crate::nginx::conf::{EvaluationError, LocationConf, RuleSet};
use crate::nginx::request::Request;
use crate::nginx::sync;
use crate::store::contract::decision::Few;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;

/// Decides on a request some rules of which a store decides, or has it wait for that.
#[cold]
pub(super) fn decide<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let suspensions = suspensions::slot_of(request).ok_or(EvaluationError)?;
    if let Some(suspended) = suspensions.get() {
        let mut suspension = suspended.suspension.borrow_mut();
        if suspension.is_waiting {
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
    suspend(request, suspensions, suspension)
}

/// Answers a request, unless another one of the same main request was answered.
fn answer_if_decided<'r>(
    request: &Request<'r>,
    context: Option<&'r Context<'r>>,
) -> Result<ngx_int_t, EvaluationError> {
    match context {
        Some(context) => delayed::answer_in_time(request, context),
        None => Ok(DECLINED),
    }
}

/// Finds the limits of a request, its keys and costs.
fn evaluate<'r>(
    request: &Request<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<RequestChecks<'r>, EvaluationError> {
    let active = rules.active();
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut checks = Few::with_capacity(active.limit_count);
    evaluate::each_limit(request, conf, active, &mut keys, |check| checks.push(check))?;
    Ok(RequestChecks { room, checks, renamed: keys.renamed() })
}

/// Has a request wait for the answer to the first part of its question.
fn suspend<'r>(
    request: &Request<'r>,
    slot: SuspensionSlot<'r>,
    suspension: Suspension<'r>,
) -> Result<ngx_int_t, EvaluationError> {
    let suspended = suspensions::add(request, suspension, time_out).ok_or(EvaluationError)?;
    slot.set(Some(suspended));
    let mut suspension = suspended.suspension.borrow_mut();
    if !suspension.ask(suspended.id) {
        suspension.fail();
        suspensions::remove(suspended.id);
        let context = suspension.finish(request);
        drop(suspension);
        return answer_if_decided(request, context);
    }
    if let Some(checks) = suspension.reserving() {
        reserves::ask_along(checks);
    }
    suspended.deadline.set(suspension.begin());
    suspension.wait(request)
}

/// Has requests go on that a store has decided about, or failed to.
pub(crate) fn go_on(replies: Vec<Reply>) {
    for (id, answer) in replies {
        // A request that has ended, or was decided on without the store, is not there any more.
        let goes_on = suspensions::with(id, |suspension| suspension.take(id, answer));
        if goes_on == Some(true) {
            suspensions::unset_deadline(id);
            wake(id);
        }
    }
}

/// Has the requests go on that waited for a decision, which is made.
fn wake(id: u64) {
    // The last one may end the main request, and all others with it.
    while let Some(waiting) = suspensions::with(id, |it| it.next_waiting()).flatten() {
        // SAFETY: the event loop calls this; nothing here refers to a request any more.
        unsafe { waiting.resume() };
    }
    suspensions::remove(id);
}

/// Decides on a request without its store, which has not answered in time.
fn time_out(id: u64) {
    let failed = suspensions::with(id, |suspension| {
        if let Some(decider) = suspension.decider() {
            sync::record_timeout(decider, suspension.overdue());
        }
        suspension.fail();
    });
    if failed.is_some() {
        wake(id);
    }
}

/// Decides about all requests that wait without their stores: no answer will come any more.
pub(crate) fn fail_all() {
    let ids = suspensions::ids();
    go_on(ids.into_iter().map(|id| (id, None)).collect());
}
