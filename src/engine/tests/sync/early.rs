//! Early pushes.

use core::task::Poll;
use core::time::Duration;

use super::log::Store;
use super::memory::{Fault, Kept as _};
use super::node::{Node, cluster, cluster_with, poll};
use super::{LIFETIME, hits, size};
use crate::engine::{EarlyPush, PollSchedule, Report, SyncError, Syncer};
use crate::policy::hits::Hits;
use crate::store::contract::strategy::Shard;

/// Returns nodes that know their number.
fn acquainted(count: u64) -> Vec<Node> {
    let (_, nodes) = cluster(count);
    for node in nodes.iter().chain(&nodes) {
        node.sync().unwrap();
    }
    nodes
}

fn pushed(report: Option<Report>) -> usize {
    report.unwrap().pushed
}

#[test]
fn due_counters_are_pushed_and_others_wait() {
    let nodes = acquainted(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    b.ask(b"elsewhere", hits(1), hits(4));
    assert_eq!(pushed(b.sync_early().unwrap()), 1);
    a.ask(b"near", hits(1), hits(4));
    a.ask(b"far", hits(1), hits(1000));
    a.ask(b"near", hits(1), hits(4));
    let report = a.sync_early().unwrap().unwrap();
    // The other nodes' changes are fetched with it.
    assert_eq!((report.pushed, report.fetched), (1, 1));
    assert_eq!(a.rate(b"elsewhere"), hits(1));
    b.sync().unwrap();
    assert_eq!((b.rate(b"near"), b.rate(b"far")), (hits(2), Hits::ZERO));
    // Nothing is due, so the store is not asked.
    a.faults(&[Fault::Before]);
    assert_eq!(a.sync_early(), Ok(Some(Report::default())));
    a.faults(&[]);
    assert_eq!(pushed(a.sync().unwrap()), 1);
    b.sync().unwrap();
    assert_eq!(b.rate(b"far"), hits(1));
}

#[test]
fn a_poll_pushes_counters_near_their_limits_and_asks_in_any_case() {
    let nodes = acquainted(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    a.ask(b"near", hits(1), hits(4));
    a.ask(b"far", hits(1), hits(1000));
    a.sync_early().unwrap();
    a.ask(b"near", hits(1), hits(1000));
    b.ask(b"elsewhere", hits(1), hits(4));
    b.sync_early().unwrap();
    // It is not due, but near its limit.
    let report = a.look().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (1, 1));
    assert_eq!(a.rate(b"elsewhere"), hits(1));
    let report = b.look().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (0, 1));
    assert_eq!((b.rate(b"near"), b.rate(b"far")), (hits(2), Hits::ZERO));
    // There is no change, but the store is asked anyway.
    b.faults(&[Fault::Before]);
    assert!(b.look().is_err());
}

