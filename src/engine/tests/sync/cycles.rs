//! The work of a cycle, and the worker that runs it.

use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::log::Store;
use super::memory::{Fault, Shards};
use super::node::{Node, Worker, cluster, cluster_with, poll};
use super::{LIFETIME, hits, size};
use crate::engine::{Namespace, RateLimitingError, Report, SyncError, Syncer};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::Shard;
use crate::table::MonotonicMillis;
use crate::testing::table::SharedTable;

#[test]
fn nodes_see_each_others_hits() {
    let (_, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    nodes[1].hit(b"a", hits(2));
    nodes[1].hit(b"b", hits(1));
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.clock_offset), (1, 500));
    nodes[1].sync().unwrap();
    assert_eq!((nodes[1].rate(b"a"), nodes[1].rate(b"b")), (hits(7), hits(1)));
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (0, 2));
    assert_eq!((nodes[0].rate(b"a"), nodes[0].rate(b"b")), (hits(7), hits(1)));
    assert_eq!(nodes[0].sync().unwrap(), Some(Report { clock_offset: 500, ..Report::default() }));
}

#[test]
fn a_new_node_begins_with_everything_that_matters() {
    let (_, nodes) = cluster(2);
    for n in 0..20 {
        nodes[0].hit(&[n], hits(i64::from(n) + 1));
    }
    nodes[0].sync().unwrap();
    nodes[1].sync().unwrap();
    assert!((0..20).all(|n| nodes[1].rate(&[n]) == hits(i64::from(n) + 1)));
}

#[test]
fn a_node_knows_how_many_live() {
    let (store, nodes) = cluster(3);
    let known = |node: usize| nodes[node].namespace.sync_state().unwrap().nodes();
    assert_eq!(known(0), 1);
    nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
    assert_eq!([known(0), known(1), known(2)], [1, 2, 3]);
    nodes[0].sync().unwrap();
    assert_eq!(known(0), 3);
    // One node leaves, another one sends no more messages.
    nodes[1].life.set(Duration::ZERO);
    nodes[1].sync().unwrap();
    nodes[0].sync().unwrap();
    assert_eq!(known(0), 2);
    store[0].borrow_mut().now += 60_000;
    nodes[0].sync().unwrap();
    assert_eq!(known(0), 1);
    // While the store is down, the number stays.
    nodes[0].faults(&[Fault::Before]);
    assert!(nodes[0].sync().is_err());
    assert_eq!(known(0), 1);
}

#[test]
fn a_node_is_fresh_for_most_of_a_period_after_its_first_sync() {
    let (_, nodes) = cluster(1);
    let node = &nodes[0];
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let is_fresh = || syncer.is_fresh(Duration::from_secs(4), node.time);
    // The machine has been up for a second.
    assert!(!is_fresh());
    node.sync().unwrap();
    for (later, expected) in [(0, true), (2999, true), (3000, false)] {
        node.time.monotonic.set(1000 + later);
        assert_eq!(is_fresh(), expected, "{later} ms later");
    }
}

#[test]
fn a_batch_whose_answer_was_lost_is_applied_once() {
    for fault in [Fault::Before, Fault::After] {
        let (store, nodes) = cluster(1);
        let node = &nodes[0];
        node.sync().unwrap();
        node.hit(b"a", hits(5));
        node.faults(&[fault, fault]);
        for _ in 0..2 {
            let error = node.sync().unwrap_err();
            assert!(matches!(error, SyncError::Store(_)), "{error}");
            node.hit(b"a", hits(1));
        }
        node.sync().unwrap();
        let total: i64 = store[0].borrow().counts.values().sum();
        assert_eq!((total, node.rate(b"a")), (7000, hits(7)), "{fault:?}");
    }
}

#[test]
fn a_node_that_is_behind_the_stores_changes_fetches_everything() {
    let (store, nodes) = cluster(2);
    nodes[1].sync().unwrap();
    for n in 0..10 {
        nodes[0].hit(&[n], hits(1));
    }
    nodes[0].sync().unwrap();
    let sequence = store[0].borrow().sequence;
    store[0].borrow_mut().trimmed = sequence;
    nodes[1].sync().unwrap();
    assert!((0..10).all(|n| nodes[1].rate(&[n]) == hits(1)));
}

