//! Logs the decision about a request, and answers a request that is rejected.

use core::fmt;

use nginx_sys::{
    NGX_AGAIN, NGX_DECLINED, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK,
    NGX_HTTP_SERVICE_UNAVAILABLE, NGX_OK, ngx_int_t,
};

use super::context::{Context, Delay, Response};
use super::error_page;
use super::respond::{self, put};
use crate::engine::Charge;
use crate::engine::api::escaped;
use crate::nginx::conf::{Active, BodyPart, EvaluationError, RejectionBody, Text};
use crate::nginx::event_loop::NgxClock;
use crate::nginx::request::Request;
use crate::nginx::{log, sync};
use crate::policy::hits::Hits;
use crate::policy::key::Shown;
use crate::policy::limit::Verdict;
use crate::table::Outcome;

const OK: ngx_int_t = NGX_OK as ngx_int_t;
const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;
const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
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
    record_rejection(request, context);
    reject(request, context)
}

/// Records the rejections by rules that ban keys.
fn record_rejection(request: &Request<'_>, context: &Context<'_>) {
    let Active { rules, has_bans, .. } = context.rules.active();
    for rule in rules.iter().filter(|_| *has_bans) {
        let Some(ban) = &rule.ban else { continue };
        let mut refused = context.charges.iter().filter(|charge| {
            let bound = charge.bound();
            rule.has(bound) && !bound.is_of_bans() && !charge.verdict().admitted
        });
        let Some(charge) = refused.next() else { continue };
        if ban.record(charge.key().bytes(), &NgxClock) {
            let bound = &ban.bound;
            let message = format_args!(
                "ratelimit: banned for {} by \"{}\", namespace \"{}\", key \"{}\", rule {}",
                bound.limit.size,
                bound.limit.name,
                bound.namespace(),
                Shown(context.key_of(charge)),
                rule.place,
            );
            log::error(context.settings().log_level as log::NgxLogLevel, request.log(), message);
            if !(context.is_rejected() && context.is_tried(charge)) {
                context.wait_for_ban(bound.limit.size.millis());
            }
            // Other nodes know of it with the next sync; without a store there is none.
            sync::sync_now(bound.namespace());
        }
    }
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
    let status = context.status();
    match status {
        CLOSE => CLOSE,
        _ if is_grpc_call(request) => {
            answer_grpc(request, GRPC_RESOURCE_EXHAUSTED, "rate limit exceeded")
        }
        // As a phase handler's return value, these statuses have another meaning for nginx: the
        // client closed the connection, or a TLS error.
        408 | 494..=499 if error_page::is_named(request, status) => {
            error_page::answer_later(request, status)
        }
        _ => match context.conf.body() {
            Some(body) if !error_page::is_named(request, status) => {
                answer_with(body, request, status)
            }
            _ if matches!(status, 408 | 494..=499) => respond::without_body(request, status, None),
            _ => status,
        },
    }
}

/// Answers a rejected request with the configured body. Returns the phase handler's return value.
fn answer_with(
    body: &'static RejectionBody<Text>,
    request: &Request<'_>,
    status: ngx_int_t,
) -> ngx_int_t {
    // The text may have `$status`.
    respond::set_status(request, status);
    let Ok(text) = text_of(body, request) else {
        return SERVER_ERROR;
    };
    match respond::with_body(request, status, &body.media_type, &text) {
        // From a phase handler, these have other meanings. nginx keeps unsent output in the request.
        OK | AGAIN => NGX_HTTP_OK as ngx_int_t,
        failed => failed,
    }
}

/// Returns the body with the values of its variables. In JSON they are escaped, and bytes that are
/// no UTF-8 are replaced, so that each value stays a part of its string.
fn text_of(body: &RejectionBody<Text>, request: &Request<'_>) -> Result<Vec<u8>, EvaluationError> {
    let mut text = Vec::new();
    for part in &body.parts {
        match part {
            BodyPart::Literal(bytes) => text.extend_from_slice(bytes),
            BodyPart::Variable(variable) => {
                let value = variable.evaluate(request)?;
                match body.is_json {
                    true => text.extend_from_slice(escaped(value).as_bytes()),
                    false => text.extend_from_slice(value),
                }
            }
        }
    }
    Ok(text)
}

/// Answers a request about which no store could decide.
#[cold]
fn unavailable(request: &Request<'_>) -> ngx_int_t {
    if is_grpc_call(request) {
        return answer_grpc(request, GRPC_UNAVAILABLE, "rate limits are not known");
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
    if charge.bound().is_of_bans() {
        charge.bound().count_banned();
    }
    let level = context.settings().log_level as log::NgxLogLevel;
    if !log::has(level, request.log()) {
        return;
    }
    let verdict = charge.verdict();
    // Shows the rate that was compared with the limit. A charged rejection is in the rate already.
    let rate = match context.settings().count_rejected {
        true => verdict.rate(),
        false => verdict.rate().plus_value(verdict.cost),
    };
    let what = match context.is_rejected() {
        true => "rejected by",
        false => "would be rejected by",
    };
    let limit = ShownLimit { context, charge, rate };
    let message = format_args!("ratelimit: {what} {limit}");
    log::error(level, request.log(), message);
}

/// Logs that a rate delays the request, or would delay it without the dry run.
pub(super) fn log_delay(request: &Request<'_>, context: &Context<'_>, delay: &Delay<'_>) {
    let Delay { millis, is_dry_run, charge } = *delay;
    let what = match is_dry_run {
        true => "would be delayed by",
        false => "delayed by",
    };
    let limit = ShownLimit { context, charge, rate: charge.verdict().rate() };
    let message = format_args!("ratelimit: {what} {limit} for {millis}ms");
    let level = context.settings().log_level.of_delays() as log::NgxLogLevel;
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
        let (name, namespace) = (&limit.name, charge.bound().namespace());
        let key = Shown(context.key_of(charge));
        write!(f, "\"{name}\", namespace \"{namespace}\", key \"{key}\", ")?;
        match charge.bound().is_of_bans() {
            true => write!(f, "banned, limit {hits}, ")?,
            false => write!(f, "limit {hits}, rate {rate}, cost {cost}, ")?,
        }
        write!(f, "rule {}", context.place_of(charge).unwrap_or_default())
    }
}

/// gRPC status of a rejected call.
const GRPC_RESOURCE_EXHAUSTED: &str = "8";

/// gRPC status of a call about which no store could decide.
const GRPC_UNAVAILABLE: &str = "14";

/// Returns whether the content type of a main request is gRPC's. A subrequest is never a gRPC call.
fn is_grpc_call(request: &Request<'_>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    request.is_main()
        && request
            .content_type()
            .get(..TYPE.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// Sends the whole response to a gRPC call, which has status 200. Returns the phase handler's return
/// value. It is "Trailers-Only" of
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
fn answer_grpc(request: &Request<'_>, status: &'static str, message: &'static str) -> ngx_int_t {
    let headers = put(request, "grpc-status", status.as_bytes())
        .and_then(|()| put(request, "grpc-message", message.as_bytes()));
    if headers.is_none() {
        return SERVER_ERROR;
    }
    let content_type = request.content_type();
    respond::without_body(request, NGX_HTTP_OK as ngx_int_t, Some(content_type))
}
