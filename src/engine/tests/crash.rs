//! A worker that dies at any point of a sync with a real store loses no hit, and no hit
//! is counted twice. The same holds for a worker that is stopped there, and continues after another
//! one has taken over.

mod reserves;
mod revoked;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use crate::engine::{EarlyPush, Namespace, RateLimiting, Report, SyncError, Syncer};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::Strategy;
use crate::store::postgres::Postgres;
use crate::store::redis::Redis;
use crate::store::registry::THREAD_STACK;
use crate::table::words::fail;
use crate::table::{Admission, EarlyShare};
use crate::testing::cassandra::fixtures::{Apart, OfTest};
use crate::testing::conformance::{Fixture, block_on};
use crate::testing::postgres::Schema;
use crate::testing::redis::{Server, connect};
use crate::testing::table::{
    Pass, SharedTable, Time, die_everywhere, in_process, pause_at, pause_everywhere,
};

const T: u64 = 1_700_000_000_000;
const LIFETIME: u64 = 3000;
const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

/// A store that only these tests use.
trait OwnStore {
    type Store: Strategy;

    fn connect(&self) -> Self::Store;

    /// Makes the store lose all data.
    fn flush(&self);
}

impl OwnStore for Server {
    type Store = Redis;

    fn connect(&self) -> Redis {
        connect(self.tcp())
    }

    fn flush(&self) {
        let _: String = self.ask(&["FLUSHALL"]).unwrap();
    }
}

impl OwnStore for Schema {
    type Store = Postgres;

    fn connect(&self) -> Postgres {
        Schema::connect(self)
    }

    fn flush(&self) {
        // At first there are no tables.
        self.ask(
            "DO $$ DECLARE name text; BEGIN
                FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{}' LOOP
                    EXECUTE format('TRUNCATE {}.%I', name);
                END LOOP;
            END $$",
        );
    }
}

impl OwnStore for Apart {
    type Store = OfTest;

    fn connect(&self) -> OfTest {
        Fixture::connect(self)
    }

    fn flush(&self) {
        Fixture::flush(self);
    }
}

/// Two nodes, of which the first one's worker is to die, and their hits of each key.
struct Cluster<'s, S = Server> {
    server: &'s S,
    nodes: [Node; 2],
    counted: Cell<i64>,
}

struct Node {
    shared: &'static SharedTable,
    namespace: &'static Namespace<'static>,
    time: Time,
}

impl<S: OwnStore> Cluster<'_, S> {
    /// Creates nodes without hits.
    fn empty(server: &S) -> Cluster<'_, S> {
        server.flush();
        Cluster { server, nodes: [Node::new(0), Node::new(1)], counted: Cell::new(0) }
    }

    /// Creates nodes that have counted once each; the second one has pushed.
    fn new(server: &S) -> Cluster<'_, S> {
        let cluster = Cluster::empty(server);
        cluster.hit();
        cluster.sync(1);
        cluster
    }

    /// Counts a hit for each key on each node.
    fn hit(&self) {
        for node in &self.nodes {
            KEYS.iter().for_each(|key| node.hit(key));
        }
        self.counted.set(self.counted.get() + 2);
    }

    fn try_sync(&self, node: usize) -> Result<Option<Report>, SyncError> {
        let Node { namespace, time, .. } = &self.nodes[node];
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(namespace, &[size()], lifetime).unwrap();
        block_on(async { syncer.sync(&mut self.server.connect(), time).await })
    }

    fn sync(&self, node: usize) {
        assert!(self.try_sync(node).unwrap().is_some());
    }

    /// Syncs the first node. Its worker may be stopped meanwhile, and lose the lease.
    fn sync_if_held(&self) {
        let result = self.try_sync(0);
        assert!(matches!(result, Ok(_) | Err(SyncError::LeaseLost)), "{result:?}");
    }

    /// Lets both nodes count, push, and count again.
    fn settled(self) -> Self {
        self.sync(0);
        self.sync(1);
        self.hit();
        self
    }

    /// Another worker of the first node takes over, and the totals are as if no worker had died.
    fn check(&self) {
        self.take_over();
        self.converge();
        self.hit();
        self.converge();
    }

    /// Ends the lease of the first node's worker.
    fn take_over(&self) {
        let time = &self.nodes[0].time;
        time.monotonic.set(time.monotonic.get() + LIFETIME);
        // Another process has other random numbers.
        time.random.set(time.random.get() + 1000);
    }

    /// Another worker of the first node takes over, and makes all kinds of changes: words get the
    /// values again that they had when the first worker was stopped, in the same epoch and in
    /// another one.
    fn be_busy(&self) {
        self.take_over();
        self.converge();
        for times in 0..2 {
            self.server.flush();
            self.converge();
            if times == 0 {
                self.hit();
                self.converge();
            }
        }
    }

    /// Syncs until both nodes know both nodes' hits.
    fn converge(&self) {
        for node in [0, 1, 0] {
            self.sync(node);
        }
        [0, 1].into_iter().for_each(|node| self.check_total(node));
    }

    /// Checks that a node knows the total.
    fn check_total(&self, node: usize) {
        let node = &self.nodes[node];
        for key in KEYS {
            let library = RateLimiting::new(node.namespace);
            let rate = library.sliding_window(key, size(), Algorithm::Fixed, &node.time);
            assert_eq!(rate.unwrap(), hits(self.counted.get()));
        }
    }
}