#[test]
fn the_next_poll_depends_on_the_growth_of_a_counter() {
    let nodes = acquainted(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(b.namespace, &[size()], lifetime).unwrap();
    let mut times = PollSchedule::default();
    let mut next = || syncer.next_look(&mut times, b.time);
    assert_eq!(next(), None);
    b.ask(b"k", hits(260), hits(1000));
    b.sync_early().unwrap();
    assert_eq!(next(), None);
    a.ask(b"k", hits(240), hits(1000));
    a.sync().unwrap();
    b.time.monotonic.update(|now| now + 240);
    b.look().unwrap();
    // One hit per millisecond, with 500 left.
    assert_eq!(next(), Some(Duration::from_millis(250)));
}

#[test]
fn hits_that_are_counted_during_an_exchange_are_growth() {
    let nodes = acquainted(2);
    let node = &nodes[0];
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let mut times = PollSchedule::default();
    node.ask(b"k", hits(260), hits(1000));
    node.sync_early().unwrap();
    node.ask(b"k", hits(240), hits(1000));
    assert_eq!(syncer.next_look(&mut times, node.time), None);
    node.time.monotonic.update(|now| now + 240);
    node.sync_early().unwrap();
    // One hit per millisecond, with 500 left.
    assert_eq!(syncer.next_look(&mut times, node.time), Some(Duration::from_millis(250)));
}

#[test]
fn nodes_that_push_only_due_counters_keep_limits() {
    let nodes = acquainted(4);
    let mut admitted = 0;
    for hit in 0..4000 {
        let node = &nodes[hit % 4];
        admitted += i64::from(node.ask(b"k", hits(1), hits(1000)));
        // As soon as the thread is woken.
        if node.namespace.sync_state().unwrap().is_rung() {
            node.sync_early().unwrap();
        }
    }
    // The other nodes learn of it with their next push; all keep some percent at the end.
    assert!((1000..=1030).contains(&admitted), "{admitted}");
    nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
    nodes[0].sync().unwrap();
    assert_eq!(nodes[0].rate(b"k"), hits(admitted));
}

#[test]
fn an_early_push_is_no_sync_of_the_period() {
    let nodes = acquainted(1);
    let node = &nodes[0];
    let syncer = Syncer::new(node.namespace, &[size()], Duration::from_millis(LIFETIME)).unwrap();
    let period = Duration::from_secs(4);
    assert!(syncer.is_fresh(period, node.time));
    node.time.monotonic.update(|now| now + 3000);
    node.ask(b"k", hits(1), hits(2));
    assert_eq!(pushed(node.sync_early().unwrap()), 1);
    assert!(!syncer.is_fresh(period, node.time));
    node.sync().unwrap();
    assert!(syncer.is_fresh(period, node.time));
    // If it fails, the next sync does not wait for the period.
    node.ask(b"k", hits(1), hits(2));
    node.faults(&[Fault::Before]);
    node.time.unix.set(super::T + 1);
    assert!(matches!(node.sync_early(), Err(SyncError::Store(_))));
    assert!(syncer.is_store_lost() && !syncer.is_fresh(period, node.time));
    node.time.unix.set(super::T + 2);
    node.sync().unwrap();
    assert!(!syncer.is_store_lost() && syncer.is_fresh(period, node.time));
}

#[test]
fn a_sent_batch_goes_first_and_once() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    for fault in [Fault::Before, Fault::After] {
        node.ask(b"a", hits(5), hits(1000));
        node.hit(b"a", hits(500));
        node.faults(&[fault]);
        assert!(node.sync().is_err());
        assert!(node.ask(b"b", hits(2), hits(1_000_000)));
        assert!(node.ask(b"c", hits(2), hits(4)));
        node.sync_early().unwrap();
        node.sync_with(node.namespace, &node.strategy.shards);
        node.reset(b"c");
        node.sync().unwrap();
        node.reset(b"a");
        node.sync().unwrap();
    }
    let total: i64 = store[0].borrow().counts.values().sum();
    assert_eq!(total, node.rate(b"b").thousandths());
}

#[test]
fn a_worker_leaves_due_counters_to_another_that_pushes() {
    let nodes = acquainted(1);
    let node = &nodes[0];
    node.hit(b"a", hits(1));
    node.faults(&[Fault::StoppedBefore]);
    let mut other = node.start_sync();
    assert!(poll(&mut other).is_pending());
    node.ask(b"k", hits(1), hits(2));
    assert_eq!(node.sync_early(), Ok(None));
    assert!(matches!(poll(&mut other), Poll::Ready(Ok(Some(_)))));
    assert_eq!(pushed(node.sync_early().unwrap()), 1);
    // If a worker dies during it, the next cycle pushes when its lease has expired.
    node.ask(b"l", hits(1), hits(2));
    node.faults(&[Fault::StoppedBefore]);
    let mut killed = node.start_early(EarlyPush::Due);
    assert!(poll(&mut killed).is_pending());
    drop(killed);
    node.faults(&[]);
    node.time.monotonic.update(|now| now + LIFETIME);
    assert_eq!(pushed(node.sync().unwrap()), 1);
}

