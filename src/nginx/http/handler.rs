//! The path of a request, from top to bottom: keys, limits, decision, log, rejection; and at its end
//! the hits that are known only then.

use core::cell::Cell;
use core::ptr;

use nginx_sys::{
    NGX_DECLINED, NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_SERVICE_UNAVAILABLE,
    NGX_LOG_ERR, NGX_LOG_INFO, NGX_OK, ngx_array_push, ngx_conf_t, ngx_http_core_main_conf_t,
    ngx_http_handler_pt, ngx_http_phases_NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE,
    ngx_http_request_t, ngx_int_t, ngx_log_t,
};
use ngx::http::{HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule};

use super::super::conf::{
    Active, ActiveLimit, ActiveRule, Amount, Cost, Evaluated, EvaluationError, LocationConf,
    MainConf, OwnKey, Phase, RuleKey, RuleSet,
};
use super::super::guard::guard;
use super::super::module::Module;
use super::super::random::random_up_to;
use super::super::time::NgxClock;
use super::super::{hold, log};
use super::context::{self, Context, ContextSlot, Keys, Response, Room};
use super::{grpc, is_main, respond, synchronous};
use crate::engine::{BoundLimit, Evaluation, charge_late, late_questions};
use crate::policy::hits::Hits;
use crate::policy::key::{MAX_KEY_LEN, Shown, counted_name, is_accounted, is_plain};
use crate::policy::limit::Verdict;
use crate::policy::printable::Quoted;
use crate::table::{Invalid, Key, Outcome};

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
const UNAVAILABLE: ngx_int_t = NGX_HTTP_SERVICE_UNAVAILABLE as ngx_int_t;
/// The status with which nginx closes the connection without an answer.
const CLOSE: ngx_int_t = 444;

/// Adds the handlers to the phases that `conf` needs them in.
pub(in super::super) fn install(cf: *mut ngx_conf_t, conf: &MainConf) -> ngx_int_t {
    let mut installed = add(cf, ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, preaccess);
    if conf.has_precontent {
        let phase = ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE;
        installed = installed.and_then(|()| add(cf, phase, precontent));
    }
    if conf.has_late {
        let phase = ngx_http_phases_NGX_HTTP_LOG_PHASE;
        installed = installed.and_then(|()| add(cf, phase, at_end));
    }
    installed.map_or(NGX_ERROR as ngx_int_t, |()| NGX_OK as ngx_int_t)
}

type Handler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// Adds a handler to a phase. `None`: no memory.
fn add(cf: *mut ngx_conf_t, phase: u32, handler: Handler) -> Option<()> {
    // SAFETY: nginx reads the configuration, and has that of its core.
    let core = unsafe { NgxHttpCoreModule::main_conf_mut(&*cf) }?;
    let ngx_http_core_main_conf_t { phases, .. } = core;
    let phase = phases.get_mut(phase as usize)?;
    // SAFETY: the phase's array is one of handlers.
    let place = unsafe {
        ngx_array_push(&mut phase.handlers)
            .cast::<ngx_http_handler_pt>()
            .as_mut()
    };
    *place? = Some(handler);
    Some(())
}

unsafe extern "C" fn preaccess(request: *mut ngx_http_request_t) -> ngx_int_t {
    handle(request, Phase::Preaccess)
}

unsafe extern "C" fn precontent(request: *mut ngx_http_request_t) -> ngx_int_t {
    handle(request, Phase::Precontent)
}

/// Admitted is NGX_DECLINED: NGX_OK would skip the phase's other handlers.
fn handle(request: *mut ngx_http_request_t, phase: Phase) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended.
    let Some(conf) = Module::location_conf(unsafe { &*request }) else {
        return DECLINED;
    };
    let Some(rules) = conf.rules() else {
        return DECLINED;
    };
    if conf.settings.phase != phase {
        return DECLINED;
    }
    guard(SERVER_ERROR, || {
        let Some(slot) = ContextSlot::of(request, conf.context_slot) else {
            return DECLINED;
        };
        match slot.get() {
            // Counted once, by the first location that has rules.
            Some(context) => Ok(again(request, context)),
            None if is_before_main(request) => Ok(DECLINED),
            None if hold::sample() => decide_measured(request, slot, conf, rules),
            None => decide(request, slot, conf, rules),
        }
        .unwrap_or(SERVER_ERROR)
    })
}

