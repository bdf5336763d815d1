//! News when connections end, servers change, or a right is missing.

use futures_util::future::join as both;

use super::clusters::all_shards;
use super::sentinels::{known_by_one, knows_a_replica, start_replica};
use super::*;
use crate::store::contract::strategy::PushNews;
use crate::store::redis::key;
use crate::testing::redis::cluster::{Migration, Servers, connections};

/// Returns the totals of key a in the news.
fn total_of(news: &[PushNews]) -> Vec<i64> {
    news.iter().map(|it| it.counts[0].total.whole()).collect()
}

/// Returns a node, and a listener that starts at its position.
async fn join_and_listen(store: Redis) -> (Node<Redis>, Listener<Redis>) {
    let node = Node::join(store, shard("api")).await;
    let listener = Listener::of(&node);
    (node, listener)
}

#[test]
fn without_the_right_to_read_a_stream_there_is_no_channel() {
    let server = Server::start(&[]);
    let deaf = ["ACL", "SETUSER", "deaf", "on", ">hunter2", "~rl:*"];
    let _: String = server.ask(&[&deaf[..], access::COMMANDS, &["-xread"]].concat()).unwrap();
    block_on(async {
        let store = with_credentials(&server, "deaf", "hunter2");
        let (mut node, mut listener) = join_and_listen(store).await;
        let error = listener.store.recv(&listener.subscriptions).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
        assert!(!error.is_transient() && !error.to_string().contains("deaf"));
        // Other nodes receive it.
        let mut listener = Listener { store: connect(server.tcp()).channel().unwrap(), ..listener };
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
    });
}

#[test]
fn pushes_during_a_lost_connection_are_heard_afterwards() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(connect(server.tcp())).await;
        for total in 1..=3 {
            let (news, ()) = both(listener.recv(1), async {
                let is_listening = || {
                    let clients: String = server.ask(&["CLIENT", "LIST"]).unwrap();
                    clients.contains("cmd=xread")
                };
                until("it listens", is_listening).await;
                let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
                tell(&mut node, vec![hits("a", 1)]).await;
            })
            .await;
            assert_eq!(total_of(&news), [total]);
        }
    });
}

#[test]
fn a_connection_that_hangs_is_left() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut listener = Listener::of(&node);
        listener.store = impatient(&[server.tcp()]).channel().unwrap();
        assert!(listener.store.recv(&listener.subscriptions).await.unwrap().is_empty());
        server.signal("STOP");
        let error = listener.store.recv(&listener.subscriptions).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        server.signal("CONT");
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
    });
}

#[test]
fn a_foreign_value_in_place_of_the_stream_is_replaced_by_the_next_push() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(connect(server.tcp())).await;
        let stream = key::news(SHARD, node.epoch);
        let _: String = server.ask(&["SET", &stream, "something else"]).unwrap();
        // Both pushes succeed.
        for _ in 0..2 {
            tell(&mut node, vec![hits("a", 1)]).await;
        }
        assert_eq!(total_of(&listener.recv(2).await), [1, 2]);
        let life: i64 = server.ask(&["PTTL", &stream]).unwrap();
        assert!(life > 0, "{life}");
        // Invalid entries are skipped.
        for fields in [["node", "x"], ["node", "y"]] {
            let entry = ["XADD", &stream, "*"];
            let _: String = server.ask(&[&entry[..], &fields].concat()).unwrap();
        }
        assert!(listener.store.recv(&listener.subscriptions).await.unwrap().is_empty());
    });
}

#[test]
fn a_listener_that_lags_is_told_of_others_changes_only() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(connect(server.tcp())).await;
        let mut other = join(server.tcp()).await;
        let mut web = Node::join(connect(server.tcp()), shard("web")).await;
        listener.subscriptions.extend(Listener::of(&web).subscriptions);
        listener.subscriptions[0].node = node.id;
        for _ in 0..3 {
            tell(&mut node, vec![hits("own", 1)]).await;
        }
        // A full batch of a period is not news.
        other.push((0..400).map(|key| hits(&key.to_string(), 1)).collect()).await;
        tell(&mut other, vec![hits("a", 1)]).await;
        listener.store.lags = true;
        let heard = listener.recv(1).await;
        assert_eq!(totals(&heard[0].counts), pairs(&[("a", 1)]));
        node.fetch().await;
        assert_eq!(node.position, Some(heard[0].position));
        // Both namespaces are read.
        tell(&mut other, vec![hits("a", 1)]).await;
        tell(&mut web, vec![hits("b", 1)]).await;
        listener.store.lags = true;
        let heard = listener.recv(2).await;
        assert_eq!(total_of(&heard), [2, 1]);
        // Nothing is left, so it waits for the next push.
        listener.store.lags = true;
        let (heard, ()) = both(listener.recv(1), tell(&mut web, vec![hits("b", 1)])).await;
        assert_eq!(total_of(&heard), [2]);
    });
}

