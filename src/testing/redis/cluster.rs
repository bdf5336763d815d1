//! Redis Clusters that tests start.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use super::fixtures::later;
use super::{Server, options};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Position, Shard, Strategy};
use crate::store::redis::options::{RedisOptions, Topology};
use crate::store::redis::{Redis, key};
use crate::testing::conformance::{Fixture, LogFixture};

/// Primaries that share all slots, each with the same number of replicas.
pub(crate) struct Servers {
    pub(crate) primaries: Vec<Server>,
    pub(crate) replicas: Vec<Server>,
}

const SLOTS: usize = 16384;

impl Servers {
    /// Starts three primaries. They are ready then.
    pub(crate) fn start() -> Servers {
        // A busy machine must not make a server count as lost.
        Servers::start_with(false, || start_node("15000"))
    }

    /// Starts three primaries that are soon missed.
    pub(crate) fn start_watchful() -> Servers {
        Servers::start_with(false, || start_node("2000"))
    }

    /// Starts three primaries with a replica each, which soon takes over.
    pub(crate) fn start_with_replicas() -> Servers {
        Servers::start_with(true, || start_node("2000"))
    }

    pub(crate) fn start_with(has_replicas: bool, start: impl Fn() -> Server) -> Servers {
        let start = |count: usize| (0..count).map(|_| start()).collect::<Vec<_>>();
        let primaries = start(3);
        let replicas = start(if has_replicas { 3 } else { 0 });
        let cluster = Servers { primaries, replicas };
        let first = &cluster.primaries[0];
        for (number, primary) in cluster.primaries.iter().enumerate() {
            let slots = (number * SLOTS).div_ceil(3)..((number + 1) * SLOTS).div_ceil(3);
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            let slots: Vec<_> = slots.iter().map(|slot| &**slot).collect();
            let add = [&["CLUSTER", "ADDSLOTS"][..], &slots].concat();
            let _: String = primary.ask(&add).unwrap();
            let epoch = (number + 1).to_string();
            let set = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            let _: String = primary.ask(&set).unwrap();
        }
        for server in cluster.all() {
            let port = server.port.to_string();
            let _: String = first.ask(&["CLUSTER", "MEET", "127.0.0.1", &port]).unwrap();
        }
        let count = cluster.all().count();
        wait("a cluster", || {
            cluster.all().all(|server| {
                server.knows(&format!("cluster_known_nodes:{count}\r\n"))
                    && server.knows("cluster_state:ok")
            })
        });
        for (primary, replica) in cluster.primaries.iter().zip(&cluster.replicas) {
            let replicate = ["CLUSTER", "REPLICATE", &id(primary)];
            wait("a primary that is known", || replica.ask::<String>(&replicate).is_ok());
        }
        cluster.wait_for_replicas();
        cluster
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Server> {
        self.primaries.iter().chain(&self.replicas)
    }

    /// Waits until each replica has all that its primary has, and all know that.
    fn wait_for_replicas(&self) {
        for replica in &self.replicas {
            wait("a replica", || {
                let info: String = replica.ask(&["INFO", "replication"]).unwrap();
                info.contains("master_link_status:up")
            });
        }
        let count = self.replicas.len();
        wait("replicas that all know of", || {
            self.all().all(|server| {
                let nodes: String = server.ask(&["CLUSTER", "NODES"]).unwrap();
                nodes.matches("slave ").count() == count
            })
        });
    }

    /// Returns the options of a store with the first primary as the only seed.
    pub(crate) fn options(&self) -> (StoreOptions, RedisOptions) {
        in_a_cluster(&[self.primaries[0].tcp()])
    }

    pub(crate) fn connect(&self) -> Redis {
        let (options, redis) = self.options();
        Redis::new(&options, &redis)
    }

    /// Waits until a replica has all that its primary has now.
    pub(crate) fn wait_for_replica(&self, number: usize) {
        let offset = |server: &Server, field: &str| -> u64 {
            let info: String = server.ask(&["INFO", "replication"]).unwrap();
            let mut lines = info.lines();
            let line = lines.find_map(|line| line.strip_prefix(field)).unwrap();
            line.parse().unwrap()
        };
        let sent = offset(&self.primaries[number], "master_repl_offset:");
        let replica = &self.replicas[number];
        wait("what was replicated", || offset(replica, "slave_repl_offset:") >= sent);
    }

    /// Returns the index of the primary with a shard.
    pub(crate) fn owner(&self, shard: &Shard) -> usize {
        let slot = self.slot(shard);
        (0..3).find(|number| slot < ((number + 1) * SLOTS).div_ceil(3)).unwrap()
    }

    pub(super) fn slot(&self, shard: &Shard) -> usize {
        let key = key::shard("rl", shard);
        self.primaries
            .iter()
            .find_map(|server| server.ask(&["CLUSTER", "KEYSLOT", &key]).ok())
            .unwrap()
    }
}

/// A slot that is migrated from one primary to another.
pub(crate) struct Migration<'c> {
    slot: String,
    pub(crate) from: &'c Server,
    pub(super) to: &'c Server,
}