/// Decides on a request, and keeps how long that took.
#[cold]
fn decide_measured(
    request: *mut ngx_http_request_t,
    slot: ContextSlot,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let limit = rules
        .active()
        .rules
        .iter()
        .find_map(|rule| rule.limits.first());
    let table = limit.map(|limit| limit.bound.table());
    hold::measured(table, || decide(request, slot, conf, rules))
}

/// Decides on a request under `rules`. An error: there is no memory.
///
/// Always inline: what is rarely called must not make it a call for all others.
#[inline(always)]
fn decide(
    request: *mut ngx_http_request_t,
    slot: ContextSlot,
    conf: &'static LocationConf,
    rules: &'static RuleSet,
) -> Result<ngx_int_t, EvaluationError> {
    let (active, settings) = (rules.active(), &conf.settings);
    if active.is_synchronous {
        return synchronous::decide(request, slot, conf, rules);
    }
    let (room, mut keys) = Room::new(request, active).ok_or(EvaluationError)?;
    let mut evaluation = Evaluation::new(room, settings.count_rejected);
    let mut key = None;
    for rule in &active.rules {
        next_key(&mut key, rule, conf, request, &mut keys)?;
        let Some(key) = key else { continue };
        let cost = cost_of(rule, request)?;
        for limit in &rule.limits {
            if let Some(hits) = hits_of(limit, request)? {
                evaluation.charge(&limit.bound, hits, key, cost, &NgxClock);
            }
        }
    }
    let (outcome, room) = evaluation.finish(settings.refusal);
    let context = room.keep(slot, |charges| Context {
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
        last_decided: Cell::new(request),
    });
    Ok(answer(request, context))
}

/// Logs what was decided, and answers a request that is not admitted. Returns what the handler is to
/// return.
#[inline]
pub(super) fn answer(request: *mut ngx_http_request_t, context: &'static Context) -> ngx_int_t {
    let outcome = context.outcome;
    log::debug(log_of(request), || {
        format!("ratelimit: {} limits, {outcome:?}", context.charges.len())
    });
    if outcome == Outcome::Passed {
        return DECLINED;
    }
    log_rejection(request, context);
    reject(request, context)
}

/// Sets `key` to that of the next rule; `None` if its hits are not accounted.
#[inline(always)]
pub(super) fn next_key(
    key: &mut Option<&'static Key<'static>>,
    rule: &'static ActiveRule,
    conf: &LocationConf,
    request: *mut ngx_http_request_t,
    keys: &mut Keys,
) -> Result<(), EvaluationError> {
    let [first, ..] = &*rule.limits else {
        return Ok(());
    };
    let bytes = match rule.key {
        RuleKey::OfLevel => Some(conf.evaluate_key(request)?),
        RuleKey::AsBefore => None,
        RuleKey::Own(text) => Some(text.evaluate(request)?),
        RuleKey::InCounter(own) => {
            let name = name_in_counter(own, &first.bound, conf, request, keys)?;
            *key = name.and_then(|name| keys.keep(first.bound.table().key(name)));
            return Ok(());
        }
    };
    if let Some(bytes) = bytes {
        let name = match is_plain(bytes) {
            true => Some(bytes),
            false => name_of(bytes, None, &first.bound, request, keys)?,
        };
        *key = name.and_then(|name| keys.keep(first.bound.table().key(name)));
    }
    Ok(())
}

/// The name of the key of a rule that has a counter of its own; otherwise as [`name_of`].
#[cold]
fn name_in_counter(
    own: &OwnKey,
    bound: &BoundLimit<'_>,
    conf: &LocationConf,
    request: *mut ngx_http_request_t,
    keys: &mut Keys,
) -> Result<Option<&'static [u8]>, EvaluationError> {
    let key = match own.text() {
        Some(text) => text.evaluate(request)?,
        None => conf.evaluate_key(request)?,
    };
    name_of(key, own.counter(), bound, request, keys)
}

/// The name of a key that is not its own, which lives as long as the request. `None` for a key that is
/// not accounted; one that is too long is logged.
#[cold]
fn name_of(
    key: &'static [u8],
    counter: Option<&str>,
    bound: &BoundLimit<'_>,
    request: *mut ngx_http_request_t,
    keys: &mut Keys,
) -> Result<Option<&'static [u8]>, EvaluationError> {
    if !is_accounted(key) {
        if key.len() > MAX_KEY_LEN {
            bound.count_invalid(Invalid::Key);
            let message = format_args!("ratelimit: a key of {} bytes is not accounted", key.len());
            log::error(NGX_LOG_ERR, log_of(request), message);
        }
        return Ok(None);
    }
    let name = keys.rename(key, &counted_name(key, counter), request);
    name.map(Some).ok_or(EvaluationError)
}

