//! Stores that decide about each hit, with a real Redis and a real Postgres.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use std::sync::Arc;
use std::thread;

use futures_util::future::join_all;

use super::arguments::assert_names;
use super::{PATIENCE, WINDOW, instance, memory, wait_until};
use crate::engine::{Env as _, Machine};
use crate::library::asking::block_on;
use crate::library::{
    CallError, Datastore, Instance, LimiterOptions, Memory, NewOptions, OnError, WindowType,
};
use crate::policy::algorithm::Algorithm;

const LIMIT: u32 = 40;
const WINDOW_TYPES: [WindowType; 4] =
    [WindowType::Fixed, WindowType::Sliding, WindowType::Elastic, WindowType::Moving];
/// Wait of hits for a store that is down.
const SHORT: Duration = Duration::from_millis(50);

/// A server that only one test uses.
pub(super) enum Server {
    Redis(crate::testing::redis::Server),
    Postgres(crate::testing::postgres::Server),
}

impl Server {
    pub(super) fn redis() -> Server {
        Server::Redis(crate::testing::redis::Server::start(&[]))
    }

    pub(super) fn postgres() -> Server {
        Server::Postgres(crate::testing::postgres::Server::start(&[]))
    }

    /// Returns the store. Its own timeouts are longer than any test waits.
    pub(super) fn store(&self) -> Datastore {
        let (strategy, address) = match self {
            Server::Redis(server) => ("redis", server.tcp()),
            Server::Postgres(server) => ("postgres", server.tcp()),
        };
        let address = address.to_string();
        let options =
            [("server", address.as_str()), ("connect_timeout", "60s"), ("timeout", "60s")];
        Datastore::new(strategy, options).unwrap()
    }

    fn stop(&mut self) {
        match self {
            Server::Redis(server) => server.kill(),
            Server::Postgres(server) => server.stop(),
        }
    }

    fn start_again(&mut self) {
        match self {
            Server::Redis(server) => server.start_again(),
            Server::Postgres(server) => server.start_again(),
        }
    }

    fn signal(&self, name: &str) {
        match self {
            Server::Redis(server) => server.signal(name),
            Server::Postgres(server) => server.signal(name),
        }
    }
}

/// Creates a node whose hits wait for the store for `timeout`.
fn node_with(store: &Datastore, memory: &Memory, timeout: Duration, on_error: OnError) -> Instance {
    let instance = instance();
    let options = NewOptions::new(memory).window_sizes([WINDOW]);
    let options = options.strategy(store.clone()).sync_rate(Duration::ZERO);
    let options = options.timeout(timeout).on_error(on_error);
    instance.new(&options).unwrap();
    instance
}

/// Creates a node with its own memory, for which only the store decides.
fn node(store: &Datastore) -> Instance {
    node_with(store, &memory(), PATIENCE, OnError::Deny)
}

fn hit(node: &Instance, value: f64) -> Result<f64, CallError> {
    node.increment("k", WINDOW, value, None, Some(0.0))
}