impl Node {
    fn new(number: u64) -> Node {
        Node::over(SharedTable::with_secret(1 << 16, [number, 7]))
    }

    /// Returns another machine with the same memory.
    fn cloned(&self) -> Node {
        Node::over(self.shared.cloned())
    }

    fn over(shared: SharedTable) -> Node {
        // No two epochs are the same: a store may have rows of an earlier one.
        static NODES: AtomicU64 = AtomicU64::new(0);
        let nodes = NODES.fetch_add(1, Relaxed) + 1;
        // Leaked, since the library's namespaces live as long as the process.
        let shared: &SharedTable = Box::leak(Box::new(shared));
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let namespace = namespace.synced(1).unwrap();
        let namespace = namespace.pushed_early(EarlyShare::of_milli_percent(2000));
        Node { shared, namespace: Box::leak(Box::new(namespace)), time: Time::at(T, nodes << 32) }
    }

    /// Counts a hit under a limit that is not reached.
    fn hit(&self, key: &[u8]) {
        let counter = self.namespace.counter(size());
        let (table, limit) = (self.namespace.table(), hits(100));
        let admission = Admission::Within(limit, Algorithm::Fixed);
        let key = table.key(key);
        assert!(table.add(&counter, key, &self.time, hits(1), admission).admitted);
    }
}

fn size() -> WindowSize {
    WindowSize::from_millis(60_000).unwrap()
}

/// The worker of the first node dies at each point of a sync, or is stopped there.
fn is_lost_syncing<'s>(prepare: impl Fn() -> Cluster<'s>, expected: &[&str]) {
    dies_syncing(&prepare, expected);
    is_stopped_syncing(prepare, expected);
}

/// The worker of the first node dies at each point of a sync.
fn dies_syncing<'s>(prepare: impl Fn() -> Cluster<'s>, expected: &[&str]) {
    let scenario = |cluster: &Cluster<'_>| cluster.sync(0);
    die_everywhere(prepare, scenario, expected, |cluster, _| cluster.check());
}

/// The worker of the first node is stopped at each point of a sync, and continues after another one
/// has taken over, with many changes or without.
fn is_stopped_syncing<'s>(prepare: impl Fn() -> Cluster<'s>, expected: &[&str]) {
    pause_everywhere(prepare, Cluster::sync_if_held, expected, take_over_from_it, Cluster::check);
}

fn take_over_from_it<S: OwnStore>(cluster: &Cluster<'_, S>, pass: Pass) {
    match pass {
        Pass::First => cluster.be_busy(),
        Pass::Last => {
            cluster.take_over();
            cluster.sync(0);
        }
    }
}

#[test]
fn in_the_first_sync_of_a_node() {
    let server = Server::start(&[]);
    let points = [
        "lease.taken",
        "lease.adopted",
        "epoch.opened",
        "epoch.marked",
        "epoch.position",
        "epoch.batch",
        "epoch.entered",
        "pushed.forgotten",
        "sync.repaired",
        "sync.answered",
        "sync.fetched",
        "sync.position.left",
        "sync.position.second",
        "sync.position.first",
        "buffer.claimed",
        "buffer.noted",
        "change.taken",
        "batch.written",
        "batch.named",
        "batch.sealed",
        "pushed.advancing",
        "pushed.advanced",
        "batch.known",
        "batch.acknowledged",
        "buffer.released",
        "lease.released",
    ];
    is_lost_syncing(|| Cluster::new(&server), &points);
}

#[test]
fn in_a_later_sync() {
    let server = Server::start(&[]);
    let points = ["change.taken", "batch.sealed", "sync.answered", "pushed.advanced"];
    is_lost_syncing(|| Cluster::new(&server).settled(), &points);
}

