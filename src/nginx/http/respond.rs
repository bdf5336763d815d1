//! Responses that are not nginx's error pages.

use core::ptr;

use nginx_sys::{
    NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, NGX_OK, ngx_chain_t,
    ngx_create_temp_buf, ngx_http_discard_request_body, ngx_http_output_filter, ngx_http_request_t,
    ngx_http_send_header, ngx_int_t, ngx_str_t,
};

use super::headers::put;
use super::is_main;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Sends a response without a body to a main request, to the response of which nobody has added
/// anything but headers yet. Returns what the phase handler is to return: nginx then finalizes the
/// request, which may free it, when nothing of ours refers to it any more.
pub(super) fn without_body(
    request: *mut ngx_http_request_t,
    status: ngx_int_t,
    content_type: Option<ngx_str_t>,
) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended.
    unsafe {
        let discarded = ngx_http_discard_request_body(request);
        if discarded != NGX_OK as ngx_int_t {
            return discarded;
        }
        let out = &mut (*request).headers_out;
        out.status = status.unsigned_abs();
        out.content_length_n = 0;
        if let Some(content_type) = content_type {
            out.content_type = content_type;
            out.content_type_len = content_type.len;
        }
        (*request).set_header_only(1);
        let sent = ngx_http_send_header(request);
        if sent == NGX_ERROR as ngx_int_t || sent > NGX_OK as ngx_int_t {
            return sent;
        }
    }
    // NGX_OK and NGX_AGAIN would mean something else of a phase handler. Of what could not be sent yet
    // nginx knows.
    NGX_HTTP_OK as ngx_int_t
}

/// Sends a response with `body`, which is true at this moment only. Returns what the content handler
/// is to return.
pub(super) fn with_body(
    request: *mut ngx_http_request_t,
    status: ngx_int_t,
    media_type: &'static str,
    body: &[u8],
) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended.
    let discarded = unsafe { ngx_http_discard_request_body(request) };
    if discarded != NGX_OK as ngx_int_t {
        return discarded;
    }
    // SAFETY: the request has not ended; its pool lives as long. The buffer that is made in it has
    // room for the body. Filters take the buffer over, not the chain link.
    unsafe {
        let buffer = ngx_create_temp_buf((*request).pool, body.len().max(1));
        let Some(buf) = buffer.as_mut() else {
            return SERVER_ERROR;
        };
        ptr::copy_nonoverlapping(body.as_ptr(), buf.last, body.len());
        buf.last = buf.last.add(body.len());
        buf.set_last_buf(u32::from(is_main(request)));
        buf.set_last_in_chain(1);
        let mut chain = ngx_chain_t {
            buf: buffer,
            next: ptr::null_mut(),
        };
        with_chain(request, status, media_type, &mut chain, body.len())
    }
}

/// Sends a response to a request without a body, or whose body is thrown away: what is in the buffers of
/// `chain`, which is true at this moment only. Returns what the request is finalized with.
///
/// # Safety
///
/// The request has not ended. The buffers and what is in them, so many bytes, live as long.
pub(super) unsafe fn with_chain(
    request: *mut ngx_http_request_t,
    status: ngx_int_t,
    media_type: &'static str,
    chain: *mut ngx_chain_t,
    length: usize,
) -> ngx_int_t {
    if put(request, "Cache-Control", b"no-store").is_none() {
        return SERVER_ERROR;
    }
    // SAFETY: as the caller says.
    unsafe {
        let out = &mut (*request).headers_out;
        out.status = status.unsigned_abs();
        out.content_length_n = i64::try_from(length).unwrap_or(i64::MAX);
        out.content_type = ngx_str_t {
            len: media_type.len(),
            data: media_type.as_ptr().cast_mut(),
        };
        // Without parameters: by these bytes filters know the type.
        out.content_type_len = media_type.split(';').next().unwrap_or_default().len();
        out.content_type_lowcase = ptr::null_mut();
        if length == 0 {
            (*request).set_header_only(1);
        }
        let sent = ngx_http_send_header(request);
        // With NGX_AGAIN the socket is full; the body waits behind the header.
        let has_failed = sent == NGX_ERROR as ngx_int_t || sent > NGX_OK as ngx_int_t;
        if has_failed || (*request).header_only() != 0 {
            return sent;
        }
        ngx_http_output_filter(request, chain)
    }
}
