//! Windows: their sizes, positions in time, and clocks.

use core::fmt;
use core::num::NonZeroU64;
use std::borrow::Cow;

use super::calendar::{CalendarUnit, CalendarWindow, CalendarZone, UTC};

/// The greatest difference in milliseconds between the clocks of two processes, unless a clock was set.
pub const CLOCK_SKEW: u64 = 1000;

/// A moment: milliseconds of Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub u64);

/// A moment in whole seconds of Unix time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Returns the second that contains `at`.
    pub const fn of(at: UnixMillis) -> UnixSeconds {
        UnixSeconds(at.0 / SECOND)
    }

    /// Returns the start of the second.
    pub const fn millis(self) -> UnixMillis {
        UnixMillis(self.0.saturating_mul(SECOND))
    }
}

/// A clock. The shell implements it with nginx's clock, tests with a number.
pub trait Clock {
    /// Returns the cached time: cheap, and late by at most the time that the caller has been busy since the last
    /// update.
    fn now(&self) -> UnixMillis;
    /// Reads the clock anew.
    fn fresh(&self) -> UnixMillis;
}

/// The size of a window: 1 ms to 366 days, or a unit of the calendar in a time zone.
///
/// A number of 35 bits: milliseconds, or above those a unit and the id of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowSize(NonZeroU64);

/// The smallest number of a calendar window, above all milliseconds. Its upper two bits of the 31 that follow are the
/// unit, the others the zone.
const CALENDAR: u64 = 0xf << 31;
const _: () = assert!(WindowSize::MAX_MILLIS < CALENDAR && CalendarZone::ID_BITS + 2 == 31);
/// The id of the zone of a window whose zone is not known yet: no name has it.
const NO_ZONE: u64 = 0;

impl WindowSize {
    /// The smallest size: 1 ms.
    pub const MIN: WindowSize = WindowSize(NonZeroU64::MIN);

    /// The largest size in milliseconds: 366 days.
    pub const MAX_MILLIS: u64 = 366 * DAY;

    /// The number of bits of any size.
    pub const BITS: u32 = 35;

    /// Returns a window of `millis` milliseconds, if that is in the range.
    pub const fn from_millis(millis: u64) -> Option<WindowSize> {
        match NonZeroU64::new(millis) {
            Some(size) if millis <= Self::MAX_MILLIS => Some(WindowSize(size)),
            _ => None,
        }
    }

    /// Returns the window of a calendar unit in `zone`.
    pub fn of_calendar(unit: CalendarUnit, zone: &CalendarZone) -> WindowSize {
        WindowSize::in_zone_of_id(unit, zone.id().into())
    }

