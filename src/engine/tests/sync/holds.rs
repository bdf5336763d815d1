//! Requests that are under way on several nodes.

use proptest::prelude::*;

use super::log::Store;
use super::memory::Kept as _;
use super::node::{Node, cluster};
use super::{SIZE, T, hits, size};
use crate::engine::{BoundLimit, Charge, Evaluation, Namespace};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::WindowSize;
use crate::table::{EarlyShare, Key, Outcome};

/// Keys that live as long as the test.
fn key(node: &Node, name: &'static [u8]) -> &'static Key<'static> {
    Box::leak(Box::new(node.shared.table.key(name)))
}

/// The requests of one node.
struct Requests<'n> {
    node: &'n Node,
    bound: &'static BoundLimit<'static>,
    held: Vec<Vec<Charge<'static, 'static>>>,
}

impl<'n> Requests<'n> {
    fn on(node: &'n Node) -> Requests<'n> {
        let namespace = Namespace::new("api", &node.shared.table).unwrap();
        let namespace = namespace.sharing_sync(1).unwrap().telling(Some(size()));
        let namespace = namespace.pushed_early(EarlyShare::of_milli_percent(2000));
        let limit = Limit {
            name: "api-concurrent".into(),
            size: WindowSize::MIN,
            algorithm: Algorithm::Concurrency,
            burst: Burst::default(),
            of_rule: None,
        };
        let bound = Box::leak(Box::new(BoundLimit::new(limit, &namespace, [])));
        Requests { node, bound, held: Vec::new() }
    }

    /// Begins a request. Returns whether it was admitted.
    fn begin(&mut self, limit: i64) -> bool {
        let mut evaluation = Evaluation::new(Vec::new(), false);
        let (key, time) = (key(self.node, b"k"), self.node.time);
        evaluation.charge(self.bound, hits(limit), key, Hits::ONE, time);
        let (outcome, charges) = evaluation.finish(Outcome::Rejected, time);
        if outcome == Outcome::Passed {
            self.held.push(charges);
        }
        outcome == Outcome::Passed
    }

    fn end(&mut self) {
        for charge in self.held.pop().unwrap() {
            charge.release(self.node.time);
        }
    }

    /// Returns the number under way, as this node knows it.
    fn rate(&self) -> Hits {
        let verdict = self.bound.verdict(hits(9), *key(self.node, b"k"), Hits::ONE, self.node.time);
        verdict.rate()
    }
}

/// Two nodes that know of each other, and their syncs, which tell what is under way.
fn two() -> Vec<Node> {
    let (_, nodes) = cluster(2);
    for node in nodes.iter().chain(&nodes) {
        node.sync().unwrap();
    }
    nodes
}

fn advance(nodes: &[Node], millis: u64) {
    for node in nodes {
        let now = node.time.unix.seen.get();
        node.time.unix.set(now + millis);
        node.time.monotonic.set(node.time.monotonic.get() + millis);
    }
}

/// Tells what is under way, as a sync does, and syncs.
fn sync(node: &Node) {
    node.shared.table.tell_all(node.namespace.index(), node.time);
    node.sync().unwrap();
}

#[test]
fn nodes_share_a_limit_and_are_told_at_once_near_it() {
    let nodes = two();
    let (mut a, mut b) = (Requests::on(&nodes[0]), Requests::on(&nodes[1]));
    assert!(a.begin(3) && a.begin(3));
    // The change is due, so that it need not wait for the period.
    assert_eq!(nodes[0].sync_early().unwrap().unwrap().pushed, 1);
    nodes[1].look().unwrap();
    assert_eq!(b.rate(), hits(2));
    assert!(b.begin(3));
    assert!(!b.begin(3));
    assert_eq!(b.rate(), hits(3));
    nodes[1].sync_early().unwrap();
    nodes[0].look().unwrap();
    assert!(!a.begin(3));
    // So is a release.
    a.end();
    assert_eq!(nodes[0].sync_early().unwrap().unwrap().pushed, 1);
    nodes[1].look().unwrap();
    assert!(b.begin(3));
    assert!(!b.begin(3));
}

#[test]
fn a_number_is_told_again_in_each_window_and_a_node_that_is_gone_counts_for_two() {
    let nodes = two();
    let (mut a, b) = (Requests::on(&nodes[0]), Requests::on(&nodes[1]));
    assert!(a.begin(9) && a.begin(9));
    sync(&nodes[0]);
    sync(&nodes[1]);
    for _ in 0..5 {
        advance(&nodes, SIZE / 2);
        // Not yet told again.
        assert_eq!(b.rate(), hits(2));
        sync(&nodes[0]);
        advance(&nodes, SIZE / 2);
        sync(&nodes[1]);
        assert_eq!(b.rate(), hits(2));
        // A release is known in both windows.
        assert!(a.begin(9));
        sync(&nodes[0]);
        sync(&nodes[1]);
        assert_eq!(b.rate(), hits(3));
        a.end();
        sync(&nodes[0]);
        sync(&nodes[1]);
        assert_eq!(b.rate(), hits(2));
    }
    // The first node is gone.
    for left in [2, 2, 0] {
        sync(&nodes[1]);
        assert_eq!(b.rate(), hits(left));
        advance(&nodes, SIZE);
    }
}

#[test]
fn a_store_that_comes_back_empty_is_told_again() {
    let (store, nodes) = cluster(2);
    for node in nodes.iter().chain(&nodes) {
        node.sync().unwrap();
    }
    let (mut a, b) = (Requests::on(&nodes[0]), Requests::on(&nodes[1]));
    assert!(a.begin(9) && a.begin(9));
    sync(&nodes[0]);
    sync(&nodes[1]);
    *store[0].borrow_mut() = Store::empty(T + 500);
    for node in nodes.iter().chain(&nodes) {
        sync(node);
    }
    assert_eq!(b.rate(), hits(2));
}

proptest! {
    /// Whatever nodes hold, and however their syncs interleave, all of them know the sum in the end.
    #[test]
    fn all_nodes_know_the_sum(steps in prop::collection::vec((0..2_usize, 0..5_u8), 1..80)) {
        let nodes = two();
        let mut requests: Vec<_> = nodes.iter().map(Requests::on).collect();
        for (node, step) in steps {
            match step {
                0 | 1 => {
                    requests[node].begin(1000);
                }
                2 if !requests[node].held.is_empty() => requests[node].end(),
                3 => sync(&nodes[node]),
                4 => advance(&nodes, SIZE / 3),
                _ => {}
            }
        }
        for node in nodes.iter().chain(&nodes) {
            sync(node);
        }
        let sum: usize = requests.iter().map(|it| it.held.len()).sum();
        for it in &requests {
            prop_assert_eq!(it.rate(), hits(sum as i64));
        }
    }
}
