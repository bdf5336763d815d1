//! Windows: their sizes, where a moment falls in them, and the rates of sliding and fixed ones.

use core::fmt;
use core::num::NonZeroU64;

use super::hits::Hits;

/// A moment: milliseconds of Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub u64);

/// The time as its user sees it. The shell implements it over nginx's clock, tests over a number.
pub trait Clock {
    /// The time of the caller's last look at the clock: cheap, and late by at most the time
    /// that the caller has been busy since.
    fn now(&self) -> UnixMillis;
    /// A new look at the clock.
    fn fresh(&self) -> UnixMillis;
}

/// The size of a window: 1 ms to 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowSize(NonZeroU64);

impl WindowSize {
    /// The smallest size: 1 ms.
    pub const MIN: WindowSize = WindowSize(NonZeroU64::MIN);

    /// The largest size in milliseconds: 366 days.
    pub const MAX_MILLIS: u64 = 366 * DAY;

    /// A window of `millis` milliseconds, if that is in the legal range.
    pub const fn from_millis(millis: u64) -> Option<WindowSize> {
        match NonZeroU64::new(millis) {
            Some(size) if millis <= Self::MAX_MILLIS => Some(WindowSize(size)),
            _ => None,
        }
    }

    /// The size in milliseconds.
    pub const fn millis(self) -> u64 {
        self.0.get()
    }

    /// The size in seconds, if that is a whole number.
    pub const fn seconds(self) -> Option<u64> {
        if self.millis().is_multiple_of(1000) {
            Some(self.millis() / 1000)
        } else {
            None
        }
    }

    /// Reads an nginx time (`500ms`, `1h30m`) or seconds, which may have a fraction (`0.5`).
    ///
    /// # Errors
    ///
    /// [`ParseWindowError`] if `text` is neither, or not within 1 ms to 366 days.
    pub fn parse(text: &[u8]) -> Result<WindowSize, ParseWindowError> {
        let millis = parse_time(text).ok_or(ParseWindowError)?;
        WindowSize::from_millis(millis).ok_or(ParseWindowError)
    }

    /// Where `now` falls. Windows start at multiples of their size.
    #[inline]
    pub fn at(self, now: UnixMillis) -> Position {
        Position {
            number: now.0 / self.0,
            elapsed: now.0 % self.0,
        }
    }
}

/// In the largest unit that gives a whole number: `1m`, `90s`, `500ms`.
impl fmt::Display for WindowSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)];
        let whole = units
            .iter()
            .find(|(_, unit)| self.millis().is_multiple_of(*unit));
        let (name, unit) = whole.copied().unwrap_or(("ms", 1));
        write!(f, "{}{name}", self.millis().checked_div(unit).unwrap_or(0))
    }
}

/// A place in time, relative to windows of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The number of the window: Unix time divided by the size, rounded down.
    pub number: u64,
    /// Milliseconds since the window's start; less than its size.
    pub elapsed: u64,
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units of nginx times, in the order in which they must appear.
const UNITS: [(&[u8], u64); 8] = [
    (b"y", 365 * DAY),
    (b"M", 30 * DAY),
    (b"w", 7 * DAY),
    (b"d", DAY),
    (b"h", HOUR),
    (b"m", MINUTE),
    (b"s", SECOND),
    (b"ms", 1),
];

/// Reads a time as nginx writes it, or seconds with up to three decimals; in milliseconds.
///
/// Returns `None` for anything else, and for what does not fit 64 bits. The syntax is that of
/// nginx's `ngx_parse_time()`: units from the largest to the smallest, each once, a bare number
/// last and in seconds.
pub fn parse_time(text: &[u8]) -> Option<u64> {
    if text.contains(&b'.') {
        let mut parts = text.splitn(2, |&byte| byte == b'.');
        let seconds = parse_digits(parts.next()?)?.checked_mul(SECOND)?;
        let fraction = parts.next()?;
        let scale = match fraction.len() {
            1 => 100,
            2 => 10,
            3 => 1,
            _ => return None,
        };
        return seconds.checked_add(parse_digits(fraction)?.checked_mul(scale)?);
    }

    let mut rest = text;
    let mut total: u64 = 0;
    let mut next_unit = 0;
    while !rest.is_empty() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail
            .iter()
            .take_while(|byte| byte.is_ascii_alphabetic())
            .count();
        let (unit, tail) = tail.split_at_checked(letters)?;
        let millis = if unit.is_empty() {
            next_unit = UNITS.len();
            SECOND
        } else {
            let index = UNITS.iter().position(|(name, _)| *name == unit)?;
            if index < next_unit {
                return None;
            }
            next_unit = index.saturating_add(1);
            UNITS.get(index)?.1
        };
        total = total.checked_add(parse_digits(number)?.checked_mul(millis)?)?;
        // Between units, as nginx has it.
        let blanks = tail.iter().take_while(|byte| **byte == b' ').count();
        rest = if unit.is_empty() {
            tail
        } else {
            tail.get(blanks..)?
        };
    }
    (!text.is_empty()).then_some(total)
}