    fn in_zone_of_id(unit: CalendarUnit, zone: u64) -> WindowSize {
        let bits = CALENDAR | (unit as u64) << CalendarZone::ID_BITS | zone;
        WindowSize(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the window with the zone `zone` if it is one of the calendar without a zone, as [`WindowSize::parse`]
    /// returns them.
    pub fn in_zone(self, zone: &CalendarZone) -> WindowSize {
        match self.unit() {
            Some(unit) if self.zone_id() == NO_ZONE => WindowSize::of_calendar(unit, zone),
            _ => self,
        }
    }

    /// Returns the window with these bits: see [`WindowSize::bits`]. `None` if there is none, or if this process does
    /// not know its time zone.
    pub fn from_bits(bits: u64) -> Option<WindowSize> {
        if bits < CALENDAR {
            return WindowSize::from_millis(bits);
        }
        let size = WindowSize(NonZeroU64::new(bits)?);
        (bits >> Self::BITS == 0 && size.zone().is_some()).then_some(size)
    }

    /// Whether these bits are of a window of the calendar in a time zone that this process does not know: another node
    /// may have a newer database.
    pub fn is_of_unknown_zone(bits: u64) -> bool {
        bits >= CALENDAR && bits >> Self::BITS == 0 && WindowSize::from_bits(bits).is_none()
    }

    /// Returns the number that stands for the window in memory, messages and stores: the milliseconds, or a larger one
    /// for the calendar.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// Returns the size in milliseconds. For a window of the calendar, this is longer than it ever is; only the
    /// algorithm that it always has can tell its length ([`WindowSize::length_of`]).
    pub const fn millis(self) -> u64 {
        self.0.get()
    }

    /// Returns the size in milliseconds, which is never 0, as [`WindowSize::millis`] does.
    #[inline]
    pub const fn nonzero_millis(self) -> NonZeroU64 {
        self.0
    }

    /// Returns an upper bound of the size in milliseconds: the size itself unless it is one of the calendar.
    pub fn longest(self) -> u64 {
        self.unit().map_or(self.millis(), CalendarUnit::longest)
    }

    /// Returns the size in milliseconds; of a window of the calendar, without changes of the zone.
    pub fn usual(self) -> u64 {
        self.unit().map_or(self.millis(), CalendarUnit::usual)
    }

    /// Whether the window is one of the calendar.
    #[inline]
    pub const fn is_of_calendar(self) -> bool {
        self.bits() > Self::MAX_MILLIS
    }

    /// Returns the unit and the zone of a window of the calendar.
    pub fn calendar(self) -> Option<(CalendarUnit, &'static CalendarZone)> {
        self.unit().zip(self.zone())
    }

    fn unit(self) -> Option<CalendarUnit> {
        let number = usize::try_from((self.bits() & !CALENDAR) >> CalendarZone::ID_BITS).ok()?;
        CalendarUnit::ALL.get(number).copied().filter(|_| self.is_of_calendar())
    }

    const fn zone_id(self) -> u64 {
        self.bits() & ((1 << CalendarZone::ID_BITS) - 1)
    }

    fn zone(self) -> Option<&'static CalendarZone> {
        let id = u32::try_from(self.zone_id()).ok()?;
        CalendarZone::of_id(id)
    }

    /// Returns the size in seconds, if that is a whole number.
    pub const fn seconds(self) -> Option<u64> {
        if self.millis().is_multiple_of(1000) { Some(self.millis() / 1000) } else { None }
    }

    /// Parses an nginx time (`500ms`, `1h30m`), seconds with an optional fraction (`0.5`), or a unit of the calendar
    /// (`month`), which then needs a zone: [`WindowSize::in_zone`].
    ///
    /// # Errors
    ///
    /// [`ParseWindowError`] if `text` is none of these, or a time that is not within 1 ms to 366 days.
    pub fn parse(text: &[u8]) -> Result<WindowSize, ParseWindowError> {
        if let Some(unit) = CalendarUnit::parse(text) {
            return Ok(WindowSize::in_zone_of_id(unit, NO_ZONE));
        }
        let millis = parse_time(text).ok_or(ParseWindowError)?;
        WindowSize::from_millis(millis).ok_or(ParseWindowError)
    }

    /// Returns the name of the window in names of policies: [`WindowSize`]'s text without the zone.
    pub fn name(self) -> String {
        self.unit().map_or_else(|| self.to_string(), |unit| unit.name().into())
    }

    /// Parses a window as [`WindowSize`]'s text shows it: as [`WindowSize::parse`] does, and behind a unit of the calendar
    /// its zone, if there is one: `day tz=Europe/Berlin`.
    ///
    /// # Errors
    ///
    /// If the window or the zone is none. The message says what is accepted.
    pub fn parse_with_zone(text: &[u8]) -> Result<WindowSize, Cow<'static, str>> {
        const ZONE: &[u8] = b" tz=";
        let at = text.windows(ZONE.len()).position(|part| part == ZONE).unwrap_or(text.len());
        let (window, zone) = text.split_at_checked(at).unwrap_or((text, &[]));
        let size = WindowSize::parse(window).map_err(|error| Cow::from(error.to_string()))?;
        let Some(name) = zone.strip_prefix(ZONE) else { return Ok(size) };
        if !size.is_of_calendar() {
            return Err(
                "a time zone is of an hour, day, week or month, such as \"day tz=Europe/Berlin\""
                    .into(),
            );
        }
        let zone = CalendarZone::named(name).map_err(|error| Cow::from(error.to_string()))?;
        Ok(size.in_zone(zone))
    }

