//! The suite that every strategy passes: what `strategy.rs` says, against a real datastore.

use core::future::Future;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;

use super::strategy::{
    Batch, Changes, Count, Diff, Epoch, NodeId, Position, Pushed, Shard, Strategy,
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
            other_numbers_mean_that_the_store_lost_writes,
            a_node_that_asks_with_another_number_lost_writes,
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

pub(super) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(test)
}

pub(super) const MINUTE: WindowSize = size(60_000);
pub(super) const HOUR: WindowSize = size(3_600_000);
/// More than any test asks for.
pub(super) const LIMIT: usize = 1000;

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

    pub(super) fn batch(&self, number: u64, diffs: Vec<Diff>) -> Batch {
        Batch {
            node: self.id,
            epoch: self.epoch,
            number,
            position: self.position,
            diffs,
        }
    }

    /// Sends a batch with this number.
    pub(super) async fn send(&mut self, number: u64, diffs: Vec<Diff>) -> Pushed {
        let batch = self.batch(number, diffs);
        let pushed = self.store.push_diffs(&self.shard, &batch, LIMIT);
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

pub(super) async fn a_new_store_has_no_epoch<F: Fixture>(fixture: &F) {
    let mut store = fixture.connect();
    let shard = shard("api");
    let batch = Batch {
        node: new_node(),
        epoch: new_epoch(),
        number: 1,
        position: None,
        diffs: vec![hits("a", 1)],
    };
    let pushed = store.push_diffs(&shard, &batch, LIMIT).await;
    assert_eq!(pushed, Ok(Pushed::NoEpoch));
    let total = store.get_window(&shard, b"a", MINUTE, 7).await;
    assert_eq!(total, Ok(Hits::ZERO));
    let step = Default::default();
    let page = store.get_counters(&shard, batch.epoch, &[(MINUTE, 7)], step);
    assert!(page.await.unwrap().0.is_empty());
}

pub(super) async fn batches_are_applied_in_order<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    for number in 1..=3 {
        node.push(vec![hits("a", 1), hits("b", 10)]).await;
        assert_eq!(node.total(b"a").await.whole(), number);
    }
    let all = node.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 3), ("b", 30)]));
    let Pushed::Applied { now, .. } = node.send(3, vec![]).await else {
        panic!("not applied");
    };
    // The year 2020, in milliseconds.
    assert!(now.0 > 1_577_836_800_000 && now.0 < 10_000_000_000_000);
}

pub(super) async fn a_repeat_is_applied_once<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    let first = node.send(1, vec![hits("a", 5)]).await;
    other.push(vec![hits("a", 1), hits("b", 1)]).await;
    for _ in 0..2 {
        let repeat = node.send(1, vec![hits("a", 5)]).await;
        // What others changed comes with the repeat as well.
        assert_eq!(totals(&since(repeat).0), pairs(&[("a", 6), ("b", 1)]));
    }
    assert!(since(first).0.is_empty());
    assert_eq!(node.total(b"a").await.whole(), 6);
    node.number = 1;
    node.push(vec![hits("a", 5)]).await;
    assert_eq!(node.total(b"a").await.whole(), 11);
}

pub(super) async fn other_numbers_mean_that_the_store_lost_writes<F: Fixture>(fixture: &F) {
    let [mut node, mut other] = nodes(fixture).await;
    assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::Lost);
    node.push(vec![hits("a", 1)]).await;
    node.push(vec![hits("a", 1)]).await;
    for number in [1, 4, 5, u64::MAX] {
        let pushed = node.send(number, vec![hits("a", 1)]).await;
        assert_eq!(pushed, Pushed::Lost, "{number}");
    }
    assert_eq!(node.total(b"a").await.whole(), 2);
    other.push(vec![hits("a", 1)]).await;
    assert_eq!(node.total(b"a").await.whole(), 3);
}

pub(super) async fn a_node_that_asks_with_another_number_lost_writes<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    assert_eq!(node.send(1, vec![]).await, Pushed::Lost);
    node.push(vec![hits("a", 1)]).await;
    for number in [0, 2, 3] {
        assert_eq!(node.send(number, vec![]).await, Pushed::Lost, "{number}");
    }
    assert!(node.fetch().await.is_empty());
}

