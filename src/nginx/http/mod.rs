//! Requests: the phase handlers, those that wait, what they leave with the request, headers, variables.

pub(super) mod api;
pub(super) mod context;
mod grpc;
pub(super) mod handler;
pub(super) mod headers;
pub(super) mod metrics;
mod pages;
mod respond;
mod suspensions;
pub(super) mod synchronous;
pub(super) mod variables;

use nginx_sys::ngx_http_request_t;

/// Whether this is no subrequest.
#[inline]
fn is_main(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: nginx passes a request that has not ended.
    unsafe { (*request).main == request }
}
