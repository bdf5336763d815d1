//! gRPC calls: a rejection is a gRPC status in an HTTP response with status 200.
//!
//! The response is "Trailers-Only" of
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use nginx_sys::{NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_int_t};

use super::respond::{self, put};
use crate::nginx::request::Request;

/// gRPC status of a rejected call.
pub(super) const RESOURCE_EXHAUSTED: &str = "8";

/// gRPC status of a call about which no store could decide.
pub(super) const UNAVAILABLE: &str = "14";

/// Returns whether the content type of a main request is gRPC's. A subrequest is never a gRPC call.
pub(super) fn is_call(request: &Request<'_>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    request.is_main()
        && request
            .content_type()
            .get(..TYPE.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// Sends the whole response to a call. Returns the phase handler's return value.
pub(super) fn answer(
    request: &Request<'_>,
    status: &'static str,
    message: &'static str,
) -> ngx_int_t {
    let headers = put(request, "grpc-status", status.as_bytes())
        .and_then(|()| put(request, "grpc-message", message.as_bytes()));
    if headers.is_none() {
        return NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    }
    let content_type = request.content_type();
    respond::without_body(request, NGX_HTTP_OK as ngx_int_t, Some(content_type))
}