pub(super) async fn nodes_see_what_others_changed<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1), hits("b", 2)]).await;
    let seen = two.push(vec![hits("a", 10)]).await;
    assert_eq!(totals(&seen), pairs(&[("a", 11), ("b", 2)]));
    let seen = one.fetch().await;
    assert_eq!(totals(&seen), pairs(&[("a", 11)]));
    assert!(one.fetch().await.is_empty());
    assert!(two.fetch().await.is_empty());
    assert_eq!(seen[0].size, MINUTE);
    assert_eq!(seen[0].window, 7);
}

pub(super) async fn totals_include_what_others_pushed_meanwhile<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    // After the change that it is told of: a total is what it is now.
    two.push(vec![hits("a", 10)]).await;
    one.push(vec![hits("a", 100)]).await;
    assert_eq!(totals(&two.fetch().await), pairs(&[("a", 111)]));
}

pub(super) async fn a_counter_that_both_changed_comes_once<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    for _ in 0..5 {
        let batch = two.batch(two.number + 1, vec![hits("a", 1), hits("a", 1)]);
        let pushed = two.store.push_diffs(&two.shard, &batch, LIMIT).await;
        since(pushed.unwrap());
        two.number += 1;
        one.number += 1;
        let pushed = one.send(one.number, vec![hits("a", 1)]).await;
        assert_eq!(since(pushed).0.len(), 1);
    }
    assert_eq!(totals(&one.fetch().await), pairs(&[("a", 15)]));
}

pub(super) async fn what_a_node_changed_itself_does_not_come_back<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    two.push(vec![hits("theirs", 1)]).await;
    for number in 1..=40 {
        // From one and the same position.
        let pushed = one
            .send(number, vec![hits(&format!("own {number}"), 1)])
            .await;
        let (counts, _, has_more) = since(pushed);
        assert_eq!(totals(&counts), pairs(&[("theirs", 1)]));
        assert!(!has_more);
    }
    one.number = 40;
    two.push(vec![hits("own 3", 1)]).await;
    assert_eq!(
        totals(&one.fetch().await),
        pairs(&[("own 3", 2), ("theirs", 1)])
    );
}

pub(super) async fn changes_come_in_parts_up_to_the_limit<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut expected = BTreeMap::new();
    for batch in 0..40 {
        let keys = (0..40).map(|key| format!("{batch} {key}"));
        let diffs: Vec<_> = keys.map(|key| hits(&key, batch + 1)).collect();
        expected.extend(diffs.iter().map(|diff| (diff.key.clone(), batch + 1)));
        one.push(diffs).await;
    }
    let mut seen = BTreeMap::new();
    let mut parts = 0;
    loop {
        let batch = two.batch(0, vec![]);
        let pushed = two.store.push_diffs(&two.shard, &batch, 100).await;
        let (counts, position, has_more) = since(pushed.unwrap());
        assert!((1..=100).contains(&counts.len()), "{}", counts.len());
        for count in counts {
            let old = seen.insert(count.key, count.total.whole());
            assert_eq!(old, None);
        }
        parts += 1;
        two.position = Some(position);
        if !has_more {
            break;
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(parts, 20);

    // Where a batch alone is larger than the limit, it comes as a whole.
    one.push((0..40).map(|key| hits(&key.to_string(), 1)).collect())
        .await;
    let batch = two.batch(0, vec![]);
    let pushed = two.store.push_diffs(&two.shard, &batch, 1).await;
    assert_eq!(since(pushed.unwrap()).0.len(), 40);
}

pub(super) async fn of_many_nodes_that_open_an_epoch_one_wins<F: Fixture>(fixture: &F) {
    let shard = shard("api");
    let mut stores: Vec<_> = (0..10).map(|_| fixture.connect()).collect();
    for instead_of in 0..2 {
        let mut old = None;
        if instead_of == 1 {
            old = Some(
                stores[0]
                    .open_epoch(&shard, None, new_epoch())
                    .await
                    .unwrap(),
            );
        }
        let proposed: Vec<_> = stores.iter().map(|_| new_epoch()).collect();
        let attempts = stores.iter_mut().zip(&proposed);
        let attempts = attempts.map(|(store, &epoch)| store.open_epoch(&shard, old, epoch));
        let epochs = all_at_once(attempts.collect()).await;
        let won = epochs[0].clone().unwrap();
        assert!(proposed.contains(&won));
        assert!(epochs.iter().all(|epoch| epoch == &Ok(won)), "{epochs:?}");
    }
}

/// Waits for all of these, which make progress together.
async fn all_at_once<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
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

pub(super) async fn only_the_epoch_that_is_named_is_replaced<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    assert_eq!(one.epoch, two.epoch);
    one.push(vec![hits("a", 1)]).await;
    // It is in the epoch already, or in another.
    for instead_of in [None, Some(new_epoch())] {
        let opened = two.store.open_epoch(&two.shard, instead_of, new_epoch());
        assert_eq!(opened.await, Ok(one.epoch));
    }
    assert_eq!(one.total(b"a").await.whole(), 1);
    let proposed = new_epoch();
    let instead_of = Some(one.epoch);
    for again in [proposed, new_epoch()] {
        let opened = two.store.open_epoch(&two.shard, instead_of, again);
        assert_eq!(opened.await, Ok(proposed));
    }
}

