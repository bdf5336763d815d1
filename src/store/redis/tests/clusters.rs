//! Redis Clusters: the node of a shard, and the effect of its change.

use super::*;
use crate::store::contract::strategy::Shard;
use crate::store::redis::connector::{Connector, ServerRole};
use crate::store::redis::key;
use crate::store::settings::kind::KindOptions as _;
use crate::testing::certificates::{Authority, trusting};
use crate::testing::redis::cluster::{Migration, Servers, connections, in_a_cluster};

pub(super) fn all_shards() -> impl Iterator<Item = Shard> {
    let number = in_a_cluster(&[]).1.shards();
    (0..number).map(|number| Shard { number, ..shard("api") })
}

async fn join_cluster(cluster: &Servers) -> Node<Redis> {
    Node::join(cluster.connect(), shard("api")).await
}

async fn total(node: &mut Node<Redis>) -> i64 {
    let total = node.store.get_window(&node.shard, b"a", MINUTE, 7).await;
    total.unwrap().whole()
}

#[test]
fn the_shards_of_a_namespace_are_spread_over_all_primaries() {
    let cluster = Servers::start();
    block_on(async {
        let mut store = cluster.connect();
        assert_eq!(usize::from(store.shards()), all_shards().count());
        for shard in all_shards() {
            let mut node = Node::join(store, shard).await;
            for _ in 0..3 {
                node.push(vec![hits("a", 1)]).await;
            }
            assert_eq!(total(&mut node).await, 3);
            store = node.store;
        }
        for server in &cluster.primaries {
            assert!(server.ask::<i64>(&["DBSIZE"]).unwrap() >= 9);
        }
        // One connection to each node, for all shards.
        let connections = connections(&cluster);
        assert!(connections.values().all(|count| *count == 1), "{connections:?}");
    });
}

#[test]
fn a_slot_that_moves_takes_its_hits_along() {
    let cluster = Servers::start();
    let shard = shard("api");
    block_on(async {
        let mut node = join_cluster(&cluster).await;
        let mut other = join_cluster(&cluster).await;
        let mut late = join_cluster(&cluster).await;
        node.push(vec![hits("a", 1)]).await;
        other.push(vec![hits("a", 1)]).await;

        let migration = Migration::begin(&cluster, &shard);
        // All keys still exist.
        node.push(vec![hits("a", 1)]).await;
        let next = Diff { window: 8, ..hits("a", 1) };
        let counts = |epoch, window: u64| {
            let name = format!("60000:{window}");
            format!("{}:{epoch}:{name}", key::shard("rl", &shard))
        };
        let refused = Failure::Refused(Refusal::Other("TRYAGAIN".into()));
        // A new key would be created here, and the one with the same name at the other node be
        // lost.
        let batch = node.batch(node.number + 1, vec![next.clone()]);
        let pushed = node.store.push_diffs(&node.shard, &batch, 500).await;
        assert_eq!(pushed.unwrap_err().failure, refused);

        // Some keys are at each of the two nodes.
        migration.move_keys(&[counts(node.epoch, 7)]);
        for _ in 0..2 {
            let number = node.number + 1;
            assert_eq!(failure(&mut node, number).await.failure, refused);
        }
        // Other nodes' changes at the other node cannot be returned yet.
        let batch = late.batch(0, vec![]);
        let asked = late.store.push_diffs(&late.shard, &batch, 500).await;
        assert!(asked.unwrap_err().may_have_applied());
        // All keys are there, but the slot is still here.
        migration.move_keys(&[key::stream(SHARD, node.epoch), SHARD.into()]);
        for _ in 0..2 {
            node.push(vec![hits("a", 1)]).await;
            other.push(vec![hits("a", 1)]).await;
            assert_eq!(migration.from.ask::<i64>(&["DBSIZE"]).unwrap(), 0);
        }
        assert_eq!(totals(&late.fetch().await), pairs(&[("a", 7)]));
        assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 1);
        assert_eq!(total(&mut node).await, 7);

        // The slot has moved.
        migration.end();
        node.push(vec![hits("a", 1), next]).await;
        other.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node).await, 9);
        assert_eq!(node.read_all(&[(MINUTE, 7), (MINUTE, 8)]).await.len(), 2);
    });
}

#[test]
fn after_a_failover_syncs_continue_and_nothing_is_pushed_twice() {
    let mut cluster = Servers::start_with_replicas();
    let shard = shard("api");
    let owner = cluster.owner(&shard);
    block_on(async {
        // Also if it was the only seed node.
        let (options, redis) = in_a_cluster(&[cluster.primaries[owner].tcp()]);
        let store = Redis::new(&options, &redis);
        let mut node = Node::join(store, shard.clone()).await;
        let mut others = Vec::new();
        let mut store = node.store;
        for shard in all_shards() {
            let mut other = Node::join(store, shard).await;
            other.push(vec![hits("b", 1)]).await;
            store = other.store;
            other.store = cluster.connect();
            others.push(other);
        }
        node.store = store;
        node.push(vec![hits("a", 1)]).await;
        cluster.wait_for_replica(owner);
        cluster.primaries[owner].kill();

        since(push_until_applied(&mut node, vec![hits("a", 1)]).await);
        assert_eq!(total(&mut node).await, 2);
        let role: Vec<redis::Value> = cluster.replicas[owner].ask(&["ROLE"]).unwrap();
        assert_eq!(role[0], redis::Value::BulkString(b"master".into()));
        // So do the others, whose counters did not change.
        for mut other in others {
            if cluster.owner(&other.shard) != owner {
                std::mem::swap(&mut other.store, &mut node.store);
                since(push_until_applied(&mut other, vec![hits("b", 1)]).await);
                std::mem::swap(&mut other.store, &mut node.store);
            }
        }
    });
}

