//! The header filter: tells clients about the limits, with every response of a request that any
//! applied to.

use core::fmt;
use core::ptr;

use nginx_sys::{
    NGX_ERROR, NGX_OK, ngx_http_output_header_filter_pt, ngx_http_request_t,
    ngx_http_top_header_filter, ngx_int_t, ngx_list_part_t, ngx_list_push, ngx_pnalloc, ngx_pool_t,
    ngx_str_t, ngx_table_elt_t,
};

use super::super::conf::Headers;
use super::super::guard::guard;
use super::context::{self, Context, Response};
use super::is_main;
use crate::policy::headers;
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
    if let Some(context) = context::of(request) {
        // Subrequests have no headers.
        if is_main(request) && context.has_headers() && add_guarded(request, context).is_none() {
            return NGX_ERROR as ngx_int_t;
        }
    }
    // SAFETY: set by `install`, before there are requests.
    match unsafe { NEXT } {
        // SAFETY: the next filter takes what this one got.
        Some(next) => unsafe { next(request) },
        None => NGX_OK as ngx_int_t,
    }
}

/// Adds the headers. `None`: no memory.
// Not inlined: a request without headers need not save what adding them takes.
#[inline(never)]
fn add_guarded(request: *mut ngx_http_request_t, context: &'static Context) -> Option<()> {
    guard(None, || add(request, context))
}

fn add(request: *mut ngx_http_request_t, context: &'static Context) -> Option<()> {
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

fn add_ietf(request: *mut ngx_http_request_t, context: &'static Context) -> Option<()> {
    // A name and two numbers of at most 20 digits, with what is between them.
    let names = context.verdicts().map(|verdict| verdict.limit.name.len());
    let numbers = context.charges.len().saturating_mul(52);
    let capacity = names.sum::<usize>().saturating_add(numbers);

    let policy = match context.rules.policy(context.charges.len()) {
        Some(policy) => policy,
        None => {
            let mut value = PoolText::new(request, capacity)?;
            let limits = context
                .verdicts()
                .map(|verdict| (verdict.limit, verdict.hits));
            headers::policy(limits, |part| value.put(part));
            value.into_static()
        }
    };
    put(request, headers::POLICY, policy)?;

    let mut value = PoolText::new(request, capacity)?;
    match context.charges {
        [only] => headers::state([only.verdict()], |part| value.put(part)),
        _ => headers::state(by_tightness(context.verdicts()), |part| value.put(part)),
    }
    put(request, headers::STATE, value.into_static())
}

fn add_draft03(request: *mut ngx_http_request_t, context: &'static Context) -> Option<()> {
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

fn add_legacy(request: *mut ngx_http_request_t, context: &'static Context) -> Option<()> {
    // The least tight first: where two limits have one window, the tightest stays.
    for verdict in by_tightness(context.verdicts()).into_iter().rev() {
        for (start, value) in [
            (headers::LEGACY_LIMIT, verdict.hits),
            (headers::LEGACY_REMAINING, verdict.remaining()),
        ] {
            // The window in seconds may have 20 digits and a point.
            let mut name = PoolText::new(request, start.len().saturating_add(24))?;
            name.put(start.as_bytes());
            headers::legacy_window(verdict.limit.size, |part| name.put(part));
            let name = core::str::from_utf8(name.into_static()).ok()?;
            put(request, name, number(request, headers::whole(value))?)?;
        }
    }
    Some(())
}

/// A number as text. `None`: no memory.
fn number(request: *mut ngx_http_request_t, number: u64) -> Option<&'static [u8]> {
    let mut value = PoolText::new(request, 20)?;
    headers::number(number, &mut |part| value.put(part));
    Some(value.into_static())
}

/// Adds a header to the response, in place of those of the same name. `None`: no memory.
pub(super) fn put(
    request: *mut ngx_http_request_t,
    name: &'static str,
    value: &'static [u8],
) -> Option<()> {
    remove(request, name);
    // SAFETY: the request has not ended; its headers are a list of `ngx_table_elt_t`; what is pushed
    // is whole, and its strings live as long as the request.
    unsafe {
        let headers = &raw mut (*request).headers_out.headers;
        let entry = ngx_list_push(headers).cast::<ngx_table_elt_t>();
        if entry.is_null() {
            return None;
        }
        // Filters of newer versions follow `next`: all of it must be set.
        ptr::write_bytes(entry, 0, 1);
        (*entry).hash = 1;
        (*entry).key = text(name.as_bytes());
        (*entry).value = text(value);
    }
    Some(())
}

/// Removes the headers of that name from the response, such as an upstream's.
fn remove(request: *mut ngx_http_request_t, name: &str) {
    // SAFETY: the request has not ended; its headers are a list of `ngx_table_elt_t`, each with a
    // key.
    unsafe {
        let mut part: *mut ngx_list_part_t = &raw mut (*request).headers_out.headers.part;
        while let Some(entries) = part.as_ref() {
            for index in 0..entries.nelts {
                let entry = &mut *entries.elts.cast::<ngx_table_elt_t>().add(index);
                if entry.key.as_bytes().eq_ignore_ascii_case(name.as_bytes()) {
                    // A header with the hash 0 is not sent.
                    entry.hash = 0;
                }
            }
            part = entries.next;
        }
    }
}

fn text(bytes: &'static [u8]) -> ngx_str_t {
    ngx_str_t {
        len: bytes.len(),
        data: bytes.as_ptr().cast_mut(),
    }
}

/// A text that is written into the memory of a request.
pub(super) struct PoolText {
    bytes: &'static mut [u8],
    len: usize,
}

impl PoolText {
    /// An empty text of at most `capacity` bytes; `None`: no memory.
    pub(super) fn new(request: *mut ngx_http_request_t, capacity: usize) -> Option<PoolText> {
        // SAFETY: a request has a pool, whose memory lives as long.
        unsafe {
            let pool: *mut ngx_pool_t = (*request).pool;
            let start = ngx_pnalloc(pool, capacity).cast::<u8>();
            if start.is_null() {
                return None;
            }
            start.write_bytes(0, capacity);
            Some(PoolText {
                bytes: core::slice::from_raw_parts_mut(start, capacity),
                len: 0,
            })
        }
    }

    /// Appends `part`, if there is room for it.
    pub(super) fn put(&mut self, part: &[u8]) {
        let end = self.len.saturating_add(part.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(part);
            self.len = end;
        }
    }

    /// The text, which lives as long as the request.
    pub(super) fn into_static(self) -> &'static [u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for PoolText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}