#[test]
fn in_a_push_before_its_time() {
    let server = Server::start(&[]);
    let due = || {
        let cluster = Cluster::new(&server);
        cluster.sync(0);
        // With this number of nodes, none may keep a hit.
        let state = cluster.nodes[0].namespace.sync_state().unwrap();
        state.record_living(1000, None);
        cluster.hit();
        assert!(state.is_rung());
        cluster
    };
    let push = |cluster: &Cluster<'_>| {
        let Node { namespace, time, .. } = &cluster.nodes[0];
        let lifetime = Duration::from_millis(LIFETIME);
        let syncer = Syncer::new(namespace, &[size()], lifetime).unwrap();
        let mut store = connect(cluster.server.tcp());
        let pushed = block_on(async { syncer.sync_early(EarlyPush::Due, &mut store, time).await });
        assert_eq!(pushed.unwrap().unwrap().pushed, KEYS.len());
    };
    let points = [
        "early.begun",
        "near.taken",
        "change.taken",
        "batch.sealed",
        "sync.answered",
        "batch.acknowledged",
        "lease.released",
    ];
    die_everywhere(due, push, &points, |cluster, _| cluster.check());
}

/// Stops the first sync where it has written to a store, or is about to. Each connection to Postgres
/// or Cassandra takes time, so that not all points are tried.
fn is_paused_writing(store: &impl OwnStore) {
    let points = ["epoch.opened", "batch.sealed", "sync.answered", "pushed.advancing"];
    let points = points.map(|point| (point, 1));
    let prepare = || Cluster::new(store);
    pause_at(points, prepare, Cluster::sync_if_held, take_over_from_it, Cluster::check);
}

#[test]
fn with_postgres() {
    is_paused_writing(&Schema::new());
}

#[test]
fn with_cassandra() {
    let test = std::thread::Builder::new().stack_size(THREAD_STACK);
    let test = test.spawn(|| is_paused_writing(&Apart::start())).unwrap();
    test.join().unwrap();
}

#[test]
fn when_the_store_has_lost_everything() {
    let server = Server::start(&[]);
    let flushed = || {
        let cluster = Cluster::new(&server).settled();
        let _: String = server.ask(&["FLUSHALL"]).unwrap();
        cluster
    };
    let points = ["epoch.opened", "pushed.forgotten", "sync.repaired", "sync.answered"];
    is_lost_syncing(flushed, &points);
}

#[test]
fn when_a_failover_lost_the_last_batch() {
    let server = Server::start(&[]);
    let failed_over = || {
        let cluster = Cluster::new(&server).settled();
        // The shard's own key is the beginning of the others.
        let keys: Vec<String> = server.ask(&["KEYS", "*"]).unwrap();
        let shard = keys.iter().min().unwrap();
        let fields: Vec<String> = server.ask(&["HKEYS", shard]).unwrap();
        for field in fields.iter().filter(|field| field.starts_with("b:")) {
            let _: i64 = server.ask(&["HDEL", shard, field]).unwrap();
        }
        cluster
    };
    let points = ["epoch.opened", "epoch.marked", "epoch.batch"];
    is_lost_syncing(failed_over, &points);
}

#[test]
fn when_a_copy_of_its_machine_was_faster() {
    let server = Server::start(&[]);
    let cloned = || {
        let mut cluster = Cluster::new(&server).settled();
        cluster.sync(0);
        cluster.sync(1);
        // It replaces the other node, whose hits are in the store.
        cluster.nodes[1] = cluster.nodes[0].cloned();
        cluster.hit();
        cluster.sync(1);
        cluster
    };
    let points = ["identity.taken", "identity.batch", "identity.changed"];
    is_lost_syncing(cloned, &points);
}

#[test]
fn when_it_takes_over_from_one_that_died() {
    let server = Server::start(&[]);
    for point in ["change.taken", "batch.sealed", "sync.answered", "batch.acknowledged"] {
        let taken_over = || {
            let cluster = Cluster::new(&server).settled();
            let signal = in_process(|| {
                fail::arm(point, 1);
                cluster.sync(0);
            });
            assert!(signal.is_some());
            let time = &cluster.nodes[0].time;
            time.monotonic.set(time.monotonic.get() + LIFETIME);
            cluster.hit();
            cluster
        };
        let points = ["lease.marked", "sync.repaired", "batch.acknowledged"];
        dies_syncing(taken_over, &points);
        if point == "batch.sealed" {
            is_stopped_syncing(taken_over, &points);
        }
    }
}
