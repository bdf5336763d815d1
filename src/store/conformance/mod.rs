//! The suite that every strategy passes: what `strategy.rs` says, against a real datastore.

mod batches;
mod changes;
mod counters;
mod decisions;
mod epochs;

use core::future::Future;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;

pub(super) use self::batches::*;
pub(super) use self::changes::*;
pub(super) use self::counters::*;
pub(super) use self::decisions::*;
pub(super) use self::epochs::*;
use super::strategy::{
    Batch, BatchId, Changes, Count, Diff, Epoch, MAX_TOTAL, NodeId, Position, Pushed, Shard,
    Strategy,
};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// A datastore for one test.
pub(super) trait Fixture {
    type Store: Strategy;

    /// Starts a datastore that holds nothing. Ends with the value.
    fn start() -> Self;
    /// A strategy of its own.
    fn connect(&self) -> Self::Store;
    /// Loses all data.
    fn flush(&self);
    /// Loses what changed, but no counts.
    fn forget_changes(&self, shard: &Shard);
}

/// Defines the tests of the suite for a fixture.
macro_rules! conformance_tests {
    ($fixture:ty) => {
        conformance_tests! { $fixture:
            a_new_store_has_no_epoch,
            batches_are_applied_in_order,
            a_repeat_is_applied_once,
            a_batch_that_does_not_fit_is_not_applied,
            a_node_that_asks_is_told_what_does_not_fit,
            a_batch_without_diffs_is_one_all_the_same,
            of_two_nodes_with_one_identity_the_second_is_told,
            a_batch_of_a_former_chain_is_not_applied,
            nodes_see_what_others_changed,
            totals_include_what_others_pushed_meanwhile,
            a_counter_that_both_changed_comes_once,
            what_a_node_changed_itself_does_not_come_back,
            changes_come_in_parts_up_to_the_limit,
            of_many_nodes_that_open_an_epoch_one_wins,
            only_the_epoch_that_is_named_is_replaced,
            a_flushed_store_has_no_epoch,
            a_new_epoch_begins_without_counts_and_numbers,
            a_batch_of_another_epoch_is_not_applied,
            a_node_without_a_position_is_behind,
            a_position_that_is_forgotten_is_behind,
            a_position_ahead_is_behind,
            all_counters_are_read_in_pages_while_others_write,
            counters_are_read_of_the_windows_asked_for,
            decimals_and_large_totals_are_exact,
            diffs_may_be_negative,
            totals_saturate,
            any_bytes_are_a_key,
            ended_windows_go_away_and_the_epoch_stays,
            namespaces_shards_sizes_and_windows_do_not_mix,
        }
    };
    ($fixture:ty: $($test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let fixture = <$fixture as $crate::store::conformance::Fixture>::start();
                let test = $crate::store::conformance::$test(&fixture);
                $crate::store::conformance::block_on(test);
            }
        )*
    };
}
pub(super) use conformance_tests;

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(test)
}

pub(super) const MINUTE: WindowSize = size(60_000);
pub(super) const HOUR: WindowSize = size(3_600_000);
/// More than any test asks for.
pub(super) const LIMIT: usize = 1000;

/// The random bits of all batches, unless a test says otherwise.
const NONCE: u32 = 0xab_cdef;

pub(super) const fn size(millis: u64) -> WindowSize {
    WindowSize::from_millis(millis).unwrap()
}

pub(super) fn shard(namespace: &str) -> Shard {
    let namespace = namespace.into();
    Shard {
        namespace,
        number: 0,
    }
}

pub(super) fn new_epoch() -> Epoch {
    static NEXT: AtomicU64 = AtomicU64::new(0xffff_0000_0000_0001);
    Epoch(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap())
}

fn new_node() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NodeId([number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number])
}

/// A diff of whole hits in window 7 of a minute's size.
pub(super) fn hits(key: &str, hits: i64) -> Diff {
    thousandths(key.as_bytes(), hits * 1000)
}

fn thousandths(key: &[u8], thousandths: i64) -> Diff {
    let diff = Hits::from_thousandths(thousandths);
    Diff {
        key: key.to_vec(),
        size: MINUTE,
        window: 7,
        diff,
        local: diff,
        expires_in: Duration::from_secs(120),
    }
}

