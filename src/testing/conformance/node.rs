//! A node as a store sees it, and its batches.

use core::cell::RefCell;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;

use super::{HOUR, LIMIT, MINUTE, NONCE};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{
    Batch, BatchId, Changes, ChangesKind, Count, Diff, Epoch, NodeId, Occupancy, Position, Pushed,
    Shard, Strategy,
};

/// Returns the shard in which all tests count.
pub(crate) fn shard(namespace: &str) -> Shard {
    let namespace = namespace.into();
    Shard { namespace, number: 0 }
}

pub(crate) fn new_epoch() -> Epoch {
    static NEXT: AtomicU64 = AtomicU64::new(0xffff_0000_0000_0001);
    Epoch(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap())
}

pub(super) fn new_node() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    NodeId([number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number])
}

/// A diff of whole hits in window 7 of a minute's size, which [`Node::batch`] makes one of the node.
pub(crate) fn hits(key: &str, hits: i64) -> Diff {
    thousandths(key.as_bytes(), hits * 1000)
}

pub(super) fn thousandths(key: &[u8], thousandths: i64) -> Diff {
    let diff = Hits::from_thousandths(thousandths);
    Diff {
        key: key.to_vec(),
        size: MINUTE,
        window: 7,
        diff,
        local: diff,
        occupancy: occupancy(1),
        expires_in: Duration::from_secs(120),
    }
}

pub(super) fn occupancy(number: u64) -> Occupancy {
    Occupancy(NonZeroU64::new(number).unwrap())
}

/// Returns keys and totals in order.
pub(crate) fn totals(counts: &[Count]) -> Vec<(String, i64)> {
    let pair = |count: &Count| {
        let key = String::from_utf8(count.key.clone()).unwrap();
        (key, count.total.whole())
    };
    let mut pairs: Vec<_> = counts.iter().map(pair).collect();
    pairs.sort();
    pairs
}

pub(crate) fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    let pair = |&(key, total): &(&str, i64)| (key.to_owned(), total);
    expected.iter().map(pair).collect()
}

/// A node as a store sees it.
pub(crate) struct Node<S> {
    pub(crate) store: S,
    pub(crate) shard: Shard,
    pub(crate) id: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) number: u64,
    pub(crate) position: Option<Position>,
    counted: RefCell<Counted>,
}

/// The counts of a node with each of its batches, by their numbers.
type Counted = BTreeMap<(Vec<u8>, WindowSize, u64, Occupancy), BTreeMap<u64, Hits>>;

impl<S: Strategy> Node<S> {
    /// Joins a shard, and opens its epoch if it has none.
    pub(crate) async fn join(mut store: S, shard: Shard) -> Node<S> {
        let epoch = store.open_epoch(&shard, None, new_epoch()).await.unwrap();
        let mut node = Node {
            store,
            shard,
            id: new_node(),
            epoch,
            number: 0,
            position: None,
            counted: RefCell::default(),
        };
        node.begin(0, vec![]).await;
        node
    }

    /// The batch with this number; without diffs, a question after it.
    ///
    /// The absolute count of a diff is the sum of the batches with smaller numbers and of the diff.
    /// The nth diff of a counter in the batch is of its nth occupancy.
    pub(crate) fn batch(&self, number: u64, diffs: Vec<Diff>) -> Batch {
        let id = |number| BatchId::new(number, NONCE);
        let is_sealed = !diffs.is_empty();
        let mut times = BTreeMap::new();
        let mut counted = self.counted.borrow_mut();
        let diffs = diffs.into_iter().map(|diff| {
            let name = (diff.key.clone(), diff.size, diff.window);
            let times: &mut u64 = times.entry(name).or_default();
            *times += 1;
            let occupancy = occupancy(*times);
            let name = (diff.key.clone(), diff.size, diff.window, occupancy);
            let counted = counted.entry(name).or_default();
            let before = counted.range(..number).next_back();
            let local = before.map_or(Hits::ZERO, |(_, local)| *local).plus(diff.diff);
            counted.insert(number, local);
            Diff { local, occupancy, ..diff }
        });
        Batch {
            node: self.id,
            epoch: self.epoch,
            lives_for: None,
            previous: id(number - u64::from(is_sealed)),
            id: is_sealed.then(|| id(number)),
            position: self.position,
            grants: None,
            diffs: diffs.collect(),
            is_news: false,
        }
    }