#[test]
fn a_listener_that_lags_continues_whatever_it_finds() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(connect(server.tcp())).await;
        let stream = key::stream(SHARD, node.epoch);
        let mut total = 0;
        for command in [
            &["SET", &stream, "something else"][..],
            &["DEL", &stream],
            &["HSET", SHARD, "position", "x"],
            &["DEL", SHARD],
        ] {
            if total < 3 {
                total += 1;
                tell(&mut node, vec![hits("a", 1)]).await;
            }
            let _: redis::Value = server.ask(command).unwrap();
            listener.store.lags = true;
            let mut heard = listener.store.recv(&listener.subscriptions).await;
            if command[0] == "SET" {
                assert!(heard.is_err());
                heard = listener.store.recv(&listener.subscriptions).await;
            }
            // From the stream of news.
            assert_eq!(total_of(&heard.unwrap()).last(), Some(&total), "{command:?}");
        }
    });
}

#[test]
fn a_replica_tells_a_listener_that_lags_nothing() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(connect(server.tcp())).await;
        tell(&mut node, vec![hits("a", 1)]).await;
        let _: String = server.ask(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        listener.store.lags = true;
        let error = listener.store.recv(&listener.subscriptions).await.unwrap_err();
        assert!(error.is_transient() && !error.may_have_applied(), "{error}");
        let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        listener.store.lags = true;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
    });
}

#[test]
fn few_are_kept() {
    let server = Server::start(&[]);
    block_on(async {
        let (mut node, _) = join_and_listen(connect(server.tcp())).await;
        for _ in 0..300 {
            tell(&mut node, vec![hits("a", 1)]).await;
        }
        let stream = key::news(SHARD, node.epoch);
        let kept: i64 = server.ask(&["XLEN", &stream]).unwrap();
        assert!((100..=200).contains(&kept), "{kept}");
    });
}

#[test]
fn after_a_failover_of_sentinels_the_new_primary_is_heard() {
    let mut old = Server::start(&[]);
    let new = start_replica(&old);
    let sentinel = Server::start_sentinel(&[]);
    sentinel.watch(&old);
    block_on(async {
        let (mut node, mut listener) = join_and_listen(known_by_one(&sentinel)).await;
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
        replicated(&new, 1).await;
        knows_a_replica(&sentinel).await;
        old.kill();
        let (news, ()) = both(listener.recv(1), tell(&mut node, vec![hits("a", 1)])).await;
        assert_eq!(total_of(&news), [2]);
    });
}

#[test]
fn each_shard_of_a_cluster_is_heard_by_a_connection_to_its_primary() {
    let cluster = Servers::start();
    block_on(async {
        let mut nodes = Vec::new();
        let mut listeners = Vec::new();
        for shard in all_shards() {
            let mut node = Node::join(cluster.connect(), shard).await;
            let mut listener = Listener::of(&node);
            tell(&mut node, vec![hits("a", 1)]).await;
            assert_eq!(total_of(&listener.recv(1).await), [1]);
            nodes.push(node.shard.clone());
            listeners.push(listener);
        }
        let at_once = || {
            let counts = connections(&cluster);
            counts.values().sum::<usize>() == listeners.len()
        };
        until("one for each shard", at_once).await;
        let owners = nodes.iter().map(|shard| cluster.owner(shard));
        let mut expected = vec![0; cluster.primaries.len()];
        owners.for_each(|owner| expected[owner] += 1);
        let counts = connections(&cluster);
        let counts = cluster.primaries.iter().map(|it| counts[&it.port]);
        assert_eq!(counts.collect::<Vec<_>>(), expected);
    });
}

#[test]
fn a_shard_of_a_cluster_is_heard_where_it_has_moved_to() {
    let cluster = Servers::start();
    block_on(async {
        let (mut node, mut listener) = join_and_listen(cluster.connect()).await;
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
        let (news, ()) = both(listener.recv(1), async {
            let migration = Migration::begin(&cluster, &node.shard);
            let owner = &cluster.primaries[cluster.owner(&node.shard)];
            let pattern = format!("{SHARD}*");
            let keys: Vec<String> = owner.ask(&["KEYS", &pattern]).unwrap();
            migration.move_keys(&keys);
            migration.end();
            tell(&mut node, vec![hits("a", 1)]).await;
        })
        .await;
        assert_eq!(total_of(&news), [2]);
    });
}

#[test]
fn a_replica_of_a_cluster_that_takes_over_is_heard() {
    let mut cluster = Servers::start_with_replicas();
    let owner = cluster.owner(&shard("api"));
    block_on(async {
        let (mut node, mut listener) = join_and_listen(cluster.connect()).await;
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(total_of(&listener.recv(1).await), [1]);
        cluster.wait_for_replica(owner);
        cluster.primaries[owner].kill();
        let (news, ()) = both(listener.recv(1), tell(&mut node, vec![hits("a", 1)])).await;
        assert_eq!(total_of(&news), [2]);
    });
}