/// Keys and totals, in order.
pub(super) fn totals(counts: &[Count]) -> Vec<(String, i64)> {
    let pair = |count: &Count| {
        let key = String::from_utf8(count.key.clone()).unwrap();
        (key, count.total.whole())
    };
    let mut pairs: Vec<_> = counts.iter().map(pair).collect();
    pairs.sort();
    pairs
}

pub(super) fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    let pair = |&(key, total): &(&str, i64)| (key.to_owned(), total);
    expected.iter().map(pair).collect()
}

/// A node as far as a store sees it.
pub(super) struct Node<S> {
    pub(super) store: S,
    pub(super) shard: Shard,
    pub(super) id: NodeId,
    pub(super) epoch: Epoch,
    pub(super) number: u64,
    pub(super) position: Option<Position>,
}

impl<S: Strategy> Node<S> {
    /// Joins a shard, and opens its epoch if it has none.
    pub(super) async fn join(mut store: S, shard: Shard) -> Node<S> {
        let epoch = store.open_epoch(&shard, None, new_epoch()).await.unwrap();
        let mut node = Node {
            store,
            shard,
            id: new_node(),
            epoch,
            number: 0,
            position: None,
        };
        node.position = Some(behind(&node.send(0, vec![]).await));
        node
    }

    /// The batch with this number; without diffs, a question after it.
    pub(super) fn batch(&self, number: u64, diffs: Vec<Diff>) -> Batch {
        let id = |number| BatchId::new(number, NONCE);
        let is_sealed = !diffs.is_empty();
        Batch {
            node: self.id,
            epoch: self.epoch,
            previous: id(number - u64::from(is_sealed)),
            id: is_sealed.then(|| id(number)),
            position: self.position,
            diffs,
        }
    }

    /// Sends [`Node::batch`].
    pub(super) async fn send(&mut self, number: u64, diffs: Vec<Diff>) -> Pushed {
        let batch = self.batch(number, diffs);
        self.send_batch(&batch).await
    }

    pub(super) async fn send_batch(&mut self, batch: &Batch) -> Pushed {
        let pushed = self.store.push_diffs(&self.shard, batch, LIMIT);
        pushed.await.unwrap()
    }

    /// Pushes the next batch, and takes all changes in.
    pub(super) async fn push(&mut self, diffs: Vec<Diff>) -> Vec<Count> {
        self.number += 1;
        let pushed = self.send(self.number, diffs).await;
        let (counts, position, has_more) = since(pushed);
        assert!(!has_more);
        self.position = Some(position);
        counts
    }

    pub(super) async fn fetch(&mut self) -> Vec<Count> {
        let pushed = self.send(self.number, vec![]).await;
        let (counts, position, has_more) = since(pushed);
        assert!(!has_more);
        self.position = Some(position);
        counts
    }

    /// All counters of these windows.
    pub(super) async fn read_all(&mut self, windows: &[(WindowSize, u64)]) -> Vec<Count> {
        let mut all = Vec::new();
        let mut next = Some(S::Step::default());
        while let Some(step) = next {
            let page = self
                .store
                .get_counters(&self.shard, self.epoch, windows, step);
            let (counts, step) = page.await.unwrap();
            all.extend(counts);
            next = step;
        }
        all
    }

    async fn total(&mut self, key: &[u8]) -> Hits {
        let total = self.store.get_window(&self.shard, key, MINUTE, 7);
        total.await.unwrap()
    }
}

pub(super) fn since(pushed: Pushed) -> (Vec<Count>, Position, bool) {
    match pushed {
        Pushed::Applied {
            changes:
                Changes::Since {
                    counts,
                    position,
                    has_more,
                },
            ..
        } => (counts, position, has_more),
        other => panic!("{other:?}"),
    }
}

pub(super) fn behind(pushed: &Pushed) -> Position {
    match pushed {
        Pushed::Applied {
            changes: Changes::Behind { position },
            ..
        } => *position,
        other => panic!("{other:?}"),
    }
}

async fn nodes<F: Fixture>(fixture: &F) -> [Node<F::Store>; 2] {
    [
        Node::join(fixture.connect(), shard("api")).await,
        Node::join(fixture.connect(), shard("api")).await,
    ]
}

/// Waits for all of these, which make progress together.
pub(super) async fn all_at_once<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    core::future::poll_fn(move |context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none() {
                if let core::task::Poll::Ready(value) = future.as_mut().poll(context) {
                    *done = Some(value);
                }
            }
        }
        if done.iter().any(Option::is_none) {
            return core::task::Poll::Pending;
        }
        core::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
    })
    .await
}
