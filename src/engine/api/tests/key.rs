//! Tests of calls that read a counter, or count in one.

use std::sync::LazyLock;

use serde_json::Value;

use crate::engine::Namespace;
use crate::engine::api::counting::Counting;
use crate::engine::api::key::key;
use crate::engine::api::request::KeyCall;
use crate::policy::algorithm::Algorithm;
use crate::policy::calendar::{CalendarUnit, CalendarZone};
use crate::policy::hits::{Hits, hits};
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::testing::table::{SharedTable, TestClock};

const MINUTE: u64 = 60_000;

pub(super) fn key_call(key: &[u8]) -> KeyCall {
    KeyCall {
        namespace: b"api".into(),
        key: key.into(),
        counter: None,
        window: None,
        algorithm: Algorithm::Sliding,
        rate: Hits::ZERO,
        limit: None,
        increment: None,
    }
}

/// The counters that rules have.
static LOGIN: LazyLock<[Box<str>; 1]> = LazyLock::new(|| ["login".into()]);

/// Returns the settings of a namespace without a store, in windows of `sizes`.
fn local(sizes: &[WindowSize]) -> Counting<'_> {
    Counting {
        sync: SyncMode::Local,
        store: None,
        sizes,
        rates: &[],
        counters: LOGIN.as_slice(),
        is_open: false,
    }
}

#[test]
fn a_counter_is_reported_in_json() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let size = WindowSize::from_millis(MINUTE).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    let answer = |call: &KeyCall| key(call, &namespace, &local(&[size]), &clock);
    assert_eq!(
        answer(&key_call(b"k")).unwrap(),
        r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":1680000000,"remaining":null}"#
    );
    let posted = KeyCall {
        increment: Some(Hits::from_thousandths(1_500)),
        limit: Some(Hits::from_thousandths(10_000)),
        ..key_call(b"k")
    };
    answer(&posted).unwrap();
    let elsewhere = KeyCall { counter: Some("login".into()), ..key_call(b"k") };
    let body = answer(&elsewhere).unwrap();
    assert!(body.contains("\"current\":0,"), "{body}");
    clock.set(28_000_001 * MINUTE + MINUTE / 2);
    assert_eq!(
        answer(&posted).unwrap(),
        r#"{"rate":2.25,"current":1.5,"previous":1.5,"diff":1.5,"sync":0,"window_start":1680000060,"remaining":7,"admitted":true,"reset":30}"#
    );
    for (call, message) in [
        (key_call(b""), "the key is empty"),
        (
            KeyCall { window: WindowSize::from_millis(1000), ..key_call(b"k") },
            "the window 1s is not one of the namespace's: expected 1m",
        ),
    ] {
        let error = answer(&call).unwrap_err();
        assert_eq!(error.status, 400);
        assert!(error.message.contains(message), "{error}");
    }
    let open = Counting { is_open: true, ..local(&[]) };
    let none = key(&key_call(b"k"), &namespace, &open, &clock);
    assert_eq!(none.unwrap_err().message, "no window: expected window=, such as 60");
}

