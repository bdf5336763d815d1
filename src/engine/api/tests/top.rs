//! Tests of the answer about rejected keys: its text, and what it says of rules against their explanations.

use core::iter;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::rules::{Served, T, call, limit, listed, rule};
use crate::conf::listed::ListedRule;
use crate::engine::Namespace;
use crate::engine::api::rules::explain;
use crate::engine::api::top::top;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::window::{Clock, WindowSize};
use crate::testing::table::{SharedTable, TestClock};

const MINUTE: u64 = 60_000;

fn text(
    namespace: &Namespace<'_>,
    limit: usize,
    rules: &[ListedRule],
    clock: &TestClock,
) -> String {
    top(namespace, limit, rules.iter(), clock).collect()
}

/// Returns the keys of an answer.
fn keys(namespace: &Namespace<'_>, rules: &[ListedRule], clock: &TestClock) -> Vec<Value> {
    let told: Value = serde_json::from_str(&text(namespace, 256, rules, clock)).unwrap();
    told["keys"].as_array().unwrap().clone()
}

/// Counts a rejection of a key.
fn reject(namespace: &Namespace<'_>, name: &[u8], clock: &TestClock) {
    let counter = namespace.counter(WindowSize::MIN);
    let table = namespace.table();
    table.count_rejected_key(&counter, table.key(name), clock.now());
}

