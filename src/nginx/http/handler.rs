//! The path of a request, from top to bottom: keys, limits, decision, log, rejection. The log phase
//! charges the hits that depend on the response, and ends the holds of the request.

use core::iter;

use nginx_sys::{
    NGX_DECLINED, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_OK, ngx_http_phases_NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE,
    ngx_http_request_t, ngx_int_t,
};
use ngx::http::HttpModuleLocationConf as _;

use super::answer::{answer, reject};
use super::context::{self, Context, ContextSlot, Response, Room};
use super::evaluate::FoundBan;
use super::{deferred, delayed, evaluate, synchronous};
use crate::engine::{Charge, Evaluation, LimitCheck};
use crate::nginx::conf::{Active, Conf, EvaluationError, LocationConf, MainConf, Phase, RuleSet};
use crate::nginx::event_loop::{NgxClock, guard, measured, sample};
use crate::nginx::module::Module;
use crate::nginx::request::Request;
use crate::policy::hits::Hits;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Installs the handlers of the phases that the configuration uses. `None` without memory.
pub(crate) fn install(conf: &mut Conf<'_>, main: &MainConf) -> Option<()> {
    conf.add_handler(ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, preaccess)?;
    if main.has_precontent() {
        conf.add_handler(ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, precontent)?;
    }
    if main.has_deferred() || main.has_holds() {
        conf.add_handler(ngx_http_phases_NGX_HTTP_LOG_PHASE, at_end)?;
    }
    Some(())
}

unsafe extern "C" fn preaccess(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a live request, and a phase handler does not end it.
    unsafe { Request::with(request, |request| handle(request, Phase::Preaccess)) }
}

unsafe extern "C" fn precontent(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: as in `preaccess`.
    unsafe { Request::with(request, |request| handle(request, Phase::Precontent)) }
}

/// Decides on a request in the phase of its location. Returns `NGX_DECLINED` for an admitted
/// request: `NGX_OK` would skip the other handlers of the phase.
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
            // A request is counted once, by the first location with rules.
            Some(_) => Ok(DECLINED),
            None if sample() => decide_measured(request, slot, conf, rules),
            None => decide(request, slot, conf, rules),
        }
        .unwrap_or(SERVER_ERROR)
    })
}

/// Decides on a request, and records the time that this takes.
#[cold]
fn decide_measured<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let limit = rules.active().rules.iter().find_map(|rule| rule.limits.first());
    let table = limit.map(|limit| limit.bound.table());
    measured(table, || decide_rarely(request, slot, conf, rules))
}

/// Calls [`decide`] without inlining it.
#[inline(never)]
fn decide_rarely<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    decide(request, slot, conf, rules)
}

/// Decides on a request under `rules`.
///
/// # Errors
///
/// No memory.
///
/// Always inlined: the rare paths must not cost every other request a call.
#[inline(always)]
fn decide<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    if !rules.active().is_plain {
        return decide_otherwise(request, slot, conf, rules);
    }
    Ok(answer(request, decide_here::<false>(request, slot, conf, rules)?))
}

/// Decides on a request that is not [plain](Active::is_plain).
#[cold]
fn decide_otherwise<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    if rules.active().is_synchronous {
        return synchronous::decide(request, slot, conf, rules);
    }
    let active = rules.active();
    let Active { has_trials, has_estimates, has_bans, .. } = *active;
    if has_bans && let Some(banned) = evaluate::find_ban(request, conf, active)? {
        let context = reject_banned(request, slot, conf, rules, &banned)?;
        return Ok(answer(request, context));
    }
    let context = match has_trials || has_estimates {
        true => decide_here::<true>(request, slot, conf, rules)?,
        false => decide_here::<false>(request, slot, conf, rules)?,
    };
    delayed::answer_in_time(request, context)
}