/// The hits that a limit admits; `None` if it does not apply.
#[inline]
pub(super) fn hits_of(
    limit: &ActiveLimit,
    request: *mut ngx_http_request_t,
) -> Result<Option<Hits>, EvaluationError> {
    match limit.hits {
        Amount::Constant(hits) => Ok(Some(*hits)),
        Amount::Variable(_) => variable_hits_of(limit, request),
    }
}

#[cold]
fn variable_hits_of(
    limit: &ActiveLimit,
    request: *mut ngx_http_request_t,
) -> Result<Option<Hits>, EvaluationError> {
    Ok(match limit.hits.evaluate(request)? {
        Evaluated::Hits(hits) => Some(hits),
        Evaluated::Empty => None,
        Evaluated::Wrong(text) => {
            limit.bound.count_invalid(Invalid::Limit);
            let name = &limit.bound.limit.name;
            let message = format_args!(
                "ratelimit: the limit \"{name}\" is \"{}\", which is no plain decimal: it does not \
                 apply",
                Quoted(text)
            );
            log::error(NGX_LOG_ERR, log_of(request), message);
            None
        }
    })
}

/// What a request is charged when it is decided on.
#[inline]
pub(super) fn cost_of(
    rule: &ActiveRule,
    request: *mut ngx_http_request_t,
) -> Result<Hits, EvaluationError> {
    match rule.cost {
        Cost::AtOnce(Amount::Constant(hits)) => Ok(*hits),
        Cost::AtOnce(cost) => amount_or(Hits::ONE, Invalid::Cost, cost, rule, request),
        Cost::Late(_) => Ok(Hits::ZERO),
    }
}

/// A cost; `otherwise`, with a line in the log, if it is no number.
#[cold]
fn amount_or(
    otherwise: Hits,
    which: Invalid,
    amount: &Amount,
    rule: &ActiveRule,
    request: *mut ngx_http_request_t,
) -> Result<Hits, EvaluationError> {
    let what = match which {
        Invalid::Charge => "charge",
        _ => "cost",
    };
    match amount.evaluate(request)? {
        Evaluated::Hits(hits) => return Ok(hits),
        Evaluated::Empty => {
            // As from an upstream that does not say: not worth an error with every request.
            let message = format_args!("ratelimit: the {what} is empty: {otherwise} is counted");
            log::error(NGX_LOG_INFO, log_of(request), message);
        }
        Evaluated::Wrong(text) => {
            if let Some(limit) = rule.limits.first() {
                limit.bound.count_invalid(which);
            }
            let message = format_args!(
                "ratelimit: the {what} is \"{}\", which is no plain decimal: {otherwise} is counted",
                Quoted(text)
            );
            log::error(NGX_LOG_ERR, log_of(request), message);
        }
    }
    Ok(otherwise)
}

/// Whether this is a subrequest of a request that is still to be decided on, by the rules of its
/// own location: in a later phase, since it comes first to each.
#[inline]
fn is_before_main(request: *mut ngx_http_request_t) -> bool {
    !is_main(request) && {
        // SAFETY: nginx passes a request that has not ended; its main request lives longer.
        let conf = Module::location_conf(unsafe { &*(*request).main });
        conf.is_some_and(|conf| conf.rules().is_some())
    }
}

/// A request that reaches rules after it, or a subrequest of its, was decided on. It is not counted
/// again. After a subrequest was rejected, so are others; but no error page is, and not the main
/// request.
#[cold]
fn again(request: *mut ngx_http_request_t, context: &'static Context) -> ngx_int_t {
    // SAFETY: as above.
    let main = unsafe { (*request).main };
    let last = context.last_decided.get();
    let is_other = !ptr::eq(last, main) && !ptr::eq(last, request) && !ptr::eq(main, request);
    let status = match context.response {
        Response::Reject if is_other => context.settings.status,
        Response::Unavailable if is_other => UNAVAILABLE,
        _ => return DECLINED,
    };
    context.last_decided.set(request);
    status
}

