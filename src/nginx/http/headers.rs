//! The header filter: tells clients about the limits, with every response of a request that any
//! applied to.

use nginx_sys::{
    NGX_ERROR, NGX_OK, ngx_http_output_header_filter_pt, ngx_http_request_t,
    ngx_http_top_header_filter, ngx_int_t,
};

use super::super::conf::Headers;
use super::super::guard::guard;
use super::super::memory::PoolText;
use super::super::request::Request;
use super::context::{self, Context, Response};
use super::respond::{put, remove};
use crate::policy::headers::{self, PolicyItem};
use crate::policy::limit::{by_tightness, tightest};

/// The filter after ours.
static mut NEXT: ngx_http_output_header_filter_pt = None;

/// Makes the filter the first of those installed so far.
pub(in super::super) fn install() {
    // SAFETY: the configuration is read in the master's only thread.
    unsafe {
        NEXT = ngx_http_top_header_filter;
        ngx_http_top_header_filter = Some(filter);
    }
}

unsafe extern "C" fn filter(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended, nor is ended here.
    let has_added = unsafe { Request::with(request, add_if_any) };
    if has_added.is_none() {
        return NGX_ERROR as ngx_int_t;
    }
    // SAFETY: set by `install`, before there are requests.
    match unsafe { NEXT } {
        // SAFETY: the next filter takes what this one got.
        Some(next) => unsafe { next(request) },
        None => NGX_OK as ngx_int_t,
    }
}

/// Adds the headers, if there is anything to tell. `None`: no memory.
#[inline]
fn add_if_any(request: &Request<'_>) -> Option<()> {
    match context::of(request) {
        // Subrequests have no headers.
        Some(context) if request.is_main() && context.has_headers() => {
            add_guarded(request, context)
        }
        _ => Some(()),
    }
}

/// Adds the headers. `None`: no memory.
// Not inlined: a request without headers need not save what adding them takes.
#[inline(never)]
fn add_guarded<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    guard(None, || add(request, context))
}

fn add<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    let Headers {
        ietf,
        draft03,
        legacy,
    } = context.settings.headers;
    let is_accounted = context.is_accounted();
    if ietf && is_accounted {
        add_ietf(request, context)?;
    }
    if draft03 && is_accounted {
        add_draft03(request, context)?;
    }
    if legacy && is_accounted {
        add_legacy(request, context)?;
    }
    if context.is_rejected() {
        match context.retry_after() {
            Some(wait) => {
                let seconds = headers::retry_after_seconds(wait);
                put(request, headers::RETRY_AFTER, number(request, seconds)?)?;
            }
            None => remove(request, headers::RETRY_AFTER),
        }
    }
    if context.response == Response::Unavailable {
        // By then it is known whether the store is back.
        let seconds = headers::retry_after_seconds(context.jitter);
        put(request, headers::RETRY_AFTER, number(request, seconds)?)?;
    }
    Some(())
}

fn add_ietf<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    // A name and two numbers of at most 20 digits, with what is between them.
    let names = context.verdicts().map(|verdict| verdict.limit.name.len());
    let numbers = context.charges.len().saturating_mul(52);
    let capacity = names.sum::<usize>().saturating_add(numbers);

    let policy = match context.rules.policy(context.charges.len()) {
        Some(policy) => policy,
        None => {
            let mut value = PoolText::new(request, capacity)?;
            let policies = context.verdicts().map(|verdict| PolicyItem {
                name: &verdict.limit.name,
                hits: verdict.hits,
                window: verdict.window(),
            });
            headers::policy(policies, |part| value.put(part));
            value.into_bytes()
        }
    };
    put(request, headers::POLICY, policy)?;

    let mut value = PoolText::new(request, capacity)?;
    match context.charges {
        [only] => headers::state([only.verdict()], |part| value.put(part)),
        _ => headers::state(by_tightness(context.verdicts()), |part| value.put(part)),
    }
    put(request, headers::STATE, value.into_bytes())
}

fn add_draft03<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    let verdict = tightest(context.verdicts())?;
    let remaining = verdict.remaining();
    let (limit, rest) = (headers::whole(verdict.hits), headers::whole(remaining));
    put(request, headers::LIMIT, number(request, limit)?)?;
    put(request, headers::REMAINING, number(request, rest)?)?;
    match verdict.reset(remaining) {
        Some(reset) => put(
            request,
            headers::RESET,
            number(request, reset.div_ceil(1000))?,
        )?,
        None => remove(request, headers::RESET),
    }
    Some(())
}

fn add_legacy<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    // The least tight first: where two limits have one window, the tightest stays.
    for verdict in by_tightness(context.verdicts()).into_iter().rev() {
        for (start, value) in [
            (headers::LEGACY_LIMIT, verdict.hits),
            (headers::LEGACY_REMAINING, verdict.remaining()),
        ] {
            // The window in seconds may have 20 digits and a point.
            let mut name = PoolText::new(request, start.len().saturating_add(24))?;
            name.put(start.as_bytes());
            let window = verdict.window().unwrap_or(verdict.limit.size.millis());
            headers::legacy_window(window, |part| name.put(part));
            let name = core::str::from_utf8(name.into_bytes()).ok()?;
            put(request, name, number(request, headers::whole(value))?)?;
        }
    }
    Some(())
}

/// A number as text. `None`: no memory.
fn number<'r>(request: &Request<'r>, number: u64) -> Option<&'r [u8]> {
    let mut value = PoolText::new(request, 20)?;
    headers::number(number, &mut |part| value.put(part));
    Some(value.into_bytes())
}
