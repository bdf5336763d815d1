//! The time for which exchanges occupy a server. It is only printed, since it depends on the
//! machine.
//!
//! `cargo test --release --no-default-features --features measure -- --nocapture redis_is_held`

use core::time::Duration;
use std::cell::RefCell;

use redis::Value;

use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::batch::PageStep;
use crate::store::contract::decision::{AskedCounter, AskedLimit, Question};
use crate::store::contract::strategy::{Batch, Diff, Strategy};
use crate::store::redis::Redis;
use crate::testing::conformance::{
    Asking, HOUR, MINUTE, all_at_once, block_on, hits, moving, question as question_of, shard,
    since,
};
use crate::testing::redis::{Server, connect};

type Node = crate::testing::conformance::Node<Redis>;

/// A server whose times are measured.
struct Watched {
    server: Server,
    /// Processor time of each exchange in microseconds, including parsing and writing.
    cpu: RefCell<Vec<u64>>,
}

impl Watched {
    fn start() -> Watched {
        let server = Server::start(&[
            // With 0, the commands in scripts would be logged too, and the log would be measured.
            "--slowlog-log-slower-than",
            "30",
            "--slowlog-max-len",
            "10000",
            "--appendonly",
            "yes",
        ]);
        Watched { server, cpu: RefCell::default() }
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

    /// Makes one exchange of a batch, or of none without diffs. Returns whether there is more to
    /// fetch.
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
        let mut next = Some(PageStep::default());
        while let Some(step) = next {
            let windows = [(MINUTE, 7)];
            let page = node.store.get_counters(&node.shard, node.epoch, &windows, step);
            (_, next) = self.watch(page).await.unwrap();
        }
    }

