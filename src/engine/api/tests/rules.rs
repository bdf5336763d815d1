//! Tests of the answers about rules: their texts, and explanations against the fate of the next request.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::conf::listed::{ListedLimit, ListedRule};
use crate::conf::words::settings::Phase;
use crate::engine::api::request::ExplainCall;
use crate::engine::api::rules::{explain, rules};
use crate::engine::{BoundLimit, Evaluation, Namespace};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::key::counted_name;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::WindowSize;
use crate::table::{Key, Outcome};
use crate::testing::table::{SharedTable, TestClock};

pub(super) const T: u64 = 1_700_000_040_000;

pub(super) fn limit(
    name: &str,
    millis: u64,
    algorithm: Algorithm,
    burst: i64,
    most: i64,
) -> ListedLimit {
    let hits = Hits::from_thousandths(most);
    let is_rate = algorithm.is_of_rates();
    ListedLimit {
        limit: Limit {
            name: name.into(),
            size: WindowSize::from_millis(millis).unwrap(),
            algorithm,
            burst: Burst {
                hits: if is_rate { Hits::from_thousandths(burst) } else { Hits::ZERO },
                delay: None,
                rate: is_rate.then_some(hits),
            },
            of_rule: None,
        },
        hits: Some(hits),
    }
}

pub(super) fn rule(
    counter: Option<&str>,
    cost: Option<Hits>,
    limits: Vec<ListedLimit>,
) -> ListedRule {
    ListedRule {
        namespace: 0,
        place: "nginx.conf:31".into(),
        key: b"$remote_addr".as_slice().into(),
        counter: counter.map(Into::into),
        cost,
        limits: limits.into(),
        phase: Phase::Preaccess,
        is_dry_run: false,
        ban: None,
    }
}

pub(super) fn call(key: &[u8]) -> ExplainCall {
    ExplainCall {
        namespace: b"api".into(),
        key: key.into(),
        cost: None,
        limit: None,
        has_all: false,
    }
}

/// The limits of rules with their counters, as requests have them.
pub(super) struct Served<'m>(Vec<(BoundLimit<'m>, Hits, usize)>);

impl<'m> Served<'m> {
    pub(super) fn new(namespace: &Namespace<'m>, rules: &[ListedRule]) -> Served<'m> {
        let mut all: Vec<(BoundLimit<'m>, Hits, usize)> = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for ListedLimit { limit, hits } in &rule.limits {
                let earlier = all.iter().map(|(bound, ..)| bound);
                let bound = BoundLimit::new(limit.clone(), namespace, earlier);
                all.push((bound, hits.unwrap(), index));
            }
        }
        Served(all)
    }

    /// Decides on a request for `name` under all rules.
    pub(super) fn admits(
        &self,
        rules: &[ListedRule],
        name: &[u8],
        shared: &SharedTable,
        clock: &TestClock,
    ) -> bool {
        let names: Vec<_> =
            rules.iter().map(|rule| counted_name(name, rule.counter.as_deref())).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| shared.table.key(name)).collect();
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for (bound, hits, index) in &self.0 {
            let cost = rules[*index].cost.unwrap_or(Hits::ONE);
            evaluation.charge(bound, *hits, &keys[*index], cost, clock);
        }
        evaluation.finish(Outcome::Rejected, clock).0 == Outcome::Passed
    }
}

fn limits() -> impl Strategy<Value = ListedLimit> {
    let algorithm = proptest::sample::select(&Algorithm::ALL[..]);
    let millis = proptest::sample::select(&[1000_u64, 10_000, 60_000][..]);
    (algorithm, millis, 0..4000_i64, 500..6000_i64)
        .prop_map(|(algorithm, millis, burst, most)| limit("l", millis, algorithm, burst, most))
}