/// Rejects a request whose key is banned, and charges nothing.
fn reject_banned<'r>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
    banned: &FoundBan<'r>,
) -> Result<&'r Context<'r>, EvaluationError> {
    let (room, mut keys) = Room::new(request, rules.active()).ok_or(EvaluationError)?;
    let key = banned.keep(request, &mut keys).ok_or(EvaluationError)?;
    let mut evaluation = Evaluation::new(room, false);
    let (bound, hits) = (&banned.ban.bound, banned.hits);
    evaluation.note(bound, hits, key, Hits::ZERO, banned.reading, false);
    let refusal = rules.active().refusal(conf.settings.refusal);
    let (outcome, room) = evaluation.finish(refusal, &NgxClock);
    let decided = (outcome, Response::to(outcome));
    Ok(room.keep(request, slot, (conf, rules), decided, keys.renamed()))
}

/// Decides on a request with the counters of this node. `IS_RARE` says whether a rule may be tried
/// alone, or a cost be an estimate.
///
/// # Errors
///
/// No memory.
#[inline(always)]
fn decide_here<'r, const IS_RARE: bool>(
    request: &Request<'r>,
    slot: ContextSlot<'r>,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<&'r Context<'r>, EvaluationError> {
    let (active, settings) = (rules.active(), &conf.settings);
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut evaluation = Evaluation::new(room, settings.count_rejected);
    let evaluated = evaluate::each_limit::<IS_RARE>(request, conf, active, &mut keys, |check| {
        if IS_RARE {
            evaluation.enter(check.trial);
            if check.bound.is_of_bans() {
                let LimitCheck { bound, hits, key, trial, .. } = check;
                evaluation.check_ban(bound, hits, key, None, trial.is_some(), &NgxClock);
                return;
            }
        }
        evaluation.charge(check.bound, check.hits, check.key, check.cost, &NgxClock);
    });
    if let Err(error) = evaluated {
        evaluation.abandon();
        return Err(error);
    }
    let (outcome, room) = match IS_RARE {
        true => evaluation.finish_rare(active.refusal(settings.refusal), &NgxClock),
        false => evaluation.finish(settings.refusal, &NgxClock),
    };
    let decided = (outcome, Response::to(outcome));
    Ok(room.keep(request, slot, (conf, rules), decided, keys.renamed()))
}

/// Handles a subrequest. Its decision belongs to the main request, and may be there already.
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

/// Returns whether one of the parent requests still reaches rules of its own location. Those decide
/// in a later phase, which the parent enters after this subrequest.
fn is_before_parent(request: &Request<'_>) -> bool {
    let mut parents = iter::successors(request.parent(), |parent| parent.parent());
    parents.any(|parent| {
        let conf = Module::location_conf(parent);
        conf.is_some_and(|conf| conf.rules().is_some())
    })
}

/// Handles a subrequest that reaches rules after the decision about its main request. The
/// subrequest is not counted again. It is rejected if a subrequest was rejected before, unless it
/// is the error page of that subrequest; it is admitted if the main request itself was rejected. It
/// is delayed if the main request is.
fn again<'r>(request: &Request<'r>, context: &Context<'r>) -> Result<ngx_int_t, EvaluationError> {
    if context.response == Response::Admit {
        return match context.rules.active().is_plain {
            true => Ok(DECLINED),
            false => delayed::wait_too(request),
        };
    }
    let (own, last) = (request.identity(), context.last_decided.get());
    if last == own || last == request.main().identity() {
        return Ok(DECLINED);
    }
    context.last_decided.set(own);
    Ok(reject(request, context))
}

/// Ends a request: charges the hits that depend on the response, and releases its holds. nginx calls this in the log
/// phase, once for each main request, however that ends.
unsafe extern "C" fn at_end(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(NGX_OK as ngx_int_t, || {
        // SAFETY: nginx passes a live request: it frees the request after the log phase.
        unsafe { Request::with(request, end) };
        NGX_OK as ngx_int_t
    })
}

fn end(request: &Request<'_>) {
    // nginx logs subrequests too; only the main request is charged.
    if request.is_main()
        && let Some(context) = context::of_main(request)
    {
        if context.rules.active().has_deferred {
            deferred::charge(request, context);
        }
        if context.rules.has_holds {
            context.charges.iter().for_each(|charge: &Charge<'_, '_>| charge.release(&NgxClock));
        }
    }
}
