//! The total equals the counted hits after any events in any order.

use core::mem;
use std::collections::BTreeMap;

use proptest::prelude::{Just, ProptestConfig, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{BoxedStrategy, Strategy as _};
use proptest::test_runner::{RngSeed, TestCaseError};

use super::log::Store;
use super::memory::{Fault, Kept, Memory};
use super::node::{Worker, cluster_with, poll};
use super::rows::Rows;
use super::{LIFETIME, SIZE, T, hits, size};
use crate::engine::EarlyPush;
use crate::policy::hits::Hits;
use crate::store::contract::strategy::{Shard, Strategy};

/// Number of keys.
const KEYS: u8 = 20;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    /// Messages are lost, workers are stopped or killed, the store loses all data: in the end the
    /// total equals the counted hits, and all nodes know it.
    #[test]
    fn the_total_equals_the_counted_hits(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        totals_are_what_was_counted::<Store>(1, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    /// Checks a store whose shards are lost one by one.
    #[test]
    fn the_total_equals_the_hits_in_shards(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        totals_are_what_was_counted::<Store>(3, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(11),
        ..ProptestConfig::default()
    })]

    /// Checks replicas that lag behind and take over, while the former primary returns.
    #[test]
    fn the_total_equals_the_counted_hits_on_each_replica(
        steps in prop::collection::vec(step_with(failover()), 1..100),
    ) {
        totals_are_what_was_counted::<Store>(1, steps)?;
    }

    /// Checks a store with absolute counts and without a log, which writes a batch in parts.
    #[test]
    fn the_total_equals_the_absolutely_counted_hits(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        totals_are_what_was_counted::<Rows>(1, steps)?;
    }

    /// Checks machines that are cloned.
    #[test]
    fn the_total_equals_the_hits_of_clones(
        steps in prop::collection::vec(step_with((0..6_usize).prop_map(Step::Clone).boxed()), 1..100),
    ) {
        // Clones would restore the same hits.
        let steps = steps.into_iter().filter(|step| !matches!(step, Step::Flush(_)));
        totals_are_what_was_counted::<Store>(1, steps.collect())?;
    }
}

fn totals_are_what_was_counted<K: Kept>(
    shards: usize,
    steps: Vec<Step>,
) -> Result<(), TestCaseError>
where
    Memory<K>: Strategy,
{
    let (store, mut nodes) = cluster_with::<K>(shards, 3);
    let mut replica: Vec<_> = store.iter().map(|shard| shard.borrow().clone()).collect();
    let mut expected = BTreeMap::<u8, i64>::new();
    let mut stopped = Vec::<Worker>::new();
    for step in steps {
        match step {
            Step::Hit(node, key, value) => {
                let node = node % nodes.len();
                nodes[node].hit(&[key], Hits::from_thousandths(value));
                *expected.entry(key).or_default() += value;
            }
            Step::HitAll(node, value) => {
                let node = node % nodes.len();
                for key in 0..KEYS {
                    nodes[node].hit(&[key], Hits::from_thousandths(value));
                    *expected.entry(key).or_default() += value;
                }
            }
            Step::Ask(node, key, value) => {
                let node = node % nodes.len();
                let value = Hits::from_thousandths(value);
                if nodes[node].ask(&[key], value, hits(100)) {
                    *expected.entry(key).or_default() += value.thousandths();
                }
            }
            Step::Sync(node, early, faults) => {
                let node = node % nodes.len();
                nodes[node].faults(&faults);
                let mut worker = match early {
                    Some(what) => nodes[node].start_early(what),
                    None => nodes[node].start_sync(),
                };
                if poll(&mut worker).is_pending() {
                    stopped.push(worker);
                }
                nodes[node].faults(&[]);
            }
            Step::Wake(which) if !stopped.is_empty() => {
                let mut worker = stopped.swap_remove(which % stopped.len());
                if poll(&mut worker).is_pending() {
                    stopped.push(worker);
                }
            }
            Step::Kill(which) if !stopped.is_empty() => {
                drop(stopped.swap_remove(which % stopped.len()));
            }
            Step::Wake(_) | Step::Kill(_) => {}
            Step::Wait => {
                for node in &nodes {
                    node.time.monotonic.set(node.time.monotonic.get() + LIFETIME);
                }
            }
            Step::Flush(which) => {
                *store[which % shards].borrow_mut() = K::empty(T);
            }
            Step::Replicate(which) => {
                replica[which % shards] = store[which % shards].borrow().clone();
            }
            Step::Failover(which) => {
                let primary =
                    store[which % shards].replace(mem::take(&mut replica[which % shards]));
                replica[which % shards] = primary;
            }
            Step::Clone(node) => {
                let node = &nodes[node % nodes.len()];
                // Both would push the hits that it has not pushed.
                if matches!(node.sync(), Ok(Some(_))) && nodes.len() < 6 {
                    let clone = node.cloned(nodes.len() as u64);
                    clone.time.monotonic.set(node.time.monotonic.get());
                    nodes.push(clone);
                }
            }
            Step::Trim(which) => store[which % shards].borrow_mut().trim(),
        }
    }
    for worker in &mut stopped {
        while poll(worker).is_pending() {}
    }
    for node in &nodes {
        node.time.monotonic.set(node.time.monotonic.get() + LIFETIME);
    }
    for _ in 0..4 {
        nodes.iter().for_each(|node| assert!(matches!(node.sync(), Ok(Some(_)))));
    }
    for (key, total) in expected {
        let total = Hits::from_thousandths(total);
        let name = (size(), T / SIZE, vec![key]);
        let shard = usize::from(Shard::number_of(&[key], shards.try_into().unwrap()));
        let stored = store[shard].borrow().count(&name).total;
        prop_assert_eq!(stored, total);
        for node in &nodes {
            prop_assert_eq!(node.rate(&[key]), total);
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Hit(usize, u8, i64),
    /// A hit of every key; more than one batch.
    HitAll(usize, i64),
    /// A hit under a limit.
    Ask(usize, u8, i64),
    /// A sync of all changes, or an early one.
    Sync(usize, Option<EarlyPush>, Vec<Fault>),
    /// A stopped worker continues, though another one may have taken over.
    Wake(usize),
    Kill(usize),
    /// Until leases have expired.
    Wait,
    /// A shard loses all data.
    Flush(usize),
    Trim(usize),
    /// A replica receives all data of a shard.
    Replicate(usize),
    /// The replica takes over with its data; the former primary becomes the replica.
    Failover(usize),
    Clone(usize),
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    step_with(Just(Step::Wait).boxed())
}

fn failover() -> BoxedStrategy<Step> {
    prop_oneof![(0..3_usize).prop_map(Step::Replicate), (0..3_usize).prop_map(Step::Failover),]
        .boxed()
}

/// Generates steps, some of which are of one kind.
fn step_with(kind: BoxedStrategy<Step>) -> impl proptest::strategy::Strategy<Value = Step> {
    let fault = prop_oneof![
        6 => Just(Fault::None),
        2 => Just(Fault::Before),
        2 => Just(Fault::After),
        1 => Just(Fault::StoppedBefore),
        1 => Just(Fault::StoppedAfter),
    ];
    let early = [None, Some(EarlyPush::Due), None, Some(EarlyPush::Near)];
    let early = prop::sample::select(early.to_vec());
    prop_oneof![
        6 => (0..6_usize, 0..KEYS, 1..5000_i64).prop_map(|(n, k, v)| Step::Hit(n, k, v)),
        1 => (0..6_usize, 1..5000_i64).prop_map(|(n, v)| Step::HitAll(n, v)),
        4 => (0..6_usize, 0..KEYS, 1..20_000_i64).prop_map(|(n, k, v)| Step::Ask(n, k, v)),
        6 => (0..6_usize, early, prop::collection::vec(fault, 0..6))
            .prop_map(|(n, early, f)| Step::Sync(n, early, f)),
        1 => (0..9_usize).prop_map(Step::Wake),
        1 => (0..9_usize).prop_map(Step::Kill),
        2 => Just(Step::Wait),
        1 => (0..3_usize).prop_map(Step::Flush),
        1 => (0..3_usize).prop_map(Step::Trim),
        2 => kind,
    ]
}
