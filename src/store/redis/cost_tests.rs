//! For how long exchanges hold a server: measured, not judged, since that depends on the machine.
//!
//! `cargo test --release --no-default-features --features measure -- --nocapture redis_is_held`

use std::cell::RefCell;

use redis::Value;

use super::Step;
use super::testing::{Server, connect};
use crate::store::conformance::{HOUR, MINUTE, block_on, hits, shard, since};
use crate::store::strategy::{Batch, Diff, Strategy};

type Node = crate::store::conformance::Node<super::Redis>;

/// A server that is watched.
struct Watched {
    server: Server,
    /// Time on the processor of each exchange, in microseconds: with its parsing and writing.
    cpu: RefCell<Vec<u64>>,
}

impl Watched {
    fn start() -> Watched {
        let server = Server::start(&[
            // At 0, what the scripts call would be logged too, and the log would be measured.
            "--slowlog-log-slower-than",
            "30",
            "--slowlog-max-len",
            "10000",
            "--appendonly",
            "yes",
        ]);
        Watched {
            server,
            cpu: RefCell::default(),
        }
    }

    async fn join(&self, namespace: &str) -> Node {
        Node::join(connect(self.server.tcp()), shard(namespace)).await
    }

    async fn watch<T>(&self, exchange: impl Future<Output = T>) -> T {
        let before = self.server.cpu_micros();
        let result = exchange.await;
        let spent = self.server.cpu_micros() - before;
        self.cpu.borrow_mut().push(spent);
        result
    }

    /// One exchange of a batch, of nothing without diffs; returns whether there is more to fetch.
    async fn push(&self, node: &mut Node, diffs: Vec<Diff>) -> bool {
        if !diffs.is_empty() {
            node.number += 1;
        }
        let batch = node.batch(node.number, diffs);
        let push = node.store.push_diffs(&node.shard, &batch, Batch::MAX_DIFFS);
        let (_, position, has_more) = since(self.watch(push).await.unwrap());
        node.position = Some(position);
        has_more
    }

    async fn read_all(&self, node: &mut Node) {
        let mut next = Some(Step::default());
        while let Some(step) = next {
            let windows = [(MINUTE, 7)];
            let page = node
                .store
                .get_counters(&node.shard, node.epoch, &windows, step);
            (_, next) = self.watch(page).await.unwrap();
        }
    }

    /// Prints what the exchanges since the last report took: as the server's log has it, which
    /// includes waiting for a processor, and on the processor.
    fn report(&self, what: &str, command: &str) {
        type Entry = (i64, i64, u64, Vec<Vec<u8>>, Value, Value);
        let log: Vec<Entry> = self.server.ask(&["SLOWLOG", "GET", "10000"]).unwrap();
        let _: Value = self.server.ask(&["SLOWLOG", "RESET"]).unwrap();
        let log = log
            .into_iter()
            .filter(|(.., words, _, _)| words[0] == command.as_bytes());
        println!("{what}");
        print("  log", log.map(|(_, _, micros, ..)| micros).collect());
        print("  cpu", self.cpu.take());
    }
}

fn print(what: &str, mut micros: Vec<u64>) {
    micros.sort_unstable();
    let at = |share: usize| micros[(micros.len() - 1) * share / 100] as f64 / 1000.0;
    println!(
        "{what} {:5} times: median {:.2} ms, 99 % {:.2} ms, longest {:.2} ms",
        micros.len(),
        at(50),
        at(99),
        at(100)
    );
}

/// `count` keys from the key of this number on, which are `length` bytes long.
fn batch(first: usize, count: usize, length: usize) -> Vec<Diff> {
    let keys = first as u64 + 1..(first + count) as u64 + 1;
    let keys = keys.map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    keys.map(|key| hits(&format!("{key:0length$}"), 1))
        .collect()
}

#[test]
fn redis_is_held() {
    let watched = Watched::start();
    block_on(async {
        for length in [20, 60, 128, 4000] {
            let keys = Batch::MAX_DIFFS.min(Batch::MAX_KEY_BYTES / length);
            let mut one = watched.join(&format!("of-{length}")).await;
            let mut two = watched.join(&format!("of-{length}")).await;
            for round in 0..200 {
                watched
                    .push(&mut one, batch(round * keys, keys, length))
                    .await;
            }
            watched.report(
                &format!("push {keys} new keys of {length} bytes"),
                "EVALSHA",
            );
            for round in 0..200 {
                watched
                    .push(&mut two, batch(round * keys, keys, length))
                    .await;
            }
            watched.report(&format!("push {keys} and fetch {keys}"), "EVALSHA");
            while watched.push(&mut one, vec![]).await {}
            watched.report(&format!("fetch {keys}"), "EVALSHA");
            watched.read_all(&mut one).await;
            watched.report("a page", "HSCAN");
        }

        let mut one = watched.join("few").await;
        let mut two = watched.join("few").await;
        for _ in 0..200 {
            watched.push(&mut one, batch(0, 500, 20)).await;
            watched.push(&mut two, batch(0, 500, 20)).await;
        }
        watched.report(
            "push 500 and fetch 500 where there are no others",
            "EVALSHA",
        );

        let mut one = watched.join("windows").await;
        let mut two = watched.join("windows").await;
        for round in 0..200 {
            let mut diffs = Vec::new();
            for window in 0..10 {
                let more = batch(round * 50, 50, 20).into_iter();
                diffs.extend(more.map(|diff| Diff {
                    window,
                    size: HOUR,
                    ..diff
                }));
            }
            watched.push(&mut one, diffs.clone()).await;
            watched.push(&mut two, diffs).await;
        }
        watched.report("push and fetch 50 keys in 10 windows", "EVALSHA");

        let mut one = watched.join("small").await;
        let mut two = watched.join("small").await;
        let mut three = watched.join("small").await;
        for round in 0..3000 {
            watched.push(&mut one, batch(round, 1, 20)).await;
            watched.push(&mut two, batch(round, 1, 20)).await;
        }
        watched.report("push 1 key and fetch 1", "EVALSHA");
        while watched.push(&mut three, vec![]).await {}
        watched.report("fetch many batches of 1 key", "EVALSHA");
    });
}