pub(super) async fn a_flushed_store_has_no_epoch<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    node.push(vec![hits("a", 1)]).await;
    fixture.flush();
    assert_eq!(node.send(2, vec![hits("a", 1)]).await, Pushed::NoEpoch);
    assert_eq!(node.send(1, vec![]).await, Pushed::NoEpoch);
    let proposed = new_epoch();
    let instead_of = Some(node.epoch);
    let opened = node.store.open_epoch(&node.shard, instead_of, proposed);
    assert_eq!(opened.await, Ok(proposed));
    node.epoch = proposed;
    // The position is one of the old epoch.
    node.position = Some(behind(&node.send(1, vec![hits("a", 5)]).await));
    assert_eq!(node.total(b"a").await.whole(), 5);
}

pub(super) async fn a_new_epoch_begins_without_counts_and_numbers<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    two.push(vec![hits("a", 1)]).await;
    let proposed = new_epoch();
    let instead_of = Some(one.epoch);
    let opened = one.store.open_epoch(&one.shard, instead_of, proposed);
    assert_eq!(opened.await, Ok(proposed));
    assert_eq!(one.total(b"a").await, Hits::ZERO);

    one.epoch = proposed;
    assert!(one.read_all(&[(MINUTE, 7)]).await.is_empty());
    assert_eq!(one.send(2, vec![hits("a", 1)]).await, Pushed::Lost);
    one.position = None;
    behind(&one.send(1, vec![hits("a", 4)]).await);
    assert_eq!(
        two.send(2, vec![hits("a", 1)]).await,
        Pushed::OtherEpoch(proposed)
    );
    two.epoch = proposed;
    two.position = None;
    behind(&two.send(1, vec![hits("a", 5)]).await);
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 9)]));
}

pub(super) async fn a_batch_of_another_epoch_is_not_applied<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    let epoch = node.epoch;
    node.epoch = new_epoch();
    for diffs in [vec![hits("a", 1)], vec![]] {
        assert_eq!(node.send(1, diffs).await, Pushed::OtherEpoch(epoch));
    }
    assert!(node.read_all(&[(MINUTE, 7)]).await.is_empty());
    assert_eq!(node.total(b"a").await, Hits::ZERO);
    node.epoch = epoch;
    node.push(vec![hits("a", 1)]).await;
}

pub(super) async fn a_node_without_a_position_is_behind<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![hits("a", 1)]).await;
    two.position = None;
    // The batch is applied all the same.
    two.position = Some(behind(&two.send(1, vec![hits("b", 1)]).await));
    two.number = 1;
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 1), ("b", 1)]));
    assert!(two.fetch().await.is_empty());
    one.push(vec![hits("a", 1)]).await;
    assert_eq!(totals(&two.fetch().await), pairs(&[("a", 2)]));
}