    /// Returns the position of `now` in its window. Windows start at multiples of their size, or where the calendar
    /// says.
    #[inline]
    pub fn at(self, now: UnixMillis) -> WindowPosition {
        if self.is_of_calendar() {
            return self.at_calendar(now);
        }
        self.at_multiple(now)
    }

    /// Returns the position of `now` in its window, as [`WindowSize::at`] does for windows that are not of the
    /// calendar.
    #[inline]
    pub fn at_multiple(self, now: UnixMillis) -> WindowPosition {
        WindowPosition { number: now.0 / self.0, elapsed: now.0 % self.0 }
    }

    #[cold]
    #[inline(never)]
    fn at_calendar(self, now: UnixMillis) -> WindowPosition {
        let Some((unit, zone)) = self.calendar() else { return self.at_multiple(now) };
        let CalendarWindow { number, start, .. } = zone.window_at(unit, now.0);
        WindowPosition { number, elapsed: now.0.saturating_sub(start) }
    }

    /// Returns the moment at which window `number` starts.
    #[inline]
    pub fn start_of(self, number: u64) -> UnixMillis {
        if self.is_of_calendar() {
            return UnixMillis(self.in_calendar(number).start);
        }
        UnixMillis(number.saturating_mul(self.millis()))
    }

    /// Returns the moment at which window `number` has ended.
    #[inline]
    pub fn end_of(self, number: u64) -> UnixMillis {
        if self.is_of_calendar() {
            return UnixMillis(self.in_calendar(number).end);
        }
        UnixMillis(number.saturating_add(1).saturating_mul(self.millis()))
    }

    /// Returns the length of window `number` in milliseconds.
    #[inline]
    pub fn length_of(self, number: u64) -> u64 {
        if self.is_of_calendar() {
            return self.length_in_calendar(number);
        }
        self.millis()
    }

    #[cold]
    #[inline(never)]
    fn length_in_calendar(self, number: u64) -> u64 {
        let CalendarWindow { start, end, .. } = self.in_calendar(number);
        end.saturating_sub(start)
    }

    // Not inlined, so that the code for other windows keeps its values in registers.
    #[cold]
    #[inline(never)]
    fn in_calendar(self, number: u64) -> CalendarWindow {
        match self.calendar() {
            Some((unit, zone)) => zone.window_of(unit, number),
            None => CalendarWindow { number, start: 0, end: 0 },
        }
    }
}

/// Writes the size in the largest unit that gives a whole number: `1m`, `90s`, `500ms`; or a unit of the calendar, with
/// its zone if that is not UTC: `month`, `day tz=Europe/Berlin`.
impl fmt::Display for WindowSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unit) = self.unit() {
            f.write_str(unit.name())?;
            let zone = self.zone().map(CalendarZone::name).filter(|name| *name != UTC);
            return zone.map_or(Ok(()), |zone| write!(f, " tz={zone}"));
        }
        let units = [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)];
        let whole = units.iter().find(|(_, unit)| self.millis().is_multiple_of(*unit));
        let (name, unit) = whole.copied().unwrap_or(("ms", 1));
        write!(f, "{}{name}", self.millis().checked_div(unit).unwrap_or(0))
    }
}

/// A position in time, relative to windows of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPosition {
    /// The number of the window: Unix time divided by the size, rounded down; or that of the calendar unit since 1970.
    pub number: u64,
    /// Milliseconds since the window's start; less than its length.
    pub elapsed: u64,
}

