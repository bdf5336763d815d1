//! The API: what a request asks for, and what it is answered, in JSON.
//!
//! - [`request`]: what is asked for; [`error`]: why it is not answered
//! - [`overview`], [`namespace`](namespace()), [`key`](key()): the answers; [`json`]: how they are written

mod error;
mod json;
mod key;
mod namespace;
mod overview;
mod request;
#[cfg(all(test, not(loom)))]
mod request_tests;

pub use error::{ApiError, no_namespace};
pub use key::key;
pub use namespace::namespace;
pub use overview::Overview;
pub use request::{ApiCall, ApiRequest, KeyCall};

/// The media type of all answers.
pub const MEDIA_TYPE: &str = "application/json";
