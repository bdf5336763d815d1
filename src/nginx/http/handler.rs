//! The path of a request, from top to bottom: key, limits, decision, log.

use core::ptr;

use nginx_sys::{
    NGX_DECLINED, NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_TOO_MANY_REQUESTS,
    NGX_LOG_ERR, NGX_OK, ngx_array_push, ngx_conf_t, ngx_http_core_main_conf_t,
    ngx_http_handler_pt, ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, ngx_http_request_t, ngx_int_t,
};
use ngx::http::{HttpModuleLocationConf as _, HttpModuleMainConf as _, NgxHttpCoreModule};

use super::super::conf::{LocationConf, Resolved, ResolvedLimit, RuleSet};
use super::super::guard::guard;
use super::super::log;
use super::super::module::Module;
use super::super::time::NgxClock;
use super::context::{Room, Slot};
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
        match Slot::of(request) {
            Some(slot) if slot.get().is_none() => decide(request, slot, conf, rules),
            // Counted once, by the first location that has rules.
            _ => NGX_DECLINED as ngx_int_t,
        }
    })
}

/// Decides on a request under `rules`. Admitted is NGX_DECLINED: NGX_OK would skip the phase's
/// other handlers.
fn decide(
    request: *mut ngx_http_request_t,
    slot: Slot,
    conf: &LocationConf,
    rules: &'static RuleSet,
) -> ngx_int_t {
    // SAFETY: a request has a connection, and that a log.
    let connection_log = unsafe { (*(*request).connection).log };
    let Ok(key) = conf.evaluate_key(request) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };

    let Resolved { limits, namespaces } = rules.resolved();
    let has_key = is_accounted(key);
    let limits: &[ResolvedLimit] = if has_key { limits } else { &[] };
    let Some(room) = Room::new(request, limits.len()) else {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    };

    let mut attempt = Attempt::new(room);
    if let [first, ..] = limits {
        let (mut table, mut hashed) = (first.table, first.table.key(key));
        for limit in limits {
            if !ptr::eq(limit.table, table) {
                (table, hashed) = (limit.table, limit.table.key(key));
            }
            attempt.charge(
                table,
                &limit.counter,
                limit.limit,
                hashed,
                Hits::ONE,
                &NgxClock,
            );
        }
    } else if key.len() > MAX_KEY_LEN {
        log::error(
            NGX_LOG_ERR,
            connection_log,
            format_args!("ratelimit: a key of {} bytes is not accounted", key.len()),
        );
    }
    let (admitted, room) = attempt.finish();
    let context = room.keep(slot, rules, admitted, conf.headers());
    log::debug(connection_log, || {
        format!("ratelimit: {} limits, admitted: {admitted}", limits.len())
    });
    if has_key {
        // In each namespace that had a say.
        let outcome = if admitted {
            Outcome::Passed
        } else {
            Outcome::Rejected
        };
        for (table, namespace) in namespaces {
            table.count_outcome(*namespace, outcome);
        }
    }
    if admitted {
        return NGX_DECLINED as ngx_int_t;
    }
    log_rejection(connection_log, context.charges);
    NGX_HTTP_TOO_MANY_REQUESTS as ngx_int_t
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