/// What to say of a time in months, by which a minute was meant more often than not; `None` if
/// `time`, which is one, has none.
pub fn warn_of_months(time: &[u8]) -> Option<String> {
    let time = core::str::from_utf8(time).ok()?;
    time.contains('M')
        .then(|| format!("in \"{time}\", M is a month of 30 days: a minute is m, as in 1m"))
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then_some(u64::from(byte & 0x0f))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A text that is not the size of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseWindowError;

impl fmt::Display for ParseWindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5")
    }
}

impl core::error::Error for ParseWindowError {}

/// How the counts of two adjacent windows are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowType {
    /// The previous window counts by the share of it that is still within `size` from now.
    #[default]
    Sliding,
    /// The previous window does not count.
    Fixed,
}

/// What has been counted of a key, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of the window that the moment is in: [`Position::number`].
    pub window: u64,
    /// Hits of the window that the moment is in.
    pub current: Hits,
    /// Hits of the window before it.
    pub previous: Hits,
    /// Milliseconds since the window's start; less than its size.
    pub elapsed: u64,
}

impl WindowType {
    /// The rate that `counts` amount to, rounded up to a thousandth.
    ///
    /// Sliding: `current + previous * (size - elapsed) / size`; fixed: `current`. Limits and
    /// costs are whole thousandths, so that rounding up here changes no comparison "at most".
    pub fn rate(self, size: WindowSize, counts: &Counts) -> Hits {
        let previous = match self {
            WindowType::Fixed => Hits::ZERO,
            WindowType::Sliding => counts.previous,
        };
        if previous == Hits::ZERO {
            return counts.current;
        }
        let size = size.millis();
        let left = size.saturating_sub(counts.elapsed);
        let product = u64::try_from(previous.thousandths())
            .ok()
            .and_then(|previous| previous.checked_mul(left));
        let weighted = match product {
            Some(product) => i64::try_from(product.div_ceil(size)),
            // The same with more bits, which takes longer.
            None => {
                let size = i128::from(size);
                let rounded_up = weigh(previous, i128::from(left)).saturating_add(size);
                i64::try_from(rounded_up.saturating_sub(1).div_euclid(size))
            }
        };
        // At most the previous window itself, since the part of it that is left is.
        let weighted = weighted.unwrap_or(i64::MAX);
        counts.current.plus(Hits::from_thousandths(weighted))
    }

    /// Whether a hit of `cost` is admitted on top of `counts`.
    ///
    /// A cost above zero: if the rate including it is at most `limit`. A cost of zero: if the
    /// rate is below `limit`.
    #[inline]
    pub fn admits(self, size: WindowSize, counts: &Counts, limit: Hits, cost: Hits) -> bool {
        if self == WindowType::Fixed || counts.previous == Hits::ZERO {
            let left = headroom(counts.current, limit, cost);
            return left > 0 || (left == 0 && cost != Hits::ZERO);
        }
        // The comparison of the rate with the limit, multiplied by the size: exact, no division.
        let left = size.millis().saturating_sub(counts.elapsed);
        weigh(counts.previous, i128::from(left)) <= room(size, counts.current, limit, cost)
    }

    /// Milliseconds until one more hit of `cost` would be admitted if none came before it;
    /// `None` if it never would be.
    pub fn retry_after(
        self,
        size: WindowSize,
        counts: &Counts,
        limit: Hits,
        cost: Hits,
    ) -> Option<u64> {
        let left = size.millis().saturating_sub(counts.elapsed);
        let now = room(size, counts.current, limit, cost);
        if now >= 0 {
            // In this window, as soon as the previous one weighs little enough.
            return Some(left.saturating_sub(self.heaviest(counts.previous, now, size)));
        }
        // In the next window, where what is now current will weigh as the previous one.
        let next = room(size, Hits::ZERO, limit, cost);
        if next < 0 {
            return None;
        }
        let wait = size
            .millis()
            .saturating_sub(self.heaviest(counts.current, next, size));
        Some(left.saturating_add(wait))
    }

