//! The sync cycle over a store in memory that fails as real ones do: before it applied a batch, or
//! after. Nodes are tables; workers are whoever calls `sync` next.
//!
//! What real stores do is tested in [`crate::store`]; this is about what nodes make of it.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::mem;
use core::num::NonZeroU64;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use proptest::prelude::{Just, ProptestConfig, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{BoxedStrategy, Strategy as _};
use proptest::test_runner::{RngSeed, TestCaseError};

use super::{Namespace, RateLimiting, RateLimitingError, Report, Surroundings, SyncError, Syncer};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::store::error::{Failure, StoreError};
use crate::store::options::StoreOptions;
use crate::store::server::ServerAddress;
use crate::store::strategy::*;
use crate::table::testing::{SharedTable, TestClock};
use crate::table::{Admission, MonotonicMillis};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 60_000;
const LIFETIME: u64 = 3000;

fn hits(whole: i64) -> Hits {
    Hits::from_thousandths(whole * 1000)
}

/// A count's name in the store.
type Name = (WindowSize, u64, Vec<u8>);

/// A shard of a store in memory, as all nodes see it.
#[derive(Clone, Default)]
struct Store {
    epoch: Option<Epoch>,
    sequence: u64,
    /// Changes before this one are forgotten.
    trimmed: u64,
    last: HashMap<NodeId, BatchId>,
    counts: BTreeMap<Name, i64>,
    changes: Vec<(u64, NodeId, Name)>,
    now: u64,
    /// How often it was asked to purge, and how often it has something left.
    purges: usize,
    left: usize,
}

/// A store in memory.
type Shards = Rc<Vec<RefCell<Store>>>;

/// A worker's connection to it.
#[derive(Clone)]
struct Memory {
    shards: Shards,
    /// What happens to the next exchanges.
    faults: Rc<RefCell<Vec<Fault>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The batch never arrives.
    Before,
    /// The batch is applied, and the answer lost.
    After,
    /// The worker is stopped before the batch leaves.
    StoppedBefore,
    /// The worker is stopped when the batch was applied.
    StoppedAfter,
}

/// Returns when it is polled for the second time.
async fn be_stopped() {
    let mut is_woken = false;
    poll_fn(|_| {
        if mem::replace(&mut is_woken, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl Memory {
    async fn exchange<T>(
        &self,
        shard: &Shard,
        apply: impl FnOnce(&mut Store) -> T,
    ) -> Result<T, StoreError> {
        let fault = self.faults.borrow_mut().pop().unwrap_or(Fault::None);
        if fault == Fault::StoppedBefore {
            be_stopped().await;
        }
        let failure = Failure::TimedOut(Duration::from_millis(250));
        let server = ServerAddress::Unix("/".into());
        let lost = Err(StoreError::new(server, failure));
        if fault == Fault::Before {
            return lost;
        }
        let answer = apply(&mut self.shards[usize::from(shard.number)].borrow_mut());
        if fault == Fault::StoppedAfter {
            be_stopped().await;
        }
        if fault == Fault::After {
            lost
        } else {
            Ok(answer)
        }
    }
}

impl Strategy for Memory {
    fn server(&self) -> Option<String> {
        None
    }

    type Options = ();
    type Step = usize;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    fn connects(&self) -> u64 {
        0
    }

    fn shards(&self) -> u16 {
        self.shards.len().try_into().unwrap()
    }

    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError> {
        self.exchange(shard, |store| {
            let Some(epoch) = store.epoch else {
                return Pushed::NoEpoch;
            };
            if epoch != batch.epoch {
                return Pushed::OtherEpoch(epoch);
            }
            let last = store
                .last
                .get(&batch.node)
                .copied()
                .unwrap_or(BatchId::NONE);
            if batch.id.is_some() && last == batch.previous {
                store.last.insert(batch.node, batch.last());
                for diff in &batch.diffs {
                    let name = (diff.size, diff.window, diff.key.clone());
                    *store.counts.entry(name.clone()).or_default() += diff.diff.thousandths();
                    store.sequence += 1;
                    store.changes.push((store.sequence, batch.node, name));
                }
            } else if last != batch.last() {
                return batch.misfit(last);
            }
            let now = UnixMillis(store.now);
            let changes = store.changes_since(batch.node, batch.position, limit);
            Pushed::Applied { changes, now }
        })
        .await
    }

    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.exchange(shard, |store| {
            if store.epoch.is_none() || store.epoch == instead_of {
                let now = store.now;
                *store = Store {
                    epoch: Some(proposed),
                    now,
                    ..Store::default()
                };
            }
            store.epoch.unwrap()
        })
        .await
    }

    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: usize,
    ) -> Result<(Vec<Count>, Option<usize>), StoreError> {
        self.exchange(shard, |store| {
            let counts: Vec<Count> = store
                .counts
                .iter()
                .filter(|((size, window, _), _)| windows.contains(&(*size, *window)))
                .filter(|_| store.epoch == Some(epoch))
                .map(|(name, _)| store.count(name))
                .collect();
            let page: Vec<_> = counts.iter().skip(step).take(3).cloned().collect();
            let next = step + page.len();
            (page, (next < counts.len()).then_some(next))
        })
        .await
    }

    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError> {
        let name = (size, window, key.to_vec());
        self.exchange(shard, |store| store.count(&name).total).await
    }

    async fn purge(&mut self, shard: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        let store = &mut *self.shards[usize::from(shard.number)].borrow_mut();
        store.purges += 1;
        let had_more = store.left > 0;
        store.left = store.left.saturating_sub(1);
        Ok(had_more)
    }
}

impl Store {
    fn count(&self, name: &Name) -> Count {
        let (size, window, key) = name.clone();
        let total = self.counts.get(name).copied().unwrap_or(0);
        Count {
            key,
            size,
            window,
            total: Hits::from_thousandths(total),
        }
    }

    fn changes_since(&self, node: NodeId, position: Option<Position>, limit: usize) -> Changes {
        let present = Position([self.sequence, 0]);
        let Some(Position([since, _])) = position else {
            return Changes::Behind { position: present };
        };
        if since < self.trimmed || since > self.sequence {
            return Changes::Behind { position: present };
        }
        let mut seen = Vec::<&Name>::new();
        let mut reached = since;
        for (sequence, by, name) in self
            .changes
            .iter()
            .filter(|(sequence, ..)| *sequence > since)
        {
            if *by != node && !seen.contains(&name) {
                if seen.len() == limit.min(5) {
                    break;
                }
                seen.push(name);
            }
            reached = *sequence;
        }
        Changes::Since {
            counts: seen.into_iter().map(|name| self.count(name)).collect(),
            position: Position([reached, 0]),
            has_more: reached < self.sequence,
        }
    }
}

/// A node's time, and its random numbers.
pub(super) struct Time {
    pub(super) unix: TestClock,
    pub(super) monotonic: Cell<u64>,
    pub(super) random: Cell<u64>,
}

impl Clock for Time {
    fn now(&self) -> UnixMillis {
        self.unix.now()
    }

    fn fresh(&self) -> UnixMillis {
        self.unix.fresh()
    }
}

impl Surroundings for Time {
    fn uptime(&self) -> Duration {
        Duration::from_millis(self.monotonic.get())
    }

    fn process(&self) -> u32 {
        1
    }

    fn random(&self) -> NonZeroU64 {
        self.random.set(self.random.get() + 1);
        // Fibonacci hashing: one is as unlike the next as random ones are.
        let mixed = self.random.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        NonZeroU64::new(mixed).unwrap()
    }
}

/// A node, with a table of its own.
struct Node {
    shared: &'static SharedTable,
    namespace: &'static Namespace<'static>,
    strategy: Memory,
    time: &'static Time,
}

impl Node {
    fn new(store: &Shards, number: u64) -> Node {
        let secret = [number + 1, 77];
        let shards = store.len();
        let len = if shards > 1 { 1 << 20 } else { 1 << 16 };
        Node::over(store, number, SharedTable::with_secret(len, secret))
    }

    /// Another machine with the same memory.
    fn cloned(&self, number: u64) -> Node {
        Node::over(&self.strategy.shards, number, self.shared.cloned())
    }

    fn over(store: &Shards, number: u64, shared: SharedTable) -> Node {
        let shards = store.len();
        let shared: &SharedTable = Box::leak(Box::new(shared));
        let namespace = Box::leak(Box::new(
            Namespace::new("api", &shared.table)
                .unwrap()
                .synced(shards.try_into().unwrap())
                .unwrap(),
        ));
        Node {
            shared,
            namespace,
            strategy: Memory {
                shards: store.clone(),
                faults: Rc::default(),
            },
            time: Box::leak(Box::new(Time {
                unix: TestClock::at(T),
                monotonic: Cell::new(1000),
                random: Cell::new(number << 32),
            })),
        }
    }

    fn hit(&self, key: &[u8], value: Hits) {
        let counter = self.namespace.counter(size()).synced(true);
        let (table, admission) = (&self.shared.table, Admission::Unconditional);
        let key = table.key(key);
        table.add(&counter, key, self.time, value, admission);
    }

    fn rate(&self, key: &[u8]) -> Hits {
        let library = RateLimiting::new(self.namespace);
        let rate = library.sliding_window(key, size(), Algorithm::Fixed, self.time);
        rate.unwrap()
    }

    fn sync(&self) -> Synced {
        match poll(&mut self.start_sync()) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    /// A worker that begins to sync.
    fn start_sync(&self) -> Worker {
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(self.namespace, &[size()], lifetime).unwrap();
        let (mut strategy, time) = (self.strategy.clone(), self.time);
        Box::pin(async move { syncer.sync(&mut strategy, time).await })
    }

    /// The node's namespace under a new configuration, with another store.
    fn namespace_with(&self, store: &Shards) -> Namespace<'static> {
        let namespace = Namespace::new("api", &self.shared.table).unwrap();
        namespace.synced(store.len().try_into().unwrap()).unwrap()
    }

    /// A cycle of that namespace.
    fn sync_with(&self, namespace: &Namespace<'static>, store: &Shards) {
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(namespace, &[size()], lifetime).unwrap();
        let mut strategy = Memory {
            shards: store.clone(),
            ..self.strategy.clone()
        };
        let mut sync = core::pin::pin!(syncer.sync(&mut strategy, self.time));
        let synced = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(synced, Poll::Ready(Ok(Some(_)))), "{synced:?}");
    }

    /// What happens to the next exchanges, the first one first.
    fn faults(&self, faults: &[Fault]) {
        *self.strategy.faults.borrow_mut() = faults.iter().rev().copied().collect();
    }
}

fn size() -> WindowSize {
    WindowSize::from_millis(SIZE).unwrap()
}

type Synced = Result<Option<Report>, SyncError>;

/// A worker in the middle of a sync. To drop it is to kill it.
type Worker = Pin<Box<dyn Future<Output = Synced>>>;

/// Lets a worker go on until it is done, or is stopped.
fn poll(worker: &mut Worker) -> Poll<Synced> {
    let waker = Waker::noop();
    worker.as_mut().poll(&mut Context::from_waker(waker))
}

fn cluster(nodes: u64) -> (Shards, Vec<Node>) {
    cluster_with(1, nodes)
}

fn cluster_with(shards: usize, nodes: u64) -> (Shards, Vec<Node>) {
    let empty = || {
        RefCell::new(Store {
            now: T + 500,
            ..Store::default()
        })
    };
    let store = Rc::new((0..shards).map(|_| empty()).collect());
    let nodes = (0..nodes).map(|number| Node::new(&store, number)).collect();
    (store, nodes)
}

#[test]
fn nodes_see_each_others_hits() {
    let (_, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    nodes[1].hit(b"a", hits(2));
    nodes[1].hit(b"b", hits(1));
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.clock_offset), (1, 500));
    nodes[1].sync().unwrap();
    assert_eq!(
        (nodes[1].rate(b"a"), nodes[1].rate(b"b")),
        (hits(7), hits(1))
    );
    let report = nodes[0].sync().unwrap().unwrap();
    assert_eq!((report.pushed, report.fetched), (0, 2));
    assert_eq!(
        (nodes[0].rate(b"a"), nodes[0].rate(b"b")),
        (hits(7), hits(1))
    );
    assert_eq!(
        nodes[0].sync().unwrap(),
        Some(Report {
            clock_offset: 500,
            ..Report::default()
        })
    );
}

#[test]
fn a_new_node_begins_with_everything_that_matters() {
    let (_, nodes) = cluster(2);
    for n in 0..20 {
        nodes[0].hit(&[n], hits(i64::from(n) + 1));
    }
    nodes[0].sync().unwrap();
    nodes[1].sync().unwrap();
    assert!((0..20).all(|n| nodes[1].rate(&[n]) == hits(i64::from(n) + 1)));
}

#[test]
fn a_batch_whose_answer_was_lost_is_applied_once() {
    for fault in [Fault::Before, Fault::After] {
        let (store, nodes) = cluster(1);
        let node = &nodes[0];
        node.sync().unwrap();
        node.hit(b"a", hits(5));
        node.faults(&[fault, fault]);
        for _ in 0..2 {
            let error = node.sync().unwrap_err();
            assert!(matches!(error, SyncError::Store(_)), "{error}");
            node.hit(b"a", hits(1));
        }
        node.sync().unwrap();
        let total: i64 = store[0].borrow().counts.values().sum();
        assert_eq!((total, node.rate(b"a")), (7000, hits(7)), "{fault:?}");
    }
}

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
        assert_eq!(
            (nodes[0].rate(b"a"), nodes[1].rate(b"a")),
            (expected, expected)
        );
        let now = store[0].borrow().now;
        *store[0].borrow_mut() = Store {
            now,
            ..Store::default()
        };
    }
}

