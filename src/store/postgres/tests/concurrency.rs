//! Nodes that push at the same time, and other users of the same server.

use std::collections::BTreeMap;

use futures_util::future::{join, join_all};

use super::*;

/// Fetches a part of the changes. Returns whether there are more.
async fn look(node: &mut Node<Postgres>, seen: &mut BTreeMap<Vec<u8>, i64>) -> bool {
    let (counts, position, has_more) = since(node.send(0, vec![]).await);
    node.position = Some(position);
    for count in counts {
        seen.insert(count.key, count.total.whole());
    }
    has_more
}

#[test]
fn nodes_that_push_the_same_keys_at_once_never_fail_and_totals_are_exact() {
    let schema = Schema::new();
    block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..8 {
            nodes.push(Node::join(schema.connect(), shard("api")).await);
        }
        let mut reader = Node::join(schema.connect(), shard("api")).await;
        let pushing = nodes.iter_mut().enumerate().map(async |(index, node)| {
            for round in 0..25 {
                // Overlapping, in another order for each node and round.
                let keys = (0..100).map(|key| (key * 37 + index * 11 + round * 7) % 150);
                let diffs = keys.map(|key| hits(&format!("{key}"), 1)).collect();
                node.number += 1;
                let batch = node.batch(node.number, diffs);
                let pushed = node.store.push_diffs(&node.shard, &batch, 1000).await;
                let (_, position, _) = since(pushed.unwrap());
                node.position = Some(position);
            }
        });
        let mut seen = BTreeMap::new();
        // A node that only reads must not miss any change, whenever it reads.
        let reading = async {
            for _ in 0..50 {
                look(&mut reader, &mut seen).await;
            }
        };
        join(join_all(pushing), reading).await;
        while look(&mut reader, &mut seen).await {}
        assert_eq!(seen.values().sum::<i64>(), 8 * 25 * 100);
        let all = reader.read_all(&[(MINUTE, 7)]).await;
        let stored: i64 = all.iter().map(|count| count.total.whole()).sum();
        assert_eq!(stored, 8 * 25 * 100);
        for count in all {
            assert_eq!(seen.get(&count.key), Some(&count.total.whole()));
        }
    });
}

#[test]
fn many_small_batches_come_in_parts() {
    let schema = Schema::new();
    block_on(async {
        let mut writer = Node::join(schema.connect(), shard("api")).await;
        let mut reader = Node::join(schema.connect(), shard("api")).await;
        writer.push(vec![hits("a", 1)]).await;
        // Simulates many pushes.
        schema.ask(
            "UPDATE {}.rl_counters_epochs SET changes = 1001;
             INSERT INTO {}.rl_counters_changes
             SELECT epoch, n, node, counters FROM {}.rl_counters_changes,
                generate_series(2, 1001) AS n WHERE number = 1",
        );
        for has_more in [true, false] {
            let mut seen = BTreeMap::new();
            assert_eq!(look(&mut reader, &mut seen).await, has_more);
            assert_eq!(seen, BTreeMap::from([(b"a".to_vec(), 1)]));
        }
        assert!(!look(&mut reader, &mut BTreeMap::new()).await);
    });
}

#[test]
fn the_same_counters_in_many_batches_come_at_once() {
    let schema = Schema::new();
    block_on(async {
        let mut writer = Node::join(schema.connect(), shard("api")).await;
        let mut reader = Node::join(schema.connect(), shard("api")).await;
        for round in 0..120 {
            let diffs = ["busy", &format!("of round {round}")].map(|key| hits(key, 1));
            writer.push(diffs.into()).await;
        }
        // Each batch has one counter that no batch before it has.
        for (limit, least, has_more) in [(50, 50, true), (100, 72, false)] {
            let question = reader.batch(0, vec![]);
            let pushed = reader.store.push_diffs(&reader.shard, &question, limit);
            let (counts, position, more) = since(pushed.await.unwrap());
            reader.position = Some(position);
            assert_eq!((counts.len(), more), (least, has_more));
            assert!(totals(&counts).contains(&("busy".into(), 120)));
        }
    });
}

#[test]
fn a_change_that_is_committed_late_is_not_skipped() {
    let schema = Schema::new();
    block_on(async {
        let mut late = Node::join(schema.connect(), shard("api")).await;
        let mut early = Node::join(schema.connect(), shard("api")).await;
        let mut reader = Node::join(schema.connect(), shard("api")).await;
        late.push(vec![hits("locked", 1)]).await;
        reader.fetch().await;
        let session = Server::shared().session().await.unwrap();
        let lock = format!(
            "BEGIN; SELECT FROM {}.rl_counters WHERE key = 'locked' FOR UPDATE",
            schema.name
        );
        session.batch_execute(&lock).await.unwrap();
        let push = late.push(vec![hits("a", 1), hits("locked", 1)]);
        let meanwhile = async {
            until_blocked(&schema, 1).await;
            // It has begun; other nodes do not get it yet, and do not wait for it.
            early.push(vec![hits("a2", 1), hits("b", 1)]).await;
            assert_eq!(totals(&reader.fetch().await), pairs(&[("a2", 1), ("b", 1)]));
            session.batch_execute("COMMIT").await.unwrap();
        };
        join(push, meanwhile).await;
        let seen = reader.fetch().await;
        assert_eq!(totals(&seen), pairs(&[("a", 1), ("locked", 2)]));
    });
}

