//! Responses that are not nginx's error pages.

use nginx_sys::{
    NGX_DONE, NGX_OK, ngx_http_discard_request_body, ngx_http_finalize_request, ngx_http_request_t,
    ngx_http_send_header, ngx_int_t, ngx_str_t,
};

/// Sends a response without a body to a main request, to the response of which nobody has added
/// anything but headers yet. Returns what the phase handler is to return.
pub(super) fn without_body(
    request: *mut ngx_http_request_t,
    status: ngx_int_t,
    content_type: Option<ngx_str_t>,
) -> ngx_int_t {
    // SAFETY: nginx passes a request that has not ended. It may be freed by the last call.
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
        ngx_http_finalize_request(request, ngx_http_send_header(request));
    }
    NGX_DONE as ngx_int_t
}
