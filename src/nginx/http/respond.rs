//! Response headers, and responses other than nginx's own error pages.

use core::ptr;

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, NGX_OK, ngx_alloc_chain_link,
    ngx_buf_t, ngx_chain_t, ngx_create_temp_buf, ngx_http_discard_request_body,
    ngx_http_output_filter, ngx_http_send_header, ngx_int_t, ngx_list_part_t, ngx_list_push,
    ngx_pcalloc, ngx_str_t, ngx_table_elt_t,
};

use super::request_bits;
use crate::engine::api::{ApiError, MEDIA_TYPE};
use crate::nginx::request::Request;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Sets a header of the response, replacing all with the same name. `None` without memory.
pub(super) fn put<'r>(request: &Request<'r>, name: &'r str, value: &'r [u8]) -> Option<()> {
    remove(request, name);
    // SAFETY: the request is live; `headers` is a list of `ngx_table_elt_t`. All fields of the new
    // entry are set, and its strings live as long as the request.
    unsafe {
        let headers = &raw mut (*request.as_ptr()).headers_out.headers;
        let entry = ngx_list_push(headers).cast::<ngx_table_elt_t>();
        if entry.is_null() {
            return None;
        }
        // Newer versions of nginx follow `next`, so all fields are zeroed.
        ptr::write_bytes(entry, 0, 1);
        (*entry).hash = 1;
        (*entry).key = text(name.as_bytes());
        (*entry).value = text(value);
    }
    Some(())
}

/// Removes all headers with this name, such as an upstream's, from the response.
pub(super) fn remove(request: &Request<'_>, name: &str) {
    // SAFETY: the request is live; `headers` is a list of `ngx_table_elt_t`, each with a key.
    unsafe {
        let headers = &raw mut (*request.as_ptr()).headers_out.headers;
        let mut part: *mut ngx_list_part_t = &raw mut (*headers).part;
        while let Some(entries) = part.as_ref() {
            for index in 0..entries.nelts {
                let entry = &mut *entries.elts.cast::<ngx_table_elt_t>().add(index);
                if entry.key.as_bytes().eq_ignore_ascii_case(name.as_bytes()) {
                    // nginx does not send a header with the hash 0.
                    entry.hash = 0;
                }
            }
            part = entries.next;
        }
    }
}

/// Makes an nginx string of bytes that nginx only reads.
fn text(bytes: &[u8]) -> ngx_str_t {
    ngx_str_t { len: bytes.len(), data: bytes.as_ptr().cast_mut() }
}

/// Makes nginx discard the body of the request.
///
/// # Errors
///
/// The handler's return value, if nginx fails.
pub(super) fn discard_body(request: &Request<'_>) -> Result<(), ngx_int_t> {
    // SAFETY: the request is live.
    match unsafe { ngx_http_discard_request_body(request.as_ptr()) } {
        status if status == NGX_OK as ngx_int_t => Ok(()),
        status => Err(status),
    }
}

/// Sets the status of the response to a request.
pub(super) fn set_status(request: &Request<'_>, status: ngx_int_t) {
    // SAFETY: the request is live.
    unsafe { (*request.as_ptr()).headers_out.status = status.unsigned_abs() };
}

/// Sends a response that has only headers. Returns the phase handler's return value. nginx then
/// finalizes the request and may free it, so nothing may refer to it any more.
pub(super) fn without_body<'r>(
    request: &Request<'r>,
    status: ngx_int_t,
    content_type: Option<&'r [u8]>,
) -> ngx_int_t {
    if let Err(status) = discard_body(request) {
        return status;
    }
    set_status(request, status);
    // SAFETY: the request is live, and `content_type` lives as long.
    unsafe {
        let out = &raw mut (*request.as_ptr()).headers_out;
        (*out).content_length_n = 0;
        if let Some(content_type) = content_type {
            (*out).content_type = text(content_type);
            (*out).content_type_len = content_type.len();
        }
        request_bits::make_header_only(request);
        let sent = ngx_http_send_header(request.as_ptr());
        if sent == NGX_ERROR as ngx_int_t || sent > NGX_OK as ngx_int_t {
            return sent;
        }
    }
    // From a phase handler, NGX_OK and NGX_AGAIN have other meanings. nginx keeps unsent output in
    // the request.
    NGX_HTTP_OK as ngx_int_t
}