#[test]
fn rejected_keys_are_reported_in_json() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(T);
    let empty = r#"{"keys":[],"missed":0,"followed":37}"#;
    assert_eq!(text(&namespace, 20, &[], &clock), empty);
    reject(&namespace, b"2001:db8::/64", &clock);
    reject(&namespace, b"2001:db8::/64", &clock);
    reject(&namespace, &counted_name(b"a b%\xff\"", Some("login")), &clock);
    let free = r#""rule":null,"name":null,"until":null,"dry_run":null"#;
    let first =
        format!(r#"{{"key":"2001:db8::/64","counter":null,"rejected":2,"error":0,{free}}}"#);
    let second =
        format!(r#"{{"key":"a%20b%25%FF%22","counter":"login","rejected":1,"error":0,{free}}}"#);
    let end = r#""missed":0,"followed":37}"#;
    assert_eq!(text(&namespace, 20, &[], &clock), format!(r#"{{"keys":[{first},{second}],{end}"#));
    assert_eq!(text(&namespace, 1, &[], &clock), format!(r#"{{"keys":[{first}],{end}"#));
    assert_eq!(text(&namespace, 0, &[], &clock), empty);
    reject(&namespace, &counted_name(&[b'x'; 201], None), &clock);
    let body = text(&namespace, 20, &[], &clock);
    assert!(body.contains(r#""key":"sha256:84a0678c"#), "{body}");
}

#[test]
fn a_key_is_listed_as_long_as_it_is_limited() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(T);
    let rules = [rule(None, None, vec![limit("api-10m", 10 * MINUTE, Algorithm::Fixed, 0, 1000)])];
    let end = (T / (10 * MINUTE) + 1) * 10 * MINUTE;
    let long = [b'x'; 201];
    for name in [b"k".as_slice(), &long] {
        let served = Served::new(&namespace, &rules);
        assert!(served.admits(&rules, name, &shared, &clock));
        assert!(!served.admits(&rules, name, &shared, &clock));
    }
    let told = |count: u64| {
        json!({
            "key": "k", "counter": null, "rejected": count, "error": 0,
            "rule": "nginx.conf:31", "name": "api-10m", "until": end / 1000, "dry_run": false,
        })
    };
    let [first, second] = &keys(&namespace, &rules, &clock)[..] else {
        panic!("two keys were rejected");
    };
    assert_eq!(*first, told(1));
    // The counters of a digest are unknown.
    assert_eq!(second["rule"], Value::Null);
    clock.set(T + MINUTE);
    assert_eq!(keys(&namespace, &rules, &clock), [told(0)]);
    clock.set(end - 1);
    assert_eq!(keys(&namespace, &rules, &clock), [told(0)]);
    clock.set(end);
    assert_eq!(keys(&namespace, &rules, &clock), [] as [Value; 0]);
}

#[test]
fn the_longest_refusal_is_reported_and_a_dry_run_only_without_another() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(T);
    let fixed = |name: &str, minutes: u64| limit(name, minutes * MINUTE, Algorithm::Fixed, 0, 1000);
    let mut variable = fixed("variable", 60);
    variable.hits = None;
    let never = rule(Some("other"), Some(Hits::from_thousandths(2000)), vec![fixed("never", 1)]);
    let rules = [
        rule(None, None, vec![fixed("one", 1), fixed("two", 2), variable]),
        ListedRule { is_dry_run: true, ..rule(None, None, vec![fixed("dry", 30)]) },
        never,
    ];
    let mut live = rules.to_vec();
    live[0].limits = live[0].limits[..2].into();
    live[2].cost = None;
    let served = Served::new(&namespace, &live);
    assert!(served.admits(&live, b"k", &shared, &clock));
    assert!(!served.admits(&live, b"k", &shared, &clock));
    let told = |key: &Value| (key["counter"].clone(), key["name"].clone(), key["until"].clone());
    let told = || keys(&namespace, &rules, &clock).iter().map(told).collect::<Vec<_>>();
    let end_of = |minutes: u64| json!((T / MINUTE / minutes + 1) * minutes * 60);
    let of_shared = |name: &str, until| (Value::Null, json!(name), until);
    let of_other = (json!("other"), json!("never"), Value::Null);
    assert_eq!(told(), [of_shared("two", end_of(2)), of_other]);
    clock.set(T + 2 * MINUTE);
    assert_eq!(told(), [of_shared("dry", end_of(30))]);
    assert_eq!(keys(&namespace, &rules, &clock)[0]["dry_run"], json!(true));
}

#[test]
fn a_piece_asks_a_bounded_number_of_rules() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(T);
    let one = rule(None, None, vec![limit("l", MINUTE, Algorithm::Fixed, 0, 1000)]);
    let rules: Vec<_> = iter::repeat_n(one, 1000).collect();
    for name in [b"a", b"b"] {
        reject(&namespace, name, &clock);
    }
    let pieces = top(&namespace, 20, rules.iter(), &clock).count();
    assert!(pieces > 2 * 1000 / 64, "{pieces}");
}

/// Returns the answer's fields about limits for a key of this counter, by the explanations of its rules.
fn expected(
    name: &[u8],
    counter: Option<&str>,
    namespace: &Namespace<'_>,
    rules: &[ListedRule],
    clock: &TestClock,
) -> [Value; 4] {
    let text: String = explain(call(name), namespace, rules.iter(), clock).unwrap().collect();
    let explained: Value = serde_json::from_str(&text).unwrap();
    let mut best: Option<[Value; 4]> = None;
    for rule in explained["rules"].as_array().unwrap() {
        let limits = rule["limits"].as_array().unwrap();
        for limit in limits.iter().filter(|limit| limit["admitted"] == json!(false)) {
            let until = limit["until"].as_f64().unwrap_or(f64::INFINITY);
            let is_longer = best.as_ref().is_none_or(|[.., until_now, dry_run]| {
                let until_now = until_now.as_f64().unwrap_or(f64::INFINITY);
                match (rule["dry_run"] == json!(true), *dry_run == json!(true)) {
                    (false, true) => true,
                    (true, false) => false,
                    _ => until > until_now,
                }
            });
            if rule["counter"] == json!(counter) && is_longer {
                best = Some(
                    [&rule["place"], &limit["name"], &limit["until"], &rule["dry_run"]]
                        .map(Value::clone),
                );
            }
        }
    }
    best.unwrap_or([const { Value::Null }; 4])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A key that was rejected is listed as long as it is limited, with what the explanations of its rules say.
    #[test]
    fn a_rejected_key_is_listed_as_its_rules_explain_it(
        rules in vec((listed(), any::<bool>()), 1..5),
        history in vec((prop_oneof![4 => 0_u64..8000, 1 => Just(MINUTE), 1 => Just(3 * MINUTE)], 0_usize..3), 0..30),
    ) {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let rules: Vec<_> = rules.into_iter().zip(0_u64..).map(|((mut rule, is_dry_run), number)| {
            rule.place = format!("nginx.conf:{number}").into();
            rule.is_dry_run = is_dry_run;
            for (limit, index) in rule.limits.iter_mut().zip(0..) {
                limit.limit.name = format!("{number}-{index}").into();
                if !limit.limit.algorithm.is_of_rates() && number % 2 == 1 {
                    // The count of a rejected key falls to zero while the key is limited.
                    limit.limit.size = WindowSize::from_millis(10 * MINUTE).unwrap();
                }
            }
            rule
        }).collect();
        let served = Served::new(&namespace, &rules);
        let clock = TestClock::at(T);
        let mut now = T;
        let names = [b"a", b"b", b"c"];
        let mut rejected = std::collections::BTreeSet::new();
        for (pause, key) in history {
            served.admits(&rules, names[key], &shared, &clock);
            for listed in keys(&namespace, &rules, &clock) {
                let fields = ["key", "counter"].map(|name| listed[name].as_str().map(str::to_owned));
                rejected.insert(fields);
            }
            now += pause;
            clock.set(now);
            let told = keys(&namespace, &rules, &clock);
            for [name, counter] in &rejected {
                let name = name.as_deref().unwrap();
                let expected =
                    expected(name.as_bytes(), counter.as_deref(), &namespace, &rules, &clock);
                let key = told.iter().find(|it| it["key"] == json!(name) && it["counter"] == json!(counter));
                let of_limits = ["rule", "name", "until", "dry_run"];
                match key {
                    Some(key) => {
                        prop_assert_eq!(of_limits.map(|field| key[field].clone()), expected.clone());
                        prop_assert!(key["rejected"] != json!(0) || expected[0] != Value::Null);
                    }
                    None => prop_assert_eq!(&expected[0], &Value::Null, "{} is missing", name),
                }
            }
        }
    }
}
