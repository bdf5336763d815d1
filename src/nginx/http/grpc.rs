//! gRPC: its calls are rejected with a status of their own, within a response that is 200 for HTTP.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, "Trailers-Only".

use nginx_sys::{NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_OK, ngx_int_t};

use super::respond::{self, put};
use crate::nginx::request::Request;

/// The status of a call that was rejected because some quota is used up.
pub(super) const RESOURCE_EXHAUSTED: &str = "8";

/// The status of a call on which no store could decide.
pub(super) const UNAVAILABLE: &str = "14";

/// Whether a request is a gRPC call, by its content type. A subrequest is none.
pub(super) fn is_call(request: &Request<'_>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    request.is_main()
        && request
            .content_type()
            .get(..TYPE.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// Sends the whole response to a call. Returns what the phase handler is to return.
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
