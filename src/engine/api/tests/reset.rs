//! Tests of calls about all counters of a key.

use super::key::key_call;
use crate::engine::Namespace;
use crate::engine::api::counting::Counting;
use crate::engine::api::key::key;
use crate::engine::api::request::{CountersCall, KeyCall};
use crate::engine::api::reset::{KeyCounter, OF_WINDOWS, counters, reset};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::table::CountedRate;
use crate::testing::table::{SharedTable, TestClock};

const MINUTE: u64 = 60_000;
const SECOND: u64 = 1000;

fn size(millis: u64) -> WindowSize {
    WindowSize::from_millis(millis).unwrap()
}

fn at_rate(rate: i64, millis: u64) -> KeyCounter {
    KeyCounter { algorithm: Algorithm::Bucket, size: size(millis), rate: hits(rate), name: None }
}

/// Each counter of a namespace with two windows and two rates.
fn all() -> Vec<KeyCounter> {
    let windows = [SECOND, MINUTE].map(size).into_iter();
    let windows = windows.flat_map(|size| {
        OF_WINDOWS.map(|algorithm| KeyCounter { algorithm, size, rate: Hits::ZERO, name: None })
    });
    windows.chain([at_rate(1, 5 * SECOND), at_rate(2, 5 * SECOND)]).collect()
}

/// A call that reads a counter, or counts in it.
fn call_of(counter: KeyCounter, increment: Option<Hits>) -> KeyCall {
    KeyCall {
        algorithm: counter.algorithm,
        window: Some(counter.size),
        rate: counter.rate,
        increment,
        ..key_call(b"k")
    }
}

#[test]
fn a_key_is_set_to_zero_in_the_windows_that_are_named() {
    for (window, algorithm, left) in [
        (None, None, 0),
        (Some(SECOND), None, 5),
        (Some(MINUTE), Some(Algorithm::Moving), 7),
        (None, Some(Algorithm::Fixed), 6),
        (Some(5 * SECOND), Some(Algorithm::Bucket), 7),
    ] {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let counting = Counting {
            sync: SyncMode::Local,
            store: None,
            sizes: &[size(SECOND), size(MINUTE)],
            rates: &[CountedRate { hits: hits(1), size: size(5 * SECOND) }],
            counters: &[],
            is_open: false,
        };
        let answer = |call: &KeyCall| key(call, &namespace, &counting, &clock).unwrap();
        for counter in all() {
            answer(&call_of(counter, Some(hits(3))));
        }
        let call = CountersCall {
            read: KeyCall {
                window: window.map(size),
                algorithm: algorithm.unwrap_or_default(),
                rate: hits(1),
                ..key_call(b"k")
            },
            algorithm,
            has_all_names: true,
        };
        let body = reset(&call, &namespace, &counting, &clock).unwrap();
        let told = body.matches("\"rate\":3").count();
        assert_eq!(told, 8 - left, "{body}");
        let zeros = "{\"rate\":0,\"current\":0,\"previous\":0,\"diff\":0,\"sync\":0,";
        let is_left =
            |counter: &KeyCounter| !answer(&call_of(counter.clone(), None)).starts_with(zeros);
        let counted = all().into_iter().filter(is_left).count();
        assert_eq!(counted, left, "{window:?} {algorithm:?}");
    }
}

#[test]
fn windows_of_which_no_rule_tells_are_set_to_zero_too() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    let counting = Counting {
        sync: SyncMode::Local,
        store: None,
        sizes: &[],
        rates: &[],
        counters: &[],
        is_open: true,
    };
    let answer = |call: &KeyCall| key(call, &namespace, &counting, &clock).unwrap();
    for counter in all() {
        answer(&call_of(counter, Some(hits(3))));
    }
    let call = CountersCall { read: key_call(b"k"), algorithm: None, has_all_names: true };
    reset(&call, &namespace, &counting, &clock).unwrap();
    for counter in all() {
        let body = answer(&call_of(counter.clone(), None));
        assert!(body.starts_with("{\"rate\":0,"), "{counter:?} {body}");
    }
}

