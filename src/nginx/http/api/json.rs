//! JSON responses of the API.

use nginx_sys::{NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_int_t};

use crate::engine::api::{ApiError, MEDIA_TYPE};
use crate::nginx::http::respond;
use crate::nginx::http::respond::put;
use crate::nginx::request::Request;

const SERVER_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// Sends a response with a JSON body. Returns the content handler's return value.
pub(super) fn with_json(request: &Request<'_>, status: u16, body: &str) -> ngx_int_t {
    let status = ngx_int_t::try_from(status).unwrap_or(SERVER_ERROR);
    respond::with_body(request, status, MEDIA_TYPE, body.as_bytes())
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