    /// Sends [`Node::batch`].
    pub(crate) async fn send(&mut self, number: u64, diffs: Vec<Diff>) -> Pushed<S::Changes> {
        let batch = self.batch(number, diffs);
        self.send_batch(&batch).await
    }

    pub(crate) async fn send_batch(&mut self, batch: &Batch) -> Pushed<S::Changes> {
        let pushed = self.store.push_diffs(&self.shard, batch, LIMIT);
        pushed.await.unwrap()
    }

    /// Sends what the store answers by having the node begin with all that there is.
    pub(super) async fn begin(&mut self, number: u64, diffs: Vec<Diff>) {
        match applied(self.send(number, diffs).await) {
            Some(Changes::Behind { position }) => self.position = Some(position),
            None => {}
            other => panic!("{other:?}"),
        }
    }

    /// Pushes the next batch, and takes all changes in: [`Node::fetch`].
    pub(crate) async fn push(&mut self, diffs: Vec<Diff>) -> Vec<Count> {
        self.number += 1;
        let pushed = self.send(self.number, diffs).await;
        self.learn(pushed).await
    }

    /// Returns the changes of others since the last call; of a store without a log, all counts in
    /// the present windows.
    pub(crate) async fn fetch(&mut self) -> Vec<Count> {
        let pushed = self.send(self.number, vec![]).await;
        self.learn(pushed).await
    }

    async fn learn(&mut self, mut pushed: Pushed<S::Changes>) -> Vec<Count> {
        let mut all = Vec::new();
        loop {
            match applied(pushed) {
                Some(Changes::Since { counts, position, has_more }) => {
                    self.position = Some(position);
                    all.extend(counts);
                    if !has_more {
                        return all;
                    }
                }
                None => return self.read_all(&[(MINUTE, 7), (HOUR, 7)]).await,
                other => panic!("{other:?}"),
            }
            pushed = self.send(self.number, vec![]).await;
        }
    }

    /// Reads all counters of these windows.
    pub(crate) async fn read_all(&mut self, windows: &[(WindowSize, u64)]) -> Vec<Count> {
        let mut all = Vec::new();
        let mut next = Some(S::Step::default());
        while let Some(step) = next {
            let page = self.store.get_counters(&self.shard, self.epoch, windows, step);
            let (counts, step) = page.await.unwrap();
            all.extend(counts);
            next = step;
        }
        all
    }

    pub(super) async fn total(&mut self, key: &[u8]) -> Hits {
        let total = self.store.get_window(&self.shard, key, MINUTE, 7);
        total.await.unwrap()
    }
}

/// Returns the news of others' changes with a batch that was applied.
pub(super) fn applied<C: ChangesKind>(pushed: Pushed<C>) -> Option<Changes> {
    match pushed {
        Pushed::Applied { changes, .. } => changes.logged(),
        other => panic!("{other:?}"),
    }
}

/// Returns the counts in an answer; none from a store without a log.
pub(super) fn told<C: ChangesKind>(pushed: Pushed<C>) -> Vec<Count> {
    match applied(pushed) {
        Some(Changes::Since { counts, .. }) => counts,
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn since(pushed: Pushed) -> (Vec<Count>, Position, bool) {
    match applied(pushed) {
        Some(Changes::Since { counts, position, has_more }) => (counts, position, has_more),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn behind(pushed: &Pushed) -> Position {
    match applied(pushed.clone()) {
        Some(Changes::Behind { position }) => position,
        other => panic!("{other:?}"),
    }
}