/// Sends a response with `body`, marked as not cacheable. Returns the content handler's return
/// value.
pub(super) fn with_body(
    request: &Request<'_>,
    status: ngx_int_t,
    media_type: &'static str,
    body: &[u8],
) -> ngx_int_t {
    if let Err(status) = discard_body(request) {
        return status;
    }
    // SAFETY: the request is live, and so is its pool. The buffer has room for the body. Filters
    // keep the buffer, but not the chain link.
    unsafe {
        let buffer = ngx_create_temp_buf(request.pool(), body.len().max(1));
        let Some(buf) = buffer.as_mut() else {
            return SERVER_ERROR;
        };
        ptr::copy_nonoverlapping(body.as_ptr(), buf.last, body.len());
        buf.last = buf.last.add(body.len());
        buf.set_last_buf(u32::from(request.is_main()));
        buf.set_last_in_chain(1);
        let mut chain = ngx_chain_t { buf: buffer, next: ptr::null_mut() };
        with_chain(request, status, media_type, &mut chain, body.len())
    }
}

/// Sends `pieces`, one after the other, as the body of a response that is not cacheable. The
/// request's own body must be discarded. Returns the status to finalize the request with.
pub(super) fn with_pieces<'r>(
    request: &Request<'r>,
    status: ngx_int_t,
    media_type: &'static str,
    pieces: &'r [impl AsRef<str>],
) -> ngx_int_t {
    let mut chain: *mut ngx_chain_t = ptr::null_mut();
    for piece in pieces.iter().rev().map(AsRef::as_ref) {
        // SAFETY: the request is live, and its pool lives as long. The pieces live as long too and
        // do not change; filters do not write to buffers with `memory` set.
        unsafe {
            let buffer = ngx_pcalloc(request.pool(), size_of::<ngx_buf_t>()).cast::<ngx_buf_t>();
            let link = ngx_alloc_chain_link(request.pool());
            let (Some(buf), Some(new)) = (buffer.as_mut(), link.as_mut()) else {
                return SERVER_ERROR;
            };
            buf.pos = piece.as_ptr().cast_mut();
            buf.last = buf.pos.add(piece.len());
            (buf.start, buf.end) = (buf.pos, buf.last);
            buf.set_memory(1);
            if chain.is_null() {
                buf.set_last_buf(u32::from(request.is_main()));
                buf.set_last_in_chain(1);
            }
            *new = ngx_chain_t { buf: buffer, next: chain };
            chain = link;
        }
    }
    let lengths = pieces.iter().map(|piece| piece.as_ref().len());
    let length = lengths.fold(0, usize::saturating_add);
    // SAFETY: the chain was made above and has `length` bytes.
    unsafe { with_chain(request, status, media_type, chain, length) }
}

/// Sends the response headers, and the `length` bytes in the buffers of `chain`.
///
/// # Safety
///
/// The buffers and their bytes live as long as the request.
unsafe fn with_chain(
    request: &Request<'_>,
    status: ngx_int_t,
    media_type: &'static str,
    chain: *mut ngx_chain_t,
    length: usize,
) -> ngx_int_t {
    if put(request, "Cache-Control", b"no-store").is_none() {
        return SERVER_ERROR;
    }
    set_status(request, status);
    // SAFETY: the request is live; the caller vouches for the chain.
    unsafe {
        let raw = request.as_ptr();
        let out = &raw mut (*raw).headers_out;
        (*out).content_length_n = i64::try_from(length).unwrap_or(i64::MAX);
        (*out).content_type = text(media_type.as_bytes());
        // Filters compare the type without its parameters.
        (*out).content_type_len = media_type.split(';').next().unwrap_or_default().trim_end().len();
        (*out).content_type_lowcase = ptr::null_mut();
        if length == 0 {
            request_bits::make_header_only(request);
        }
        let sent = ngx_http_send_header(raw);
        // With NGX_AGAIN the socket is full, and the body is queued behind the header.
        let has_failed = sent == NGX_ERROR as ngx_int_t || sent > NGX_OK as ngx_int_t;
        if has_failed || request_bits::is_header_only(request) {
            return sent;
        }
        ngx_http_output_filter(raw, chain)
    }
}

/// Sends a response with a JSON body. Returns the content handler's return value.
pub(super) fn with_json(request: &Request<'_>, status: u16, body: &str) -> ngx_int_t {
    let status = ngx_int_t::try_from(status).unwrap_or(SERVER_ERROR);
    with_body(request, status, MEDIA_TYPE, body.as_bytes())
}

/// Sends an error of the API.
pub(super) fn refuse(request: &Request<'_>, error: &ApiError) -> ngx_int_t {
    if let Some(allow) = error.allow
        && put(request, "Allow", allow.as_bytes()).is_none()
    {
        return SERVER_ERROR;
    }
    with_json(request, error.status, &error.to_json())
}