pub(super) fn listed() -> impl Strategy<Value = ListedRule> {
    let counter = proptest::option::of(Just("login"));
    let cost = prop_oneof![3 => Just(1000_i64), 1 => 1..3000_i64, 1 => Just(0)];
    (counter, cost, vec(limits(), 1..3)).prop_map(|(counter, cost, mut limits)| {
        // A rule has one algorithm.
        let first = limits[0].limit.algorithm;
        limits.retain(|it| it.limit.algorithm == first);
        if first.is_of_rates() {
            limits.truncate(1);
        }
        rule(counter, Some(Hits::from_thousandths(cost)), limits)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A request is admitted if each limit that is explained admits it.
    #[test]
    fn an_explanation_is_the_fate_of_the_next_request(
        rules in vec(listed(), 1..4),
        history in vec((0_u64..8000, 0_usize..2), 0..30),
    ) {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let served = Served::new(&namespace, &rules);
        let clock = TestClock::at(T);
        let mut now = T;
        for (pause, key) in history {
            let name = [b"a", b"b"][key];
            let all = ExplainCall { has_all: true, ..call(name) };
            let text: String = explain(all.clone(), &namespace, rules.iter(), &clock).unwrap().collect();
            let told: Value = serde_json::from_str(&text).unwrap();
            let limits: Vec<&Value> = told["rules"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|rule| rule["limits"].as_array().unwrap())
                .collect();
            for limit in &limits {
                let is_admitted = limit["admitted"].as_bool().unwrap();
                prop_assert!(!is_admitted || limit["until"].is_null());
            }
            let is_admitted = limits.iter().all(|limit| limit["admitted"] == json!(true));
            // Reading changed nothing.
            let again: String = explain(all.clone(), &namespace, rules.iter(), &clock).unwrap().collect();
            prop_assert_eq!(&again, &text);
            prop_assert_eq!(served.admits(&rules, name, &shared, &clock), is_admitted, "{}", text);
            now += pause;
            clock.set(now);
        }
    }
}

#[test]
fn rules_are_listed_as_they_are_written() {
    let mut variable = limit("b", 1000, Algorithm::Bucket, 5000, 1000);
    variable.hits = None;
    variable.limit.burst.delay = Some(Hits::ZERO);
    let listed = [
        rule(None, Some(hits(1)), vec![limit("a", 60_000, Algorithm::Sliding, 0, 2500)]),
        ListedRule {
            phase: Phase::Precontent,
            is_dry_run: true,
            key: b"$x\xff".as_slice().into(),
            ..rule(Some("login"), None, vec![variable])
        },
    ];
    let text: String = rules(listed.iter()).collect();
    let expected = concat!(
        r#"{"rules":[{"place":"nginx.conf:31","limits":[{"name":"a","limit":2.5,"window":60,"#,
        r#""window_type":"sliding","burst":null,"delay":null}],"key":"$remote_addr","#,
        r#""counter":null,"cost":1,"phase":"preaccess","dry_run":false},"#,
        r#"{"place":"nginx.conf:31","limits":[{"name":"b","limit":null,"window":1,"#,
        r#""window_type":"rate","burst":5,"delay":0}],"key":"$x�","#,
        r#""counter":"login","cost":null,"phase":"precontent","dry_run":true}]}"#,
    );
    assert_eq!(text, expected);
    assert_eq!(rules([].iter()).collect::<String>(), r#"{"rules":[]}"#);
}

#[test]
fn an_explanation_tells_each_limit_of_the_rules_that_count_a_key() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let clock = TestClock::at(T);
    let mut variable = limit("v", 60_000, Algorithm::Fixed, 0, 1000);
    variable.hits = None;
    let mut variable_rate = limit("r", 1000, Algorithm::Bucket, 0, 1000);
    (variable_rate.hits, variable_rate.limit.burst.rate) = (None, None);
    let login = limit("login", 60_000, Algorithm::Fixed, 0, 2000);
    let listed = [
        rule(None, Some(hits(2)), vec![limit("a", 60_000, Algorithm::Fixed, 0, 3000), variable]),
        rule(Some("login"), Some(Hits::ZERO), vec![login]),
        rule(None, None, vec![variable_rate]),
    ];
    let explained = |call: &ExplainCall| {
        let text: String =
            explain(call.clone(), &namespace, listed.iter(), &clock).unwrap().collect();
        serde_json::from_str::<Value>(&text).unwrap()["rules"].clone()
    };
    assert_eq!(explained(&call(b"k")), json!([]));
    let served = Served::new(
        &namespace,
        &listed[..1]
            .iter()
            .map(|it| rule(None, it.cost, it.limits[..1].to_vec()))
            .collect::<Vec<_>>(),
    );
    assert!(served.admits(&listed[..1], b"k", &shared, &clock));

    let told = explained(&call(b"k"));
    let end = T / 60_000 * 60 + 60;
    assert_eq!(
        told,
        json!([{
            "place": "nginx.conf:31", "name": "a", "counter": null, "cost": 2, "dry_run": false,
            "limits": [
                {"name": "a", "limit": 3, "rate": 2, "remaining": 1, "reset": 60, "admitted": false, "until": end},
                {"name": "v", "limit": null, "rate": 2, "remaining": null, "reset": null, "admitted": null, "until": null},
            ],
        }])
    );
    let cheap =
        ExplainCall { cost: Some(hits(1)), limit: Some(hits(2)), has_all: true, ..call(b"k") };
    let told = explained(&cheap);
    assert_eq!(told[0]["limits"][0]["admitted"], json!(true));
    assert_eq!(told[0]["limits"][1]["limit"], json!(2));
    assert_eq!(told[0]["limits"][1]["admitted"], json!(false));
    assert_eq!((&told[1]["counter"], &told[1]["limits"][0]["rate"]), (&json!("login"), &json!(0)));
    assert_eq!(told[2]["limits"][0]["limit"], json!(1));
    // Without its hits, a variable rate has no bucket.
    let all = ExplainCall { has_all: true, ..call(b"k") };
    assert_eq!(explained(&all)[2]["limits"][0]["rate"], Value::Null);

    let error = explain(call(b""), &namespace, listed.iter(), &clock).err().unwrap();
    assert_eq!(error.status, 400);
}
