//! Synced namespaces, with a real Redis.

use core::time::Duration;
use std::time::SystemTime;

use super::{WINDOW, instance, memory};
use crate::library::{
    CallError, Datastore, Instance, LimiterOptions, Memory, NewOptions, WindowType,
};
use crate::testing::redis::{Server, connect};

/// A period so long that no timer fires during a test.
const RARELY: Duration = Duration::from_secs(86_400);
const OFTEN: Duration = Duration::from_millis(2);

fn redis(server: &Server) -> Datastore {
    let address = server.tcp().to_string();
    let options = [("server", address.as_str()), ("connect_timeout", "60s"), ("timeout", "60s")];
    Datastore::new("redis", options).unwrap()
}

/// Creates a node whose namespace is synced in this period.
fn node(store: &Datastore, memory: &Memory, period: Duration) -> Instance {
    let instance = instance();
    let options = NewOptions::new(memory).window_sizes([WINDOW]);
    let options = options.strategy(store.clone()).sync_rate(period);
    instance.new(&options).unwrap();
    instance
}

fn hit(instance: &Instance) -> f64 {
    instance.increment("k", WINDOW, 1.0, None, Some(0.0)).unwrap()
}

fn rate(instance: &Instance) -> f64 {
    instance.sliding_window("k", WINDOW, None, None, Some(0.0)).unwrap()
}

#[test]
fn nodes_see_hits_of_others_after_a_sync() {
    let server = Server::start(&[]);
    let store = redis(&server);
    let nodes = [(); 2].map(|()| node(&store, &memory(), RARELY));
    nodes.iter().for_each(|node| assert_eq!(hit(node), 1.0));
    assert_eq!(nodes[0].sync(None).unwrap().pushed, 1);
    nodes[1].sync(None).unwrap();
    assert_eq!(rate(&nodes[1]), 2.0);
    // The other node may have heard of it; otherwise it knows now.
    let fetched = nodes[0].fetch(None, SystemTime::UNIX_EPOCH, None).unwrap();
    assert!(fetched.fetched >= 1, "{fetched:?}");
    assert_eq!(rate(&nodes[0]), 2.0);
    // `cur_diff` replaces hits that were not pushed, but not hits that were pushed or fetched.
    hit(&nodes[0]);
    let with = |diff| nodes[0].sliding_window("k", WINDOW, Some(diff), None, Some(0.0));
    assert_eq!([with(0.0).unwrap(), with(5.0).unwrap()], [2.0, 7.0]);
    let moving = LimiterOptions::window(1.0, WINDOW).window_type(WindowType::Moving);
    let error = nodes[0].limiter(&moving).unwrap_err().to_string();
    assert!(error.starts_with("invalid argument \"window_type\""));
}

#[test]
fn the_first_sync_starts_the_timer() {
    let server = Server::start(&[]);
    let store = redis(&server);
    let nodes = [(); 2].map(|()| node(&store, &memory(), OFTEN));
    for node in &nodes {
        node.sync(None).unwrap();
    }
    hit(&nodes[0]);
    while rate(&nodes[1]) < 1.0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_store_of_the_callers_own_does_as_well() {
    let server = Server::start(&[]);
    let address = server.tcp();
    let store = Datastore::own(Duration::from_secs(60), move || connect(address.clone()));
    let nodes = [(); 2].map(|()| node(&store, &memory(), RARELY));
    hit(&nodes[0]);
    for node in &nodes {
        node.sync(None).unwrap();
    }
    assert_eq!(rate(&nodes[1]), 1.0);
}

#[test]
fn futures_are_run_by_any_executor() {
    let server = Server::start(&[]);
    let node = node(&redis(&server), &memory(), RARELY);
    hit(&node);
    let both = async move {
        let report = node.sync_async(None).await?;
        let fetch = node.fetch_async(None, SystemTime::UNIX_EPOCH, None);
        fetch.await?;
        Ok::<_, CallError>(report)
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let report = runtime.block_on(async { runtime.spawn(both).await });
    assert_eq!(report.unwrap().unwrap().pushed, 1);
}

#[test]
fn users_of_one_memory_sync_it_together() {
    let server = Server::start(&[]);
    let (store, shared) = (redis(&server), memory());
    let sharing = [(); 2].map(|()| node(&store, &shared, RARELY));
    assert_eq!(sharing.each_ref().map(hit), [1.0, 2.0]);
    std::thread::scope(|scope| {
        for node in &sharing {
            scope.spawn(|| node.sync(None).unwrap());
        }
    });
    let other = node(&store, &memory(), RARELY);
    other.sync(None).unwrap();
    assert_eq!(rate(&other), 2.0);
}

#[test]
fn a_dropped_instance_pushes_the_remaining_hits() {
    let server = Server::start(&[]);
    let store = redis(&server);
    let left = node(&store, &memory(), RARELY);
    hit(&left);
    drop(left);
    let other = node(&store, &memory(), RARELY);
    while rate(&other) < 1.0 {
        other.sync(None).unwrap();
    }
}

#[test]
fn a_limiter_that_outlives_its_instance_is_still_synced() {
    let server = Server::start(&[]);
    let store = redis(&server);
    let left = node(&store, &memory(), Duration::from_millis(20));
    left.sync(None).unwrap();
    let limiter = left.limiter(&LimiterOptions::window(5.0, WINDOW)).unwrap();
    drop(left);
    assert!(limiter.incoming("k", true).unwrap().is_admitted);
    let other = node(&store, &memory(), RARELY);
    while rate(&other) < 1.0 {
        other.sync(None).unwrap();
    }
}

#[test]
fn a_store_that_is_away_is_an_error_and_costs_no_hit() {
    let server = Server::start(&[]);
    let address = server.tcp().to_string();
    drop(server);
    let store = Datastore::new("redis", [("server", address.as_str())]).unwrap();
    let node = node(&store, &memory(), RARELY);
    hit(&node);
    let error = node.sync(None).unwrap_err();
    assert!(matches!(error, CallError::Sync(_)), "{error}");
    assert_eq!(hit(&node), 2.0);
}

#[test]
fn a_strategy_that_panics_leaves_other_namespaces_alone() {
    let server = Server::start(&[]);
    let node = node(&redis(&server), &memory(), RARELY);
    let address = server.tcp();
    let calls = std::sync::atomic::AtomicU32::new(0);
    let store = Datastore::own(RARELY, move || {
        // The first call only returns the number of shards.
        let nth = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(nth, 0, "a test's panic");
        connect(address.clone())
    });
    let options = NewOptions::new(&memory()).namespace("panics");
    let options = options.window_sizes([WINDOW]).strategy(store);
    node.new(&options.sync_rate(RARELY)).unwrap();
    let error = node.sync(Some("panics")).unwrap_err();
    assert!(matches!(error, CallError::Ended), "{error}");
    hit(&node);
    assert_eq!(node.sync(None).unwrap().pushed, 1);
}
