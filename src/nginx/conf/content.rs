//! What answers in a location that is ours.

use nginx_sys::{ngx_http_request_t, ngx_int_t};

use crate::conf::words::settings::Content;

/// nginx's callback for the content of a location.
pub(crate) type ContentHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// What answers, which the configuration is told before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentHandlers {
    pub(crate) api: ContentHandler,
    pub(crate) metrics: ContentHandler,
}

impl ContentHandlers {
    /// What answers with this.
    pub(crate) fn of(self, content: Content) -> ContentHandler {
        match content {
            Content::Api { .. } => self.api,
            Content::Metrics => self.metrics,
        }
    }
}