    /// Prints the times of the exchanges since the last report: by the server's log, which includes
    /// waiting for a processor, and by processor time.
    fn report(&self, what: &str, command: &str) {
        type Entry = (i64, i64, u64, Vec<Vec<u8>>, Value, Value);
        let log: Vec<Entry> = self.server.ask(&["SLOWLOG", "GET", "10000"]).unwrap();
        let _: Value = self.server.ask(&["SLOWLOG", "RESET"]).unwrap();
        let log = log.into_iter().filter(|(.., words, _, _)| words[0] == command.as_bytes());
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

/// Returns diffs of `count` keys of `length` bytes, starting with number `first`.
fn batch(first: usize, count: usize, length: usize) -> Vec<Diff> {
    let keys = first as u64 + 1..(first + count) as u64 + 1;
    let keys = keys.map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    keys.map(|key| hits(&format!("{key:0length$}"), 1)).collect()
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
                watched.push(&mut one, batch(round * keys, keys, length)).await;
            }
            watched.report(&format!("push {keys} new keys of {length} bytes"), "EVALSHA");
            for round in 0..200 {
                watched.push(&mut two, batch(round * keys, keys, length)).await;
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
        watched.report("push 500 and fetch 500 where there are no others", "EVALSHA");

        let mut one = watched.join("windows").await;
        let mut two = watched.join("windows").await;
        for round in 0..200 {
            let mut diffs = Vec::new();
            for window in 0..10 {
                let more = batch(round * 50, 50, 20).into_iter();
                diffs.extend(more.map(|diff| Diff { window, size: HOUR, ..diff }));
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

/// Returns questions about keys, with one counter and one limit each.
fn questions(count: usize, key: impl Fn(usize) -> usize, hits: i64) -> Vec<Question> {
    let name = |index| format!("{:020}", key(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let of_key = |index| question_of(&name(index), Algorithm::Sliding, hits);
    (0..count).map(of_key).collect()
}

/// Asks the questions of many nodes, each again as soon as it was answered; or of one node.
async fn ask_for_a_while(nodes: &mut [Asking<Redis>], asked: &[Vec<Question>]) {
    let ask = async |node: &mut Asking<Redis>| {
        for questions in asked {
            node.ask(questions).await;
        }
    };
    all_at_once(nodes.iter_mut().map(ask).collect()).await;
}

/// `cargo test --release --no-default-features --features measure -- --nocapture decisions_cost`
///
/// With one node, the server waits for each exchange, so its caches are cold.
#[test]
fn decisions_cost() {
    const ROUNDS: usize = 200;
    let server = Server::start(&[]);
    block_on(async {
        let node = || Asking::new(connect(server.tcp()));
        let mut nodes: Vec<_> = (0..8).map(|_| node()).collect();
        for (what, sets, hits) in [
            ("different keys, new", ROUNDS, 100_000),
            ("different keys, known", 5, 100_000),
            ("one key", 0, 1_000_000_000),
            ("different keys, refused", 5, 0),
        ] {
            for count in [1, 16, 32, 64, 128] {
                let first = |round| if sets == 0 { 0 } else { round % sets * count };
                let key = |round, index| if sets == 0 { 0 } else { first(round) + index };
                let of_round = |round| questions(count, |index| key(round, index), hits);
                let asked: Vec<_> = (0..ROUNDS).map(of_round).collect();
                let mut each = Vec::new();
                for some in [1, nodes.len()] {
                    let _: String = server.ask(&["FLUSHALL"]).unwrap();
                    // The first exchanges take longer.
                    ask_for_a_while(&mut nodes[..some], &asked[..ROUNDS / 10]).await;
                    let (rest, before) = (&asked[ROUNDS / 10..], server.cpu_nanos());
                    ask_for_a_while(&mut nodes[..some], rest).await;
                    let spent = (server.cpu_nanos() - before) as f64 / 1000.0;
                    each.push(spent / (some * rest.len() * count) as f64);
                }
                println!("{what}, {count} at once: {:.2} and {:.2} µs each", each[0], each[1]);
            }
        }
    });
}

/// `cargo test --release --no-default-features --features measure -- --nocapture kinds_cost`
///
/// For each algorithm, with keys whose windows are full of hits, some of which leave in each
/// exchange.
#[test]
fn kinds_cost() {
    const ROUNDS: usize = 400;
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes: Vec<_> = (0..8).map(|_| Asking::new(connect(server.tcp()))).collect();
        for limit in [100, 100_000] {
            for count in [1, 16, 128] {
                for algorithm in
                    [Algorithm::Sliding, Algorithm::Elastic, Algorithm::Bucket, Algorithm::Moving]
                {
                    let _: String = server.ask(&["FLUSHALL"]).unwrap();
                    let of_key = |index: usize| {
                        let mut question = question_of(&format!("{index:020}"), algorithm, limit);
                        let counter = &mut question.counters[0];
                        counter.kind = counter.kind.at_rate(Hits::from_thousandths(limit * 1000));
                        counter.size = WindowSize::from_millis(200).unwrap();
                        question
                    };
                    let asked: Vec<Question> = (0..count).map(of_key).collect();
                    let asked = vec![asked; ROUNDS];
                    ask_for_a_while(&mut nodes, &asked[..ROUNDS / 2]).await;
                    let before = server.cpu_nanos();
                    ask_for_a_while(&mut nodes, &asked).await;
                    let spent = (server.cpu_nanos() - before) as f64 / 1000.0;
                    let each = spent / (nodes.len() * ROUNDS * count) as f64;
                    println!("{algorithm:?}, limit {limit}, {count} at once: {each:.2} µs each");
                }
            }
        }
    });
}

/// `cargo test --release --no-default-features --features measure -- --nocapture long_logs`
///
/// Logs of nearly the most hits.
#[test]
fn long_logs_hold_a_server() {
    let watched = Watched::start();
    let window = WindowSize::from_millis(600_000).unwrap();
    let asked = |cost: i64| -> Vec<Question> {
        let of_key = |key| moving(&format!("{key:020}"), window, 100_000_000, cost);
        let all: Vec<_> = (0..Question::MAX_AT_ONCE).map(of_key).collect();
        let at_once = Question::at_once(&all);
        all[..at_once].to_vec()
    };
    block_on(async {
        let mut node = Asking::new(connect(watched.server.tcp()));
        let now = node.ask(&asked(0)).await.now.0;
        let epoch: String = watched.server.ask(&["HGET", "rl:{api:0}", "epoch"]).unwrap();
        let fill = |gone: u64| {
            let entries = (0..gone + 99_000).flat_map(|number| {
                let at = now - window.millis() + 2000 * number / gone.max(1);
                let at = if number < gone { at - 3000 } else { now - 90_000 + number - gone };
                let [_, _, time @ ..] = if number == 0 { [0; 8] } else { at.to_be_bytes() };
                let sum = number as u32 * 1000;
                time.into_iter().chain(sum.to_be_bytes())
            });
            let log: Vec<u8> = entries.collect();
            for question in asked(0) {
                let key = String::from_utf8(question.counters[0].key.to_vec()).unwrap();
                let key = format!("rl:{{api:0}}:{epoch}:m600000:{key}");
                watched.server.set(&key, &log);
            }
        };
        for (what, gone, cost, rounds) in [
            ("none has left", 1, 1000, 20),
            ("half has left, not noted", 90_000, 0, 20),
            ("half has left, noted", 90_000, 1000, 20),
            ("more than half has left: they are rewritten", 100_000, 1000, 100),
        ] {
            fill(gone);
            let questions = asked(cost);
            for _ in 0..rounds {
                watched.watch(node.ask(&questions)).await;
            }
            watched.report(&format!("{}, {what}", questions.len()), "EVALSHA");
        }
    });
}

/// Measures exchanges of the largest size: many limits, long keys.
///
/// `cargo test --release --no-default-features --features measure -- --nocapture large_questions`
#[test]
fn large_questions_hold_a_server() {
    let watched = Watched::start();
    block_on(async {
        let mut node = Asking::new(connect(watched.server.tcp()));
        for (limits, length) in [(1, 20), (1, 272), (4, 20), (20, 20), (20, 272)] {
            let mut asked = 0;
            for round in 0..100 {
                let questions: Vec<_> = (0..Question::MAX_AT_ONCE)
                    .map(|index| {
                        let key = format!("{:0length$}", round * Question::MAX_AT_ONCE + index);
                        let mut question = question_of(&key, Algorithm::Sliding, 1);
                        let (counter, limit) = (question.counters[0].clone(), question.limits[0]);
                        for number in 1..limits {
                            let millis = WindowSize::MAX_MILLIS - number as u64;
                            question.counters.push(AskedCounter {
                                size: WindowSize::from_millis(millis).unwrap(),
                                ..counter.clone()
                            });
                            question.limits.push(AskedLimit { counter: number, ..limit });
                        }
                        question
                    })
                    .collect();
                asked = Question::at_once(&questions);
                watched.watch(node.ask(&questions[..asked])).await;
            }
            let what = format!("{asked} questions of {limits} limits and keys of {length} bytes");
            watched.report(&what, "EVALSHA");
        }
    });
}

/// `cargo test --release --no-default-features --features measure -- --nocapture news_cost`
///
/// News of one node, further apart than a run lasts, and of many nodes at a steady rate: the time of
/// the script, and processor time of the server.
#[test]
fn news_cost() {
    for (what, nodes, keys, pause, rounds) in [
        ("1 key, alone", 1, 1, 25_000, 400),
        ("320 keys, alone", 1, 320, 25_000, 200),
        ("1 key, 50 nodes, 2000 a second", 50, 1, 500, 8000),
        ("20 keys, 50 nodes, 2000 a second", 50, 20, 500, 8000),
    ] {
        let watched = Watched::start();
        let server = &watched.server;
        block_on(async {
            let mut all = Vec::new();
            for _ in 0..nodes {
                all.push(watched.join("api").await);
            }
            let mut next = tokio::time::interval(Duration::from_micros(pause));
            next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let mut before = 0;
            for round in 0..rounds {
                if round == rounds / 10 {
                    let _: String = server.ask(&["CONFIG", "RESETSTAT"]).unwrap();
                    before = server.cpu_nanos();
                }
                next.tick().await;
                let node: &mut Node = &mut all[round % nodes];
                node.number += 1;
                let diffs = batch(0, keys, 20);
                let batch = Batch { is_news: true, ..node.batch(node.number, diffs) };
                let pushed = node.store.push_diffs(&node.shard, &batch, Batch::MAX_DIFFS).await;
                let (_, position, _) = since(pushed.unwrap());
                node.position = Some(position);
            }
            let spent = (server.cpu_nanos() - before) as f64 / 1000.0;
            let spent = spent / (rounds - rounds / 10) as f64;
            let statistics: String = server.ask(&["INFO", "commandstats"]).unwrap();
            let of_script = statistics.lines().find(|line| line.starts_with("cmdstat_evalsha"));
            println!("{what}: {spent:.1} µs; {}", of_script.unwrap_or_default());
        });
    }
}
