//! Costs of a cycle with many changed keys, and of decisions, for Cassandra and a node. They are
//! only printed, since they depend on the machine.
//!
//! `cargo test --profile fast --no-default-features --features cassandra,measure --lib -- --nocapture
//! --test-threads 1 cassandra_takes cassandra_decides`

use core::time::Duration;
use std::fs;
use std::time::Instant;

use futures_util::future::join_all;

use crate::policy::algorithm::Algorithm;
use crate::store::contract::strategy::{Batch, Diff, Strategy as _};
use crate::testing::cassandra::{Server, connect, new_table};
use crate::testing::conformance::{Asking, block_on, hits, question, shard, since};

type Node = crate::testing::conformance::Node<crate::store::cassandra::Cassandra>;

const KEYS: usize = 100_000;

/// Returns the name of a key, with 20 bytes.
fn key(number: usize) -> String {
    let number = number as u64 + 1;
    format!("{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Makes one exchange. Returns the number of fetched counters, and whether there are more.
async fn push(node: &mut Node, diffs: Vec<Diff>) -> (usize, bool) {
    if !diffs.is_empty() {
        node.number += 1;
    }
    let batch = node.batch(node.number, diffs);
    let push = node.store.push_diffs(&node.shard, &batch, Batch::MAX_DIFFS);
    let (counts, position, has_more) = since(push.await.unwrap());
    node.position = Some(position);
    (counts.len(), has_more)
}

/// Fetches the other nodes' changes.
async fn fetch(node: &mut Node) -> usize {
    let mut fetched = 0;
    loop {
        let (counts, has_more) = push(node, vec![]).await;
        fetched += counts;
        if !has_more {
            return fetched;
        }
    }
}

/// Pushes all keys, and fetches the changes in the answers.
async fn push_all(node: &mut Node) -> usize {
    let mut fetched = 0;
    for first in (0..KEYS).step_by(320) {
        let keys = (first..KEYS.min(first + 320)).map(key);
        let diffs = keys.map(|key| Diff { expires_in: Duration::from_secs(7200), ..hits(&key, 1) });
        fetched += push(node, diffs.collect()).await.0;
    }
    fetched
}

/// Returns the processor time of a process, or of this thread, in seconds.
fn cpu(of: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let mut ticks = fields.split(' ').skip(12).take(2);
    let mut next = || ticks.next().unwrap().parse::<f64>().unwrap();
    (next() + next()) / 100.0
}

/// Prints the time of an operation in seconds, and for each of `count` the processor time of server
/// and node.
async fn measured<T>(
    server: &Server,
    what: &str,
    count: usize,
    work: impl Future<Output = T>,
) -> T {
    let process = server.process();
    let before = (Instant::now(), cpu(&process), cpu("thread-self"));
    let result = work.await;
    let micros = |cpu: f64| cpu * 1e6 / count as f64;
    println!(
        "{what}: {:.2} s; of each of {count}, the server spent {:.0} us, this side {:.1} us",
        before.0.elapsed().as_secs_f64(),
        micros(cpu(&process) - before.1),
        micros(cpu("thread-self") - before.2),
    );
    result
}

#[test]
fn cassandra_takes() {
    // The part of the heap for memtables is Cassandra's default.
    let server = Server::start(&["--ephemeral", "--heap", "2g", "--memtable", "512MiB"]);
    let table = new_table();
    block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let store = connect(&server.address, &table);
            nodes.push(Node::join(store, shard("measured")).await);
        }
        // In the first round, the server has not compiled anything yet.
        for round in 1..=3 {
            let [one, two] = &mut nodes[..] else {
                unreachable!("there are two");
            };
            measured(&server, &format!("{round}: pushed"), KEYS, push_all(one)).await;
            let fetched = measured(&server, &format!("{round}: fetched"), KEYS, fetch(two)).await;
            assert_eq!(fetched, KEYS);
            let what = format!("{round}: pushed and fetched");
            measured(&server, &what, KEYS, push_all(two)).await;
            fetch(one).await;
        }
    });
}

#[test]
fn cassandra_decides() {
    const ROUNDS: usize = 300;
    let server = Server::start(&["--ephemeral", "--heap", "1g"]);
    let table = new_table();
    block_on(async {
        let mut nodes: Vec<_> =
            (0..8).map(|_| Asking::new(connect(&server.address, &table))).collect();
        for node in &mut nodes {
            node.ask(&[]).await;
        }
        // Limits that admit all hits, and none. In the first round, the server has not compiled
        // anything yet.
        for limit in [1_000_000, 1_000_000, 0] {
            for count in [1, 16, 64] {
                for some in [1, nodes.len()] {
                    let mut times = Vec::new();
                    let asking = nodes.iter_mut().take(some).enumerate();
                    let asking = asking.map(async |(number, node)| {
                        let mut took = Vec::new();
                        for round in 0..ROUNDS {
                            let first = (round % 5 + number * 5) * count;
                            let asked = (first..first + count).map(key);
                            let asked: Vec<_> = asked
                                .map(|key| question(&key, Algorithm::Sliding, limit))
                                .collect();
                            let start = Instant::now();
                            node.ask(&asked).await;
                            took.push(start.elapsed().as_secs_f64() * 1000.0);
                        }
                        took
                    });
                    let all = some * ROUNDS * count;
                    let what = format!("limit {limit}, {count} at once, {some} nodes");
                    for took in measured(&server, &what, all, join_all(asking)).await {
                        times.extend(took);
                    }
                    times.sort_by(f64::total_cmp);
                    let share = |percent: usize| times[times.len() * percent / 100 - 1];
                    println!(
                        "    an exchange: half within {:.1} ms, 99 % within {:.1} ms, all within {:.1} ms",
                        share(50),
                        share(99),
                        share(100)
                    );
                }
            }
        }
    });
}

/// Measures what it costs that each of many nodes fetches the same busy counters, after some have changed them.
///
/// `cargo test --profile fast --no-default-features --features cassandra,measure --lib -- --nocapture
/// --test-threads 1 cassandra_serves_many_nodes`
#[test]
fn cassandra_serves_many_nodes() {
    const BUSY: usize = 20;
    let server = Server::start(&["--ephemeral", "--heap", "1g"]);
    block_on(async {
        // The first time, the server has not compiled anything yet.
        for count in [25, 10, 25, 50, 100] {
            let table = new_table();
            let mut nodes = Vec::new();
            for _ in 0..count {
                let store = connect(&server.address, &table);
                nodes.push(Node::join(store, shard("crowd")).await);
            }
            let busy = || (0..BUSY).map(|number| hits(&key(number), 1)).collect();
            for node in &mut nodes {
                push(node, busy()).await;
            }
            for some in [0, 1, count / 2, count] {
                let (mut spent, mut exchanges) = (0.0, 0);
                for round in 0..400_usize.div_ceil(count) {
                    for node in nodes.iter_mut().take(some) {
                        push(node, busy()).await;
                    }
                    let before = cpu(&server.process());
                    for node in &mut nodes {
                        fetch(node).await;
                    }
                    // In the first round, they fetch what was before.
                    if round > 0 {
                        spent += cpu(&server.process()) - before;
                        exchanges += count;
                    }
                }
                println!(
                    "{count} nodes, of which {some} have pushed {BUSY} counters: the server spent {:.1} ms \
                     for a node that fetches them",
                    spent * 1000.0 / exchanges as f64
                );
            }
        }
    });
}
