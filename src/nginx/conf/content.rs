//! Content handlers of this module's locations.

use nginx_sys::{ngx_http_request_t, ngx_int_t};

use crate::conf::words::settings::Content;

/// nginx's callback for the content of a location.
pub(crate) type ContentHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// The content handlers, which the configuration is given before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentHandlers {
    pub(crate) api: ContentHandler,
    pub(crate) metrics: ContentHandler,
}

impl ContentHandlers {
    /// Returns the handler of this content.
    pub(crate) fn of(self, content: Content) -> ContentHandler {
        match content {
            Content::Api { .. } => self.api,
            Content::Metrics => self.metrics,
        }
    }
}