#[test]
fn a_store_that_lost_the_last_writes_is_told_everything_anew() {
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
    // A failover to a replica that had not got the last batch.
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
fn a_clone_takes_another_identity_and_nothing_is_lost_or_doubled() {
    // Which of them pushes first, and whether the other has a batch on its way.
    for (is_clone_first, is_sealed) in [(true, false), (true, true), (false, false), (false, true)]
    {
        let (store, nodes) = cluster(2);
        nodes[0].hit(b"a", hits(5));
        nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
        let clone = nodes[0].cloned(2);
        let [first, second] = match is_clone_first {
            true => [&clone, &nodes[0]],
            false => [&nodes[0], &clone],
        };
        let epoch = store[0].borrow().epoch;
        second.hit(b"a", hits(10));
        if is_sealed {
            second.faults(&[Fault::Before]);
            assert!(second.sync().is_err());
        }
        first.hit(b"a", hits(100));
        for _ in 0..3 {
            for node in [first, second, &nodes[1]] {
                node.sync().unwrap();
                node.hit(b"b", hits(1));
            }
        }
        let name = |key: &[u8]| (size(), T / SIZE, key.to_vec());
        assert_eq!(store[0].borrow().count(&name(b"a")).total, hits(115));
        for node in [first, second, &nodes[1], first, second] {
            node.sync().unwrap();
        }
        for node in [first, second] {
            assert_eq!((node.rate(b"a"), node.rate(b"b")), (hits(115), hits(9)));
        }
        assert_eq!(store[0].borrow().epoch, epoch);
        let have_news = [first, second].map(|node| node.shared.table.note_identity());
        assert_eq!(have_news, [false, true]);
    }
}

#[test]
fn clones_that_meet_in_a_new_epoch_come_to_terms() {
    // Which of them notices. One that was configured anew may have been in the epoch before.
    for notices in 0..2 {
        let (store, nodes) = cluster(1);
        // It has not even seen the store.
        let clone = nodes[0].cloned(1);
        let nodes = [&nodes[0], &clone];
        nodes[1 - notices].hit(b"a", hits(1));
        nodes[1 - notices].sync().unwrap();
        let epoch = store[0].borrow().epoch;
        nodes[notices].hit(b"a", hits(1));
        nodes[notices].sync().unwrap();
        let after = store[0].borrow().epoch;
        assert_eq!(after == epoch, notices == 0);
        for _ in 0..3 {
            nodes.iter().for_each(|node| assert!(node.sync().is_ok()));
        }
        assert_eq!(store[0].borrow().epoch, after);
        assert!(nodes.iter().all(|node| node.rate(b"a") == hits(2)));
    }
}

#[test]
fn a_node_that_was_forgotten_in_due_time_leaves_the_epoch_as_it_is() {
    const DAY: u64 = 24 * 3_600_000;
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
        assert!(!node.shared.table.note_identity());
    }
}

