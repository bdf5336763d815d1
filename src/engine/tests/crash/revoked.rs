//! Counts that etcd loses without their epoch, since somebody revokes their leases.

use super::*;
use crate::policy::window::Clock as _;
use crate::store::contract::strategy::Shard;
use crate::store::etcd::Etcd;
use crate::testing::etcd::{self, Server};

impl OwnStore for Server {
    type Store = Etcd;

    fn connect(&self) -> Etcd {
        etcd::connect(self)
    }

    fn flush(&self) {
        self.ctl(&["del", "--from-key", ""]);
    }
}

/// Revokes the leases with counts, and those alone.
fn revoke_counts(server: &Server) {
    let leases = server.ctl(&["lease", "list"]);
    for lease in leases.lines().skip(1) {
        let keys = server.ctl(&["lease", "timetolive", "--keys", lease]);
        if keys.contains("/c/") {
            assert!(!keys.contains("/n/"), "{keys}");
            server.ctl(&["lease", "revoke", lease]);
        }
    }
}

#[test]
fn counts_of_revoked_leases_come_back_when_the_head_is_deleted() {
    let server = Server::start(&[]);
    let cluster = Cluster::new(&server).settled();
    cluster.converge();
    revoke_counts(&server);
    cluster.hit();
    [0, 1].into_iter().for_each(|node| cluster.sync(node));
    let shard = Shard { namespace: cluster.nodes[0].namespace.name().clone(), number: 0 };
    let window = size().at(cluster.nodes[0].time.now()).number;
    let total = || {
        block_on(async {
            let mut store = server.connect();
            store.get_window(&shard, KEYS[0], size(), window).await.unwrap()
        })
    };
    // The nodes have not noticed.
    assert_eq!(total(), hits(2));
    server.ctl(&["del", "rl/api/0/head"]);
    cluster.converge();
    assert_eq!(total(), hits(cluster.counted.get()));
}
