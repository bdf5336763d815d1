//! Logs the decision about a request, and answers a request that is rejected.

use core::fmt;

use nginx_sys::{NGX_DECLINED, NGX_HTTP_SERVICE_UNAVAILABLE, ngx_int_t};

use super::context::{Context, Delay, Response};
use super::{error_page, grpc, respond};
use crate::engine::Charge;
use crate::nginx::log;
use crate::nginx::request::Request;
use crate::policy::hits::Hits;
use crate::policy::key::Shown;
use crate::policy::limit::Verdict;
use crate::table::Outcome;

const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
/// Status of a response when no store could decide.
const UNAVAILABLE: ngx_int_t = NGX_HTTP_SERVICE_UNAVAILABLE as ngx_int_t;
/// Status with which nginx closes the connection without a response.
const CLOSE: ngx_int_t = 444;

/// Logs the decision, and answers the request if it is not admitted. Returns the phase handler's
/// return value.
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

/// Rejects a request that exceeded a limit. Returns `NGX_DECLINED` if the response is to admit it,
/// as in a dry run.
#[cold]
pub(super) fn reject(request: &Request<'_>, context: &Context<'_>) -> ngx_int_t {
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
        // As a phase handler's return value, these statuses have another meaning for nginx: the
        // client closed the connection, or a TLS error.
        408 | 494..=499 if error_page::is_named(request, status) => {
            error_page::answer_later(request, status)
        }
        408 | 494..=499 => respond::without_body(request, status, None),
        _ => status,
    }
}

/// Answers a request about which no store could decide.
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
    let verdict = charge.verdict();
    // Shows the rate that was compared with the limit. A charged rejection is in the rate already.
    let rate = match context.settings.count_rejected {
        true => verdict.rate(),
        false => verdict.rate().plus_value(verdict.cost),
    };
    let what = match context.is_rejected() {
        true => "rejected by",
        false => "would be rejected by",
    };
    let limit = ShownLimit { context, charge, rate };
    let message = format_args!("ratelimit: {what} {limit}");
    let level = context.settings.log_level as log::NgxLogLevel;
    log::error(level, request.log(), message);
}

/// Logs that a rate delays the request, or would delay it without the dry run.
pub(super) fn log_delay(request: &Request<'_>, context: &Context<'_>, delay: &Delay<'_>) {
    let Delay { millis, charge } = *delay;
    let what = match context.is_dry_run() {
        true => "would be delayed by",
        false => "delayed by",
    };
    let limit = ShownLimit { context, charge, rate: charge.verdict().rate() };
    let message = format_args!("ratelimit: {what} {limit} for {millis}ms");
    let level = context.settings.log_level.of_delays() as log::NgxLogLevel;
    log::error(level, request.log(), message);
}

/// Formats a limit, with its namespace and key, for a log line.
struct ShownLimit<'c> {
    context: &'c Context<'c>,
    charge: &'c Charge<'c, 'static>,
    /// The rate that was compared with the limit.
    rate: Hits,
}

impl fmt::Display for ShownLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownLimit { context, charge, rate } = *self;
        let Verdict { limit, hits, cost, .. } = charge.verdict();
        write!(
            f,
            "\"{}\", namespace \"{}\", key \"{}\", limit {hits}, rate {rate}, cost {cost}, rule {}",
            limit.name,
            charge.bound().namespace(),
            Shown(context.key_of(charge)),
            context.place_of(charge).unwrap_or_default(),
        )
    }
}
