//! Tests of resolved zones, stores and namespaces.

use core::time::Duration;

use super::{check, resolved};
use crate::policy::window::WindowSize;

const TEXT: &str = "
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace early { zone two; store single; sync_rate 0; on_error deny; }
    ratelimit_store single { strategy redis; }
    ratelimit_store divided {
        strategy redis; cluster on; server a; server b; connect_timeout 1m; timeout 250ms;
    }
    ratelimit_store unused { strategy postgres; }
    ratelimit_namespace first { zone one; store divided; sync_rate 0; }
    ratelimit_namespace local { zone one; store single; sync_rate off; window_sizes 1m 1s; }
    ratelimit_namespace second { zone two; store divided; sync_rate 0; }
    ratelimit_namespace periodic { zone two; store single; sync_rate 0.5; }
    ratelimit_namespace late { zone one; store single; sync_rate 0; on_error allow; }
    ratelimit_namespace default { zone two; }
    server { ratelimit limit=5/1h limit=5/1m; ratelimit local limit=5/60 limit=9/1s; }";

#[test]
fn names_lead_to_zones_and_stores() {
    let (configuration, _) = resolved(TEXT);
    let all = configuration.namespaces.iter().map(|it| {
        let store = configuration.store(it).map(|store| &*store.name);
        (&*it.name, it.zone, store, configuration.shards(it))
    });
    let expected = [
        ("early", 1, Some("single"), 1),
        ("first", 0, Some("divided"), 16),
        ("local", 0, Some("single"), 0),
        ("second", 1, Some("divided"), 16),
        ("periodic", 1, Some("single"), 1),
        ("late", 0, Some("single"), 1),
        ("default", 1, None, 0),
    ];
    assert_eq!(all.collect::<Vec<_>>(), expected);
    let in_two = configuration.namespaces_in(1).map(|it| &*it.name);
    let in_two: Vec<_> = in_two.collect();
    assert_eq!(in_two, ["early", "second", "periodic", "default"]);
    assert_eq!(configuration.rules.len(), 2);
}

#[test]
fn windows_are_those_that_are_listed_and_those_of_rules() {
    let (configuration, _) = resolved(TEXT);
    let sizes = |name: &str| {
        let mut namespaces = configuration.namespaces.iter();
        let namespace = namespaces.find(|it| &*it.name == name).unwrap();
        let sizes = namespace.window_sizes.iter().map(WindowSize::to_string);
        (sizes.collect::<Vec<_>>().join(" "), namespace.is_open())
    };
    assert_eq!(sizes("default"), ("1m 1h".into(), true));
    assert_eq!(sizes("local"), ("1s 1m".into(), false));
    assert_eq!(sizes("periodic"), (String::new(), false));
}

#[test]
fn deciders_are_numbered_by_store_namespace_and_shard() {
    let (configuration, _) = resolved(TEXT);
    // The undivided store has decider 0 for all; each shard of the other store has its own.
    let (numbers, count) = configuration.number_deciders();
    let (first, second) = (Some(1), Some(17));
    assert_eq!(numbers, [Some(0), first, None, second, None, Some(0), None]);
    assert_eq!(count, 33);
    let stores = configuration.deciding_stores().map(|(number, _)| number);
    assert_eq!(stores.collect::<Vec<_>>(), [0, 1]);
    assert_eq!(resolved("server { }").0.number_deciders(), (vec![], 0));
}

#[test]
fn each_way_to_decide_without_a_store_is_described_once() {
    let (configuration, _) = resolved(TEXT);
    assert_eq!(
        configuration.without(0),
        "on_error deny: requests are denied, nodes go on with what they know, on_error allow: \
         requests are admitted"
    );
    assert_eq!(
        configuration.without(1),
        "on_error local: requests are decided by what this node knows"
    );
    assert_eq!(configuration.without(2), "");
}

#[test]
fn a_lease_is_longer_than_two_exchanges() {
    let (configuration, _) = resolved(TEXT);
    let lifetimes = configuration.stores.iter().map(|it| it.lease_lifetime());
    // One server with 0.75 s, and two seeds with 60.25 s.
    let [single, divided, _] = lifetimes.collect::<Vec<_>>()[..] else {
        panic!("{configuration:?}");
    };
    assert_eq!(single, Duration::from_secs(2));
    assert!(divided >= Duration::from_millis(2 * 2 * 60_250));
    let places: Vec<String> = configuration.stores.iter().map(|it| it.place()).collect();
    assert_eq!(places, ["127.0.0.1:6379", "a:6379 b:6379", "127.0.0.1:5432"]);
}

#[test]
fn the_number_of_namespaces_in_a_zone_is_limited() {
    check(&[
        (
            "namespaces",
            "ratelimit_zone zone=counters:32k;
             ratelimit_namespace n1 { } ratelimit_namespace n2 { } ratelimit_namespace n3 { }
             ratelimit_namespace n4 { } ratelimit_namespace n5 { } ratelimit_namespace n6 { }
             ratelimit_namespace n7 { } ratelimit_namespace n8 { }
             server { ratelimit limit=5/1d; }",
            "[emerg] ratelimit_namespace \"default\": zone \"counters\" has room for 8 namespaces: \
             expected fewer, or a larger zone in http.conf:5",
        ),
        (
            "shards",
            "ratelimit_zone zone=counters:32k;
             ratelimit_store away { strategy redis; cluster on; }
             ratelimit_namespace n1 { store away; sync_rate 0; }
             ratelimit_namespace n2 { store away; sync_rate off; }
             ratelimit_namespace n3 { store away; sync_rate 1; }
             ratelimit_namespace n4 { store away; sync_rate 2; }",
            "[emerg] ratelimit_namespace \"n4\": zone \"counters\" has room for 32 shards of \
             namespaces that are synced: expected fewer (16 for each with a Redis Cluster, 1 for each \
             other), or a larger zone in http.conf:6",
        ),
    ]);
}
