//! The header filter, which adds headers about the limits to the response if any limit applied.

use nginx_sys::{
    NGX_ERROR, NGX_OK, ngx_http_output_header_filter_pt, ngx_http_request_t,
    ngx_http_top_header_filter, ngx_int_t,
};

use super::context::{self, Context, Response};
use super::respond::{put, remove};
use crate::nginx::event_loop::guard;
use crate::nginx::memory::PoolText;
use crate::nginx::request::Request;
use crate::policy::headers::{HeaderSink, HeaderText, ToldLimits, retry_after};
use crate::policy::limit::Verdict;

/// The next header filter.
static mut NEXT: ngx_http_output_header_filter_pt = None;

/// Puts the filter at the front of nginx's chain.
pub(crate) fn install() {
    // SAFETY: the configuration is read in the master's only thread.
    unsafe {
        NEXT = ngx_http_top_header_filter;
        ngx_http_top_header_filter = Some(filter);
    }
}

unsafe extern "C" fn filter(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx passes a live request, and `add_if_any` does not end it.
    let has_added = unsafe { Request::with(request, add_if_any) };
    if has_added.is_none() {
        return NGX_ERROR as ngx_int_t;
    }
    // SAFETY: `install` sets it before nginx handles requests.
    match unsafe { NEXT } {
        // SAFETY: the arguments are those of this filter.
        Some(next) => unsafe { next(request) },
        None => NGX_OK as ngx_int_t,
    }
}

/// Adds the headers of a main request, if it has any. `None` without memory.
#[inline]
fn add_if_any(request: &Request<'_>) -> Option<()> {
    // Subrequests have no headers of their own.
    match context::of_main(request) {
        Some(context) if request.is_main() && context.has_headers() => {
            add_guarded(request, context)
        }
        _ => Some(()),
    }
}

/// Adds the headers. `None` without memory.
// Not inlined, so that requests without headers do not save the registers that this needs.
#[inline(never)]
fn add_guarded<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    guard(None, || add(request, context))
}

fn add<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    if context.is_accounted() {
        match context.rules.has_holds {
            true => add_without_holds(request, context)?,
            false => context.settings().headers.add(context, request)?,
        }
    }
    if context.is_rejected() {
        retry_after::add(context.retry_after(), request)?;
    }
    if context.response == Response::Unavailable {
        // Whether the store is back is known only now.
        retry_after::add(Some(context.added_wait.get()), request)?;
    }
    Some(())
}

/// Adds the headers of the limits that are not on requests under way, which no format has a form for.
#[cold]
#[inline(never)]
fn add_without_holds<'r>(request: &Request<'r>, context: &'r Context<'r>) -> Option<()> {
    let told = WithoutHolds(context);
    match told.count() {
        0 => Some(()),
        _ => context.settings().headers.add(&told, request),
    }
}

/// The limits of a request except those on requests that are under way.
struct WithoutHolds<'r>(&'r Context<'r>);

impl<'r> ToldLimits<'r> for WithoutHolds<'r> {
    fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone {
        self.0.verdicts().filter(|it| !it.limit.algorithm.is_of_concurrency())
    }

    fn count(&self) -> usize {
        self.verdicts().count()
    }

    fn policy(&self) -> Option<&'r [u8]> {
        self.0.rules.policy(self.count())
    }
}

impl<'r> ToldLimits<'r> for Context<'r> {
    #[inline]
    fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone {
        Context::verdicts(self)
    }

    #[inline]
    fn count(&self) -> usize {
        self.charges.len()
    }

    #[inline]
    fn policy(&self) -> Option<&'r [u8]> {
        self.rules.policy(self.charges.len())
    }
}

impl<'r> HeaderSink<'r> for Request<'r> {
    type Text = PoolText<'r>;

    #[inline]
    fn text(&self, capacity: usize) -> Option<PoolText<'r>> {
        PoolText::new(self, capacity)
    }

    #[inline]
    fn put(&self, name: &'r str, value: &'r [u8]) -> Option<()> {
        put(self, name, value)
    }

    fn remove(&self, name: &str) {
        remove(self, name);
    }
}

impl<'r> HeaderText<'r> for PoolText<'r> {
    #[inline]
    fn put(&mut self, part: &[u8]) {
        PoolText::put(self, part);
    }

    #[inline]
    fn into_bytes(self) -> &'r [u8] {
        PoolText::into_bytes(self)
    }
}
