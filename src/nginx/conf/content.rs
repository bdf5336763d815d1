//! What answers in a location that is ours.

use nginx_sys::{ngx_http_request_t, ngx_int_t};

use super::super::http::{api, metrics};
use crate::conf::settings::Content;

/// nginx's callback for the content of a location.
pub(in super::super) type ContentHandler =
    unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// What answers with this.
pub(in super::super) fn handler_of(content: Content) -> ContentHandler {
    match content {
        Content::Api { .. } => api::handle,
        Content::Metrics => metrics::handle,
    }
}