    /// The largest part of a window, in milliseconds, that `previous` may weigh within `room`.
    fn heaviest(self, previous: Hits, room: i128, size: WindowSize) -> u64 {
        match self {
            WindowType::Sliding if previous > Hits::ZERO => {
                let part = room
                    .checked_div(i128::from(previous.thousandths()))
                    .unwrap_or(0);
                u64::try_from(part).map_or(size.millis(), |part| part.min(size.millis()))
            }
            _ => size.millis(),
        }
    }
}

/// What the previous window may weigh at most, in thousandths times milliseconds, for a hit of
/// `cost` to be admitted on top of `current`.
#[inline]
fn room(size: WindowSize, current: Hits, limit: Hits, cost: Hits) -> i128 {
    // "Below" a limit is "at most" the next smaller number.
    let strictly = i128::from(cost == Hits::ZERO);
    i128::from(headroom(current, limit, cost))
        .wrapping_mul(i128::from(size.millis()))
        .wrapping_sub(strictly)
}

/// What `limit` leaves above `current` and `cost`, in thousandths: a difference of numbers of 48
/// bits.
#[inline]
fn headroom(current: Hits, limit: Hits, cost: Hits) -> i64 {
    let above_current = limit.thousandths().wrapping_sub(current.thousandths());
    above_current.wrapping_sub(cost.thousandths())
}

