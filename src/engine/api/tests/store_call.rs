//! Calls that a store decides about.

use super::key::key_call;
use crate::engine::api::counting::Counting;
use crate::engine::api::request::{ApiCall, CountersCall, KeyCall};
use crate::engine::api::store_call::StoreCall;
use crate::engine::api::store_reset::AfterStore;
use crate::engine::{Deciders, Namespace, RateLimiting};
use crate::policy::algorithm::{Algorithm, MovingCount, Reading, StoredKind, WindowCounts};
use crate::policy::hits::{Hits, hits};
use crate::policy::namespace::{OnError, SyncMode};
use crate::policy::window::WindowSize;
use crate::store::contract::decision::{Answer, Certainty, Question};
use crate::store::registry::StoreKind;
use crate::table::CountedRate;
use crate::testing::table::{SharedTable, TestClock};

const MINUTE: u64 = 60_000;
const WINDOW: u64 = 28_000_000;
const STORE: Deciders = Deciders { first: 3, shards: 1 };

const fn size() -> WindowSize {
    WindowSize::from_millis(MINUTE).unwrap()
}

/// One second, the time unit of a rate.
const fn size_of_rate() -> WindowSize {
    WindowSize::from_millis(1000).unwrap()
}

fn counting(sync: SyncMode) -> Counting<'static> {
    Counting {
        sync,
        store: None,
        sizes: const { &[size()] },
        rates: const { &[CountedRate { hits: Hits::from_thousandths(5000), size: size_of_rate() }] },
        counters: &[],
        is_open: false,
    }
}

/// Calls `test` with a synchronous namespace.
fn with(test: impl FnOnce(&Namespace<'_>, &TestClock)) {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let namespace = namespace.synced(1).unwrap();
    test(&namespace, &TestClock::at(WINDOW * MINUTE));
}

fn asked<'n, 'm>(call: ApiCall, namespace: &'n Namespace<'m>) -> StoreCall<'n, 'm> {
    let call = StoreCall::new(&call, namespace, &counting(SyncMode::Synchronous));
    call.unwrap().unwrap()
}

fn post(value: i64, limit: Option<i64>) -> ApiCall {
    ApiCall::Key(KeyCall { increment: Some(hits(value)), limit: limit.map(hits), ..key_call(b"k") })
}

fn counted(current: i64, previous: i64) -> Reading {
    Reading::from(WindowCounts {
        window: WINDOW,
        current: hits(current),
        previous: hits(previous),
        elapsed: 0,
    })
}

fn answer(admitted: bool, readings: &[Reading]) -> Answer {
    Answer {
        admitted: [admitted][..].into(),
        readings: readings.into(),
        certainty: Certainty::Settled,
    }
}

fn body(call: &mut StoreCall<'_, '_>, answer: &Answer, clock: &TestClock) -> String {
    match call.answered(STORE, answer, clock).unwrap() {
        AfterStore::Body(body) => body,
        AfterStore::Sync => "sync".into(),
        AfterStore::Ask => "ask".into(),
    }
}

/// Returns this node's count of the key in windows.
fn known(namespace: &Namespace<'_>, clock: &TestClock) -> Hits {
    let library = RateLimiting::new(namespace);
    let rate = library.sliding_window(b"k", size(), Algorithm::Fixed, clock);
    rate.unwrap()
}

#[test]
fn only_counters_of_the_store_are_asked_about() {
    with(|namespace, _| {
        let read = ApiCall::Key(key_call(b"k"));
        let moving = ApiCall::Key(KeyCall { algorithm: Algorithm::Moving, ..key_call(b"k") });
        let cassandra =
            Counting { store: Some(StoreKind::Cassandra), ..counting(SyncMode::Synchronous) };
        let synchronous = counting(SyncMode::Synchronous);
        let is_asked = |call: &ApiCall, counting: &Counting<'_>| {
            StoreCall::new(call, namespace, counting).unwrap().is_some()
        };
        assert!(is_asked(&read, &synchronous) && is_asked(&moving, &synchronous));
        assert!(is_asked(&read, &cassandra) && !is_asked(&moving, &cassandra));
        assert!(!is_asked(&read, &counting(SyncMode::Local)));
        assert!(is_asked(&post(1, Some(2)), &synchronous));
        assert!(is_asked(&post(1, None), &synchronous));
        assert!(!is_asked(&post(1, Some(2)), &counting(SyncMode::Local)));
        for (key, window) in [(&b""[..], None), (b"k", WindowSize::from_millis(1000))] {
            let read = KeyCall { window, increment: Some(Hits::ONE), ..key_call(key) };
            let reset = CountersCall { read: read.clone(), algorithm: None, has_all_names: true };
            for call in [ApiCall::Key(read), ApiCall::Reset(reset)] {
                let error = StoreCall::new(&call, namespace, &synchronous).unwrap_err();
                assert_eq!(error.status, 400);
            }
        }
    });
}

