//! Resets of keys: the cluster's count becomes zero, except for hits that other nodes had not
//! pushed.

use core::task::Poll;

use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as _;
use proptest::test_runner::RngSeed;

use super::hits;
use super::log::Store;
use super::memory::{Fault, Kept, Memory};
use super::node::{Node, cluster, cluster_with, poll};
use super::rows::Rows;
use crate::store::contract::strategy::Strategy;

const KEY: &[u8] = b"a";

/// Syncs all nodes until each knows all pushed hits.
fn settle<K: Kept>(nodes: &[Node<K>])
where
    Memory<K>: Strategy,
{
    for _ in 0..3 {
        for node in nodes {
            node.sync().unwrap();
        }
    }
}

fn rates<K: Kept>(nodes: &[Node<K>]) -> Vec<i64>
where
    Memory<K>: Strategy,
{
    nodes.iter().map(|node| node.rate(KEY).whole()).collect()
}

fn a_reset_keeps_what_others_had_not_pushed<K: Kept>()
where
    Memory<K>: Strategy,
{
    let (_, nodes) = cluster_with::<K>(1, 3);
    nodes[0].hit(KEY, hits(5));
    nodes[1].hit(KEY, hits(7));
    settle(&nodes);
    assert_eq!(rates(&nodes), [12, 12, 12]);
    nodes[0].hit(KEY, hits(1));
    nodes[1].hit(KEY, hits(3));
    nodes[0].reset(KEY);
    assert_eq!(rates(&nodes), [0, 15, 12]);
    nodes[0].hit(KEY, hits(2));
    settle(&nodes);
    assert_eq!(rates(&nodes), [5, 5, 5]);
    // From a node without hits.
    nodes[2].reset(KEY);
    settle(&nodes);
    assert_eq!(rates(&nodes), [0, 0, 0]);
}

#[test]
fn unpushed_hits_of_other_nodes_survive_a_reset() {
    a_reset_keeps_what_others_had_not_pushed::<Store>();
    a_reset_keeps_what_others_had_not_pushed::<Rows>();
}

#[test]
fn a_reset_is_pushed_once() {
    for fault in [Fault::Before, Fault::After] {
        let (_, nodes) = cluster(2);
        nodes[0].hit(KEY, hits(5));
        nodes[1].hit(KEY, hits(7));
        settle(&nodes);
        nodes[0].reset(KEY);
        nodes[0].faults(&[fault]);
        nodes[0].sync().unwrap_err();
        nodes[0].hit(KEY, hits(1));
        settle(&nodes);
        assert_eq!(rates(&nodes), [1, 1], "{fault:?}");
    }
}

#[test]
fn nodes_that_reset_a_key_at_once_take_its_hits_once() {
    let (store, nodes) = cluster(3);
    for node in &nodes {
        node.hit(KEY, hits(10));
    }
    settle(&nodes);
    for node in &nodes {
        node.reset(KEY);
    }
    settle(&nodes);
    assert_eq!(rates(&nodes), [0, 0, 0]);
    let totals: Vec<_> = store[0].borrow().counts.values().copied().collect();
    assert_eq!(totals, [0]);
    nodes[1].hit(KEY, hits(4));
    settle(&nodes);
    assert_eq!(rates(&nodes), [4, 4, 4]);
}

/// The node learns of the other reset after its own and before that is pushed, so the answer to its push
/// is without it.
#[test]
fn a_reset_that_is_fetched_while_a_key_is_reset_is_undone() {
    let (store, nodes) = cluster(2);
    nodes[0].hit(KEY, hits(10));
    settle(&nodes);
    nodes[0].reset(KEY);
    nodes[0].sync().unwrap();
    nodes[1].hit(b"b", hits(1));
    nodes[1].faults(&[Fault::StoppedAfter]);
    let mut worker = nodes[1].start_sync();
    assert!(poll(&mut worker).is_pending());
    nodes[1].reset(KEY);
    assert!(matches!(poll(&mut worker), Poll::Ready(Ok(Some(_)))));
    settle(&nodes);
    assert_eq!(rates(&nodes), [0, 0]);
    let totals: Vec<_> = store[0].borrow().counts.values().copied().collect();
    assert_eq!(totals, [0, 1000]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Hit(usize),
    Reset(usize),
    Sync(usize),
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(13),
        ..ProptestConfig::default()
    })]

    /// In the end, all nodes agree after any operations, no hit is counted twice, and no debt is
    /// left: the next hit counts.
    #[test]
    fn nodes_agree_after_resets(
        steps in prop::collection::vec(
            (0..3_usize).prop_flat_map(|node| {
                prop_oneof![
                    3 => proptest::strategy::Just(Step::Hit(node)),
                    1 => proptest::strategy::Just(Step::Reset(node)),
                    2 => proptest::strategy::Just(Step::Sync(node)),
                ]
            }),
            1..60,
        ),
    ) {
        let (store, nodes) = cluster(3);
        let mut counted = 0;
        for step in steps {
            match step {
                Step::Hit(node) => {
                    nodes[node].hit(KEY, hits(1));
                    counted += 1;
                }
                Step::Reset(node) => nodes[node].reset(KEY),
                Step::Sync(node) => drop(nodes[node].sync().unwrap()),
            }
        }
        settle(&nodes);
        let total: i64 = store[0].borrow().counts.values().sum();
        assert!((0..=counted * 1000).contains(&total), "{total} of {counted}");
        prop_assert_eq!(rates(&nodes), [total / 1000; 3]);
        nodes[0].hit(KEY, hits(1));
        settle(&nodes);
        prop_assert_eq!(rates(&nodes), [total / 1000 + 1; 3]);
    }
}