#[test]
fn a_node_that_is_lost_without_a_replica_is_missed_until_it_is_back() {
    let mut cluster = Servers::start_watchful();
    let shard = shard("api");
    let owner = cluster.owner(&shard);
    // Not the lost one.
    let seed = cluster.primaries[(owner + 1) % 3].tcp();
    let (options, redis) = in_a_cluster(&[seed]);
    block_on(async {
        let mut node = Node::join(Redis::new(&options, &redis), shard).await;
        node.push(vec![hits("a", 1)]).await;
        cluster.primaries[owner].kill();
        let mut errors = Vec::new();
        let is_down = |error: &StoreError| {
            error.failure == Failure::Refused(Refusal::Other("CLUSTERDOWN".into()))
        };
        while !errors.last().is_some_and(is_down) {
            let error = failure(&mut node, 2).await;
            assert!(error.is_transient(), "{error}");
            errors.push(error);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let lost = cluster.primaries[owner].tcp();
        let is_named = |error: &StoreError| {
            error.server == lost && matches!(error.failure, Failure::Unreachable(_))
        };
        assert!(errors.iter().any(is_named), "{errors:?}");

        cluster.primaries[owner].start_again();
        // It has lost all of its data.
        assert_eq!(push_until_applied(&mut node, vec![hits("a", 1)]).await, Pushed::NoEpoch);
    });
}

#[test]
fn any_seed_that_can_be_reached_will_do() {
    let cluster = Servers::start();
    let missing = ServerAddress::tcp("127.0.0.1", 1);
    block_on(async {
        for shard in all_shards() {
            let (options, redis) = in_a_cluster(&[missing.clone(), cluster.primaries[1].tcp()]);
            Node::join(Redis::new(&options, &redis), shard).await;
        }
        let (options, redis) = in_a_cluster(std::slice::from_ref(&missing));
        let mut store = Redis::new(&options, &redis);
        // Also while it is not tried again.
        for _ in 0..2 {
            let error = open(&mut store).await.unwrap_err();
            assert_eq!(error.server, missing);
            assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
        }
    });
}

#[test]
fn nodes_that_send_us_on_and_on_are_left() {
    let mut next = with_one_answer("+OK");
    for _ in 0..10 {
        let ServerAddress::Tcp { port, .. } = next else { unreachable!() };
        next = with_one_answer(format!("-MOVED 1 :{port}"));
    }
    let (options, redis) = in_a_cluster(&[next]);
    let error = block_on(open(&mut Redis::new(&options, &redis))).unwrap_err();
    let is_moved = matches!(&error.failure, Failure::Refused(Refusal::Moved(_)));
    assert!(is_moved, "{error}");
    assert!(error.is_transient() && !error.may_have_applied());
}

#[test]
fn a_user_with_only_the_needed_rights_suffices_in_a_cluster() {
    let cluster = Servers::start();
    for server in &cluster.primaries {
        let alice = ["ACL", "SETUSER", "alice", "on", ">hunter2", "~rl:*", "+asking"];
        let _: String = server.ask(&[&alice[..], access::COMMANDS].concat()).unwrap();
    }
    let (mut options, redis) = cluster.options();
    options.credentials = Credentials { username: secret("alice"), password: secret("hunter2") };
    block_on(async {
        for shard in all_shards() {
            let mut node = Node::join(Redis::new(&options, &redis), shard).await;
            node.push(vec![hits("a", 1)]).await;
            assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 1);
            assert_eq!(total(&mut node).await, 1);
        }
        let mut asking = redis::Cmd::new();
        asking.arg("ASKING");
        let connector = Connector::new(&options, 0, ServerRole::ClusterNode);
        let mut connection = connector.open(&cluster.primaries[0].tcp()).await.unwrap();
        connection.send(&asking).await.unwrap();
    });
}

#[test]
fn all_nodes_are_spoken_to_with_tls() {
    let authority = Authority::new();
    let certificate = authority.issue("127.0.0.1");
    let cluster = Servers::start_with(false, || {
        Server::start_cluster_node_with_tls(&authority, &certificate)
    });
    let (mut options, redis) = cluster.options();
    options.tls = Some(trusting(&authority));
    block_on(async {
        let mut store = Redis::new(&options, &redis);
        for shard in all_shards() {
            let mut node = Node::join(store, shard).await;
            node.push(vec![hits("a", 1)]).await;
            store = node.store;
        }
    });
    for server in &cluster.primaries {
        assert!(server.ask::<i64>(&["DBSIZE"]).unwrap() >= 3);
    }
}