#[test]
fn the_store_says_whether_hits_are_admitted() {
    with(|namespace, clock| {
        let mut call = asked(post(5, Some(100)), namespace);
        let (decider, Question { counters, limits, counts_rejected }) =
            call.question(STORE).unwrap();
        assert_eq!((decider, counts_rejected, counters.len()), (3, false, 1));
        assert_eq!((counters[0].cost, &counters[0].key[..]), (hits(5), &b"k"[..]));
        assert_eq!((limits[0].hits, limits[0].cost), (hits(100), hits(5)));
        assert_eq!(
            body(&mut call, &answer(true, &[counted(97, 0)]), clock),
            r#"{"rate":97,"current":97,"previous":0,"diff":0,"sync":97,"window_start":1680000000,"remaining":3,"admitted":true,"reset":60}"#
        );
        let refused = body(&mut call, &answer(false, &[counted(97, 0)]), clock);
        assert!(
            refused.ends_with(r#""remaining":3,"admitted":false,"reset":61.238}"#),
            "{refused}"
        );
        // The node knows the count, too.
        assert_eq!(known(namespace, clock), hits(97));
        let stats = namespace.table().namespace_stats(namespace.index());
        assert_eq!((stats.outcomes, stats.hits), ([1, 1, 0], 5000));
    });
}

#[test]
fn an_increment_is_counted_whatever_the_rate() {
    with(|namespace, clock| {
        let mut call = asked(post(5, None), namespace);
        let (_, question) = call.question(STORE).unwrap();
        assert!(question.counts_rejected);
        assert_eq!(
            body(&mut call, &answer(false, &[counted(7, 0)]), clock),
            r#"{"rate":7,"current":7,"previous":0,"diff":0,"sync":7,"window_start":1680000000,"remaining":null}"#
        );
        let stats = namespace.table().namespace_stats(namespace.index());
        assert_eq!((stats.outcomes, stats.hits), ([0; 3], 5000));
    });
}

#[test]
fn reading_returns_the_stores_counts_and_counts_nothing() {
    with(|namespace, clock| {
        let read = ApiCall::Key(KeyCall { limit: Some(hits(10)), ..key_call(b"k") });
        let mut call = asked(read, namespace);
        let (_, question) = call.question(STORE).unwrap();
        assert_eq!(question.counters[0].cost, Hits::ZERO);
        assert_eq!(
            body(&mut call, &answer(true, &[counted(7, 0)]), clock),
            r#"{"rate":7,"current":7,"previous":0,"diff":0,"sync":7,"window_start":1680000000,"remaining":3}"#
        );
        // Without the store, the answer has this node's counts.
        let known =
            call.without_store(STORE, OnError::Deny, clock, |_, _| panic!("nothing is charged"));
        assert!(known.unwrap().starts_with(r#"{"rate":7,"#));
        let stats = namespace.table().namespace_stats(namespace.index());
        assert_eq!((stats.outcomes, stats.hits, stats.fallbacks), ([0; 3], 0, [0; 3]));
    });
}

#[test]
fn without_the_store_on_error_decides() {
    for (on_error, first, second, unlimited, left) in [
        (OnError::Local, "true 3", "false 3", "9 null", 9),
        (OnError::Allow, "true 0", "true 0", "6 null", 6),
        (OnError::Deny, "503", "503", "503", 0),
    ] {
        with(|namespace, clock| {
            let answer = |value, limit| {
                let call = asked(post(value, limit), namespace);
                match call
                    .without_store(STORE, on_error, clock, |_, _| panic!("windows are pushed"))
                {
                    Ok(body) => {
                        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                        match limit {
                            Some(_) => format!("{} {}", body["admitted"], body["rate"]),
                            None => format!("{} {}", body["rate"], body["admitted"]),
                        }
                    }
                    Err(error) => error.status.to_string(),
                }
            };
            assert_eq!(answer(3, Some(4)), first, "{on_error:?}");
            assert_eq!(answer(2, Some(4)), second, "{on_error:?}");
            assert_eq!(answer(6, None), unlimited, "{on_error:?}");
            assert_eq!(known(namespace, clock), hits(left));
            let stats = namespace.table().namespace_stats(namespace.index());
            assert_eq!(stats.outcomes, [0; 3]);
            assert_eq!(stats.fallbacks.iter().sum::<u64>(), 3);
        });
    }
}

#[test]
fn a_key_is_set_to_zero_in_the_store() {
    with(|namespace, clock| {
        let reset = |algorithm| {
            let read =
                KeyCall { algorithm: Option::unwrap_or_default(algorithm), ..key_call(b"k") };
            let call = CountersCall { read, algorithm, has_all_names: true };
            asked(ApiCall::Reset(call), namespace)
        };
        namespace.record_counted(Algorithm::Bucket, size_of_rate(), hits(7));
        let mut call = reset(None);
        let (decider, question) = call.question(STORE).unwrap();
        assert_eq!(decider, 3);
        assert!(question.limits.is_empty());
        let charges = question.counters.iter().map(|it| (it.kind.wire_id(), it.cost.thousandths()));
        // All kinds are read first, with the rates of rules and those of requests.
        assert_eq!(charges.collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 0), (4, 0), (4, 0)]);
        let leaks = question.counters[3..].iter().map(|it| it.kind.leak(it.size).unwrap());
        assert_eq!(leaks.collect::<Vec<_>>(), [(5000, 1000), (7000, 1000)]);
        let readings = [
            counted(7, 5),
            Reading::default(),
            Reading::default(),
            Reading::default(),
            Reading::default(),
        ];
        assert_eq!(body(&mut call, &answer(true, &readings), clock), "sync");
        assert_eq!(known(namespace, clock), Hits::ZERO);
        // The next sync subtracts these from both windows.
        let library = RateLimiting::new(namespace);
        let unsent = [WINDOW - 1, WINDOW].map(|window| library.unsent(b"k", size(), window, clock));
        assert_eq!(unsent, [Ok(hits(-5)), Ok(hits(-7))]);
        let read = call.synced(clock).unwrap();
        assert_eq!(
            read,
            r#"{"reset":[{"window":60,"window_type":"sliding","counter":null,"rate":12}]}"#
        );

        // If another node did the same meanwhile, the hits are added again, once.
        let [(3, repair)] = &call.repairs(STORE)[..] else {
            panic!("one repair");
        };
        let [limit] = &repair.limits[..] else {
            panic!("one limit");
        };
        assert!(repair.is_repair());
        assert_eq!(repair.counters[0].cost, hits(7));
        for (total, is_counted) in [(0, false), (3, false), (-7, true), (-1, true)] {
            assert_eq!(hits(total) <= limit.hits, is_counted, "{total}");
        }

        // A moving window is zero with the answer, including this node's hits.
        let library = RateLimiting::new(namespace);
        let moving = || library.sliding_window(b"k", size(), Algorithm::Moving, clock);
        library.increment(b"k", size(), hits(3), Algorithm::Moving, clock).unwrap();
        let mut call = reset(Some(Algorithm::Moving));
        let (_, question) = call.question(STORE).unwrap();
        assert_eq!(question.counters.len(), 1);
        assert_eq!(question.counters[0].kind, StoredKind::Log);
        assert_eq!(moving(), Ok(hits(3)));
        // The store has three hits, and refunds them.
        let three = Reading::from(MovingCount { hits: hits(3), ..MovingCount::default() });
        assert_eq!(body(&mut call, &answer(true, &[three]), clock), "ask");
        let (_, question) = call.question(STORE).unwrap();
        let given_back = question.counters.iter().map(|it| (it.kind, it.cost));
        assert_eq!(given_back.collect::<Vec<_>>(), [(StoredKind::Log, Hits::MIN)]);
        assert_eq!(
            body(&mut call, &answer(true, &[Reading::default()]), clock),
            r#"{"reset":[{"window":60,"window_type":"moving","counter":null,"rate":3}]}"#
        );
        assert_eq!(moving(), Ok(Hits::ZERO));

        for on_error in [OnError::Local, OnError::Allow, OnError::Deny] {
            let error = call.without_store(STORE, on_error, clock, |_, _| {}).unwrap_err();
            assert_eq!(error.status, 503);
        }
    });
}

#[test]
fn counters_of_all_names_are_asked_about_in_turn() {
    with(|namespace, clock| {
        let names = ["login".into()];
        let counting = Counting { rates: &[], counters: &names, ..counting(SyncMode::Synchronous) };
        let reset = CountersCall { read: key_call(b"k"), algorithm: None, has_all_names: true };
        let call = StoreCall::new(&ApiCall::Reset(reset), namespace, &counting);
        let mut call = call.unwrap().unwrap();
        let asked = |call: &mut StoreCall<'_, '_>, readings: &[Reading]| {
            let (_, question) = call.question(STORE).unwrap();
            assert_eq!(question.counters.len(), 3);
            let after = call.answered(STORE, &answer(true, readings), clock);
            (question.counters[0].key.to_vec(), after.unwrap())
        };
        let readings = [counted(7, 0), Reading::default(), Reading::default()];
        let (first, after) = asked(&mut call, &readings);
        assert_eq!(first, b"k");
        assert!(matches!(after, AfterStore::Ask), "{after:?}");
        let (second, after) = asked(&mut call, &readings);
        assert_ne!(second, first);
        assert!(matches!(after, AfterStore::Sync), "{after:?}");
        assert!(call.question(STORE).is_none());
        assert_eq!(call.repairs(STORE).len(), 2);
        let body = call.synced(clock).unwrap();
        assert!(body.contains(r#""counter":"login","rate":7}"#), "{body}");
    });
}