#[test]
fn a_reset_that_is_impossible_is_an_error() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    let sizes = [size(SECOND)];
    let answer = |key: &[u8], window: Option<u64>, sync, sizes: &[WindowSize]| {
        let counting =
            Counting { sync, store: None, sizes, rates: &[], counters: &[], is_open: false };
        let read = KeyCall { window: window.map(size), limit: Some(Hits::ONE), ..key_call(key) };
        let call = CountersCall { read, algorithm: None, has_all_names: true };
        reset(&call, &namespace, &counting, &clock).map_err(|it| it.status)
    };
    let local = SyncMode::Local;
    assert_eq!(answer(b"", None, local, &sizes), Err(400));
    assert_eq!(answer(b"k", Some(MINUTE), local, &sizes), Err(400));
    for sizes in [&sizes[..], &[]] {
        let nothing = r#"{"reset":[]}"#;
        assert_eq!(answer(b"k", None, local, sizes), Ok(nothing.into()));
    }
}

/// A call about the key `k` in the counters of a name, or of all.
fn call_in(counter: Option<&str>, has_all_names: bool) -> CountersCall {
    CountersCall {
        read: KeyCall { counter: counter.map(Into::into), ..key_call(b"k") },
        algorithm: None,
        has_all_names,
    }
}

#[test]
fn counters_of_all_names_are_reported_and_reset() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    let names = ["login".into(), "search".into()];
    let counting = Counting {
        sync: SyncMode::Local,
        store: None,
        sizes: &[size(MINUTE)],
        rates: &[],
        counters: &names,
        is_open: false,
    };
    let count = |counter: Option<&str>, algorithm, value| {
        let call = KeyCall {
            counter: counter.map(Into::into),
            algorithm,
            increment: Some(value),
            ..key_call(b"k")
        };
        key(&call, &namespace, &counting, &clock).map_err(|it| (it.status, it.message))
    };
    count(None, Algorithm::Sliding, hits(1)).unwrap();
    count(Some("login"), Algorithm::Fixed, hits(2)).unwrap();
    count(Some("login"), Algorithm::Moving, hits(3)).unwrap();
    let unknown = "there is no counter \"other\" in the namespace: expected default, login, search";
    assert_eq!(count(Some("other"), Algorithm::Sliding, hits(1)), Err((404, unknown.into())));

    let told = |call: &CountersCall| counters(call, &namespace, &counting, &clock).unwrap();
    let shared = r#"{"window":60,"window_type":"sliding","counter":null,"rate":1}"#;
    let login = r#"{"window":60,"window_type":"sliding","counter":"login","rate":2}"#;
    let moving = r#"{"window":60,"window_type":"moving","counter":"login","rate":3}"#;
    let all = format!("{{\"counters\":[{shared},{login},{moving}]}}");
    assert_eq!(told(&call_in(None, true)), all);

    let set = |call: &CountersCall| reset(call, &namespace, &counting, &clock);
    let error = set(&call_in(Some("other"), false)).unwrap_err();
    assert_eq!((error.status, &*error.message), (404, unknown));
    assert_eq!(set(&call_in(None, false)).unwrap(), format!("{{\"reset\":[{shared}]}}"));
    assert_eq!(told(&call_in(None, true)), format!("{{\"counters\":[{login},{moving}]}}"));
    assert_eq!(set(&call_in(None, true)).unwrap(), format!("{{\"reset\":[{login},{moving}]}}"));
    assert_eq!(told(&call_in(None, true)), r#"{"counters":[]}"#);
}

#[test]
fn a_question_about_a_bucket_has_its_rate() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(28_000_000 * MINUTE);
    let counting = Counting {
        sync: SyncMode::Local,
        store: None,
        sizes: &[],
        rates: &[],
        counters: &[],
        is_open: true,
    };
    let call = call_of(at_rate(2, 5 * SECOND), Some(hits(3)));
    key(&call, &namespace, &counting, &clock).unwrap();
    assert_eq!(
        reset(&call_in(None, true), &namespace, &counting, &clock).unwrap(),
        r#"{"reset":[{"window":5,"window_type":"rate","counter":null,"rate":3,"leak":"2/5s"}]}"#
    );
}