#[test]
fn a_worker_of_a_former_configuration_leaves_the_bell_to_the_others() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    let newer = node.namespace_with(&store);
    node.ask(b"k", hits(1), hits(2));
    assert_eq!(node.sync_early(), Ok(None));
    assert!(newer.sync_state().unwrap().is_rung());
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(&newer, &[size()], lifetime).unwrap();
    let mut strategy = node.strategy.clone();
    let mut early = core::pin::pin!(syncer.sync_early(EarlyPush::Due, &mut strategy, node.time));
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    let Poll::Ready(Ok(report)) = early.as_mut().poll(&mut context) else {
        panic!("it is done");
    };
    assert_eq!(pushed(report), 1);
}

#[test]
fn each_shard_pushes_its_own_counters() {
    let (store, nodes) = cluster_with::<Store>(3, 1);
    let node = &nodes[0];
    node.sync().unwrap();
    let keys = (0..30_u8).map(|key| [key]);
    keys.clone().for_each(|key| assert!(node.ask(&key, hits(1), hits(2))));
    assert_eq!(pushed(node.sync_early().unwrap()), 30);
    for key in keys {
        let shard = usize::from(Shard::number_of(&key, 3));
        let name = (size(), super::T / super::SIZE, key.to_vec());
        assert_eq!(store[shard].borrow().count(&name).total, hits(1));
    }
}

#[test]
fn counters_that_become_due_during_another_shards_sync_go_with_their_own() {
    let (store, nodes) = cluster_with::<Store>(3, 1);
    let node = &nodes[0];
    node.sync().unwrap();
    // The first shard takes a while.
    node.faults(&[Fault::StoppedBefore]);
    let mut worker = node.start_sync();
    assert!(poll(&mut worker).is_pending());
    let keys = (0..30_u8).map(|key| [key]);
    let is_later = |key: &[u8; 1]| Shard::number_of(key, 3) != 0;
    for key in keys.filter(is_later) {
        assert!(node.ask(&key, hits(1), hits(2)));
    }
    assert!(matches!(poll(&mut worker), Poll::Ready(Ok(Some(_)))));
    assert_eq!(node.sync_early(), Ok(Some(Report::default())));
    for key in (0..30_u8).map(|key| [key]).filter(is_later) {
        let shard = usize::from(Shard::number_of(&key, 3));
        let name = (size(), super::T / super::SIZE, key.to_vec());
        assert_eq!(store[shard].borrow().count(&name).total, hits(1));
    }
}

#[test]
fn without_room_for_due_counters_all_changes_are_pushed() {
    let nodes = acquainted(1);
    let node = &nodes[0];
    node.hit(b"far", hits(1));
    for key in 0..100_u8 {
        node.ask(&[key], hits(1), hits(2));
    }
    node.faults(&[Fault::Before]);
    assert!(node.sync_early().is_err());
    assert_eq!(pushed(node.sync_early().unwrap()), 101);
}

#[test]
fn hits_above_a_limit_are_counted_once_by_the_node_that_admitted_them() {
    let nodes = acquainted(3);
    let excess = |node: &Node| {
        let namespace = node.namespace.index();
        node.shared.table.namespace_stats(namespace).excess
    };
    for _ in 0..60 {
        nodes.iter().for_each(|node| assert!(node.ask(b"k", hits(1), hits(100))));
    }
    // 60 of 100, 120, 180.
    for (node, expected) in nodes.iter().zip([0, 20_000, 60_000]) {
        node.sync().unwrap();
        assert_eq!(excess(node), expected);
    }
    // Nodes that learn of it only refuse.
    for node in &nodes {
        node.sync().unwrap();
        assert!(!node.ask(b"k", hits(1), hits(100)));
        node.sync().unwrap();
    }
    let sum: u64 = nodes.iter().map(excess).sum();
    assert_eq!(sum, 80_000);
    // A batch whose answer was lost counts when it is answered.
    nodes[0].ask(b"l", hits(10), hits(10));
    nodes[0].sync().unwrap();
    nodes[1].ask(b"l", hits(10), hits(10));
    nodes[1].faults(&[Fault::After]);
    assert!(nodes[1].sync().is_err());
    nodes[1].sync().unwrap();
    assert_eq!((excess(&nodes[0]), excess(&nodes[1])), (0, 30_000));
}