#[test]
fn a_moving_window_begins_with_its_oldest_hit() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let size = WindowSize::from_millis(MINUTE).unwrap();
    let now = 28_000_000 * MINUTE;
    let clock = TestClock::at(now);
    let answer = |call: &KeyCall| key(call, &namespace, &local(&[size]), &clock).unwrap();
    let asked = KeyCall {
        algorithm: Algorithm::Moving,
        limit: Some(Hits::from_thousandths(10_000)),
        ..key_call(b"k")
    };
    let posted = KeyCall { increment: Some(Hits::from_thousandths(1_500)), ..asked.clone() };
    assert_eq!(
        answer(&asked),
        r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":1680000000,"remaining":10}"#
    );
    answer(&posted);
    clock.set(now + 1500);
    assert_eq!(
        answer(&posted),
        r#"{"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":1680000000,"remaining":7,"admitted":true,"reset":58.501}"#
    );
    clock.set(now + MINUTE + 1);
    assert_eq!(
        answer(&asked),
        r#"{"rate":1.5,"current":1.5,"previous":0,"diff":1.5,"sync":0,"window_start":1680000001.5,"remaining":8}"#
    );
    let unlimited = KeyCall { limit: None, ..asked.clone() };
    assert!(answer(&unlimited).ends_with(r#""remaining":null}"#));
    let boundless = KeyCall { limit: Some(Hits::MAX), ..asked };
    assert!(answer(&boundless).ends_with(r#""remaining":99998}"#));
}

#[test]
fn a_rate_is_read_and_filled() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let size = WindowSize::from_millis(MINUTE).unwrap();
    let now = 28_000_000 * MINUTE;
    let clock = TestClock::at(now);
    // The time unit of a rate is none of the namespace's windows.
    let answer = |call: &KeyCall| key(call, &namespace, &local(&[size]), &clock).unwrap();
    let asked = KeyCall {
        algorithm: Algorithm::Bucket,
        window: WindowSize::from_millis(1000),
        rate: Hits::from_thousandths(10_000),
        limit: Some(Hits::from_thousandths(21_000)),
        ..key_call(b"k")
    };
    assert_eq!(
        answer(&asked),
        r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":0,"remaining":21}"#
    );
    let posted = KeyCall { increment: Some(Hits::from_thousandths(5_000)), ..asked.clone() };
    answer(&posted);
    clock.set(now + 250);
    assert_eq!(
        answer(&asked),
        r#"{"rate":2.5,"current":2.5,"previous":0,"diff":2.5,"sync":0,"window_start":1680000000,"remaining":18}"#
    );
}

/// Returns a table's answers to 3 hits, then to 2, then to none, under a limit of 4 in a minute.
fn decided(call: &KeyCall) -> [String; 4] {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let size = WindowSize::from_millis(MINUTE).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    [3, 2, 0, 5].map(|value| {
        let call = KeyCall { increment: Some(hits(value)), ..call.clone() };
        let body = key(&call, &namespace, &local(&[size]), &clock).unwrap();
        let value: Value = serde_json::from_str(&body).unwrap();
        let fields = ["rate", "remaining", "admitted", "reset"];
        fields.map(|field| value[field].to_string()).join(" ")
    })
}

#[test]
fn a_limit_counts_admitted_hits() {
    for (algorithm, expected) in [
        (Algorithm::Sliding, ["3 1 true 60", "3 1 false 80", "3 1 true 60", "3 1 false null"]),
        (Algorithm::Fixed, ["3 1 true 60", "3 1 false 60", "3 1 true 60", "3 1 false null"]),
        (Algorithm::Elastic, ["3 1 true 60", "3 1 false 60", "3 1 true 60", "3 1 false null"]),
        (
            Algorithm::Moving,
            ["3 1 true 60.001", "3 1 false 60.001", "3 1 true 60.001", "3 1 false null"],
        ),
    ] {
        let call = KeyCall {
            algorithm,
            limit: Some(hits(4)),
            counter: Some("login".into()),
            ..key_call(b"k")
        };
        assert_eq!(decided(&call), expected, "{algorithm:?}");
    }
    let bucket = KeyCall {
        algorithm: Algorithm::Bucket,
        window: WindowSize::from_millis(1000),
        rate: hits(1),
        limit: Some(hits(4)),
        ..key_call(b"k")
    };
    let expected = ["3 1 true 3", "3 1 false 1", "3 1 true 3", "3 1 false null"];
    assert_eq!(decided(&bucket), expected);
}

#[test]
fn a_limit_decides_where_this_node_does() {
    let periodic = SyncMode::Periodic(core::time::Duration::from_secs(1));
    for (sync, algorithm, status) in [
        (periodic, Algorithm::Sliding, None),
        (periodic, Algorithm::Moving, Some(400)),
        (periodic, Algorithm::Elastic, Some(400)),
        (periodic, Algorithm::Bucket, Some(400)),
    ] {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let call = KeyCall {
            algorithm,
            limit: Some(hits(4)),
            increment: Some(Hits::ONE),
            ..key_call(b"k")
        };
        let sizes = [size];
        let counting = Counting { sync, ..local(&sizes) };
        let answer = |call: &KeyCall| key(call, &namespace, &counting, &clock);
        assert_eq!(answer(&call).err().map(|it| it.status), status, "{sync}");
        // Errors count no hits.
        let read = KeyCall { increment: None, ..call };
        let counted = !answer(&read).unwrap().starts_with("{\"rate\":0,");
        assert_eq!(counted, status.is_none());
    }
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let size = WindowSize::from_millis(MINUTE).unwrap();
    let empty = KeyCall { limit: Some(hits(4)), increment: Some(Hits::ONE), ..key_call(b"") };
    let clock = TestClock::at(28_000_000 * MINUTE);
    let error = key(&empty, &namespace, &local(&[size]), &clock);
    assert_eq!(error.unwrap_err().status, 400);
}

#[test]
fn a_window_of_the_calendar_is_fixed_and_starts_with_its_unit() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let berlin = CalendarZone::named(b"Europe/Berlin").unwrap();
    let month = WindowSize::of_calendar(CalendarUnit::Month, berlin);
    // 2024-10-31 22:30 UTC, half an hour before the month ends in Berlin.
    let clock = TestClock::at(1_730_413_800_000);
    let answer = |call: &KeyCall| key(call, &namespace, &local(&[month]), &clock);
    let posted = KeyCall { increment: Some(hits(2)), limit: Some(hits(3)), ..key_call(b"k") };
    assert_eq!(
        answer(&posted).unwrap(),
        r#"{"rate":2,"current":2,"previous":0,"diff":2,"sync":0,"window_start":1727733600,"remaining":1,"admitted":true,"reset":1800}"#
    );
    assert_eq!(
        answer(&posted).unwrap(),
        r#"{"rate":2,"current":2,"previous":0,"diff":2,"sync":0,"window_start":1727733600,"remaining":1,"admitted":false,"reset":1800}"#
    );
    // The first millisecond of November.
    clock.set(1_730_413_800_000 + 1_800_000);
    assert_eq!(
        answer(&posted).unwrap(),
        r#"{"rate":2,"current":2,"previous":2,"diff":2,"sync":0,"window_start":1730415600,"remaining":1,"admitted":true,"reset":2592000}"#
    );
}
