//! Syncs with a store with absolute counts and without a log.

use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::memory::{Fault, Kept as _, Shards};
use super::node::{Node, cluster_with};
use super::rows::Rows;
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::Syncer;
use crate::store::contract::strategy::Shard;

fn cluster(nodes: u64) -> (Shards<Rows>, Vec<Node<Rows>>) {
    cluster_with(1, nodes)
}

#[test]
fn nodes_see_each_others_hits_in_snapshots() {
    let (store, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    nodes[1].hit(b"a", hits(2));
    nodes[1].hit(b"b", hits(1));
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched, report.clock_offset), (1, 1, 500));
    let report = nodes[1].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (2, 2));
    assert_eq!((nodes[1].rate(b"a"), nodes[1].rate(b"b")), (hits(7), hits(1)));
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (0, 2));
    assert_eq!((nodes[0].rate(b"a"), nodes[0].rate(b"b")), (hits(7), hits(1)));
    assert_eq!(store[0].borrow().readings, 3);
}

#[test]
fn a_snapshot_is_read_once_in_a_cycle_when_all_is_pushed() {
    let (store, nodes) = cluster_with::<Rows>(2, 1);
    let node = &nodes[0];
    // More than fits into a batch, in both shards.
    (0..1000_u32).for_each(|n| node.hit(&n.to_be_bytes(), hits(1)));
    node.sync().unwrap();
    for shard in store.iter() {
        let Rows { readings, batches, .. } = *shard.borrow();
        assert!(readings == 1 && batches > 1, "{readings} {batches}");
    }
    for n in 0..1000_u32 {
        let key = n.to_be_bytes();
        let shard = usize::from(Shard::number_of(&key, 2));
        let name = (size(), T / SIZE, key.to_vec());
        assert_eq!(store[shard].borrow().count(&name).total, hits(1));
    }
}

/// Runs a cycle that fetches nothing.
fn push(node: &Node<Rows>) {
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let (syncer, mut strategy) = (syncer.pushing_only(), node.strategy.clone());
    let mut sync = Box::pin(syncer.sync(&mut strategy, node.time));
    let result = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(result, Poll::Ready(Ok(Some(_)))), "{result:?}");
}

#[test]
fn a_node_that_asks_about_every_hit_reads_no_snapshot() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    for total in 1..=2 {
        node.hit(b"a", hits(1));
        push(node);
        let name = (size(), T / SIZE, b"a".to_vec());
        assert_eq!(store[0].borrow().count(&name).total, hits(total));
    }
    assert_eq!(store[0].borrow().readings, 0);
}

#[test]
fn a_counter_that_was_evicted_begins_a_row_of_its_own() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.hit(b"a", hits(5));
    node.sync().unwrap();
    for n in 0..3000_u32 {
        node.hit(&n.to_be_bytes(), hits(1));
    }
    let counter = node.namespace.counter(size()).synced(true);
    let table = &node.shared.table;
    let has = table.has(&counter, table.key(b"a"));
    assert!(!has, "the zone is larger than this test thinks");
    node.hit(b"a", hits(2));
    push(node);
    let name = (size(), T / SIZE, b"a".to_vec());
    assert_eq!(store[0].borrow().count(&name).total, hits(7));
    node.sync().unwrap();
    assert_eq!(node.rate(b"a"), hits(7));
}

#[test]
fn hits_that_were_given_back_to_a_lost_store_are_not_given_back_to_the_next_one() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    let (table, counter) = (&node.shared.table, node.namespace.counter(size()).synced(true));
    let give_back = |value| {
        assert!(table.give_back(&counter, table.key(b"a"), T / SIZE, hits(value), node.time));
    };
    push(node);
    give_back(13);
    push(node);
    // Not pushed yet.
    give_back(4);
    *store[0].borrow_mut() = Rows::empty(T);
    push(node);
    // Of hits that the store has charged since.
    give_back(1);
    push(node);
    let name = (size(), T / SIZE, b"a".to_vec());
    assert_eq!(store[0].borrow().count(&name).total, hits(-1));
}

/// Under its new identity, its rows under the former one would count twice.
#[test]
fn a_clone_takes_another_identity_in_a_new_epoch() {
    for is_sealed in [false, true] {
        let (store, nodes) = cluster(2);
        let [node, other] = &nodes[..] else {
            unreachable!();
        };
        node.hit(b"before", hits(1));
        for node in [node, other] {
            node.sync().unwrap();
        }
        let epoch = store[0].borrow().epoch;
        let clone = node.cloned(2);
        clone.hit(b"a", hits(10));
        if is_sealed {
            clone.faults(&[Fault::Before]);
            assert!(clone.sync().is_err());
        }
        node.hit(b"a", hits(100));
        other.hit(b"a", hits(1));
        for _ in 0..3 {
            for node in [node, &clone, other] {
                node.sync().unwrap();
            }
        }
        let total = |key: &[u8]| {
            let name = (size(), T / SIZE, key.to_vec());
            store[0].borrow().count(&name).total
        };
        // Both push again the hits that it counted before it was copied.
        assert_eq!((total(b"a"), total(b"before")), (hits(111), hits(2)));
        for node in [node, &clone, other] {
            assert_eq!(node.rate(b"a"), hits(111));
        }
        assert_ne!(store[0].borrow().epoch, epoch);
        let have_news = [node, &clone].map(|node| node.shared.table.record_identity());
        assert_eq!(have_news, [false, true]);
    }
}
