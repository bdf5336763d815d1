//! gRPC: its calls are rejected with a status of their own, within a response that is 200 for HTTP.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, "Trailers-Only".

use nginx_sys::{
    NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_http_request_t, ngx_int_t, ngx_str_t,
};

use super::headers::put;
use super::{is_main, respond};

/// The status of a call that was rejected because some quota is used up.
pub(super) const RESOURCE_EXHAUSTED: &str = "8";

/// The status of a call about which nobody could decide.
pub(super) const UNAVAILABLE: &str = "14";

/// Whether a request is a gRPC call, by its content type. A subrequest is none.
pub(super) fn is_call(request: *mut ngx_http_request_t) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    is_main(request)
        && content_type(request)
            .as_bytes()
            .get(..TYPE.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

fn content_type(request: *mut ngx_http_request_t) -> ngx_str_t {
    // SAFETY: nginx passes a request that has not ended; its headers live as long.
    let header = unsafe { (*request).headers_in.content_type.as_ref() };
    header.map_or(ngx_str_t::empty(), |header| header.value)
}

/// Sends the whole response to a call. Returns what the phase handler is to return.
pub(super) fn answer(
    request: *mut ngx_http_request_t,
    status: &'static str,
    message: &'static str,
) -> ngx_int_t {
    let headers = put(request, "grpc-status", status.as_bytes())
        .and_then(|()| put(request, "grpc-message", message.as_bytes()));
    if headers.is_none() {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    }
    respond::without_body(
        request,
        NGX_HTTP_OK as ngx_int_t,
        Some(content_type(request)),
    )
}