/// `hits` times milliseconds: a product of 48 and 35 bits.
#[inline]
fn weigh(hits: Hits, millis: i128) -> i128 {
    i128::from(hits.thousandths()).wrapping_mul(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> WindowSize {
        WindowSize::parse(text.as_bytes()).unwrap()
    }

    fn hits(whole: i64) -> Hits {
        Hits::from_thousandths(whole * 1000)
    }

    fn counts(current: i64, previous: i64, elapsed: u64) -> Counts {
        Counts {
            window: 0,
            current: hits(current),
            previous: hits(previous),
            elapsed,
        }
    }

    #[test]
    fn reads_the_times_that_nginx_reads() {
        for (text, millis) in [
            ("1ms", 1),
            ("500ms", 500),
            ("10s", 10_000),
            ("10", 10_000),
            ("0.5", 500),
            ("0.001", 1),
            ("1.25", 1_250),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("1h30", 3_630_000),
            ("1h 30m 5", 5_405_000),
            ("1d", DAY),
            ("1w", 7 * DAY),
            ("1M", 30 * DAY),
            ("1y", 365 * DAY),
            ("366d", 366 * DAY),
        ] {
            assert_eq!(
                WindowSize::parse(text.as_bytes()).map(WindowSize::millis),
                Ok(millis),
                "{text}"
            );
        }
        for text in [
            "",
            "0",
            "0s",
            "367d",
            "1x",
            "s",
            "m1",
            "1m1h",
            "1s1s",
            "-1",
            "1.5s",
            "1.",
            ".5",
            "0.0005",
            "10 s",
            "1ms1s",
            "99999999999999999999d",
            "1.5.5",
            "10 ",
            "5 5",
        ] {
            assert_eq!(
                WindowSize::parse(text.as_bytes()),
                Err(ParseWindowError),
                "{text}"
            );
        }
    }

    #[test]
    fn months_are_warned_of() {
        assert_eq!(
            warn_of_months(b"1M").as_deref(),
            Some("in \"1M\", M is a month of 30 days: a minute is m, as in 1m")
        );
        assert_eq!(warn_of_months(b"1m"), None);
    }

    #[test]
    fn prints_the_largest_unit() {
        for text in ["1ms", "1500ms", "90s", "1m", "25h", "366d"] {
            assert_eq!(size(text).to_string(), text);
        }
    }

    #[test]
    fn windows_start_at_multiples_of_their_size() {
        assert_eq!(
            size("1m").at(UnixMillis(0)),
            Position {
                number: 0,
                elapsed: 0
            }
        );
        assert_eq!(
            size("1m").at(UnixMillis(59_999)),
            Position {
                number: 0,
                elapsed: 59_999
            }
        );
        assert_eq!(
            size("1m").at(UnixMillis(120_000)),
            Position {
                number: 2,
                elapsed: 0
            }
        );
    }

    #[test]
    fn the_rates_of_the_specification() {
        let minute = size("60s");
        assert_eq!(
            WindowType::Sliding.rate(minute, &counts(10, 40, 30_000)),
            hits(30)
        );
        assert_eq!(
            WindowType::Sliding.rate(minute, &counts(10, 20, 30_000)),
            hits(20)
        );
        assert_eq!(
            WindowType::Fixed.rate(minute, &counts(10, 40, 30_000)),
            hits(10)
        );
        assert_eq!(
            WindowType::Sliding.rate(minute, &counts(10, 40, 0)),
            hits(50)
        );
        // A third is rounded up.
        assert_eq!(
            WindowType::Sliding.rate(size("3s"), &counts(0, 1, 2_000)),
            Hits::from_thousandths(334)
        );
    }

    #[test]
    fn rates_do_not_overflow() {
        let year = size("366d");
        let full = Counts {
            window: 0,
            current: Hits::MAX,
            previous: Hits::MAX,
            elapsed: 0,
        };
        assert_eq!(WindowType::Sliding.rate(year, &full), Hits::MAX);
        assert!(!WindowType::Sliding.admits(year, &full, Hits::MAX, Hits::MAX));
        assert!(
            WindowType::Sliding
                .retry_after(year, &full, Hits::MAX, Hits::ONE)
                .is_some()
        );
    }

    #[test]
    fn a_hit_is_admitted_up_to_the_limit() {
        let minute = size("60s");
        assert!(WindowType::Sliding.admits(minute, &counts(9, 0, 0), hits(10), Hits::ONE));
        assert!(!WindowType::Sliding.admits(minute, &counts(10, 0, 0), hits(10), Hits::ONE));
        assert!(WindowType::Sliding.admits(minute, &counts(9, 40, 60_000), hits(10), Hits::ONE));
        assert!(!WindowType::Sliding.admits(minute, &counts(9, 40, 59_999), hits(10), Hits::ONE));
        assert!(WindowType::Fixed.admits(minute, &counts(9, 40, 0), hits(10), Hits::ONE));
    }

    #[test]
    fn asking_without_counting_needs_a_rate_below_the_limit() {
        let minute = size("60s");
        assert!(WindowType::Fixed.admits(minute, &counts(9, 0, 0), hits(10), Hits::ZERO));
        assert!(!WindowType::Fixed.admits(minute, &counts(10, 0, 0), hits(10), Hits::ZERO));
        // 10 - 1/60000 is below 10.
        assert!(WindowType::Sliding.admits(minute, &counts(9, 1, 1), hits(10), Hits::ZERO));
        assert!(!WindowType::Sliding.admits(minute, &counts(9, 1, 0), hits(10), Hits::ZERO));
    }

    #[test]
    fn retry_after_is_the_first_moment_that_admits() {
        for window in [WindowType::Sliding, WindowType::Fixed] {
            for (current, previous, elapsed, limit, cost) in [
                (10, 40, 30, 10, 1),
                (0, 40, 0, 10, 1),
                (5, 7, 13, 9, 2),
                (9, 0, 99, 10, 1),
                (10, 0, 0, 10, 10),
                (10, 3, 50, 10, 0),
                (3, 3, 50, 10, 0),
                (25, 0, 10, 10, 5),
                (1000, 1000, 10, 1, 1),
            ] {
                let tenth = WindowSize::from_millis(100).unwrap();
                let start = counts(current, previous, elapsed);
                let wait = window
                    .retry_after(tenth, &start, hits(limit), hits(cost))
                    .unwrap();
                let admitted_after = |wait: u64| {
                    let at = elapsed + wait;
                    let later = match at / 100 {
                        0 => counts(current, previous, at),
                        1 => counts(0, current, at - 100),
                        _ => counts(0, 0, at % 100),
                    };
                    window.admits(tenth, &later, hits(limit), hits(cost))
                };
                let first = (0..).find(|&wait| admitted_after(wait)).unwrap();
                assert_eq!(
                    wait, first,
                    "{window:?} {current} {previous} {elapsed} {limit} {cost}"
                );
            }
        }
    }

    #[test]
    fn what_costs_more_than_the_limit_is_never_admitted() {
        let minute = size("60s");
        for window in [WindowType::Sliding, WindowType::Fixed] {
            assert_eq!(
                window.retry_after(minute, &counts(0, 0, 0), hits(5), hits(6)),
                None
            );
            assert_eq!(
                window.retry_after(minute, &counts(9, 0, 0), Hits::ZERO, Hits::ZERO),
                None
            );
        }
    }
}
