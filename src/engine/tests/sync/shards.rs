//! Namespaces with several shards.

use core::task::Poll;
use core::time::Duration;

use super::log::Store;
use super::memory::{Fault, Kept as _, go_on};
use super::node::{cluster_with, poll};
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::{Env as _, LastPush, SyncError, Syncer};
use crate::policy::hits::Hits;
use crate::store::contract::strategy::Shard;

/// Returns a key of each of three shards.
fn key_of(shard: u16) -> [u8; 1] {
    key_of_one(shard, 3)
}

/// Returns a key of one of `shards` shards.
fn key_of_one(shard: u16, shards: u16) -> [u8; 1] {
    let mut keys = (0..=255).map(|byte| [byte]);
    let key = keys.find(|key| Shard::number_of(key, shards) == shard);
    key.unwrap()
}

#[test]
fn a_shard_that_is_lost_keeps_no_other_from_its_sync() {
    for lost in 0..3 {
        let (store, nodes) = cluster_with::<Store>(3, 1);
        let node = &nodes[0];
        node.sync().unwrap();
        (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
        let mut faults = [Fault::None; 3];
        faults[lost] = Fault::Before;
        node.faults(&faults);
        assert!(matches!(node.sync(), Err(SyncError::Store(_))));
        let total = |shard: usize| store[shard].borrow().counts.values().sum::<i64>();
        let expected = |shard| if shard == lost { 0 } else { 5000 };
        assert!((0..3).all(|shard| total(shard) == expected(shard)));
        node.sync().unwrap();
        assert!((0..3).all(|shard| total(shard) == 5000));
        let stats = node.namespace.sync_state().unwrap().stats();
        assert_eq!((stats.succeeded, stats.failed, stats.pushed), (2, 1, 3));
    }
}

#[test]
fn a_namespace_may_have_a_store_of_other_shards_and_then_the_former_again() {
    let (one, _) = cluster_with::<Store>(1, 0);
    let (three, nodes) = cluster_with::<Store>(3, 1);
    let node = &nodes[0];
    for round in 1..4 {
        for store in [&three, &one] {
            (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
            // Once more after the epoch was left.
            let namespace = node.namespace_with(store);
            (0..2).for_each(|_| node.sync_with(&namespace, store));
            let expected = 10_000 * round - if store.len() == 3 { 5000 } else { 0 };
            for shard in 0..3 {
                let name = (size(), T / SIZE, key_of(shard).to_vec());
                let shard = usize::from(shard) % store.len();
                let total = store[shard].borrow().count(&name).total;
                assert_eq!(total, Hits::from_thousandths(expected), "{round}");
            }
        }
    }
}

#[test]
fn a_worker_that_ends_leaves_the_shards_alone_that_there_are_no_more() {
    let (one, _) = cluster_with::<Store>(1, 0);
    let (three, nodes) = cluster_with::<Store>(3, 1);
    let node = &nodes[0];
    let before = node.namespace_with(&three);
    node.sync_with(&before, &three);
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(&before, &[size()], lifetime).unwrap();
    let mut strategy = node.strategy.clone();
    // A new configuration begins during a cycle.
    node.strategy.faults.borrow_mut().push(Fault::StoppedAfter);
    let mut ending = core::pin::pin!(syncer.sync(&mut strategy, node.time));
    assert!(go_on(ending.as_mut()).is_pending());
    let between = node.namespace_with(&one);
    (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
    assert!(go_on(ending.as_mut()).is_ready());

    (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
    node.sync_with(&between, &one);
    let after = node.namespace_with(&three);
    node.sync_with(&after, &three);
    for shard in 0..3 {
        let name = (size(), T / SIZE, key_of(shard).to_vec());
        let total = three[usize::from(shard)].borrow().count(&name).total;
        assert_eq!(total, hits(10));
    }
}

#[test]
fn a_shard_whose_exchange_takes_long_keeps_no_other_waiting() {
    let (store, nodes) = cluster_with::<Store>(8, 1);
    nodes[0].sync().unwrap();
    for shard in 0..8 {
        nodes[0].hit(&key_of_one(shard, 8), hits(1));
    }
    // The first shard alone, then the next one.
    nodes[0].faults(&[Fault::None, Fault::StoppedAfter]);
    let mut worker = nodes[0].start_sync();
    assert!(poll(&mut worker).is_pending());
    let is_pushed = |shard: &std::cell::RefCell<Store>| shard.borrow().counts.len() == 1;
    assert!(store.iter().all(is_pushed));
    let Poll::Ready(Ok(Some(report))) = poll(&mut worker) else {
        panic!("it is done");
    };
    assert_eq!((report.pushed, report.clock_offset), (8, 500));
}

/// Otherwise a namespace with a long period would have neither a result nor a log line of its store
/// until the next cycle.
#[test]
fn two_workers_that_begin_at_once_report_their_own_shards() {
    let (store, nodes) = cluster_with::<Store>(8, 1);
    let node = &nodes[0];
    node.sync().unwrap();
    (0..8).for_each(|shard| node.hit(&key_of_one(shard, 8), hits(1)));
    // The first worker syncs four shards at a time; the other one finds these leased, and is at the
    // sixth.
    let (none, stopped) = (Fault::None, Fault::StoppedAfter);
    node.faults(&[none, stopped, stopped, stopped, stopped]);
    let mut one = node.start_sync();
    assert!(poll(&mut one).is_pending());
    node.faults(&[none, stopped]);
    let mut other = node.start_sync();
    assert!(poll(&mut other).is_pending());
    for worker in [&mut one, &mut other] {
        let Poll::Ready(Ok(Some(report))) = poll(worker) else {
            panic!("it is done");
        };
        assert!(report.is_part);
    }
    let stats = node.namespace.sync_state().unwrap().stats();
    assert_eq!((stats.succeeded, stats.failed), (3, 0));
    let report = node.sync().unwrap().unwrap();
    assert!(!report.is_part);
    assert!(store.iter().all(|it| it.borrow().counts.len() == 1));
}

/// Cycles of free shards, by this worker and by another one that ends, do not show whether the holders of the other
/// shards live.
#[test]
fn a_last_push_takes_over_the_shards_of_a_worker_that_was_killed() {
    let (store, nodes) = cluster_with::<Store>(8, 1);
    let node = &nodes[0];
    node.sync().unwrap();
    node.faults(&[Fault::None, Fault::StoppedBefore, Fault::StoppedBefore]);
    let mut killed = node.start_sync();
    (0..8).for_each(|shard| node.hit(&key_of_one(shard, 8), hits(1)));
    assert!(poll(&mut killed).is_pending());
    drop(killed);

    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let longest = Duration::from_millis(LIFETIME * 2 / 3);
    let limits = LastPush { began: node.time.uptime(), longest };
    let pause = async || {
        node.time.monotonic.set(node.time.monotonic.get() + 10);
        tokio::task::yield_now().await;
    };
    let mut strategy = node.strategy.clone();
    let pushed = core::pin::pin!(limits.run(&syncer, &mut strategy, node.time, pause));
    let Poll::Ready(Some(Ok(Some(report)))) = go_on(pushed) else {
        panic!("it is pushed within the limits");
    };
    assert!(!report.is_part);
    for (shard, kept) in store.iter().enumerate() {
        assert_eq!(kept.borrow().counts.values().sum::<i64>(), 1000, "{shard}");
    }
}