#[test]
fn a_long_foreign_transaction_delays_and_repeats_nothing() {
    let schema = Schema::new();
    block_on(async {
        let session = Server::shared().session().await.unwrap();
        let begin = "BEGIN; SELECT pg_current_xact_id()";
        session.batch_execute(begin).await.unwrap();
        let mut one = Node::join(schema.connect(), shard("api")).await;
        let mut two = Node::join(schema.connect(), shard("api")).await;
        for round in 0..10 {
            let key = format!("{round}");
            one.push(vec![hits(&key, 1)]).await;
            assert_eq!(totals(&two.fetch().await), pairs(&[(&key, 1)]));
        }
        session.batch_execute("COMMIT").await.unwrap();
        assert!(two.fetch().await.is_empty());
    });
}

#[test]
fn a_batch_that_is_sent_again_while_it_is_being_applied_is_applied_once() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        for number in 1..=3 {
            if number > 1 {
                let session = Server::shared().session().await.unwrap();
                let lock = format!(
                    "BEGIN; SELECT FROM {}.rl_counters WHERE key = 'a' FOR UPDATE",
                    schema.name
                );
                session.batch_execute(&lock).await.unwrap();
                let batch = node.batch(number, vec![hits("a", 1)]);
                let (mut first, mut again) = (schema.connect(), schema.connect());
                let sent = join(
                    first.push_diffs(&node.shard, &batch, 500),
                    again.push_diffs(&node.shard, &batch, 500),
                );
                let meanwhile = async {
                    until_blocked(&schema, 2).await;
                    session.batch_execute("COMMIT").await.unwrap();
                };
                let ((first, again), ()) = join(sent, meanwhile).await;
                since(first.unwrap());
                since(again.unwrap());
                node.number = number;
            } else {
                node.push(vec![hits("a", 1)]).await;
            }
            assert_eq!(total(&mut node, b"a").await, i64::try_from(number).unwrap());
        }
    });
}

/// Of two batches that subtract the same hits, the later one learns of it, although both answers may
/// contain the last total.
#[test]
fn the_later_of_two_batches_that_subtract_at_once_is_overdrawn() {
    let schema = Schema::new();
    block_on(async {
        let mut nodes = [
            Node::join(schema.connect(), shard("api")).await,
            Node::join(schema.connect(), shard("api")).await,
        ];
        for round in 0..10 {
            let key = format!("{round}");
            nodes[0].push(vec![hits(&key, 3)]).await;
            assert_eq!(nodes[0].store.overdrawn(), []);
            let session = Server::shared().session().await.unwrap();
            let lock = format!(
                "BEGIN; SELECT FROM {}.rl_counters WHERE key = '{key}' FOR UPDATE",
                schema.name
            );
            session.batch_execute(&lock).await.unwrap();
            let resets = join_all(nodes.iter_mut().map(|node| node.push(vec![hits(&key, -3)])));
            let meanwhile = async {
                until_blocked(&schema, 2).await;
                session.batch_execute("COMMIT").await.unwrap();
            };
            join(resets, meanwhile).await;
            let overdrawn = nodes.iter().flat_map(|node| node.store.overdrawn());
            let overdrawn: Vec<_> = overdrawn.map(|it| (&it.key[..], it.total.whole())).collect();
            assert_eq!(overdrawn, [(key.as_bytes(), -3)]);
        }
    });
}

#[test]
fn a_batch_that_meets_the_end_of_its_epoch_is_not_counted_in_the_new_one() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let session = Server::shared().session().await.unwrap();
        let lock =
            format!("BEGIN; SELECT FROM {}.rl_counters WHERE key = 'a' FOR UPDATE", schema.name);
        session.batch_execute(&lock).await.unwrap();
        let (shard, old, new) = (node.shard.clone(), node.epoch, new_epoch());
        let mut other = schema.connect();
        let meanwhile = async {
            until_blocked(&schema, 1).await;
            let opened = other.open_epoch(&shard, Some(old), new).await;
            assert_eq!(opened, Ok(new));
            session.batch_execute("COMMIT").await.unwrap();
        };
        let (pushed, ()) = join(node.send(2, vec![hits("a", 1)]), meanwhile).await;
        assert_eq!(pushed, Pushed::OtherEpoch(new));
        assert_eq!(total(&mut node, b"a").await, 0);
    });
}

#[test]
fn a_purge_does_not_wait_for_nodes_that_push() {
    let schema = Schema::new();
    block_on(async {
        let mut node = Node::join(schema.connect(), shard("api")).await;
        node.push(vec![hits("a", 1), hits("b", 1)]).await;
        schema.ask("UPDATE {}.rl_counters SET expires_at = now() - interval '1 second'");
        let session = Server::shared().session().await.unwrap();
        let lock =
            format!("BEGIN; SELECT FROM {}.rl_counters WHERE key = 'a' FOR UPDATE", schema.name);
        session.batch_execute(&lock).await.unwrap();
        let now = crate::policy::window::UnixMillis(0);
        assert_eq!(node.store.purge(&node.shard, now).await, Ok(false));
        let left = node.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&left), pairs(&[("a", 1)]));
        session.batch_execute("COMMIT").await.unwrap();
    });
}
