//! Validates the arguments of the library's functions, which callers in other languages pass as
//! arbitrary bytes and floating point numbers. An error names the argument.

use core::fmt;
use core::time::Duration;

use crate::policy::algorithm::{Algorithm, Weight};
use crate::policy::calendar::CalendarZone;
use crate::policy::hits::Hits;
use crate::policy::key::is_accounted;
use crate::policy::limit::Limit;
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncEarly, SyncMode, is_valid_name};
use crate::policy::printable::Quoted;
use crate::policy::window::WindowSize;

/// The error of an invalid argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError(Box<str>);

impl ArgumentError {
    /// Creates the error that the argument `name` is `given` instead of `expected`.
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

/// Returns the argument that selects this algorithm and its value, for an [`ArgumentError`].
pub fn algorithm_argument(algorithm: Algorithm) -> (&'static str, String) {
    match algorithm {
        Algorithm::Bucket => ("rate", "a number".into()),
        Algorithm::Concurrency => ("concurrent", "a number".into()),
        _ => ("window_type", format!("\"{}\"", algorithm.name())),
    }
}

/// Checks a key, which can have any bytes.
///
/// # Errors
///
/// The key is empty.
#[inline]
pub fn key(bytes: &[u8]) -> Result<&[u8], ArgumentError> {
    if is_accounted(bytes) {
        return Ok(bytes);
    }
    Err(ArgumentError::new("key", "at least one byte", "none"))
}

/// Converts a window's size from seconds, rounded to milliseconds; or the number of a window of the calendar, which
/// [`calendar_window`] returns.
///
/// # Errors
///
/// The size is not from 0.001 to 31622400, and the number is of no window.
#[inline]
pub fn window_size(name: &str, seconds: f64) -> Result<WindowSize, ArgumentError> {
    let size = whole_millis(seconds).and_then(WindowSize::from_bits);
    size.ok_or_else(|| {
        let expected = "seconds from 0.001 to 31622400 (366 days)";
        ArgumentError::new(name, expected, seconds)
    })
}

/// Returns the number of seconds that stands for a window of the calendar, such as `month` or `day tz=Europe/Berlin`,
/// wherever the functions take a window's size.
///
/// # Errors
///
/// The text is of no window of the calendar.
pub fn calendar_window(name: &str, text: &[u8]) -> Result<f64, ArgumentError> {
    const CALENDAR: &str = "hour, day, week or month, such as \"day tz=Europe/Berlin\"";
    let size = WindowSize::parse_with_zone(text).map_err(|error| error.to_string());
    let size = size.map(|size| size.in_zone(CalendarZone::utc()));
    let size = size.and_then(|size| match size.is_of_calendar() {
        true => Ok(size.bits() as f64 / 1000.0),
        false => Err(CALENDAR.into()),
    });
    size.map_err(|error| {
        let start = text.get(..100).unwrap_or(text);
        // Only an error of the zone says more.
        let expected = error.strip_prefix("expected ").unwrap_or(CALENDAR);
        ArgumentError::new(name, expected, format_args!("\"{}\"", Quoted(start)))
    })
}

/// Converts the sizes of a namespace's windows, and sorts them.
///
/// # Errors
///
/// See [`window_size`].
pub fn window_sizes(seconds: impl Iterator<Item = f64>) -> Result<Vec<WindowSize>, ArgumentError> {
    let sizes = seconds.map(|seconds| window_size("window_sizes", seconds));
    let mut sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// Checks that a namespace counts in windows of this size: one of `sizes`, unless it counts in any.
///
/// # Errors
///
/// The size is not one of `sizes`.
pub fn counted_size(
    argument: &str,
    size: WindowSize,
    (namespace, sizes): (&str, Option<&[WindowSize]>),
) -> Result<(), ArgumentError> {
    let Some(sizes) = sizes.filter(|it| !it.contains(&size)) else {
        return Ok(());
    };
    let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    let sizes = sizes.join(", ");
    let expected = format!("one of the window_sizes of namespace \"{namespace}\" ({sizes})");
    Err(ArgumentError::new(argument, &expected, size))
}

/// Creates the limit of `hits` in a window of the namespace `counted`: its name and its sizes.
///
/// # Errors
///
/// See [`limit`], [`window_size`] and [`counted_size`].
pub fn window_limit(
    counted: (&str, Option<&[WindowSize]>),
    hits: f64,
    window: f64,
    algorithm: Algorithm,
) -> Result<(Limit, Hits), ArgumentError> {
    let hits = limit(hits, algorithm)?;
    let size = window_size("window", window)?;
    counted_size("window", size, counted)?;
    if size.is_of_calendar() && !matches!(algorithm, Algorithm::Sliding | Algorithm::Fixed) {
        let expected = "\"fixed\", which a window of the calendar is";
        let given = format_args!("\"{}\"", algorithm.name());
        return Err(ArgumentError::new("window_type", expected, given));
    }
    Ok((Limit::in_windows(counted.0, size, algorithm), hits))
}

/// Creates the limit of `concurrent` requests that are under way in `namespace`.
///
/// # Errors
///
/// The number is not a whole one that a counter can hold.
pub fn concurrent_limit(namespace: &str, concurrent: f64) -> Result<(Limit, Hits), ArgumentError> {
    let most = Algorithm::Concurrency.max_limit();
    let hits = difference("concurrent", concurrent).ok();
    let hits = hits.filter(|it| (Hits::ONE..=most).contains(it) && concurrent.fract() == 0.0);
    let limit = hits.map(|hits| (Limit::concurrent(namespace), hits));
    limit.ok_or_else(|| {
        let expected = format!("a whole number from 1 to {most}");
        ArgumentError::new("concurrent", &expected, concurrent)
    })
}

/// Converts a number of hits.
///
/// # Errors
///
/// The number is negative, NaN, or too large.
#[inline]
pub fn hits(name: &str, hits: f64) -> Result<Hits, ArgumentError> {
    match difference(name, hits) {
        Ok(value) if value >= Hits::ZERO => Ok(value),
        _ => Err(no_hits(name, "0", hits)),
    }
}

/// Converts a positive number of hits.
///
/// # Errors
///
/// See [`hits`]; also if the number is below 0.001.
pub fn some_hits(name: &str, hits: f64) -> Result<Hits, ArgumentError> {
    match difference(name, hits) {
        Ok(value) if value > Hits::ZERO => Ok(value),
        _ => Err(no_hits(name, "0.001", hits)),
    }
}

/// Converts the hits of a limit.
///
/// # Errors
///
/// See [`some_hits`]; also if the algorithm cannot count as many hits.
pub fn limit(hits: f64, algorithm: Algorithm) -> Result<Hits, ArgumentError> {
    let (limit, most) = (some_hits("limit", hits)?, algorithm.max_limit());
    if limit <= most {
        return Ok(limit);
    }
    let expected = format!("at most {most} with window_type \"{}\"", algorithm.name());
    Err(ArgumentError::new("limit", &expected, hits))
}

/// Converts a number of hits that may be negative.
///
/// # Errors
///
/// The number is NaN, or too large.
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

/// Returns the weight of the previous window. Without one, returns a sliding window's.
///
/// # Errors
///
/// The weight is not from 0 to 1.
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

/// Converts `sync_rate` from seconds: the period of the sync; zero for a store that decides;
/// negative for no store.
///
/// # Errors
///
/// The value is NaN, positive but shorter than a millisecond, or longer than 366 days.
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

/// Converts `sync_early` from the share of a limit that nodes may leave unpushed; zero turns early
/// pushes off.
///
/// # Errors
///
/// The share is neither zero nor a number from 0.001 to 0.5.
pub fn sync_early(share: f64) -> Result<SyncEarly, ArgumentError> {
    if share == 0.0 {
        return Ok(SyncEarly::Off);
    }
    if !(0.001..=0.5).contains(&share) {
        return Err(ArgumentError::new("sync_early", "a number from 0.001 to 0.5, or 0", share));
    }
    // From 100 to 50,000.
    Ok(SyncEarly::MilliPercent((share * 100_000.0).round() as u32))
}

/// Checks the name of an instance, which can have any bytes.
///
/// # Errors
///
/// The name is empty, or longer than 256 bytes.
pub fn instance(name: &[u8]) -> Result<(), ArgumentError> {
    if (1..=256).contains(&name.len()) {
        return Ok(());
    }
    let given = format_args!("{} bytes", name.len());
    Err(ArgumentError::new("instance_name", "1 to 256 bytes", given))
}

/// Checks the name of a namespace; an empty one stands for `default`.
///
/// # Errors
///
/// The name is invalid.
pub fn namespace(name: &[u8]) -> Result<&str, ArgumentError> {
    match name {
        [] => Ok(DEFAULT_NAMESPACE),
        name => self::name("namespace", name),
    }
}

/// Checks a name.
///
/// # Errors
///
/// The name is invalid.
pub fn name<'n>(argument: &str, name: &'n [u8]) -> Result<&'n str, ArgumentError> {
    let text = core::str::from_utf8(name);
    let text = text.ok().filter(|_| is_valid_name(name));
    text.ok_or_else(|| {
        let start = name.get(..100).unwrap_or(name);
        let expected = "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\" (and not \"off\")";
        ArgumentError::new(argument, expected, format_args!("\"{}\"", Quoted(start)))
    })
}

