//! Content handlers of the locations with `ratelimit_api` or `ratelimit_metrics`.

use nginx_sys::{ngx_http_request_t, ngx_int_t};

use crate::conf::words::settings::Content;

/// nginx's callback for a location's content.
pub(crate) type ContentHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// The content handlers, which are set before the configuration is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentHandlers {
    pub(crate) api: ContentHandler,
    pub(crate) metrics: ContentHandler,
}

impl ContentHandlers {
    /// Returns the handler of `content`.
    pub(crate) fn of(self, content: Content) -> ContentHandler {
        match content {
            Content::Api { .. } => self.api,
            Content::Metrics => self.metrics,
        }
    }
}
