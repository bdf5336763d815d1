//! Runs of news that are one entry of the stream: readers with each position, and lost writes.

use std::collections::{BTreeMap, BTreeSet};

use super::sentinels::start_replica;
use super::*;
use crate::policy::algorithm::Algorithm;
use crate::policy::reserve::Grants;
use crate::store::contract::strategy::{Changes, Position};
use crate::store::redis::key;
use crate::testing::conformance::{Asking, question};

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Totals by key.
type Totals = BTreeMap<String, i64>;

/// The changes that a store has, or had: the positions, with the totals there.
#[derive(Clone, Default)]
struct History {
    totals: Totals,
    positions: Vec<(Position, Totals)>,
}

/// Returns everything in a server.
fn dump(server: &Server) -> Vec<(String, Vec<u8>)> {
    let mut connection = server.connection("").unwrap();
    let keys: Vec<String> = server.ask(&["KEYS", "*"]).unwrap();
    let dump = |key: String| {
        let value = redis::cmd("DUMP").arg(&key).query(&mut connection).unwrap();
        (key, value)
    };
    keys.into_iter().map(dump).collect()
}

/// Replaces everything in a server, as a failover does that loses the last writes.
fn restore(server: &Server, dump: &[(String, Vec<u8>)]) {
    let mut connection = server.connection("").unwrap();
    let mut all = redis::pipe();
    all.atomic().cmd("FLUSHALL");
    for (key, value) in dump {
        all.cmd("RESTORE").arg(key).arg(0).arg(value);
    }
    let _: redis::Value = all.query(&mut connection).unwrap();
}

/// Returns all that changed since a position, in parts; `None` if the store does not know it.
async fn since_position(reader: &mut Node<Redis>, position: Position) -> Option<Totals> {
    let mut seen = Totals::new();
    reader.position = Some(position);
    loop {
        let batch = reader.batch(0, vec![]);
        let pushed = reader.store.push_diffs(&reader.shard, &batch, 50).await.unwrap();
        if let Pushed::Applied { changes: Changes::Behind { .. }, .. } = pushed {
            return None;
        }
        let (counts, position, has_more) = since(pushed);
        let counts: Vec<_> = counts.into_iter().filter(|count| count.size == MINUTE).collect();
        let part: Totals = totals(&counts).into_iter().collect();
        assert_eq!(part.len(), counts.len(), "each counter once");
        seen.extend(part);
        reader.position = Some(position);
        if !has_more {
            return Some(seen);
        }
    }
}

/// Returns whether the store has lost what it had at a position, as a node with reserves asks.
async fn has_lost(reader: &mut Node<Redis>, position: Position) -> bool {
    let witness = key::witness(position).unwrap();
    let batch = Batch { grants: Some(Grants::UpTo(witness)), ..reader.batch(0, vec![]) };
    reader.send_batch(&batch).await;
    reader.store.has_lost_grants()
}

/// Pushes a random batch, mostly news, of a random node.
async fn push_any(random: &mut Random, nodes: &mut [Node<Redis>], history: &mut History) {
    let length = [3, 40][random.below(2) as usize];
    let most = [3, 60][random.below(2) as usize];
    let count = 1 + random.below(most);
    let keys: BTreeSet<_> = (0..count).map(|_| random.below(80)).collect();
    let diffs: Vec<_> = keys.iter().map(|key| hits(&format!("{key:0length$}"), 1)).collect();
    for diff in &diffs {
        *history.totals.entry(String::from_utf8(diff.key.clone()).unwrap()).or_default() += 1;
    }
    let node = &mut nodes[random.below(3) as usize];
    node.number += 1;
    let batch = Batch { is_news: random.below(10) > 0, ..node.batch(node.number, diffs) };
    let (_, position, _) = since(node.send_batch(&batch).await);
    node.position = Some(position);
    history.positions.push((position, history.totals.clone()));
}

async fn join_three(server: &Server) -> Vec<Node<Redis>> {
    vec![join(server.tcp()).await, join(server.tcp()).await, join(server.tcp()).await]
}

#[test]
fn each_position_of_the_present_history_is_known_and_no_other() {
    let server = Server::start(&[]);
    block_on(async {
        let random = &mut Random(7);
        let mut nodes = join_three(&server).await;
        let mut reader = join(server.tcp()).await;
        let mut asking = Asking::new(connect(server.tcp()));
        let mut history = History::default();
        let mut lost: Vec<Position> = Vec::new();
        let mut saved = (dump(&server), history.clone());
        for _ in 0..400 {
            match random.below(40) {
                0 => saved = (dump(&server), history.clone()),
                1 => {
                    restore(&server, &saved.0);
                    let known = saved.1.positions.len();
                    lost.extend(history.positions[known..].iter().map(|(position, _)| position));
                    history = saved.1.clone();
                    // The old ones would find that their batches are lost.
                    nodes = join_three(&server).await;
                }
                2 => {
                    asking.ask(&[question("a", Algorithm::Fixed, 1000)]).await;
                }
                _ => {
                    for _ in 0..=random.below(3) {
                        push_any(random, &mut nodes, &mut history).await;
                    }
                }
            }
            for _ in 0..2 {
                let some = random.below(20.min(history.positions.len() as u64).max(1)) as usize;
                if let Some((position, then)) = history.positions.iter().rev().nth(some) {
                    let seen = since_position(&mut reader, *position).await.expect("known");
                    for (key, total) in &history.totals {
                        let is_seen = seen.get(key) == Some(total);
                        let is_known = then.get(key) == Some(total) && !seen.contains_key(key);
                        assert!(is_seen || is_known, "{key}");
                    }
                    assert!(!has_lost(&mut reader, *position).await);
                }
            }
            let some = random.below(20) as usize;
            if let Some(position) = lost.iter().rev().nth(some) {
                assert_eq!(since_position(&mut reader, *position).await, None);
                assert!(has_lost(&mut reader, *position).await);
            }
        }
        assert!(lost.len() > 20);
        let stream = key::stream(SHARD, reader.epoch);
        let length: usize = server.ask(&["XLEN", &stream]).unwrap();
        // Even on a busy machine, some came together.
        assert!(length < history.positions.len(), "{length}");
    });
}