/// Converts seconds to whole milliseconds; `None` outside the range of periods.
fn millis(seconds: f64) -> Option<u64> {
    whole_millis(seconds).filter(|millis| *millis <= WindowSize::MAX_MILLIS)
}

/// Converts seconds to whole milliseconds, at least one.
#[inline]
fn whole_millis(seconds: f64) -> Option<u64> {
    // The cast saturates, and converts NaN to 0.
    let millis = (seconds * 1000.0).round();
    (millis >= 1.0).then_some(millis as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_the_calendar_is_a_number_too() {
        for text in ["month", "day tz=Europe/Berlin", "hour tz=asia/kathmandu", "week tz=UTC"] {
            let number = calendar_window("window", text.as_bytes()).unwrap();
            let size = window_size("window", number).unwrap();
            let shown = WindowSize::parse_with_zone(text.as_bytes()).unwrap();
            assert_eq!(size, shown.in_zone(CalendarZone::utc()), "{text}");
            assert!(millis(number).is_none());
        }
        for (text, message) in [
            ("1d", "hour, day, week or month, such as \"day tz=Europe/Berlin\", not \"1d\""),
            ("", "hour, day, week or month, such as \"day tz=Europe/Berlin\", not \"\""),
            (
                "1d tz=UTC",
                "hour, day, week or month, such as \"day tz=Europe/Berlin\", not \"1d tz=UTC\"",
            ),
            (
                "day tz=Berlin",
                "a name of the IANA time zone database, such as Europe/Berlin or UTC: did you mean Europe/Berlin?, \
                 not \"day tz=Berlin\"",
            ),
        ] {
            let error = calendar_window("window", text.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("invalid argument \"window\": expected {message}"));
        }
        let month = calendar_window("window", b"month").unwrap();
        assert!(window_size("window", month + 0.001).is_err());
        let limit = |algorithm| window_limit(("api", None), 5.0, month, algorithm);
        assert_eq!(limit(Algorithm::Sliding).unwrap().0.algorithm, Algorithm::Fixed);
        assert_eq!(limit(Algorithm::Fixed).unwrap().0.name, Box::<str>::from("api-month"));
        assert!(limit(Algorithm::Moving).is_err());
    }

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
    fn a_sync_rate_is_a_period_or_a_mode() {
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