#[test]
fn a_window_that_is_new_to_the_configuration_is_fetched() {
    let (_, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    nodes[0].sync().unwrap();
    let hour = WindowSize::from_millis(3_600_000).unwrap();
    let lifetime = Duration::from_millis(LIFETIME);
    let sync = |sizes: &[WindowSize]| {
        let syncer = Syncer::new(nodes[1].namespace, sizes, lifetime).unwrap();
        let (mut strategy, time) = (nodes[1].strategy.clone(), nodes[1].time);
        let mut sync: Worker = Box::pin(async move { syncer.sync(&mut strategy, time).await });
        assert!(matches!(poll(&mut sync), Poll::Ready(Ok(Some(_)))));
    };
    sync(&[hour]);
    assert_eq!(nodes[1].rate(b"a"), Hits::ZERO);
    sync(&[hour, size()]);
    assert_eq!(nodes[1].rate(b"a"), hits(5));
}

#[test]
fn an_error_reports_a_zone_without_room_for_all_shards() {
    let shared = SharedTable::with_secret(32 << 10, [1, 2]);
    let namespace = |name| Namespace::new(name, &shared.table).unwrap();
    let error = namespace("large").synced(33).unwrap_err();
    assert_eq!(error, RateLimitingError::TooManySynced { shards: 33 });
    assert!(error.to_string().contains("in 33 shards"), "{error}");
    assert!(namespace("large").synced(32).is_ok());
    let error = namespace("other").synced(1).unwrap_err();
    assert_eq!(error, RateLimitingError::TooManySynced { shards: 1 });
}

#[test]
fn a_store_is_asked_to_purge_now_and_then_and_as_often_as_keeps_up() {
    let (store, nodes) = cluster_with::<Store>(3, 1);
    let (node, lifetime) = (&nodes[0], Duration::from_millis(LIFETIME));
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let mut strategy = node.strategy.clone();
    let purges = || [0, 1, 2].map(|shard: usize| store[shard].borrow().purges);
    let mut purges_of_a_sync = |after: u64| {
        node.time.monotonic.update(|now| now + after);
        let before = purges();
        let mut sync = Box::pin(syncer.sync(&mut strategy, node.time));
        let waker = Waker::noop();
        let result = sync.as_mut().poll(&mut Context::from_waker(waker));
        assert!(matches!(result, Poll::Ready(Ok(Some(_)))), "{result:?}");
        let after = purges();
        [0, 1, 2].map(|shard| after[shard] - before[shard])
    };
    assert_eq!(purges_of_a_sync(0), [1; 3]);
    assert_eq!(purges_of_a_sync(9_999), [0; 3]);
    assert_eq!(purges_of_a_sync(1), [1; 3]);
    (0..3).for_each(|shard: usize| store[shard].borrow_mut().left = 100);
    assert_eq!(purges_of_a_sync(10_000), [1; 3]);
    // More is left to purge, but it is not urgent.
    assert_eq!(purges_of_a_sync(1), [1; 3]);
    let keys = (0..u16::MAX).map(u16::to_ne_bytes);
    let of_one = keys.filter(|key| Shard::number_of(key, 3) == 0);
    of_one.take(250).for_each(|key| node.hit(&key, hits(1)));
    assert_eq!(purges_of_a_sync(1), [2, 1, 1]);
}

#[test]
fn one_worker_syncs_at_a_time() {
    let (_, nodes) = cluster(1);
    let node = &nodes[0];
    let state = node.namespace.sync_state().unwrap();
    let lease = state.take_lease(MonotonicMillis(1000), 3000).unwrap();
    assert_eq!(node.sync(), Ok(None));
    lease.release();
    assert!(matches!(node.sync(), Ok(Some(_))));
}

#[test]
fn a_worker_that_ends_need_not_wait_for_one_that_was_killed() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    node.hit(b"a", hits(5));
    node.strategy.faults.borrow_mut().push(Fault::StoppedAfter);
    let mut killed = node.start_sync();
    assert!(poll(&mut killed).is_pending());
    node.hit(b"a", hits(2));
    assert_eq!(node.sync(), Ok(None));

    let sizes = [size()];
    let syncer = Syncer::new(node.namespace, &sizes, Duration::from_millis(LIFETIME)).unwrap();
    let mut holders = syncer.holders(node.time);
    syncer.take_over_from(&mut holders, Duration::ZERO, node.time);
    assert!(matches!(node.sync(), Ok(Some(_))));
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 7000);

    // It was not killed after all.
    assert!(matches!(poll(&mut killed), Poll::Ready(Err(SyncError::LeaseLost))));
    node.sync().unwrap();
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 7000);
    assert_eq!(node.rate(b"a"), hits(7));
}

#[test]
fn workers_of_an_older_configuration_leave_the_sync_to_others() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    let table = &node.shared.table;
    let newer = Namespace::new("api", table).unwrap().synced(1).unwrap();
    node.hit(b"a", hits(5));
    assert_eq!(node.sync(), Ok(None));
    let syncer = Syncer::new(&newer, &[size()], Duration::from_millis(LIFETIME)).unwrap();
    let mut strategy = node.strategy.clone();
    let mut sync = core::pin::pin!(syncer.sync(&mut strategy, node.time));
    let waker = Waker::noop();
    let synced = sync.as_mut().poll(&mut Context::from_waker(waker));
    assert!(matches!(synced, Poll::Ready(Ok(Some(_)))));
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 5000);
}

/// A batch of such a table has room for eight.
#[test]
fn hits_gathered_for_the_next_batch_are_pushed_whatever_happens_to_this_one() {
    let sum = |store: &Shards<Store>| store[0].borrow().counts.values().sum::<i64>();
    let hit_all = |node: &Node| (0..20).for_each(|key| node.hit(&[key], hits(1)));
    for fault in [Fault::Before, Fault::After] {
        let (store, nodes) = cluster(1);
        nodes[0].sync().unwrap();
        hit_all(&nodes[0]);
        nodes[0].faults(&[fault]);
        assert!(matches!(nodes[0].sync(), Err(SyncError::Store(_))));
        nodes[0].sync().unwrap();
        assert_eq!(sum(&store), 20_000);
    }
    for is_killed in [true, false] {
        let (store, nodes) = cluster(1);
        let node = &nodes[0];
        node.sync().unwrap();
        hit_all(node);
        node.faults(&[Fault::None, Fault::StoppedAfter]);
        let mut worker = node.start_sync();
        assert!(poll(&mut worker).is_pending());
        hit_all(node);
        if is_killed {
            drop(worker);
        } else {
            assert!(matches!(poll(&mut worker), Poll::Ready(Ok(Some(_)))));
        }
        node.time.monotonic.update(|now| now + LIFETIME);
        node.sync().unwrap();
        assert_eq!(sum(&store), 40_000);
        assert!((0..20).all(|key| node.rate(&[key]) == hits(2)));
    }
}