#[test]
fn a_primary_that_takes_over_amid_a_run_knows_no_position_that_it_lost() {
    let mut old = Server::start(&[]);
    let new = start_replica(&old);
    block_on(async {
        let mut node = join(old.tcp()).await;
        let mut reader = join(old.tcp()).await;
        tell(&mut node, vec![hits("a", 1)]).await;
        let tell_of = async |node: &mut Node<Redis>, key: &str| {
            node.number += 1;
            let batch = Batch { is_news: true, ..node.batch(node.number, vec![hits(key, 1)]) };
            since(node.send_batch(&batch).await).1
        };
        let kept = tell_of(&mut node, "b").await;
        let position = |server: &Server| server.ask::<String>(&["HGET", SHARD, "position"]).ok();
        until("replicated", || position(&new) == position(&old)).await;
        let _: String = new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let lost = [tell_of(&mut node, "c").await, tell_of(&mut node, "d").await];
        old.kill();

        let mut other = join(new.tcp()).await;
        reader.store = connect(new.tcp());
        for key in ["e", "f", "g"] {
            tell(&mut other, vec![hits(key, 1)]).await;
            for position in lost {
                assert_eq!(since_position(&mut reader, position).await, None);
                assert!(has_lost(&mut reader, position).await);
            }
            let seen = since_position(&mut reader, kept).await.expect("known");
            assert_eq!(seen.get(key), Some(&1));
            assert!(!has_lost(&mut reader, kept).await);
        }
    });
}

#[test]
fn without_the_right_to_delete_an_entry_each_batch_has_its_own() {
    let server = Server::start(&[]);
    let older = ["ACL", "SETUSER", "older", "on", ">hunter2", "~rl:*"];
    let _: String = server.ask(&[&older[..], access::COMMANDS, &["-xdel"]].concat()).unwrap();
    block_on(async {
        let store = with_credentials(&server, "older", "hunter2");
        let mut node = Node::join(store, shard("api")).await;
        let mut other = join(server.tcp()).await;
        for total in 1..=20 {
            tell(&mut node, vec![hits("a", 1)]).await;
            assert_eq!(totals(&other.fetch().await), pairs(&[("a", total)]));
        }
        let stream = key::stream(SHARD, node.epoch);
        // With the first, which every epoch has.
        assert_eq!(server.ask::<i64>(&["XLEN", &stream]).unwrap(), 21);
    });
}

#[test]
fn a_run_that_somebody_else_wrote_is_none() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = join(server.tcp()).await;
        let mut other = join(server.tcp()).await;
        node.push(vec![hits("a", 1)]).await;
        let position: String = server.ask(&["HGET", SHARD, "position"]).unwrap();
        let stream = key::stream(SHARD, node.epoch);
        let number = position.split_once('-').unwrap().0.parse::<u64>().unwrap();
        for (step, changes) in ["", "x", "\u{1}", "\u{2}"].into_iter().enumerate() {
            // An entry that cannot be read, as the last one, whose run lasts.
            let foreign = format!("{}-1", number + 100_000 * (step as u64 + 1));
            let entry = ["XADD", &stream, &foreign, "node", "x", "count", "y", "changes", changes];
            let _: String = server.ask(&entry).unwrap();
            let time: Vec<String> = server.ask(&["TIME"]).unwrap();
            let now = format!("{}{:03}", time[0], time[1].parse::<u64>().unwrap() / 1000);
            for at in [&now, "9999999999999", "0"] {
                let position: String = server.ask(&["HGET", SHARD, "position"]).unwrap();
                let last = if *at == now { &foreign } else { &position };
                let run = format!("{at} 0 {last}");
                let fields = ["HSET", SHARD, "position", last, "run", &run];
                let _: i64 = server.ask(&fields).unwrap();
                tell(&mut node, vec![hits("a", 1)]).await;
            }
            other.position = None;
            other.position = Some(behind(&other.send(0, vec![]).await));
        }
        tell(&mut node, vec![hits("a", 1)]).await;
        assert_eq!(totals(&other.fetch().await), pairs(&[("a", 14)]));
    });
}

#[test]
fn the_memory_of_runs_is_that_of_their_positions() {
    let server = Server::start(&[]);
    block_on(async {
        for keys in [1, 20, 90] {
            let mut nodes = join_three(&server).await;
            for round in 0..1500 {
                let name = |key: u64| format!("{:020}", key + round % 3);
                let diffs = (0..keys).map(|key| hits(&name(key), 1)).collect();
                tell(&mut nodes[round as usize % 3], diffs).await;
            }
            let position: String = server.ask(&["HGET", SHARD, "position"]).unwrap();
            let counted: u64 = position.split_once('-').unwrap().0.parse().unwrap();
            let stream = key::stream(SHARD, nodes[0].epoch);
            let used: u64 = server.ask(&["MEMORY", "USAGE", &stream, "SAMPLES", "0"]).unwrap();
            assert!(used < counted * 3 / 2 + 20_000, "{keys}: {used} {counted}");
            let _: String = server.ask(&["FLUSHALL"]).unwrap();
        }
    });
}
