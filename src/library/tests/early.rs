//! Hits near a limit, which nodes tell each other before the period is over; with a real Redis and a real Postgres.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::time::Duration;
use std::thread;

use super::decisions::Server;
use super::{WINDOW, instance, memory, wait_until};
use crate::library::{
    Datastore, Instance, LimiterOptions, Memory, NewOptions, RateLimiter, WindowType,
};

/// A period so long that none is over during a test.
const RARELY: Duration = Duration::from_secs(86_400);
/// The namespace without early pushes.
const LATE: &str = "late";

/// Creates a node with a namespace that is pushed early, which has met the store.
fn node(store: &Datastore, memory: &Memory) -> Instance {
    let instance = instance();
    let options = NewOptions::new(memory).window_sizes([WINDOW]);
    let options = options.strategy(store.clone()).sync_rate(RARELY);
    instance.new(&options).unwrap();
    instance.new(&options.namespace(LATE).sync_early(0.0)).unwrap();
    // A busy machine may take longer to connect than a store's timeout.
    wait_until(|| ["default", LATE].iter().all(|name| instance.sync(Some(name)).is_ok()));
    instance
}

fn limiter(node: &Instance, namespace: &str, limit: u32) -> RateLimiter {
    let options = LimiterOptions::window(limit.into(), WINDOW).window_type(WindowType::Fixed);
    node.limiter(&options.namespace(namespace)).unwrap()
}

/// Returns whether a hit is admitted, which is counted then.
fn admits(limiter: &RateLimiter) -> bool {
    limiter.incoming("k", true).unwrap().is_admitted
}

fn rate(node: &Instance, namespace: &str) -> f64 {
    node.sliding_window("k", WINDOW, None, Some(namespace), Some(0.0)).unwrap()
}

#[test]
fn a_hit_near_a_limit_is_known_to_others_at_once() {
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        let nodes = [(); 3].map(|()| node(&store, &memory()));
        assert!(admits(&limiter(&nodes[0], LATE, 1)));
        assert!(admits(&limiter(&nodes[0], "default", 1)));
        wait_until(|| nodes.iter().all(|node| rate(node, "default") == 1.0));
        assert!(!admits(&limiter(&nodes[2], "default", 1)));
        // Nobody was told of the other namespace.
        assert_eq!(rate(&nodes[1], LATE), 0.0);
        assert_eq!(nodes[0].sync(Some(LATE)).unwrap().pushed, 1);
    }
}

#[test]
fn all_nodes_know_of_each_hit_once() {
    const LIMIT: u32 = 400;
    for server in [Server::redis(), Server::postgres()] {
        let store = server.store();
        let nodes = [(); 3].map(|()| node(&store, &memory()));
        let admitted = AtomicU32::new(0);
        thread::scope(|scope| {
            for node in nodes.iter().chain(&nodes) {
                let (limiter, admitted) = (limiter(node, "default", LIMIT), &admitted);
                scope.spawn(move || {
                    wait_until(|| {
                        let is_admitted = admits(&limiter);
                        admitted.fetch_add(u32::from(is_admitted), Relaxed);
                        !is_admitted
                    });
                });
            }
        });
        let admitted = f64::from(admitted.into_inner());
        assert!(admitted >= LIMIT.into());
        let fresh = node(&store, &memory());
        // A part of the last hits waits for the period. Then all nodes fetch it.
        for node in nodes.iter().chain(&nodes).chain([&fresh]) {
            wait_until(|| node.sync(None).is_ok());
        }
        let rates = nodes.iter().chain([&fresh]).map(|node| rate(node, "default"));
        assert_eq!(rates.collect::<Vec<_>>(), [admitted; 4]);
    }
}

#[test]
fn a_user_of_shared_memory_pushes_early_after_another_one_has_gone() {
    let server = Server::redis();
    let (store, shared) = (server.store(), memory());
    let stays = node(&store, &shared);
    let other = node(&store, &memory());
    let goes = node(&store, &shared);
    assert!(admits(&limiter(&goes, "default", 2)));
    wait_until(|| rate(&other, "default") == 1.0);
    drop(goes);
    assert!(admits(&limiter(&stays, "default", 2)));
    wait_until(|| rate(&other, "default") == 2.0);
    // The listener of the memory may have gone.
    assert!(admits(&limiter(&other, "default", 3)));
    wait_until(|| rate(&stays, "default") == 3.0);
}