/// Returns how many hits of a key are admitted when two nodes, with two threads each, ask for more
/// than the limit.
fn admitted(store: &Datastore, options: &LimiterOptions, key: &str) -> u32 {
    let nodes = [(); 2].map(|()| node(store));
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for node in nodes.iter().chain(&nodes) {
            let (limiter, admitted) = (node.limiter(options).unwrap(), &admitted);
            scope.spawn(move || {
                for _ in 0..LIMIT {
                    let decision = limiter.incoming(key, true).unwrap();
                    admitted.fetch_add(u32::from(decision.is_admitted), Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

#[test]
fn exactly_the_hits_of_a_limit_are_admitted() {
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        for window_type in WINDOW_TYPES {
            let limit = LimiterOptions::window(LIMIT.into(), WINDOW).window_type(window_type);
            let key = format!("{window_type:?}");
            match store.decides_by(window_type.algorithm()) {
                true => assert_eq!(admitted(&store, &limit, &key), LIMIT, "{window_type:?}"),
                false => assert_names(node(&store).limiter(&limit), "window_type"),
            }
        }
        // So slow that no hit leaks out during the test.
        let rate = LimiterOptions::rate(0.001, f64::from(LIMIT - 1));
        match store.decides_by(Algorithm::Bucket) {
            true => assert_eq!(admitted(&store, &rate, "rate"), LIMIT),
            false => assert_names(node(&store).limiter(&rate), "rate"),
        }
    }
}

#[test]
fn each_counted_hit_returns_its_own_rate() {
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        let nodes = [(); 2].map(|()| node(&store));
        let mut rates: Vec<f64> = thread::scope(|scope| {
            let threads: Vec<_> = nodes
                .iter()
                .chain(&nodes)
                .map(|node| scope.spawn(|| [(); 25].map(|()| hit(node, 1.0).unwrap())))
                .collect();
            let rates = threads.into_iter().map(|it| it.join().unwrap());
            rates.flatten().collect()
        });
        rates.sort_unstable_by(f64::total_cmp);
        let expected: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(rates, expected);
        // A cost of zero only asks. The node answers it from its own record.
        assert_eq!(hit(&nodes[0], 0.0).unwrap(), 100.0);
        let known = nodes[0].sliding_window("k", WINDOW, None, None, Some(0.0));
        assert_eq!(known.unwrap(), 100.0);
    }
}

#[test]
fn each_shard_of_a_cluster_decides_for_itself() {
    let cluster = crate::testing::redis::cluster::Servers::start();
    let address = cluster.primaries[0].tcp().to_string();
    let server = ("server", address.as_str());
    let options = [server, ("cluster", "on"), ("connect_timeout", "60s"), ("timeout", "60s")];
    let store = Datastore::new("redis", options).unwrap();
    let nodes = [(); 2].map(|()| node(&store));
    let limit = LimiterOptions::window(3.0, WINDOW).window_type(WindowType::Fixed);
    let limiters = nodes.each_ref().map(|node| node.limiter(&limit).unwrap());
    // The keys are almost certainly in all shards.
    for key in (0..100).map(|number| number.to_string()) {
        let decisions = [0, 1, 0, 1].map(|node| limiters[node].incoming(&key, true).unwrap());
        let admitted = decisions.each_ref().map(|it| it.is_admitted);
        assert_eq!(admitted, [true, true, true, false], "{key}");
        let [first, ..] = decisions;
        assert!(first.uncommit());
        wait_until(|| limiters[1].incoming(&key, false).unwrap().is_admitted);
    }
}

#[test]
fn futures_wait_for_decisions_in_any_executor() {
    let server = Server::redis();
    let node = node(&server.store());
    let limiter = node.limiter(&LimiterOptions::window(30.0, WINDOW));
    let limiter = Arc::new(limiter.unwrap());
    let ask = |_| {
        let limiter = limiter.clone();
        async move {
            let decision = limiter.incoming_async("limited", true).await;
            decision.unwrap().is_admitted
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let admitted = runtime.block_on(async {
        let tasks = (0..100).map(ask).map(|it| runtime.spawn(it));
        join_all(tasks).await
    });
    assert_eq!(admitted.iter().filter(|it| *it.as_ref().unwrap()).count(), 30);
    let all = (0..100).map(|_| node.increment_async("k", WINDOW, 1.0, None, Some(0.0)));
    let rates = block_on(join_all(all));
    let most = rates.into_iter().map(Result::unwrap).fold(0.0, f64::max);
    assert_eq!(most, 100.0);
}

#[test]
fn hits_that_are_given_back_are_not_counted_by_any_node() {
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        let nodes = [(); 2].map(|()| node(&store));
        let options = LimiterOptions::window(3.0, WINDOW).window_type(WindowType::Fixed);
        let limiters = nodes.each_ref().map(|node| node.limiter(&options).unwrap());
        let three = limiters[0].incoming_hits("k", 3.0, true).unwrap();
        assert!(three.is_admitted);
        let refused = limiters[1].incoming("k", true).unwrap();
        assert!(!refused.is_admitted && refused.rate == 3.0 && !refused.uncommit());
        assert!(three.uncommit());
        // The node does not wait for the refund.
        wait_until(|| limiters[1].incoming_hits("k", 3.0, false).unwrap().is_admitted);
        assert!(!limiters[1].incoming("k", false).unwrap().uncommit());
    }
}

#[test]
fn a_silent_store_delays_no_call_beyond_its_timeout() {
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        let nodes = [OnError::Local, OnError::Allow, OnError::Deny]
            .map(|on_error| node_with(&store, &memory(), SHORT, on_error));
        // Each node is connected, and knows that the store answers.
        for node in &nodes {
            let limiter = node.limiter(&LimiterOptions::window(1.0, WINDOW)).unwrap();
            wait_until(|| limiter.incoming("other", true).is_ok_and(|it| !it.is_admitted));
        }
        server.signal("STOP");
        let begin = Machine.uptime();
        let rates = nodes.each_ref().map(|node| [(); 3].map(|()| hit(node, 1.0)));
        // The store's own timeout is longer.
        assert!(Machine.uptime() - begin < PATIENCE / 2);
        server.signal("CONT");
        let [local, allow, deny] = rates;
        assert_eq!(local.map(Result::unwrap), [1.0, 2.0, 3.0]);
        // `Allow` counts all admitted hits.
        assert_eq!(allow.map(Result::unwrap), [1.0, 2.0, 3.0]);
        for denied in deny {
            let error = denied.unwrap_err();
            assert!(matches!(error, CallError::NoAnswer), "{error}");
        }
        // The store may have charged the unanswered questions, one hit from each node. Hits that
        // were decided locally are pushed.
        wait_until(|| hit(&nodes[2], 0.0).is_ok_and(|rate| (6.0..=9.0).contains(&rate)));
    }
}

#[test]
fn windows_counted_while_the_store_is_down_are_pushed_later() {
    for mut server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        server.stop();
        let local = node_with(&store, &memory(), SHORT, OnError::Local);
        let options = LimiterOptions::window(5.0, WINDOW).window_type(WindowType::Fixed);
        let limiter = local.limiter(&options).unwrap();
        let decisions = [(); 7].map(|()| limiter.incoming("k", true).unwrap());
        let admitted = decisions.iter().filter(|it| it.is_admitted).count();
        assert_eq!(admitted, 5);
        let [.., third, _, _, _, _] = decisions;
        assert!(third.uncommit());
        server.start_again();
        let other = node(&store);
        wait_until(|| hit(&other, 0.0).unwrap() == 4.0);
        // None of the hits is pushed twice.
        local.sync(None).unwrap();
        assert_eq!(hit(&other, 1.0).unwrap(), 5.0);
        wait_until(|| limiter.incoming("k", true).is_ok_and(|it| it.rate == 5.0));
        assert!(!limiter.incoming("k", true).unwrap().is_admitted);
    }
}

#[test]
fn levels_and_logs_counted_while_the_store_is_down_are_charged_later() {
    for mut server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        server.stop();
        let local = node_with(&store, &memory(), SHORT, OnError::Local);
        let limits = [WindowType::Moving, WindowType::Elastic]
            .map(|it| LimiterOptions::window(5.0, WINDOW).window_type(it))
            .into_iter()
            .chain([LimiterOptions::rate(0.001, 4.0)]);
        let limits: Vec<_> = limits.collect();
        for options in &limits {
            let limiter = local.limiter(options).unwrap();
            let decisions = [(); 7].map(|()| limiter.incoming("k", true).unwrap());
            let admitted = decisions.iter().filter(|it| it.is_admitted).count();
            assert_eq!(admitted, 5);
            let [first, ..] = decisions;
            assert!(first.uncommit());
        }
        server.start_again();
        let other = node(&store);
        for options in &limits {
            let limiter = other.limiter(options).unwrap();
            // With one more hit.
            let is_there = |rate: f64| (4.9..=5.0).contains(&rate);
            wait_until(|| limiter.incoming("k", false).is_ok_and(|it| is_there(it.rate)));
            assert!(limiter.incoming("k", true).unwrap().is_admitted);
            assert!(!limiter.incoming("k", true).unwrap().is_admitted, "{options:?}");
        }
    }
}

#[test]
fn a_store_of_the_callers_own_may_decide() {
    let server = crate::testing::redis::Server::start(&[]);
    let address = server.tcp();
    let connect = move || crate::testing::redis::connect(address.clone());
    let syncing = Datastore::own(PATIENCE, connect.clone());
    let options = NewOptions::new(&memory()).window_sizes([WINDOW]);
    let options = options.sync_rate(Duration::ZERO).strategy(syncing);
    assert_names(instance().new(&options), "strategy");
    let deciding = Datastore::own_deciding(PATIENCE, connect);
    let nodes = [(); 2].map(|()| node(&deciding));
    let limiter = nodes[0].limiter(&LimiterOptions::window(2.0, WINDOW)).unwrap();
    assert_eq!(hit(&nodes[1], 2.0).unwrap(), 2.0);
    // The limiter outlives the instance, and so does the task that asks.
    drop(nodes);
    let refused = limiter.incoming("k", true).unwrap();
    assert!(!refused.is_admitted);
}

#[test]
fn a_dropped_instance_ends_though_the_store_is_away() {
    let server = crate::testing::redis::Server::start(&[]);
    // The task that asks keeps it, in the function that connects.
    let (address, kept) = (server.tcp(), Arc::new(()));
    let connect = {
        let kept = kept.clone();
        move || {
            let _kept = &kept;
            crate::testing::redis::connect(address.clone())
        }
    };
    let store = Datastore::own_deciding(PATIENCE, connect);
    let node = node_with(&store, &memory(), SHORT, OnError::Local);
    let limiter = node.limiter(&LimiterOptions::window(2.0, WINDOW)).unwrap();
    let admitted = limiter.incoming("k", true).unwrap();
    drop(server);
    limiter.incoming("k", true).unwrap();
    // The store is to give it back, which it could until the end of the window.
    assert!(admitted.uncommit());
    drop((node, limiter, store));
    wait_until(|| Arc::strong_count(&kept) == 1);
}

#[test]
fn a_strategy_that_panics_is_one_that_does_not_answer() {
    let server = crate::testing::redis::Server::start(&[]);
    let calls = AtomicU32::new(0);
    let store = Datastore::own_deciding(PATIENCE, move || {
        // The first two calls only return the number of shards.
        let nth = calls.fetch_add(1, Relaxed);
        assert!(nth < 2, "a test's panic");
        crate::testing::redis::connect(server.tcp())
    });
    let local = node_with(&store, &memory(), PATIENCE, OnError::Local);
    assert_eq!(hit(&local, 1.0).unwrap(), 1.0);
    let limiter = local.limiter(&LimiterOptions::window(2.0, WINDOW));
    drop(local);
    // The store thread has ended.
    let decision = limiter.unwrap().incoming("k", true).unwrap().is_admitted;
    assert!(decision);
}
