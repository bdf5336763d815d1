//! The header filter: tells clients about the limits, with every response of a request that any
//! applied to.

use nginx_sys::{
    NGX_ERROR, NGX_OK, ngx_http_output_header_filter_pt, ngx_http_request_t,
    ngx_http_top_header_filter, ngx_int_t,
};

use super::super::guard::guard;
use super::super::memory::PoolText;
use super::super::request::Request;
use super::context::{self, Context, Response};
use super::respond::{put, remove};
use crate::policy::headers::{self, HeaderSink, Told};

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
    if context.is_accounted() {
        let count = context.charges.len();
        let told = Told {
            verdicts: context.verdicts(),
            count,
            policy: context.rules.policy(count),
        };
        context.settings.headers.put(&told, &mut Headers(request))?;
    }
    if context.is_rejected() {
        match context.retry_after() {
            Some(wait) => {
                let seconds = headers::retry_after_seconds(wait);
                Headers(request).put_number(headers::RETRY_AFTER, seconds)?;
            }
            None => remove(request, headers::RETRY_AFTER),
        }
    }
    if context.response == Response::Unavailable {
        // By then it is known whether the store is back.
        let seconds = headers::retry_after_seconds(context.jitter);
        Headers(request).put_number(headers::RETRY_AFTER, seconds)?;
    }
    Some(())
}

/// The headers of a response.
struct Headers<'q, 'r>(&'q Request<'r>);

impl<'r> HeaderSink<'r> for Headers<'_, 'r> {
    type Text = PoolText<'r>;

    fn text(&mut self, capacity: usize) -> Option<PoolText<'r>> {
        PoolText::new(self.0, capacity)
    }

    fn put(&mut self, name: &'static str, value: PoolText<'r>) -> Option<()> {
        put(self.0, name, value.into_bytes())
    }

    fn put_written(&mut self, name: &'static str, value: &'r [u8]) -> Option<()> {
        put(self.0, name, value)
    }

    fn put_named(&mut self, name: PoolText<'r>, value: PoolText<'r>) -> Option<()> {
        let name = core::str::from_utf8(name.into_bytes()).ok()?;
        put(self.0, name, value.into_bytes())
    }

    fn remove(&mut self, name: &'static str) {
        remove(self.0, name);
    }
}
