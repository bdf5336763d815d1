//! The arguments of the library's functions, as callers in other languages pass them: bytes and floating
//! point numbers, any of them. Each function names the argument in its error.

use core::fmt;
use core::time::Duration;

use crate::policy::algorithm::{Algorithm, Weight};
use crate::policy::hits::Hits;
use crate::policy::key::is_accounted;
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncMode, is_valid_name};
use crate::policy::printable::Quoted;
use crate::policy::window::WindowSize;

/// An argument that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError(Box<str>);

impl ArgumentError {
    /// An error of the argument `name`, which is not `expected`: `given` is what it is.
    pub fn new(name: &str, expected: &str, given: impl fmt::Display) -> ArgumentError {
        let message = format!("invalid argument \"{name}\": expected {expected}, not {given}");
        ArgumentError(message.into())
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ArgumentError {}

/// The argument that has chosen this algorithm, and what was given for it: for an [`ArgumentError`].
pub fn algorithm_argument(algorithm: Algorithm) -> (&'static str, String) {
    match algorithm.is_of_rates() {
        true => ("rate", "a number".into()),
        false => ("window_type", format!("\"{}\"", algorithm.name())),
    }
}

/// A key: any bytes, of which there are some.
///
/// # Errors
///
/// It is empty.
#[inline]
pub fn key(bytes: &[u8]) -> Result<&[u8], ArgumentError> {
    if is_accounted(bytes) {
        return Ok(bytes);
    }
    Err(ArgumentError::new("key", "at least one byte", "none"))
}

/// The size of a window, in seconds: a whole number of milliseconds, as near as a floating point number
/// gets to it.
///
/// # Errors
///
/// It is not within 0.001 to 31622400.
#[inline]
pub fn window_size(name: &str, seconds: f64) -> Result<WindowSize, ArgumentError> {
    let size = millis(seconds).and_then(WindowSize::from_millis);
    size.ok_or_else(|| {
        let expected = "seconds from 0.001 to 31622400 (366 days)";
        ArgumentError::new(name, expected, seconds)
    })
}

/// Hits: zero, or more.
///
/// # Errors
///
/// It is negative, no number, or more than can be counted.
#[inline]
pub fn hits(name: &str, hits: f64) -> Result<Hits, ArgumentError> {
    match difference(name, hits) {
        Ok(value) if value >= Hits::ZERO => Ok(value),
        _ => Err(no_hits(name, "0", hits)),
    }
}

/// Hits, of which there are some.
///
/// # Errors
///
/// As [`hits`], or it is less than a thousandth.
pub fn some_hits(name: &str, hits: f64) -> Result<Hits, ArgumentError> {
    match difference(name, hits) {
        Ok(value) if value > Hits::ZERO => Ok(value),
        _ => Err(no_hits(name, "0.001", hits)),
    }
}

/// The hits of a limit, of which there are some, in windows of an algorithm that can count so many.
///
/// # Errors
///
/// As [`some_hits`], or they are too many.
pub fn limit(hits: f64, algorithm: Algorithm) -> Result<Hits, ArgumentError> {
    let (limit, most) = (some_hits("limit", hits)?, algorithm.max_limit());
    if limit <= most {
        return Ok(limit);
    }
    let expected = format!("at most {most} with window_type \"{}\"", algorithm.name());
    Err(ArgumentError::new("limit", &expected, hits))
}

/// Hits that may be less than none.
///
/// # Errors
///
/// It is no number, or more than can be counted.
#[inline]
pub fn difference(name: &str, hits: f64) -> Result<Hits, ArgumentError> {
    let thousandths = (hits * 1000.0).round();
    if thousandths.abs() <= Hits::MAX.thousandths() as f64 {
        return Ok(Hits::from_thousandths(thousandths as i64));
    }
    let least = format!("-{}", Hits::MAX);
    Err(no_hits(name, &least, hits))
}

#[cold]
fn no_hits(name: &str, least: &str, given: f64) -> ArgumentError {
    let expected = format!("a number of hits from {least} to {}", Hits::MAX);
    ArgumentError::new(name, &expected, given)
}

/// Returns the weight of the previous window: without one, that of a sliding window.
///
/// # Errors
///
/// It is not within 0 to 1.
#[inline]
pub fn weight(weight: Option<f64>) -> Result<Weight, ArgumentError> {
    match weight {
        None => Ok(Weight::Sliding),
        Some(share) if (0.0..=1.0).contains(&share) => Ok(Weight::Share(share)),
        Some(other) => Err(no_weight(other)),
    }
}

#[cold]
fn no_weight(given: f64) -> ArgumentError {
    ArgumentError::new("weight", "a number from 0 to 1", given)
}

/// The seconds after which a namespace is synced: 0: its store decides; negative: it has none.
///
/// # Errors
///
/// It is no number, shorter than a millisecond, or longer than 366 days.
pub fn sync_rate(seconds: f64) -> Result<SyncMode, ArgumentError> {
    if seconds < 0.0 {
        return Ok(SyncMode::Local);
    }
    if seconds == 0.0 {
        return Ok(SyncMode::Synchronous);
    }
    let period = millis(seconds).filter(|millis| *millis > 0);
    let period = period.filter(|millis| *millis <= WindowSize::MAX_MILLIS);
    let period = period.map(|millis| SyncMode::Periodic(Duration::from_millis(millis)));
    period.ok_or_else(|| {
        let expected = "seconds from 0.001 to 31622400, 0 or a negative number";
        ArgumentError::new("sync_rate", expected, seconds)
    })
}

/// The name of a namespace, `default` if it is empty.
///
/// # Errors
///
/// It is no name.
pub fn namespace(name: &[u8]) -> Result<&str, ArgumentError> {
    match name {
        [] => Ok(DEFAULT_NAMESPACE),
        name => self::name("namespace", name),
    }
}

/// A name.
///
/// # Errors
///
/// It is none.
pub fn name<'n>(argument: &str, name: &'n [u8]) -> Result<&'n str, ArgumentError> {
    let text = core::str::from_utf8(name);
    let text = text.ok().filter(|_| is_valid_name(name));
    text.ok_or_else(|| {
        let start = name.get(..100).unwrap_or(name);
        let expected = "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\" (and not \"off\")";
        ArgumentError::new(argument, expected, format_args!("\"{}\"", Quoted(start)))
    })
}

