//! The path of a request, from top to bottom: keys, limits, decision, log, rejection; and at its end
//! the hits that are known only then.

use core::cell::Cell;
use core::iter;

use nginx_sys::{
    NGX_DECLINED, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_OK, ngx_http_phases_NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE,
    ngx_http_request_t, ngx_int_t,
};
use ngx::http::HttpModuleLocationConf as _;

use super::answer::{answer, reject};
use super::context::{self, Context, ContextSlot, Response, Room};
use super::{deferred, delayed, evaluate, synchronous};
use crate::engine::Evaluation;
use crate::nginx::conf::{Conf, EvaluationError, LocationConf, MainConf, Phase, RuleSet};
use crate::nginx::guard::guard;
use crate::nginx::hold;
use crate::nginx::module::Module;
use crate::nginx::random::random_up_to;
use crate::nginx::request::Request;
use crate::nginx::time::NgxClock;
use crate::table::Outcome;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Adds the handlers to the phases that `main` needs them in. `None`: no memory.
pub(crate) fn install(conf: &mut Conf<'_>, main: &MainConf) -> Option<()> {
    conf.add_handler(ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, preaccess)?;
    if main.has_precontent() {
        conf.add_handler(ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, precontent)?;
    }
    if main.has_deferred() {
        conf.add_handler(ngx_http_phases_NGX_HTTP_LOG_PHASE, at_end)?;
    }
    Some(())
}

unsafe extern "C" fn preaccess(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended; a handler of a phase ends none.
    unsafe { Request::with(request, |request| handle(request, Phase::Preaccess)) }
}

unsafe extern "C" fn precontent(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as above.
    unsafe { Request::with(request, |request| handle(request, Phase::Precontent)) }
}

/// Admitted is NGX_DECLINED: NGX_OK would skip the phase's other handlers.
fn handle(request: &Request<'_>, phase: Phase) -> ngx_int_t {
    let Some(conf) = Module::location_conf(request) else {
        return DECLINED;
    };
    let Some(rules) = conf.rules() else {
        return DECLINED;
    };
    if conf.settings.phase != phase {
        return DECLINED;
    }
    guard(SERVER_ERROR, || {
        if !request.is_main() {
            return handle_subrequest(request, conf, rules).unwrap_or(SERVER_ERROR);
        }
        let slot = context::slot_of(request, conf.context_slot);
        match slot.get() {
            // Counted once, by the first location that has rules.
            Some(_) => Ok(DECLINED),
            None if hold::sample() => decide_measured(request, slot, conf, rules),
            None => decide(request, slot, conf, rules),
        }
        .unwrap_or(SERVER_ERROR)
    })
}

/// Decides on a request, and keeps how long that took.
#[cold]
fn decide_measured<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let limit = rules.active().rules.iter().find_map(|rule| rule.limits.first());
    let table = limit.map(|limit| limit.bound.table());
    hold::measured(table, || decide_rarely(request, slot, conf, rules))
}

/// Decides as [`decide`] does, in a function of its own.
#[inline(never)]
fn decide_rarely<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    decide(request, slot, conf, rules)
}

/// Decides on a request under `rules`. An error: there is no memory.
///
/// Always inline: the rare paths must not cost every other request a call.
#[inline(always)]
fn decide<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    if rules.active().may_wait {
        return decide_in_time(request, slot, conf, rules);
    }
    Ok(answer(request, decide_here(request, slot, conf, rules)?))
}

/// Decides on a request that may have to wait.
#[cold]
fn decide_in_time<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    if rules.active().is_synchronous {
        return synchronous::decide(request, slot, conf, rules);
    }
    delayed::answer_in_time(request, decide_here(request, slot, conf, rules)?)
}

/// Decides on a request by this node's counters. An error: there is no memory.
#[inline(always)]
fn decide_here<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<&'r Context<'r>, EvaluationError> {
    let (active, settings) = (rules.active(), &conf.settings);
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut evaluation = Evaluation::new(room, settings.count_rejected);
    evaluate::each_limit(request, conf, active, &mut keys, |check| {
        evaluation.charge(check.bound, check.hits, check.key, check.cost, &NgxClock);
    })?;
    let (outcome, room) = evaluation.finish(settings.refusal, &NgxClock);
    Ok(room.keep(slot, |charges| Context {
        rules,
        settings,
        charges,
        outcome,
        response: match outcome {
            Outcome::Rejected => Response::Reject,
            _ => Response::Admit,
        },
        jitter: if outcome == Outcome::Rejected {
            random_up_to(settings.retry_after_jitter)
        } else {
            0
        },
        renamed: keys.renamed(),
        last_decided: Cell::new(request.identity()),
    }))
}

/// Handles a subrequest. The decision that it finds, or makes, belongs to its main request.
#[cold]
fn handle_subrequest(
    request: &Request<'_>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let slot = context::slot_of(request.main(), conf.context_slot);
    match slot.get() {
        Some(context) => again(request, context),
        None if is_before_parent(request) => Ok(DECLINED),
        None => decide_rarely(request, slot, conf, rules),
    }
}

/// Returns whether a request that led to this subrequest is still to be decided on, by the rules of its own
/// location: in a later phase, since it comes first to each.
fn is_before_parent(request: &Request<'_>) -> bool {
    let mut parents = iter::successors(request.parent(), |parent| parent.parent());
    parents.any(|parent| {
        let conf = Module::location_conf(parent);
        conf.is_some_and(|conf| conf.rules().is_some())
    })
}

/// Handles a subrequest that reaches rules after its main request, or another subrequest, was decided on. It is
/// not counted again. If a subrequest was rejected, later ones are, but not its own error page, nor the main
/// request. If the request is held back, so is the subrequest.
fn again<'r>(request: &Request<'r>, context: &Context<'r>) -> Result<ngx_int_t, EvaluationError> {
    if context.response == Response::Admit {
        return match context.rules.active().may_wait {
            true => delayed::wait_too(request),
            false => Ok(DECLINED),
        };
    }
    let (own, last) = (request.identity(), context.last_decided.get());
    if last == own || last == request.main().identity() {
        return Ok(DECLINED);
    }
    context.last_decided.set(own);
    Ok(reject(request, context))
}

/// Charges the hits of its rules that are known only now, at the end of a request.
unsafe extern "C" fn at_end(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(NGX_OK as ngx_int_t, || {
        // SAFETY: nginx passes a request that has not ended yet: it does when all handlers were called.
        unsafe { Request::with(request, charge_deferred) };
        NGX_OK as ngx_int_t
    })
}

fn charge_deferred(request: &Request<'_>) {
    // Subrequests are logged too.
    if request.is_main()
        && let Some(context) = context::of_main(request)
    {
        deferred::charge(request, context);
    }
}
