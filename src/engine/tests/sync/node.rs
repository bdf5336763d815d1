//! Nodes with a table each, and their workers.

use core::cell::{Cell, RefCell};
use core::pin::Pin;
use core::task::Poll;
use core::time::Duration;
use std::rc::Rc;

use super::log::Store;
use super::memory::{Fault, Kept, Memory, Shards, go_on};
use super::{LIFETIME, T, size};
use crate::engine::{EarlyPush, Namespace, RateLimiting, Report, SyncError, Syncer};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::Strategy;
use crate::table::{Admission, EarlyShare};
use crate::testing::table::{SharedTable, Time};

/// A node, with a table of its own.
pub(super) struct Node<K = Store> {
    pub(super) shared: &'static SharedTable,
    pub(super) namespace: &'static Namespace<'static>,
    pub(super) strategy: Memory<K>,
    pub(super) time: &'static Time,
    /// Time for which its messages say that it is alive.
    pub(super) life: Cell<Duration>,
    /// Size of the windows in which it counts.
    pub(super) size: Cell<WindowSize>,
}

impl<K: Kept> Node<K>
where
    Memory<K>: Strategy,
{
    fn new(store: &Shards<K>, number: u64) -> Self {
        let secret = [number + 1, 77];
        let shards = store.len();
        let len = if shards > 1 { 1 << 20 } else { 1 << 16 };
        Node::over(store, number, SharedTable::with_secret(len, secret))
    }

    /// Returns another machine with the same memory.
    pub(super) fn cloned(&self, number: u64) -> Self {
        Node::over(&self.strategy.shards, number, self.shared.cloned())
    }

    fn over(store: &Shards<K>, number: u64, shared: SharedTable) -> Self {
        let shards = store.len();
        let shared: &SharedTable = Box::leak(Box::new(shared));
        let namespace = Box::leak(Box::new(
            Namespace::new("api", &shared.table)
                .unwrap()
                .synced(shards.try_into().unwrap())
                .unwrap()
                .pushed_early(EarlyShare::of_milli_percent(2000)),
        ));
        Node {
            shared,
            namespace,
            strategy: Memory {
                shards: store.clone(),
                faults: Rc::default(),
                living: None,
                overdrawn: Vec::new(),
            },
            time: Box::leak(Box::new(Time::at(T, number << 32))),
            life: Cell::new(Duration::from_secs(60)),
            size: Cell::new(size()),
        }
    }

    pub(super) fn hit(&self, key: &[u8], value: Hits) {
        let counter = self.namespace.counter(self.size.get()).synced(true);
        let (table, admission) = (&self.shared.table, Admission::Unconditional);
        let key = table.key(key);
        table.add(&counter, key, self.time, value, admission);
    }

    /// Requests hits under a fixed limit. Returns whether they were counted.
    pub(super) fn ask(&self, key: &[u8], value: Hits, limit: Hits) -> bool {
        let counter = self.namespace.counter(self.size.get());
        let (table, admission) = (&self.shared.table, Admission::Within(limit, Algorithm::Fixed));
        let counted = table.add(&counter, table.key(key), self.time, value, admission);
        counted.admitted
    }

    /// Pushes due counters.
    pub(super) fn sync_early(&self) -> Synced {
        self.sync_now(EarlyPush::Due)
    }

    /// Pushes counters near their limits, and fetches the other nodes' changes.
    pub(super) fn look(&self) -> Synced {
        self.sync_now(EarlyPush::Near)
    }

    fn sync_now(&self, what: EarlyPush) -> Synced {
        match poll(&mut self.start_early(what)) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    /// Starts a worker with an early push.
    pub(super) fn start_early(&self, what: EarlyPush) -> Worker {
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(self.namespace, &[self.size.get()], lifetime).unwrap();
        let (mut strategy, time) = (self.strategy.clone(), self.time);
        Box::pin(async move { syncer.sync_early(what, &mut strategy, time).await })
    }

    pub(super) fn reset(&self, key: &[u8]) {
        let library = RateLimiting::new(self.namespace);
        let reset = library.reset(key, StoredKind::Windows, self.size.get(), self.time);
        reset.unwrap();
    }

    pub(super) fn rate(&self, key: &[u8]) -> Hits {
        let library = RateLimiting::new(self.namespace);
        let rate = library.sliding_window(key, self.size.get(), Algorithm::Fixed, self.time);
        rate.unwrap()
    }

    pub(super) fn sync(&self) -> Synced {
        match poll(&mut self.start_sync()) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    /// Starts a worker with a sync.
    pub(super) fn start_sync(&self) -> Worker {
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(self.namespace, &[self.size.get()], lifetime).unwrap();
        let syncer = syncer.living_for(self.life.get()).telling();
        let (mut strategy, time) = (self.strategy.clone(), self.time);
        Box::pin(async move { syncer.sync(&mut strategy, time).await })
    }

    /// Returns the node's namespace under a new configuration, with another store.
    pub(super) fn namespace_with(&self, store: &Shards<K>) -> Namespace<'static> {
        let namespace = Namespace::new("api", &self.shared.table).unwrap();
        namespace.synced(store.len().try_into().unwrap()).unwrap()
    }

    /// Runs a cycle of that namespace.
    pub(super) fn sync_with(&self, namespace: &Namespace<'static>, store: &Shards<K>) {
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(namespace, &[self.size.get()], lifetime).unwrap();
        let mut strategy = Memory { shards: store.clone(), ..self.strategy.clone() };
        let sync = core::pin::pin!(syncer.sync(&mut strategy, self.time));
        let synced = go_on(sync);
        assert!(matches!(synced, Poll::Ready(Ok(Some(_)))), "{synced:?}");
    }

    /// Sets the faults of the next exchanges, the first one first.
    pub(super) fn faults(&self, faults: &[Fault]) {
        *self.strategy.faults.borrow_mut() = faults.iter().rev().copied().collect();
    }
}

pub(super) type Synced = Result<Option<Report>, SyncError>;

/// A worker during a sync. Dropping it kills the worker.
pub(super) type Worker = Pin<Box<dyn Future<Output = Synced>>>;

/// Polls a worker until it ends, or is stopped.
pub(super) fn poll(worker: &mut Worker) -> Poll<Synced> {
    go_on(worker.as_mut())
}

pub(super) fn cluster(nodes: u64) -> (Shards<Store>, Vec<Node>) {
    cluster_with(1, nodes)
}

/// Creates an empty store of this kind and number of shards, and its nodes.
pub(super) fn cluster_with<K: Kept>(shards: usize, nodes: u64) -> (Shards<K>, Vec<Node<K>>)
where
    Memory<K>: Strategy,
{
    let empty = || RefCell::new(K::empty(T + 500));
    let store = Rc::new((0..shards).map(|_| empty()).collect());
    let nodes = (0..nodes).map(|number| Node::new(&store, number)).collect();
    (store, nodes)
}