pub(super) async fn a_position_that_is_forgotten_is_behind<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    two.fetch().await;
    one.push(vec![hits("a", 1)]).await;
    fixture.forget_changes(&one.shard);
    // The one that is up to date needs none of what was forgotten.
    assert!(one.fetch().await.is_empty());
    two.position = Some(behind(&two.send(1, vec![hits("b", 1)]).await));
    two.number = 1;
    assert!(two.fetch().await.is_empty());
    assert_eq!(totals(&two.read_all(&[(MINUTE, 7)]).await).len(), 2);
    one.position = Some(behind(&one.send(1, vec![]).await));
    two.push(vec![hits("b", 1)]).await;
    assert_eq!(totals(&one.fetch().await), pairs(&[("b", 2)]));
}

pub(super) async fn a_position_ahead_is_behind<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    for _ in 0..3 {
        one.push(vec![hits("a", 1)]).await;
    }
    // What a store that lost its last writes would see.
    let [sequence, rest] = one.position.unwrap().0;
    two.position = Some(Position([sequence + 1_000_000, rest]));
    two.position = Some(behind(&two.send(1, vec![hits("a", 1)]).await));
    assert_eq!(two.total(b"a").await.whole(), 4);
    two.number = 1;
    assert!(two.fetch().await.is_empty());
}

pub(super) async fn all_counters_are_read_in_pages_while_others_write<F: Fixture>(fixture: &F) {
    let [mut reader, mut writer] = nodes(fixture).await;
    let key = |number: usize| format!("key {number}");
    for first in (0..5000).step_by(500) {
        let keys = first..first + 500;
        writer
            .push(keys.map(|number| hits(&key(number), 1)).collect())
            .await;
    }
    let (mut seen, mut pages) = (BTreeMap::new(), 0);
    let mut next = Some(Default::default());
    while let Some(step) = next {
        let windows = [(MINUTE, 6), (MINUTE, 7)];
        let page = reader
            .store
            .get_counters(&reader.shard, reader.epoch, &windows, step);
        let (counts, step) = page.await.unwrap();
        assert!(counts.len() < 2500, "{}", counts.len());
        next = step;
        pages += 1;
        for count in counts {
            assert!((1..=100).contains(&count.total.whole()));
            seen.insert(count.key, count.total);
        }
        let old = (0..100).map(|number| hits(&key(number * 50), 1));
        let new = (0..400).map(|number| hits(&format!("new {pages} {number}"), 1));
        writer.push(old.chain(new).collect()).await;
    }
    assert!(pages > 3 && pages < 90, "{pages}");
    for number in 0..5000 {
        assert!(seen.contains_key(key(number).as_bytes()), "{number}");
    }
}

pub(super) async fn counters_are_read_of_the_windows_asked_for<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    let in_window = |key, size, window| Diff {
        size,
        window,
        ..hits(key, 1)
    };
    let diffs = vec![
        in_window("a", MINUTE, 6),
        in_window("b", MINUTE, 7),
        in_window("c", MINUTE, 8),
        in_window("d", HOUR, 7),
    ];
    node.push(diffs).await;
    let all = node.read_all(&[(MINUTE, 6), (MINUTE, 9), (HOUR, 7)]).await;
    assert_eq!(totals(&all), pairs(&[("a", 1), ("d", 1)]));
    assert!(node.read_all(&[]).await.is_empty());
    let find = |key: &[u8]| all.iter().find(|count| count.key == key).unwrap();
    assert_eq!((find(b"a").size, find(b"a").window), (MINUTE, 6));
    assert_eq!((find(b"d").size, find(b"d").window), (HOUR, 7));
}

pub(super) async fn decimals_and_large_totals_are_exact<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let large = 100_000_000_000_000;
    let diffs = vec![thousandths(b"small", 1), thousandths(b"large", large)];
    one.push(diffs.clone()).await;
    let seen = two.push(diffs).await;
    let total = |key: &[u8], counts: &[Count]| {
        let count = counts.iter().find(|count| count.key == key);
        count.unwrap().total.thousandths()
    };
    assert_eq!(total(b"small", &seen), 2);
    // Two times 10^11 is more than there can be.
    assert_eq!(total(b"large", &seen), Hits::MAX.thousandths());
    one.push(vec![thousandths(b"large", 1 - large)]).await;
    let seen = two.fetch().await;
    assert_eq!(total(b"large", &seen), large + 1);
    let all = two.read_all(&[(MINUTE, 7)]).await;
    assert_eq!(total(b"large", &all), large + 1);
    assert_eq!(two.total(b"large").await.thousandths(), large + 1);
    assert_eq!(two.total(b"small").await.thousandths(), 2);
}