/// A store that says the same again and again.
struct Liar {
    calls: usize,
    answer: fn(&Batch, usize) -> Pushed,
    page: fn(usize) -> Option<usize>,
}

impl Strategy for Liar {
    type Options = ();
    type Step = usize;

    fn new(_: &StoreOptions, (): &()) -> Self {
        unreachable!("made by the tests")
    }

    fn connects(&self) -> u64 {
        0
    }

    fn server(&self) -> Option<String> {
        None
    }

    fn shards(&self) -> u16 {
        1
    }

    async fn push_diffs(
        &mut self,
        _: &Shard,
        batch: &Batch,
        _: usize,
    ) -> Result<Pushed, StoreError> {
        self.calls += 1;
        Ok((self.answer)(batch, self.calls))
    }

    async fn open_epoch(
        &mut self,
        _: &Shard,
        _: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError> {
        self.calls += 1;
        Ok(proposed)
    }

    async fn get_counters(
        &mut self,
        _: &Shard,
        _: Epoch,
        _: &[(WindowSize, u64)],
        step: usize,
    ) -> Result<(Vec<Count>, Option<usize>), StoreError> {
        self.calls += 1;
        Ok((Vec::new(), (self.page)(step)))
    }

    async fn get_window(
        &mut self,
        _: &Shard,
        _: &[u8],
        _: WindowSize,
        _: u64,
    ) -> Result<Hits, StoreError> {
        Ok(Hits::ZERO)
    }

    async fn purge(&mut self, _: &Shard, _: UnixMillis) -> Result<bool, StoreError> {
        Ok(true)
    }
}

#[test]
fn a_store_that_leads_nowhere_is_left_alone_for_a_while() {
    fn applied(changes: Changes) -> Pushed {
        let now = UnixMillis(T);
        Pushed::Applied { changes, now }
    }
    fn since(position: u64, counts: Vec<Count>, has_more: bool) -> Pushed {
        let position = Position([position, 0]);
        applied(Changes::Since {
            counts,
            position,
            has_more,
        })
    }
    fn behind(call: usize) -> Pushed {
        let position = Position([call as u64, 0]);
        applied(Changes::Behind { position })
    }
    /// Of a window that is still to come.
    fn coming() -> Count {
        let (key, window) = (b"a".to_vec(), T / SIZE + 9);
        Count {
            key,
            size: size(),
            window,
            total: hits(1),
        }
    }
    let other =
        |_: &Batch, call: usize| Pushed::OtherEpoch(Epoch(NonZeroU64::new(call as u64).unwrap()));
    let last = |_| None;
    type Answer = fn(&Batch, usize) -> Pushed;
    type Page = fn(usize) -> Option<usize>;
    let answers: [(&str, Answer, Page); 11] = [
        ("lost", |_, _| Pushed::Lost, last),
        ("forgotten", |_, _| Pushed::Forgotten, last),
        ("twin", |_, _| Pushed::Twin, last),
        ("none", |_, _| Pushed::NoEpoch, last),
        ("other", other, last),
        ("itself", |batch, _| Pushed::OtherEpoch(batch.epoch), last),
        ("behind", |_, call| behind(call), last),
        ("more", |_, _| since(7, Vec::new(), true), last),
        ("nothing", |_, _| since(7, vec![coming()], false), last),
        ("pages", |_, call| behind(call), |step| Some(step + 1)),
        (
            "progress",
            |_, call| since(call as u64, Vec::new(), true),
            last,
        ),
    ];
    for (what, answer, page) in answers {
        let (_, nodes) = cluster(1);
        let node = &nodes[0];
        node.hit(b"a", hits(1));
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
        let mut liar = Liar {
            calls: 0,
            answer,
            page,
        };
        for _ in 0..3 {
            let before = liar.calls;
            let mut sync = Box::pin(syncer.sync(&mut liar, node.time));
            let waker = Waker::noop();
            let result = sync.as_mut().poll(&mut Context::from_waker(waker));
            drop(sync);
            let calls = liar.calls - before;
            if what == "progress" {
                assert!(
                    matches!(result, Poll::Ready(Ok(Some(_)))),
                    "{what}: {result:?}"
                );
                assert!(calls < 1100, "{calls} calls");
                continue;
            }
            let Poll::Ready(Err(SyncError::NoProgress(_))) = result else {
                panic!("{what}: {result:?}");
            };
            assert!(
                calls <= if what == "pages" { 1010 } else { 20 },
                "{what}: {calls}"
            );
        }
    }
}

#[test]
fn a_node_that_is_behind_the_stores_changes_fetches_everything() {
    let (store, nodes) = cluster(2);
    nodes[1].sync().unwrap();
    for n in 0..10 {
        nodes[0].hit(&[n], hits(1));
    }
    nodes[0].sync().unwrap();
    let sequence = store[0].borrow().sequence;
    store[0].borrow_mut().trimmed = sequence;
    nodes[1].sync().unwrap();
    assert!((0..10).all(|n| nodes[1].rate(&[n]) == hits(1)));
}

#[test]
fn a_window_that_is_new_to_the_configuration_is_fetched() {
    let (_, nodes) = cluster(2);
    nodes[0].hit(b"a", hits(5));
    nodes[0].sync().unwrap();
    let hour = WindowSize::from_millis(3_600_000).unwrap();
    let lifetime = Duration::from_millis(LIFETIME);
    let sync = |sizes: &[WindowSize]| {
        let syncer = Syncer::new(nodes[1].namespace, sizes, lifetime).unwrap();
        let (mut strategy, time) = (nodes[1].strategy.clone(), nodes[1].time);
        let mut sync: Worker = Box::pin(async move { syncer.sync(&mut strategy, time).await });
        assert!(matches!(poll(&mut sync), Poll::Ready(Ok(Some(_)))));
    };
    sync(&[hour]);
    assert_eq!(nodes[1].rate(b"a"), Hits::ZERO);
    sync(&[hour, size()]);
    assert_eq!(nodes[1].rate(b"a"), hits(5));
}

/// A key of each of three shards.
fn key_of(shard: u16) -> [u8; 1] {
    let keys = (b'a'..=b'z').map(|byte| [byte]);
    let mut keys = keys.filter(|key| Shard::number_of(key, 3) == shard);
    keys.next().unwrap()
}

#[test]
fn a_shard_that_is_lost_keeps_no_other_from_its_sync() {
    for lost in 0..3 {
        let (store, nodes) = cluster_with(3, 1);
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
    let (one, _) = cluster_with(1, 0);
    let (three, nodes) = cluster_with(3, 1);
    let node = &nodes[0];
    for round in 1..4 {
        for store in [&three, &one] {
            (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
            // Once more after the epoch was given up.
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
    let (one, _) = cluster_with(1, 0);
    let (three, nodes) = cluster_with(3, 1);
    let node = &nodes[0];
    let before = node.namespace_with(&three);
    node.sync_with(&before, &three);
    let lifetime = Duration::from_millis(LIFETIME);
    let syncer = Syncer::new(&before, &[size()], lifetime).unwrap();
    let mut strategy = node.strategy.clone();
    // In the middle of a cycle, there is another configuration.
    node.strategy.faults.borrow_mut().push(Fault::StoppedAfter);
    let mut ending = core::pin::pin!(syncer.sync(&mut strategy, node.time));
    let mut context = Context::from_waker(Waker::noop());
    assert!(ending.as_mut().poll(&mut context).is_pending());
    let between = node.namespace_with(&one);
    (0..3).for_each(|shard| node.hit(&key_of(shard), hits(5)));
    assert!(ending.as_mut().poll(&mut context).is_ready());

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
fn a_zone_without_room_for_all_shards_says_so() {
    let shared = SharedTable::with_secret(32 << 10, [1, 2]);
    let namespace = |name| Namespace::new(name, &shared.table).unwrap();
    let error = namespace("large").synced(33).unwrap_err();
    assert_eq!(error, RateLimitingError::TooManySynced { shards: 33 });
    assert!(error.to_string().contains("in 33 shards"), "{error}");
    assert!(namespace("large").synced(32).is_ok());
    let error = namespace("other").synced(1).unwrap_err();
    assert_eq!(error, RateLimitingError::TooManySynced { shards: 1 });
}

#[test]
fn a_store_is_asked_to_purge_now_and_then_and_as_often_as_keeps_up() {
    let (store, nodes) = cluster_with(3, 1);
    let (node, lifetime) = (&nodes[0], Duration::from_millis(LIFETIME));
    let syncer = Syncer::new(node.namespace, &[size()], lifetime).unwrap();
    let mut strategy = node.strategy.clone();
    let purges = || [0, 1, 2].map(|shard: usize| store[shard].borrow().purges);
    let mut purges_of_a_sync = |after: u64| {
        node.time.monotonic.update(|now| now + after);
        let before = purges();
        let mut sync = Box::pin(syncer.sync(&mut strategy, node.time));
        let waker = Waker::noop();
        let result = sync.as_mut().poll(&mut Context::from_waker(waker));
        assert!(matches!(result, Poll::Ready(Ok(Some(_)))), "{result:?}");
        let after = purges();
        [0, 1, 2].map(|shard| after[shard] - before[shard])
    };
    assert_eq!(purges_of_a_sync(0), [1; 3]);
    assert_eq!(purges_of_a_sync(9_999), [0; 3]);
    assert_eq!(purges_of_a_sync(1), [1; 3]);
    (0..3).for_each(|shard: usize| store[shard].borrow_mut().left = 100);
    assert_eq!(purges_of_a_sync(10_000), [1; 3]);
    // There is more, but no reason to hurry.
    assert_eq!(purges_of_a_sync(1), [1; 3]);
    let keys = (0..u16::MAX).map(u16::to_ne_bytes);
    let of_one = keys.filter(|key| Shard::number_of(key, 3) == 0);
    of_one.take(250).for_each(|key| node.hit(&key, hits(1)));
    assert_eq!(purges_of_a_sync(1), [2, 1, 1]);
}

#[test]
fn one_worker_syncs_at_a_time() {
    let (_, nodes) = cluster(1);
    let node = &nodes[0];
    let state = node.namespace.sync_state().unwrap();
    let lease = state.take_lease(MonotonicMillis(1000), 3000).unwrap();
    assert_eq!(node.sync(), Ok(None));
    lease.release();
    assert!(matches!(node.sync(), Ok(Some(_))));
}

#[test]
fn a_worker_that_ends_need_not_wait_for_one_that_was_killed() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    node.hit(b"a", hits(5));
    node.strategy.faults.borrow_mut().push(Fault::StoppedAfter);
    let mut killed = node.start_sync();
    assert!(poll(&mut killed).is_pending());
    node.hit(b"a", hits(2));
    assert_eq!(node.sync(), Ok(None));

    let sizes = [size()];
    let syncer = Syncer::new(node.namespace, &sizes, Duration::from_millis(LIFETIME)).unwrap();
    syncer.take_over(node.time);
    assert!(matches!(node.sync(), Ok(Some(_))));
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 7000);

    // It was not killed after all.
    assert!(matches!(
        poll(&mut killed),
        Poll::Ready(Err(SyncError::LeaseLost))
    ));
    node.sync().unwrap();
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 7000);
    assert_eq!(node.rate(b"a"), hits(7));
}

#[test]
fn workers_of_an_older_configuration_leave_the_sync_to_others() {
    let (store, nodes) = cluster(1);
    let node = &nodes[0];
    node.sync().unwrap();
    let table = &node.shared.table;
    let newer = Namespace::new("api", table).unwrap().synced(1).unwrap();
    node.hit(b"a", hits(5));
    assert_eq!(node.sync(), Ok(None));
    let syncer = Syncer::new(&newer, &[size()], Duration::from_millis(LIFETIME)).unwrap();
    let mut strategy = node.strategy.clone();
    let mut sync = core::pin::pin!(syncer.sync(&mut strategy, node.time));
    let waker = Waker::noop();
    let synced = sync.as_mut().poll(&mut Context::from_waker(waker));
    assert!(matches!(synced, Poll::Ready(Ok(Some(_)))));
    assert_eq!(store[0].borrow().counts.values().sum::<i64>(), 5000);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    /// Whatever is lost on the way, whoever is stopped or killed, and whenever the store loses all:
    /// in the end the total is what was counted, and all nodes know it.
    #[test]
    fn the_total_is_what_was_counted(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        totals_are_what_was_counted(1, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    /// The same of a store whose shards are lost one by one.
    #[test]
    fn the_total_is_what_was_counted_in_shards(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        totals_are_what_was_counted(3, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(11),
        ..ProptestConfig::default()
    })]

    /// The same while replicas take over that lag behind, and the former primary comes back.
    #[test]
    fn the_total_is_what_was_counted_whichever_replica_tells_it(
        steps in prop::collection::vec(step_with(failover()), 1..100),
    ) {
        totals_are_what_was_counted(1, steps)?;
    }

    /// The same while machines are cloned.
    #[test]
    fn the_total_is_what_was_counted_by_clones(
        steps in prop::collection::vec(step_with((0..6_usize).prop_map(Step::Clone).boxed()), 1..100),
    ) {
        // All that clones know they would restore alike.
        let steps = steps.into_iter().filter(|step| !matches!(step, Step::Flush(_)));
        totals_are_what_was_counted(1, steps.collect())?;
    }
}

fn totals_are_what_was_counted(shards: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (store, mut nodes) = cluster_with(shards, 3);
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
            Step::Sync(node, faults) => {
                let node = node % nodes.len();
                nodes[node].faults(&faults);
                let mut worker = nodes[node].start_sync();
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
                    node.time
                        .monotonic
                        .set(node.time.monotonic.get() + LIFETIME);
                }
            }
            Step::Flush(which) => {
                *store[which % shards].borrow_mut() = Store {
                    now: T,
                    ..Store::default()
                };
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
                // What it has not pushed, both would push.
                if matches!(node.sync(), Ok(Some(_))) && nodes.len() < 6 {
                    let clone = node.cloned(nodes.len() as u64);
                    clone.time.monotonic.set(node.time.monotonic.get());
                    nodes.push(clone);
                }
            }
            Step::Trim(which) => {
                let mut store = store[which % shards].borrow_mut();
                store.trimmed = store.sequence;
            }
        }
    }
    for worker in &mut stopped {
        while poll(worker).is_pending() {}
    }
    for node in &nodes {
        node.time
            .monotonic
            .set(node.time.monotonic.get() + LIFETIME);
    }
    for _ in 0..4 {
        nodes
            .iter()
            .for_each(|node| assert!(matches!(node.sync(), Ok(Some(_)))));
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
    Sync(usize, Vec<Fault>),
    /// A worker that was stopped goes on, though another may have taken over.
    Wake(usize),
    Kill(usize),
    /// Until leases have ended.
    Wait,
    /// A shard loses all.
    Flush(usize),
    Trim(usize),
    /// A replica has got all of a shard.
    Replicate(usize),
    /// It takes over with what it has got; the former primary becomes the replica.
    Failover(usize),
    Clone(usize),
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    step_with(Just(Step::Wait).boxed())
}

fn failover() -> BoxedStrategy<Step> {
    prop_oneof![
        (0..3_usize).prop_map(Step::Replicate),
        (0..3_usize).prop_map(Step::Failover),
    ]
    .boxed()
}

/// Steps of which some are of a kind.
fn step_with(kind: BoxedStrategy<Step>) -> impl proptest::strategy::Strategy<Value = Step> {
    let fault = prop_oneof![
        6 => Just(Fault::None),
        2 => Just(Fault::Before),
        2 => Just(Fault::After),
        1 => Just(Fault::StoppedBefore),
        1 => Just(Fault::StoppedAfter),
    ];
    prop_oneof![
        6 => (0..6_usize, 0..12_u8, 1..5000_i64).prop_map(|(n, k, v)| Step::Hit(n, k, v)),
        6 => (0..6_usize, prop::collection::vec(fault, 0..6)).prop_map(|(n, f)| Step::Sync(n, f)),
        1 => (0..9_usize).prop_map(Step::Wake),
        1 => (0..9_usize).prop_map(Step::Kill),
        2 => Just(Step::Wait),
        1 => (0..3_usize).prop_map(Step::Flush),
        1 => (0..3_usize).prop_map(Step::Trim),
        2 => kind,
    ]
}