impl WindowPosition {
    /// Whether the next window is so near that another process, whose clock is slightly ahead, may count in it already.
    #[inline]
    pub fn is_before_next(self, size: WindowSize) -> bool {
        let length = size.length_of(self.number);
        length.saturating_sub(self.elapsed) <= (length / 10).min(CLOCK_SKEW)
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The units of nginx times, in the order in which they must appear.
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

/// Parses an nginx time, or seconds with up to three decimals, to milliseconds.
///
/// Returns `None` for anything else, and for numbers that do not fit 64 bits. The syntax is that of nginx's
/// `ngx_parse_time()`: units from the largest to the smallest, each once; a bare number is last, and in seconds.
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
        let letters = tail.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
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
        // nginx allows blanks between units.
        let blanks = tail.iter().take_while(|byte| **byte == b' ').count();
        rest = if unit.is_empty() { tail } else { tail.get(blanks..)? };
    }
    (!text.is_empty()).then_some(total)
}

/// Returns a warning for a `time` in months, since minutes are usually meant; `None` without months.
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

/// The error for a text that is no window size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseWindowError;

impl fmt::Display for ParseWindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month")
    }
}

impl core::error::Error for ParseWindowError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> WindowSize {
        WindowSize::parse(text.as_bytes()).unwrap()
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
            assert_eq!(WindowSize::parse(text.as_bytes()), Err(ParseWindowError), "{text}");
        }
    }

    #[test]
    fn a_size_of_the_calendar_has_bits_beyond_all_others() {
        let zones = ["UTC", "Europe/Berlin", "Pacific/Apia"];
        let zones = zones.map(|name| CalendarZone::named(name.as_bytes()).unwrap());
        let mut all = std::collections::BTreeSet::new();
        for (unit, zone) in
            CalendarUnit::ALL.into_iter().flat_map(|unit| zones.map(|zone| (unit, zone)))
        {
            let size = WindowSize::of_calendar(unit, zone);
            assert!(size.is_of_calendar() && size.bits() >> WindowSize::BITS == 0);
            assert_eq!(WindowSize::from_bits(size.bits()), Some(size));
            assert_eq!(size.calendar(), Some((unit, zone)));
            let text = size.to_string();
            let parsed = WindowSize::parse_with_zone(text.as_bytes()).unwrap();
            assert_eq!(parsed.in_zone(CalendarZone::utc()), size, "{text}");
            assert_eq!(size.name(), unit.name());
            assert!(all.insert(size.bits()));
        }
        assert!(!size("366d").is_of_calendar());
        // Without a zone, it is no window yet.
        let day = WindowSize::parse(b"day").unwrap();
        assert_eq!((WindowSize::from_bits(day.bits()), day.calendar()), (None, None));
        assert_eq!(
            day.in_zone(zones[1]).in_zone(zones[2]),
            WindowSize::of_calendar(CalendarUnit::Day, zones[1])
        );
    }

    #[test]
    fn a_zone_of_a_newer_database_is_unknown() {
        let known = WindowSize::of_calendar(CalendarUnit::Month, CalendarZone::utc()).bits();
        let unknown =
            (1..).map(|more| known ^ more).find(|bits| WindowSize::from_bits(*bits).is_none());
        assert!(WindowSize::is_of_unknown_zone(unknown.unwrap()));
        for bits in
            [0, 1, known, WindowSize::MAX_MILLIS, WindowSize::MAX_MILLIS + 1, 1 << 35, u64::MAX]
        {
            assert!(!WindowSize::is_of_unknown_zone(bits), "{bits}");
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
        assert_eq!(size("1m").at(UnixMillis(0)), WindowPosition { number: 0, elapsed: 0 });
        assert_eq!(
            size("1m").at(UnixMillis(59_999)),
            WindowPosition { number: 0, elapsed: 59_999 }
        );
        assert_eq!(size("1m").at(UnixMillis(120_000)), WindowPosition { number: 2, elapsed: 0 });
    }
}
