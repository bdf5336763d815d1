//! Decisions of nodes of a Redis Cluster, each about its own shards.

use tokio::time::timeout;

use super::clusters::all_shards;
use super::decisions::{asks, counted, in_an_hour, one, open, refusal};
use super::*;
use crate::store::contract::decision::{AskedCounter, Question};
use crate::store::contract::strategy::Shard;
use crate::store::redis::key;
use crate::testing::conformance::{Asking, HOUR, all_at_once};
use crate::testing::redis::cluster::{Migration, Servers, connections};

fn of_shard(shard: &Shard, key: &str) -> Question {
    let mut question = in_an_hour(key, 1000);
    question.counters[0].shard = shard.clone();
    question
}

/// Returns deciders that share a connection to each server, one for each shard.
fn askers(store: &Redis) -> Vec<(Shard, Asking<Redis>)> {
    let asker = |shard| (shard, Asking::new(store.share().unwrap()));
    all_shards().map(asker).collect()
}

#[test]
fn all_shards_are_asked_on_one_connection_to_each_node() {
    let cluster = Servers::start();
    block_on(async {
        let store = cluster.connect();
        let mut askers = askers(&store);
        for round in 1..=3 {
            let asking = askers.iter_mut().map(async |(shard, asker)| {
                let questions = [of_shard(shard, "a"), of_shard(shard, "b")];
                asker.ask(&questions).await
            });
            for decided in all_at_once(asking.collect()).await {
                assert_eq!(counted(&decided), [round, round]);
            }
        }
        let connections = connections(&cluster);
        assert!(connections.values().all(|count| *count == 1), "{connections:?}");
        assert_eq!(store.connects(), 3);
    });
}

#[test]
fn shards_of_a_cluster_are_not_asked_together() {
    let cluster = Servers::start();
    block_on(async {
        let mut node = Asking::new(cluster.connect());
        let mut both = one();
        both.counters.push(AskedCounter { shard: shard("web"), ..both.counters[0].clone() });
        let failure = refusal(&mut node, both).await;
        assert!(matches!(failure, Failure::Unsupported(_)), "{failure}");
        assert_eq!(counted(&node.ask(&[one()]).await), [1]);
        // A question that only asks finds out whether a certain node answers.
        for shard in all_shards() {
            let decided = node.ask(&[Question::probe(shard)]).await;
            assert_eq!(counted(&decided), [0]);
        }
    });
}

#[test]
fn while_a_slot_moves_nothing_is_half_decided() {
    let cluster = Servers::start();
    let shard = shard("api");
    let shard_key = key::shard("rl", &shard);
    block_on(async {
        let mut node = Asking::new(cluster.connect());
        let epoch = open(&mut node).await;
        let now = node.ask(&[one()]).await.now;
        let window = HOUR.at(now).number;
        let counts = |window: u64| format!("{shard_key}:{epoch}:3600000:{window}");
        // So that the previous window exists, too.
        let mut other = Node::join(cluster.connect(), shard.clone()).await;
        let before = Diff { size: HOUR, window: window - 1, ..hits("b", 1) };
        other.push(vec![before]).await;

        let migration = Migration::begin(&cluster, &shard);
        let total = |server: &Server| -> i64 {
            let total: Option<String> = server.ask(&["HGET", &counts(window), "a"]).unwrap();
            total.map_or(0, |total| total.parse().unwrap())
        };
        // Everything exists.
        assert_eq!(counted(&node.ask(&[one()]).await), [2]);
        // The window does not exist, or is there already.
        let mut minute = one();
        minute.counters[0].size = MINUTE;
        assert!(node.try_to_ask(&[minute]).await.is_err());
        assert_eq!(total(migration.from), 2000);

        let stream = key::stream(&shard_key, epoch);
        for (moved, is_refused) in [
            (stream, false),
            (shard_key.clone(), true),
            // The other node would not know of these before they exist.
            (counts(window - 1), true),
            (counts(window), true),
        ] {
            migration.move_keys(std::slice::from_ref(&moved));
            let error = node.try_to_ask(&[one()]).await.unwrap_err();
            let is_moved = matches!(error.failure, Failure::Refused(Refusal::Moved(_)));
            assert_eq!(is_moved, is_refused, "{moved} {error}");
            if is_refused {
                let failure = refusal(&mut node, asks(one())).await;
                assert!(matches!(failure, Failure::Refused(Refusal::Moved(_))));
            }
            if moved != counts(window) {
                assert_eq!(total(migration.from), 2000, "{moved}");
            }
        }
        migration.end();
        assert_eq!(counted(&node.ask(&[one()]).await), [3]);
        assert_eq!(open(&mut node).await, epoch);
    });
}

#[test]
fn a_node_that_hangs_is_waited_for_once_and_keeps_no_other_waiting() {
    let cluster = Servers::start();
    let (mut options, redis) = cluster.options();
    options.timeout = Duration::from_secs(4);
    options.connect_timeout = Duration::from_secs(4);
    block_on(async {
        let mut askers = askers(&Redis::new(&options, &redis));
        for (shard, asker) in &mut askers {
            asker.ask(&[of_shard(shard, "a")]).await;
        }
        let owners: Vec<_> = askers.iter().map(|(it, _)| cluster.owner(it)).collect();
        let hanging = owners[0];
        cluster.primaries[hanging].signal("STOP");
        let asking = askers.iter_mut().zip(&owners);
        let asking = asking.map(async |((shard, asker), owner)| {
            let longest = if *owner == hanging { 20_000 } else { 3_900 };
            let questions = [of_shard(shard, "a")];
            let asking = asker.try_to_ask(&questions);
            timeout(Duration::from_millis(longest), asking).await
        });
        let answers = all_at_once(asking.collect()).await;
        cluster.primaries[hanging].signal("CONT");
        let mut failed = 0;
        for (owner, result) in owners.into_iter().zip(answers) {
            let is_of_it = owner == hanging;
            let result = result.expect("in time");
            assert_eq!(result.is_err(), is_of_it, "{result:?}");
            failed += u32::from(is_of_it);
        }
        assert!(failed > 2, "{failed}");
        // It is tried again soon.
        tokio::time::sleep(Duration::from_millis(600)).await;
        for (shard, asker) in &mut askers {
            asker.ask(&[of_shard(shard, "a")]).await;
        }
    });
}

#[test]
fn a_replica_that_takes_over_decides() {
    let mut cluster = Servers::start_with_replicas();
    block_on(async {
        let store = cluster.connect();
        let mut askers = askers(&store);
        for (shard, asker) in &mut askers {
            asker.ask(&[of_shard(shard, "a")]).await;
        }
        let owner = cluster.owner(&askers[0].0);
        cluster.wait_for_replica(owner);
        cluster.primaries[owner].kill();
        let mut failed = 0;
        for (shard, asker) in &mut askers {
            let asking = async {
                loop {
                    match asker.try_to_ask(&[of_shard(shard, "a")]).await {
                        Ok(decided) => return decided,
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                    failed += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let decided = timeout(Duration::from_secs(30), asking);
            let decided = decided.await.expect("a replica takes over");
            assert_eq!(counted(&decided), [2]);
        }
        assert!(failed > 0);
    });
}