pub(super) async fn diffs_may_be_negative<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    one.push(vec![thousandths(b"a", 2_500)]).await;
    one.push(vec![thousandths(b"a", -1_250), thousandths(b"b", -1)])
        .await;
    let seen = two.fetch().await;
    let mut thousandths: Vec<_> = seen.iter().map(|c| c.total.thousandths()).collect();
    thousandths.sort();
    assert_eq!(thousandths, [-1, 1_250]);
}

pub(super) async fn any_bytes_are_a_key<F: Fixture>(fixture: &F) {
    let [mut one, mut two] = nodes(fixture).await;
    let mut keys: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"a\0b".to_vec(),
        b"line\r\nline\n".to_vec(),
        b"{}:7:{x}".to_vec(),
        b"12".to_vec(),
        b" ".to_vec(),
        (0..=255).collect(),
        vec![b'x'; 65535],
    ];
    keys.sort();
    let diffs: Vec<_> = keys.iter().map(|key| thousandths(key, 1000)).collect();
    one.push(diffs).await;
    let sorted = |counts: Vec<Count>| {
        let mut keys: Vec<_> = counts.into_iter().map(|count| count.key).collect();
        keys.sort();
        keys
    };
    assert!(sorted(two.fetch().await) == keys);
    assert!(sorted(two.read_all(&[(MINUTE, 7)]).await) == keys);
    for key in keys {
        assert_eq!(two.total(&key).await, Hits::ONE);
    }
}

pub(super) async fn ended_windows_go_away_and_the_epoch_stays<F: Fixture>(fixture: &F) {
    let [mut node, _] = nodes(fixture).await;
    let short = Diff {
        window: 6,
        expires_in: Duration::from_millis(300),
        ..hits("short", 1)
    };
    node.push(vec![short, hits("long", 1)]).await;
    let windows = [(MINUTE, 6), (MINUTE, 7)];
    assert_eq!(node.read_all(&windows).await.len(), 2);
    let gone = async {
        while node.read_all(&windows).await.len() == 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = crate::policy::window::UnixMillis(u64::MAX / 2);
            let _ = node.store.purge(&node.shard, now).await.unwrap();
        }
    };
    let deadline = Duration::from_secs(20);
    tokio::time::timeout(deadline, gone).await.expect("purged");
    let all = node.read_all(&windows).await;
    assert_eq!(totals(&all), pairs(&[("long", 1)]));
    // What is told of a window that is gone does no harm.
    node.push(vec![hits("long", 1)]).await;
}

pub(super) async fn namespaces_shards_sizes_and_windows_do_not_mix<F: Fixture>(fixture: &F) {
    let mut nodes = Vec::new();
    for namespace in ["api", "api.1", "API", "a-p_i"] {
        nodes.push(Node::join(fixture.connect(), shard(namespace)).await);
    }
    let other_shard = Shard {
        number: 1,
        ..shard("api")
    };
    nodes.push(Node::join(fixture.connect(), other_shard).await);
    for (index, node) in nodes.iter_mut().enumerate() {
        let index = index as i64;
        let hour = Diff {
            size: HOUR,
            ..hits("a", 100 + index)
        };
        let next = Diff {
            window: 8,
            ..hits("a", 200 + index)
        };
        node.push(vec![hits("a", index), hour, next]).await;
    }
    for (index, node) in nodes.iter_mut().enumerate() {
        let index = index as i64;
        for (size, window, expected) in [
            (MINUTE, 7, index),
            (HOUR, 7, 100 + index),
            (MINUTE, 8, 200 + index),
            (HOUR, 8, 0),
        ] {
            let total = node.store.get_window(&node.shard, b"a", size, window);
            assert_eq!(total.await.unwrap().whole(), expected);
        }
        assert!(node.fetch().await.is_empty());
    }
}
