//! The path of a request, from top to bottom: key, limits, decision, log.

use nginx_sys::{
    NGX_DECLINED, NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_TOO_MANY_REQUESTS,
    NGX_LOG_ERR, NGX_OK, ngx_array_push, ngx_conf_t, ngx_http_core_main_conf_t,
    ngx_http_handler_pt, ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, ngx_http_request_t, ngx_int_t,
};
use ngx::http::{HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule};

use super::super::conf::{LocationConf, RuleSet};
use super::super::guard::guard;
use super::super::log;
use super::super::module::Module;
use super::super::time::NgxClock;
use super::context::{self, Room};
use crate::engine::{Attempt, Charge};
use crate::policy::hits::Hits;
use crate::policy::key::{MAX_KEY_LEN, is_accounted};
use crate::table::Outcome;

/// Adds the handler to the preaccess phase.
pub(in super::super) fn install(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: nginx reads the configuration, and has that of its core.
    let core = unsafe { NgxHttpCoreModule::main_conf_mut(&*cf) };
    let Some(ngx_http_core_main_conf_t { phases, .. }) = core else {
        return NGX_ERROR as ngx_int_t;
    };
    let Some(phase) = phases.get_mut(ngx_http_phases_NGX_HTTP_PREACCESS_PHASE as usize) else {
        return NGX_ERROR as ngx_int_t;
    };
    // SAFETY: the phase's array is one of handlers.
    let place = unsafe {
        ngx_array_push(&mut phase.handlers)
            .cast::<ngx_http_handler_pt>()
            .as_mut()
    };
    match place {
        Some(place) => {
            *place = Some(handler);
            NGX_OK as ngx_int_t
        }
        None => NGX_ERROR as ngx_int_t,
    }
}

unsafe extern "C" fn handler(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended.
    let conf = Module::location_conf(unsafe { &*request });
    let Some((conf, rules)) = conf.and_then(|conf| Some((conf, conf.rules()?))) else {
        return NGX_DECLINED as ngx_int_t;
    };
    guard(NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t, || {
        // Counted once, by the first location that has rules.
        match context::of(request) {
            None => decide(request, conf, rules),
            Some(_) => NGX_DECLINED as ngx_int_t,
        }
    })
}

/// Decides on a request under `rules`. Admitted is NGX_DECLINED: NGX_OK would skip the phase's
/// other handlers.
fn decide(
    request: *mut ngx_http_request_t,
    conf: &LocationConf,
    rules: &'static RuleSet,
) -> ngx_int_t {
    // SAFETY: a request has a connection, and that a log.
    let connection_log = unsafe { (*(*request).connection).log };
    let Ok(key) = conf.evaluate_key(request) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };

    let has_key = is_accounted(key);
    let limits = if has_key { rules.limit_count } else { 0 };
    let Some(room) = Room::new(request, limits) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };

    let mut attempt = Attempt::new(room);
    if has_key {
        for rule in &rules.rules {
            let Some(namespace) = rule.namespace.get() else {
                continue;
            };
            let hash = namespace.table().key(key);
            for (limit, counter) in &rule.limits {
                attempt.charge(namespace, counter, limit, hash, Hits::ONE, &NgxClock);
            }
        }
    } else if key.len() > MAX_KEY_LEN {
        log::error(
            NGX_LOG_ERR,
            connection_log,
            format_args!("ratelimit: a key of {} bytes is not accounted", key.len()),
        );
    }
    let (admitted, room) = attempt.finish();
    let context = room.keep(request, rules, admitted, conf.headers());
    log::debug(connection_log, || {
        format!("ratelimit: {limits} limits, admitted: {admitted}")
    });
    if has_key {
        count(rules, admitted);
    }
    if admitted {
        return NGX_DECLINED as ngx_int_t;
    }
    log_rejection(connection_log, context.charges);
    NGX_HTTP_TOO_MANY_REQUESTS as ngx_int_t
}

/// Counts the outcome in each namespace that had a say.
fn count(rules: &RuleSet, admitted: bool) {
    let outcome = if admitted {
        Outcome::Passed
    } else {
        Outcome::Rejected
    };
    for namespace in rules
        .namespaces
        .iter()
        .filter_map(|namespace| namespace.get())
    {
        namespace.table().count_outcome(namespace.index(), outcome);
    }
}

fn log_rejection(connection_log: *mut nginx_sys::ngx_log_t, charges: &[Charge<'_, '_>]) {
    let Some(refusal) = charges.iter().find(|charge| !charge.verdict.admitted) else {
        return;
    };
    let limit = refusal.verdict.limit;
    log::error(
        NGX_LOG_ERR,
        connection_log,
        format_args!(
            "ratelimit: rejected by \"{}\", limit {}, rate {}",
            limit.name,
            limit.hits,
            refusal.verdict.rate()
        ),
    );
}
