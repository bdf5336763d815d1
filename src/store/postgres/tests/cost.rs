//! Time and space of a cycle with many changed keys. They are only printed, since they depend on
//! the machine.
//!
//! `cargo test --release --no-default-features --features measure -- --nocapture postgres_takes`

use core::cell::Cell;
use core::num::NonZeroU32;
use core::pin::pin;
use core::time::Duration;
use std::time::Instant;

use futures_util::future::{Either, join_all, select};

use crate::policy::algorithm::Algorithm;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::Question;
use crate::store::contract::strategy::{Batch, Diff, LivingNodes, Strategy};
use crate::testing::conformance::{
    Asking, Listener, MINUTE, block_on, hits, question, shard, since,
};
use crate::testing::postgres::{Server, connect};

type Node = crate::testing::conformance::Node<crate::store::postgres::Postgres>;

const KEYS: usize = 100_000;

/// Returns diffs of `count` keys of 20 bytes, starting with number `first`. All expire at the same
/// time, as those of a window do.
fn batch(first: usize, count: usize, expires_in: Duration) -> Vec<Diff> {
    let keys = first as u64 + 1..(first + count) as u64 + 1;
    let keys = keys.map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let diffs = keys.map(|key| hits(&format!("{key:020}"), 1));
    diffs.map(|diff| Diff { expires_in, ..diff }).collect()
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

/// Runs a cycle: pushes all keys, and fetches the other nodes' changes.
async fn cycle(server: &Server, node: &mut Node, size: usize) -> usize {
    let mut fetched = 0;
    let left = Duration::from_secs_f64(3600.0 - now(server) % 3600.0 + 3600.0);
    for first in (0..KEYS).step_by(size) {
        fetched += push(node, batch(first, size.min(KEYS - first), left)).await.0;
    }
    loop {
        let (counts, has_more) = push(node, vec![]).await;
        fetched += counts;
        if !has_more {
            return fetched;
        }
    }
}

/// Returns the server's time in seconds.
fn now(server: &Server) -> f64 {
    let now = server.value("SELECT extract(epoch FROM clock_timestamp())");
    now.parse().unwrap()
}

#[test]
fn postgres_takes() {
    let server = Server::start(&["shared_buffers=128MB"]);
    let size_of = |table: &str| {
        server.value(&format!(
            "SELECT pg_size_pretty(pg_table_size('{table}')) || ' and indexes ' ||
                pg_size_pretty(pg_indexes_size('{table}'))"
        ))
    };
    block_on(async {
        for size in [320, 500] {
            let namespace = format!("batches-of-{size}");
            let mut nodes = Vec::new();
            for _ in 0..3 {
                let store = connect(server.tcp(), "public");
                nodes.push(Node::join(store, shard(&namespace)).await);
            }
            for (what, node) in [
                ("push new keys", 0),
                ("push the same keys, fetch", 1),
                ("push the same keys, fetch", 0),
                ("push the same keys, fetch", 1),
            ] {
                let node = &mut nodes[node];
                let start = now(&server);
                let fetched = cycle(&server, node, size).await;
                let took = now(&server) - start;
                println!(
                    "batches of {size}: {what}: {KEYS} pushed, {fetched} fetched, {took:.2} s"
                );
            }
            let three = &mut nodes[2];
            let start = now(&server);
            let mut fetched = 0;
            loop {
                let (counts, has_more) = push(three, vec![]).await;
                fetched += counts;
                if !has_more {
                    break;
                }
            }
            let took = now(&server) - start;
            println!("batches of {size}: fetch alone: {fetched} fetched, {took:.2} s");
            let start = now(&server);
            let all = three.read_all(&[(MINUTE, 7)]).await.len();
            let took = now(&server) - start;
            println!("read all: {all} in {took:.2} s");
            let start = now(&server);
            join_all(nodes.iter_mut().map(|node| cycle(&server, node, size))).await;
            let took = now(&server) - start;
            println!("batches of {size}: 3 nodes at once: {KEYS} pushed by each, {took:.2} s");
            println!("counters: {}", size_of("rl_counters"));
            println!("changes: {}", size_of("rl_counters_changes"));
            println!(
                "updates in place: {}",
                server.value(
                    "SELECT n_tup_hot_upd || ' of ' || n_tup_upd FROM pg_stat_user_tables
                     WHERE relname = 'rl_counters'"
                )
            );
            let node = &mut nodes[0];
            server.ask("UPDATE rl_counters_epochs SET ended_at = now()");
            let start = now(&server);
            let mut steps = 1;
            while node.store.purge(&node.shard, UnixMillis(0)).await.unwrap() {
                steps += 1;
            }
            let took = now(&server) - start;
            println!("purge of {KEYS} counts: {steps} steps, {took:.2} s");
            server.ask("VACUUM");
        }
    });
}

/// `cargo test --release --no-default-features --features measure -- --nocapture postgres_decides`
///
/// The server's cost is the same in a debug build, in which the nodes are slower.
#[test]
fn postgres_decides() {
    const ROUNDS: usize = 200;
    let server = Server::start(&["shared_buffers=128MB"]);
    let questions = |first: usize, count: usize, hits: i64| -> Vec<Question> {
        let keys = first as u64 + 1..(first + count) as u64 + 1;
        let keys = keys.map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        keys.map(|key| question(&format!("{key:020}"), Algorithm::Sliding, hits)).collect()
    };
    block_on(async {
        let node = || Asking::new(connect(server.tcp(), "public"));
        let mut nodes: Vec<_> = (0..8).map(|_| node()).collect();
        for node in &mut nodes {
            node.ask(&[]).await;
        }
        for (what, sets, hits) in [
            ("different keys, new", 10 * ROUNDS, 100_000),
            ("different keys, known", 5, 100_000),
            ("one key", 0, 1_000_000_000),
            ("different keys, refused", 5, 0),
        ] {
            for count in [1, 16, 64] {
                for some in [1, nodes.len()] {
                    server.ask("TRUNCATE rl_counters");
                    let (cpu, start) = (server.cpu_nanos(), now(&server));
                    let asking = nodes.iter_mut().take(some).enumerate();
                    let asking = asking.map(async |(number, node)| {
                        for round in 0..ROUNDS {
                            let set = (round + number * ROUNDS).checked_rem(sets);
                            let asked = match set {
                                Some(set) => questions(set * count, count, hits),
                                None => vec![questions(0, 1, hits).remove(0); count],
                            };
                            node.ask(&asked).await;
                        }
                    });
                    join_all(asking).await;
                    let (cpu, took) = (server.cpu_nanos() - cpu, now(&server) - start);
                    let exchanges = (some * ROUNDS) as f64;
                    let decisions = exchanges * count as f64;
                    println!(
                        "{what}, {count} at once, {some} nodes: server {:.1} us each; an exchange \
                         after {:.2} ms, {:.0} decisions a second",
                        cpu as f64 / 1000.0 / decisions,
                        took * 1000.0 / ROUNDS as f64,
                        decisions / took
                    );
                }
            }
        }
    });
}

/// `cargo test --release --no-default-features --features measure -- --nocapture postgres_keeps_logs`
#[test]
fn postgres_keeps_logs() {
    const ROUNDS: usize = 2000;
    let server = Server::start(&["shared_buffers=128MB"]);
    block_on(async {
        let mut node = Asking::new(connect(server.tcp(), "public"));
        node.ask(&[]).await;
        for algorithm in [Algorithm::Sliding, Algorithm::Moving] {
            for limit in [100, 100_000] {
                server.ask("TRUNCATE rl_counters, rl_counters_logs");
                let asked = [question("00000000000000000001", algorithm, limit)];
                let (cpu, start) = (server.cpu_nanos(), now(&server));
                for _ in 0..ROUNDS {
                    node.ask(&asked).await;
                }
                let (cpu, took) = (server.cpu_nanos() - cpu, now(&server) - start);
                let entries = "SELECT coalesce(sum(cardinality(times)), 0) || ' entries, ' || count(*)
                    || ' blocks of ' || coalesce(avg(pg_column_size(logs.*))::integer, 0) || ' bytes, '
                    || pg_table_size('rl_counters_logs') || ' and indexes '
                    || pg_indexes_size('rl_counters_logs') FROM rl_counters_logs AS logs";
                println!(
                    "{algorithm:?}, limit {limit}: server {:.0} us each, {:.2} ms; {}",
                    cpu as f64 / 1000.0 / ROUNDS as f64,
                    took * 1000.0 / ROUNDS as f64,
                    server.value(entries)
                );
            }
        }
    });
}

/// Measures the cost of notifying listening nodes of a push.
#[test]
fn postgres_takes_to_tell() {
    const NODES: usize = 10;
    const PUSHES: u32 = 200;
    let server = Server::start(&["shared_buffers=128MB"]);
    block_on(async {
        let mut nodes = Vec::new();
        let mut listeners = Vec::new();
        for number in 0..NODES {
            // Each in a namespace of its own, so that they wait for each other only because of the
            // notifications.
            let store = connect(server.tcp(), "public");
            let node = Node::join(store, shard(&format!("of-{number}"))).await;
            listeners.push(Listener::of(&node));
            nodes.push(node);
        }
        for (counters, is_news, listen) in [
            (1, false, false),
            (1, true, false),
            (1, true, true),
            (100, false, false),
            (100, true, false),
            (100, true, true),
        ] {
            let pushing = nodes.iter_mut().map(async |node| {
                for _ in 0..PUSHES {
                    node.number += 1;
                    let diffs = batch(0, counters, Duration::from_secs(3600));
                    let batch = Batch { is_news, ..node.batch(node.number, diffs) };
                    node.send_batch(&batch).await;
                }
            });
            let pushing = async {
                let start = Instant::now();
                join_all(pushing).await;
                start.elapsed()
            };
            let subscriber = listeners.iter_mut().map(async |listener| {
                loop {
                    listener.store.recv(&listener.subscriptions).await.unwrap();
                }
            });
            let took = match listen {
                false => pushing.await,
                true => {
                    let subscriber = pin!(join_all(subscriber));
                    match select(pin!(pushing), subscriber).await {
                        Either::Left((took, _)) => took,
                        Either::Right(_) => unreachable!("they listen for ever"),
                    }
                }
            };
            let pushes = f64::from(PUSHES) * NODES as f64 / took.as_secs_f64();
            println!(
                "{counters} counters, told: {is_news}, {NODES} listen: {listen}: {pushes:.0} pushes a second"
            );
        }
    });
}

/// Measures 500 pushes a second of 20 busy keys, in a namespace to which all nodes listen, if each push
/// notifies and if only the first of several does.
///
/// `cargo test --release --no-default-features --features measure -- --nocapture postgres_tells_many_nodes`
#[test]
fn postgres_tells_many_nodes() {
    const PUSHES: usize = 2500;
    let exchanges = NonZeroU32::new(1000).unwrap();
    for count in [10, 50, 100] {
        let all = LivingNodes { count: count as u64, place: None };
        for known in [None, Some(all)] {
            let server = Server::start(&["max_connections=300"]);
            block_on(async {
                let (mut nodes, mut listeners) = (Vec::new(), Vec::new());
                for _ in 0..count {
                    let mut node =
                        Node::join(connect(server.tcp(), "public"), shard("crowd")).await;
                    (node.store.living, node.store.exchanges) = (known, exchanges);
                    listeners.push(Listener::of(&node));
                    nodes.push(node);
                }
                let (cpu, start) = (server.cpu_nanos(), Instant::now());
                let pushing = nodes.iter_mut().enumerate().map(async |(index, node)| {
                    let mut times = Vec::new();
                    let first = start + Duration::from_millis(2) * index as u32;
                    let apart = Duration::from_millis(2) * count as u32;
                    let mut due = tokio::time::interval_at(first.into(), apart);
                    for round in 0..PUSHES / count {
                        due.tick().await;
                        node.number += 1;
                        let key = (index + round) * 7 % 20;
                        let keys = [key, (key + 9) % 20];
                        let diffs = keys.map(|key| hits(&format!("{key:020}"), 1)).into();
                        let batch = Batch { is_news: true, ..node.batch(node.number, diffs) };
                        let began = Instant::now();
                        node.position = Some(since(node.send_batch(&batch).await).1);
                        times.push(began.elapsed());
                    }
                    times
                });
                let reads = Cell::new(0);
                let listening =
                    listeners.iter_mut().map(async |Listener { store, subscriptions }| {
                        loop {
                            for news in store.recv(subscriptions).await.unwrap() {
                                subscriptions[0].after = news.position;
                                reads.set(reads.get() + 1);
                            }
                        }
                    });
                let listening = pin!(join_all(listening));
                let Either::Left((times, _)) = select(pin!(join_all(pushing)), listening).await
                else {
                    unreachable!("they listen for ever")
                };
                let took = start.elapsed().as_secs_f64();
                let cpu = (server.cpu_nanos() - cpu) as f64 / 1e9;
                let mut times = times.concat();
                times.sort();
                println!(
                    "{count} nodes, known: {known:?}: {:.0} pushes a second, half of them within {:.1} ms, \
                     99 % within {:.1} ms; {:.0} reads with news a second; {:.0} % of a processor",
                    times.len() as f64 / took,
                    times[times.len() / 2].as_secs_f64() * 1000.0,
                    times[times.len() * 99 / 100].as_secs_f64() * 1000.0,
                    f64::from(reads.get()) / took,
                    100.0 * cpu / took,
                );
            });
        }
    }
}
