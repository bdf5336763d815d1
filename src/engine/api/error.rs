//! Errors of the API, each with its status.

use core::fmt;

use super::json::{json, object};

/// An error that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the response.
    pub status: u16,
    /// The methods that the path supports; only with status 405.
    pub allow: Option<&'static str>,
    /// Message.
    pub message: String,
}

impl ApiError {
    pub(super) fn new(status: u16, message: impl Into<String>) -> ApiError {
        ApiError { status, allow: None, message: message.into() }
    }

    /// Returns the body of the response.
    pub fn to_json(&self) -> String {
        json(&object! { error: &*self.message })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ApiError {}

/// Returns the 404 for a namespace that does not exist.
pub fn no_namespace() -> ApiError {
    ApiError::new(404, "there is no such namespace")
}