/// A time in whole milliseconds; `None`: it is not that of a window or a period.
#[inline]
fn millis(seconds: f64) -> Option<u64> {
    // A cast saturates, and makes zero of what is no number.
    let millis = (seconds * 1000.0).round();
    (millis >= 1.0 && millis <= WindowSize::MAX_MILLIS as f64).then_some(millis as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_milliseconds() {
        for (seconds, millis) in [
            (0.001, 1),
            (0.29, 290),
            (1.0, 1000),
            (60.0, 60_000),
            (31_622_400.0, WindowSize::MAX_MILLIS),
        ] {
            assert_eq!(window_size("window_size", seconds).map(WindowSize::millis), Ok(millis));
        }
        for seconds in
            [0.0, -1.0, 0.0001, 31_622_400.001, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]
        {
            let error = window_size("window_size", seconds).unwrap_err().to_string();
            let message = format!(
                "invalid argument \"window_size\": expected seconds from 0.001 to 31622400 (366 days), \
                 not {seconds}"
            );
            assert_eq!(error, message);
        }
    }

    #[test]
    fn hits_are_exact_to_a_thousandth() {
        for (number, thousandths) in [
            (0.0, 0),
            (-0.0, 0),
            (0.1, 100),
            (1.0, 1000),
            (12.345, 12_345),
            (100_000_000_000.001, 100_000_000_000_001),
        ] {
            assert_eq!(hits("value", number).map(Hits::thousandths), Ok(thousandths));
        }
        for number in [-1.0, -0.001, 1e12, f64::NAN, f64::INFINITY] {
            let error = hits("value", number).unwrap_err().to_string();
            let start = "invalid argument \"value\": expected a number of hits from 0 to ";
            assert!(error.starts_with(start), "{error}");
        }
        assert!(some_hits("limit", 0.0004).is_err());
        assert_eq!(some_hits("limit", 0.001).map(Hits::thousandths), Ok(1));
        assert_eq!(difference("cur_diff", -1.5).map(Hits::thousandths), Ok(-1500));
        assert!(difference("cur_diff", f64::NEG_INFINITY).is_err());
    }

    #[test]
    fn a_weight_is_a_share() {
        assert_eq!(weight(None), Ok(Weight::Sliding));
        for share in [0.0, 0.5, 1.0] {
            assert_eq!(weight(Some(share)), Ok(Weight::Share(share)));
        }
        for other in [-0.1, -1.0, 1.001, f64::NAN, f64::INFINITY] {
            let error = weight(Some(other)).unwrap_err().to_string();
            let expected = "invalid argument \"weight\": expected a number from 0 to 1, not ";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_sync_rate_says_when_a_store_is_talked_to() {
        for seconds in [-1.0, -0.001, f64::NEG_INFINITY] {
            assert_eq!(sync_rate(seconds), Ok(SyncMode::Local));
        }
        assert_eq!(sync_rate(0.0), Ok(SyncMode::Synchronous));
        let period = Duration::from_millis(500);
        assert_eq!(sync_rate(0.5), Ok(SyncMode::Periodic(period)));
        for seconds in [0.0001, 1e9, f64::NAN, f64::INFINITY] {
            assert!(sync_rate(seconds).is_err(), "{seconds}");
        }
    }

    #[test]
    fn a_namespace_without_a_name_is_the_default() {
        assert_eq!(namespace(b""), Ok("default"));
        assert_eq!(namespace(b"api"), Ok("api"));
        for wrong in [&b"a b"[..], b"off", &[b'x'; 65], b"\xff", b"a\0"] {
            assert!(namespace(wrong).is_err());
        }
    }

    #[test]
    fn a_key_has_bytes() {
        assert_eq!(key(b"\0"), Ok(&b"\0"[..]));
        assert!(key(&[b'x'; 65_536]).is_ok());
        let error = key(b"").unwrap_err().to_string();
        assert_eq!(error, "invalid argument \"key\": expected at least one byte, not none");
    }
}