impl<'c> Migration<'c> {
    pub(crate) fn begin(cluster: &'c Servers, shard: &Shard) -> Migration<'c> {
        let from = cluster.owner(shard);
        let migration = Migration {
            slot: cluster.slot(shard).to_string(),
            from: &cluster.primaries[from],
            to: &cluster.primaries[(from + 1) % 3],
        };
        let (from, to) = (migration.from, migration.to);
        migration.set_slot(to, &["IMPORTING", &id(from)]);
        migration.set_slot(from, &["MIGRATING", &id(to)]);
        migration
    }

    pub(crate) fn move_keys(&self, keys: &[String]) {
        for key in keys {
            let port = self.to.port.to_string();
            let command = ["MIGRATE", "127.0.0.1", &port, key, "0", "10000"];
            let _: String = self.from.ask(&command).unwrap();
        }
    }

    pub(crate) fn end(self) {
        for server in [self.to, self.from] {
            self.set_slot(server, &["NODE", &id(self.to)]);
        }
    }

    fn set_slot(&self, server: &Server, words: &[&str]) {
        let command = [&["CLUSTER", "SETSLOT", &self.slot][..], words].concat();
        let _: String = server.ask(&command).unwrap();
    }
}

fn id(server: &Server) -> String {
    server.ask(&["CLUSTER", "MYID"]).unwrap()
}

fn start_node(timeout: &str) -> Server {
    Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", timeout])
}

pub(crate) fn in_a_cluster(seeds: &[ServerAddress]) -> (StoreOptions, RedisOptions) {
    let (options, mut redis) = options(seeds);
    redis.topology = Topology::Cluster;
    (options, redis)
}

impl Server {
    /// Returns whether the server's information about its cluster has this line.
    pub(super) fn knows(&self, line: &str) -> bool {
        let info = self.ask::<String>(&["CLUSTER", "INFO"]);
        info.is_ok_and(|info| info.contains(line))
    }
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("waited too long for {what}");
}

/// A cluster for several tests, each with its own prefix.
pub(crate) struct SharedCluster {
    servers: Arc<Servers>,
    prefix: Box<str>,
}

impl SharedCluster {
    /// Runs commands on all keys of the test, wherever they are.
    fn for_each_key(&self, command: impl Fn(&str) -> Vec<String>) {
        for server in &self.servers.primaries {
            let pattern = format!("{}:*", self.prefix);
            let keys: Vec<String> = server.ask(&["KEYS", &pattern]).unwrap();
            for key in keys {
                let command = command(&key);
                let command: Vec<_> = command.iter().map(|word| &**word).collect();
                let _: redis::Value = server.ask(&command).unwrap();
            }
        }
    }
}

impl Fixture for SharedCluster {
    type Store = Redis;

    fn start() -> SharedCluster {
        // The cluster ends with the last test that uses it.
        static SHARED: Mutex<Weak<Servers>> = Mutex::new(Weak::new());
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = shared.upgrade().unwrap_or_else(|| {
            let servers = Arc::new(Servers::start());
            *shared = Arc::downgrade(&servers);
            servers
        });
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("rl{number}").into();
        SharedCluster { servers, prefix }
    }

    fn connect(&self) -> Redis {
        let (options, mut redis) = self.servers.options();
        redis.prefix = self.prefix.clone();
        Redis::new(&options, &redis)
    }

    fn flush(&self) {
        self.for_each_key(|key| vec!["DEL".into(), key.into()]);
    }
}

impl LogFixture for SharedCluster {
    fn forget_changes(&self, _: &Shard) {
        let is_stream = |key: &str| key.ends_with(":s");
        self.for_each_key(|key| match is_stream(key) {
            true => ["XTRIM", key, "MAXLEN", "0"].map(Into::into).into(),
            false => ["EXISTS", key].map(Into::into).into(),
        });
    }

    fn ahead_of(&self, position: Position) -> Position {
        later(position)
    }
}

/// Returns the number of connections to each server from others than the tests themselves.
pub(crate) fn connections(cluster: &Servers) -> BTreeMap<u16, usize> {
    let count = |server: &Server| {
        let clients: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        // The caller itself.
        clients.lines().count() - 1
    };
    let servers = cluster.all();
    servers.map(|server| (server.port, count(server))).collect()
}
