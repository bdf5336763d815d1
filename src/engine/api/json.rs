//! Answers as JSON, and errors, each with its status.

use core::fmt;

use serde::{Serialize, Serializer};

use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// A number with up to three decimals, in thousandths. Whole numbers are written without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thousandths(pub(super) i64);

impl Thousandths {
    /// Creates a number of thousandths, saturated.
    pub(super) fn of(millis: u64) -> Thousandths {
        Thousandths(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

impl From<Hits> for Thousandths {
    fn from(hits: Hits) -> Self {
        Thousandths(hits.thousandths())
    }
}

impl From<UnixMillis> for Thousandths {
    fn from(time: UnixMillis) -> Self {
        Thousandths::of(time.0)
    }
}

impl Serialize for Thousandths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.serialize_i64(self.0 / 1000),
            // Exact to the thousandth, since the numbers are far below 2^53.
            _ => serializer.serialize_f64(self.0 as f64 / 1000.0),
        }
    }
}

/// The size of a window: seconds, or a text for one of the calendar, such as `day tz=Europe/Berlin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowBody(pub(super) WindowSize);

impl Serialize for WindowBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let WindowBody(size) = self;
        match size.is_of_calendar() {
            true => serializer.collect_str(size),
            false => Thousandths::of(size.millis()).serialize(serializer),
        }
    }
}

/// Makes a JSON object of members in this order, for [`json`]. It is a struct with a type parameter for each member.
macro_rules! object {
    ($($member:ident: $value:expr),* $(,)?) => {{
        #[allow(non_camel_case_types)]
        let object = {
            #[derive(serde::Serialize)]
            struct Object<$($member),*> {
                $($member: $member,)*
            }
            Object { $($member: $value,)* }
        };
        object
    }};
}
pub(super) use object;

/// Returns a value as JSON. It consists of names and numbers, so that encoding cannot fail.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns bytes as the inside of a JSON string. Those that are no UTF-8 are replaced.
pub fn escaped(bytes: &[u8]) -> String {
    let text = json(&String::from_utf8_lossy(bytes));
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().into()
}

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
