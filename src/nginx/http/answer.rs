//! What is answered to a request that was decided on: its log, and its rejection.

use nginx_sys::{NGX_DECLINED, NGX_HTTP_SERVICE_UNAVAILABLE, ngx_int_t};

use super::super::log;
use super::super::request::Request;
use super::context::{Context, Response};
use super::{grpc, respond};
use crate::policy::key::Shown;
use crate::policy::limit::Verdict;
use crate::table::Outcome;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
/// The status of a request on which no store could decide.
pub(super) const UNAVAILABLE: ngx_int_t = NGX_HTTP_SERVICE_UNAVAILABLE as ngx_int_t;
/// The status with which nginx closes the connection without an answer.
const CLOSE: ngx_int_t = 444;

/// Logs what was decided, and answers a request that is not admitted. Returns what the handler is to
/// return.
#[inline]
pub(super) fn answer(request: &Request<'_>, context: &Context<'_>) -> ngx_int_t {
    let outcome = context.outcome;
    log::debug(request.log(), || {
        format!("ratelimit: {} limits, {outcome:?}", context.charges.len())
    });
    if outcome == Outcome::Passed {
        return DECLINED;
    }
    log_rejection(request, context);
    reject(request, context)
}

/// Answers a request that was refused, unless this is a dry run.
#[cold]
fn reject(request: &Request<'_>, context: &Context<'_>) -> ngx_int_t {
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
        408 | 494..=499 if request.is_main() => respond::without_body(request, status, None),
        _ => status,
    }
}

/// Answers a request on which no store could decide.
#[cold]
fn unavailable(request: &Request<'_>) -> ngx_int_t {
    if grpc::is_call(request) {
        return grpc::answer(request, grpc::UNAVAILABLE, "rate limits are not known");
    }
    UNAVAILABLE
}

#[cold]
fn log_rejection(request: &Request<'_>, context: &Context<'_>) {
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
    log::error(
        context.settings.log_level as log::NgxLogLevel,
        request.log(),
        message,
    );
}
