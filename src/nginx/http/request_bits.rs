//! Bit fields of a request, by functions in C.
//!
//! bindgen 0.72 takes the first bit field of a struct for aligned. In a request of nginx 1.30 it is not, so that bindgen's
//! accessors read and change the wrong bits after the first one.

use nginx_sys::{ngx_http_request_t, ngx_uint_t};

use crate::nginx::request::Request;

// SAFETY: request_bits.c has these functions, with these types. They access a live request.
unsafe extern "C" {
    fn ngx_http_rate_limiting_discards_body(request: *mut ngx_http_request_t) -> ngx_uint_t;
    fn ngx_http_rate_limiting_can_redirect_error(request: *mut ngx_http_request_t) -> ngx_uint_t;
    fn ngx_http_rate_limiting_is_header_only(request: *mut ngx_http_request_t) -> ngx_uint_t;
    fn ngx_http_rate_limiting_make_header_only(request: *mut ngx_http_request_t);
}

/// Returns whether nginx is discarding the request's body.
pub(super) fn discards_body(request: &Request<'_>) -> bool {
    // SAFETY: the request is live.
    unsafe { ngx_http_rate_limiting_discards_body(request.as_ptr()) != 0 }
}

/// Returns whether nginx may redirect the request to an error page.
pub(super) fn can_redirect_error(request: &Request<'_>) -> bool {
    // SAFETY: the request is live.
    unsafe { ngx_http_rate_limiting_can_redirect_error(request.as_ptr()) != 0 }
}

/// Returns whether the response has no body.
pub(super) fn is_header_only(request: &Request<'_>) -> bool {
    // SAFETY: the request is live.
    unsafe { ngx_http_rate_limiting_is_header_only(request.as_ptr()) != 0 }
}

/// Makes the response have no body.
pub(super) fn make_header_only(request: &Request<'_>) {
    // SAFETY: the request is live.
    unsafe { ngx_http_rate_limiting_make_header_only(request.as_ptr()) }
}
