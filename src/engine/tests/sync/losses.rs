//! A node's reaction when a store has lost data, or has removed the node.

use core::pin::pin;
use core::task::Poll;
use core::time::Duration;

use super::log::Store;
use super::memory::{Fault, Kept as _, go_on};
use super::node::cluster;
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::Syncer;
use crate::table::MonotonicMillis;

const DAY: u64 = 24 * 3_600_000;

#[test]
fn living_nodes_restore_a_store_that_comes_back_empty() {
    let (store, nodes) = cluster(2);
    for round in 0..2 {
        nodes[0].hit(b"a", hits(5));
        nodes[1].hit(b"a", hits(2));
        for _ in 0..2 {
            nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
        }
        let expected = hits(7 * (round + 1));
        assert_eq!((nodes[0].rate(b"a"), nodes[1].rate(b"a")), (expected, expected));
        let now = store[0].borrow().now;
        *store[0].borrow_mut() = Store::empty(now);
    }
}

#[test]
fn hits_of_a_node_that_is_gone_count_until_another_node_counts_the_key_again() {
    let (store, nodes) = cluster(3);
    for (node, count) in nodes.iter().zip([5, 2, 1]) {
        node.hit(b"a", hits(count));
    }
    for _ in 0..2 {
        nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
    }
    let now = store[0].borrow().now;
    *store[0].borrow_mut() = Store::empty(now);
    let [node, gone, other] = &nodes[..] else {
        unreachable!();
    };
    for _ in 0..2 {
        node.sync().unwrap();
    }
    let total: i64 = store[0].borrow().counts.values().sum();
    assert_eq!((total, node.rate(b"a")), (5000, hits(8)));
    other.sync().unwrap();
    node.sync().unwrap();
    assert_eq!((other.rate(b"a"), node.rate(b"a")), (hits(6), hits(6)));
    gone.sync().unwrap();
    node.sync().unwrap();
    assert_eq!((gone.rate(b"a"), node.rate(b"a")), (hits(8), hits(8)));
}

#[test]
fn everything_is_pushed_again_to_a_store_that_lost_the_last_writes() {
    let (store, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    for _ in 0..2 {
        nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
    }
    let (counts, last) = {
        let store = store[0].borrow();
        (store.counts.clone(), store.last.clone())
    };
    nodes[0].hit(b"a", hits(3));
    nodes[0].sync().unwrap();
    // A failover to a replica that has not received the last batch.
    store[0].borrow_mut().counts = counts;
    store[0].borrow_mut().last = last;
    for _ in 0..3 {
        nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
    }
    let total: i64 = store[0].borrow().counts.values().sum();
    assert_eq!((total, nodes[1].rate(b"a")), (8000, hits(8)));
}

#[test]
fn a_batch_whose_counters_were_all_evicted_counts_as_one() {
    let (store, nodes) = cluster(2);
    let [node, gone] = &nodes[..] else {
        unreachable!();
    };
    gone.hit(b"limited", hits(5));
    gone.sync().unwrap();
    node.sync().unwrap();
    let epoch = store[0].borrow().epoch;
    node.hit(b"a", hits(1));
    node.faults(&[Fault::Before]);
    assert!(node.sync().is_err());
    for n in 0..6000_u32 {
        node.hit(&n.to_be_bytes(), hits(1));
    }
    let state = node.namespace.sync_states()[0];
    let lease = state.take_lease(MonotonicMillis(1000), 0).unwrap();
    let sealed = lease.sealed(&node.shared.table).unwrap();
    assert_eq!(sealed.1, [], "the zone is larger than this test thinks");
    lease.release();

    node.sync().unwrap();
    assert_eq!(store[0].borrow().epoch, epoch);
    let name = (size(), T / SIZE, b"limited".to_vec());
    assert_eq!(store[0].borrow().count(&name).total, hits(5));
    node.hit(b"limited", hits(1));
    node.sync().unwrap();
    assert_eq!(store[0].borrow().count(&name).total, hits(6));
}

#[test]
fn a_node_that_was_forgotten_in_due_time_leaves_the_epoch_as_it_is() {
    for (days, is_due) in [(3, true), (0, false)] {
        let (store, nodes) = cluster(1);
        let node = &nodes[0];
        node.hit(b"a", hits(5));
        node.sync().unwrap();
        let epoch = store[0].borrow().epoch;
        node.time.unix.set(T + days * DAY);
        store[0].borrow_mut().last.clear();
        node.hit(b"b", hits(7));
        node.sync().unwrap();
        assert_eq!(store[0].borrow().epoch == epoch, is_due);
        let name = (size(), (T + days * DAY) / SIZE, b"b".to_vec());
        assert_eq!(store[0].borrow().count(&name).total, hits(7));
        assert!(!node.shared.table.record_identity());
    }
}

#[test]
fn a_store_that_forgot_a_node_gets_its_reserves_back() {
    // (days, the store's total afterwards)
    for (days, left) in [(3, Some(6000)), (0, None)] {
        let (store, nodes) = cluster(1);
        let node = &nodes[0];
        let sync = || {
            let lifetime = Duration::from_millis(LIFETIME);
            let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
            let (syncer, mut strategy) = (syncer.pushing_only(), node.strategy.clone());
            let synced = go_on(pin!(syncer.sync(&mut strategy, node.time)));
            assert!(matches!(synced, Poll::Ready(Ok(Some(_)))), "{synced:?}");
        };
        node.hit(b"a", hits(5));
        sync();
        node.time.unix.set(T + days * DAY);
        let window = (T + days * DAY) / SIZE;
        let name = (size(), window, b"k".to_vec());
        // As a decision does.
        store[0].borrow_mut().counts.insert(name.clone(), 10_000);
        store[0].borrow_mut().last.clear();
        let (table, counter) = (&node.shared.table, node.namespace.counter(size()));
        let counter = counter.synced(true);
        assert!(table.give_back(&counter, table.key(b"k"), window, hits(4), node.time));
        sync();
        assert_eq!(store[0].borrow().counts.get(&name).copied(), left, "{days}");
    }
}