/// Answers a request that was refused, unless this is a dry run.
#[cold]
fn reject(request: *mut ngx_http_request_t, context: &Context) -> ngx_int_t {
    match context.response {
        Response::Admit => return DECLINED,
        Response::Unavailable => return unavailable(request),
        Response::Reject => {}
    }
    let status = context.settings.status;
    match status {
        CLOSE => CLOSE,
        _ if grpc::is_call(request) => {
            grpc::answer(request, grpc::RESOURCE_EXHAUSTED, "rate limit exceeded")
        }
        // Those mean something else to nginx: that the client has gone, or errors of TLS.
        408 | 494..=499 if is_main(request) => respond::without_body(request, status, None),
        _ => status,
    }
}

/// Answers a request about which nobody could decide.
#[cold]
fn unavailable(request: *mut ngx_http_request_t) -> ngx_int_t {
    if grpc::is_call(request) {
        return grpc::answer(request, grpc::UNAVAILABLE, "rate limits are not known");
    }
    UNAVAILABLE
}

#[cold]
fn log_rejection(request: *mut ngx_http_request_t, context: &Context) {
    let Some(charge) = context.refusal() else {
        return;
    };
    if context.is_rejected() {
        charge.bound().count_rejection();
    }
    let Verdict {
        limit, hits, cost, ..
    } = charge.verdict();
    // Of what would have been counted: a rejection that is charged has been.
    let rate = match context.settings.count_rejected {
        true => charge.verdict().rate(),
        false => charge.verdict().rate().plus_value(cost),
    };
    let what = match context.is_rejected() {
        true => "rejected by",
        false => "would be rejected by",
    };
    let message = format_args!(
        "ratelimit: {what} \"{}\", namespace \"{}\", key \"{}\", limit {hits}, rate {rate}, cost {cost}",
        limit.name,
        charge.bound().namespace(),
        Shown(context.key_of(charge)),
    );
    log::error(context.settings.log_level, log_of(request), message);
}

/// When a request ends: counts the hits of its rules that are known only now.
unsafe extern "C" fn at_end(request: *mut ngx_http_request_t) -> ngx_int_t {
    guard(NGX_OK as ngx_int_t, || {
        // Subrequests are logged too.
        if is_main(request) {
            if let Some(context) = context::of(request) {
                charge_at_end(request, context);
            }
        }
        NGX_OK as ngx_int_t
    })
}

fn charge_at_end(request: *mut ngx_http_request_t, context: &Context) {
    let Active {
        rules, has_late, ..
    } = context.rules.active();
    let is_charged = context.response == Response::Admit
        && context.outcome != Outcome::RejectedDryRun
        || context.settings.count_rejected;
    if !has_late || !is_charged {
        return;
    }
    let mut late = Vec::new();
    for rule in rules {
        let has_applied = context
            .charges
            .iter()
            .any(|charge| rule.has(charge.bound()));
        if let (Cost::Late(amount), true) = (rule.cost, has_applied) {
            // Without memory, nothing is counted: nginx has logged why.
            let hits = amount_or(Hits::ZERO, Invalid::Charge, amount, rule, request);
            late.push((rule, hits.unwrap_or(Hits::ZERO)));
        }
    }
    let value_of = |bound: &_| {
        let of_rule = late.iter().find(|(rule, _)| rule.has(bound));
        of_rule.map_or(Hits::ZERO, |(_, hits)| *hits)
    };
    let store_of = |bound: &_| {
        let rule = rules.iter().find(|rule| rule.has(bound))?;
        Some(rule.synchronous?.store)
    };
    let decider_of = |bound: &_| {
        let mut charges = context.charges.iter();
        let charge = charges.find(|charge| ptr::eq(charge.bound(), bound))?;
        Some(store_of(bound)?.number_of(charge.key().bytes()))
    };
    for late in late_questions(context.charges, value_of, store_of) {
        if synchronous::charge(late.decider, &late.question) {
            late.count();
            continue;
        }
        // It will be pushed when the store is back.
        let of_decider = |bound: &_| match decider_of(bound) == Some(late.decider) {
            true => value_of(bound),
            false => Hits::ZERO,
        };
        charge_late(context.charges, of_decider, &NgxClock);
    }
    let of_node = |bound: &_| match store_of(bound) {
        Some(_) => Hits::ZERO,
        None => value_of(bound),
    };
    charge_late(context.charges, of_node, &NgxClock);
}

#[inline]
pub(super) fn log_of(request: *mut ngx_http_request_t) -> *mut ngx_log_t {
    // SAFETY: nginx passes a request that has not ended; it has a connection, and that a log.
    unsafe { (*(*request).connection).log }
}
