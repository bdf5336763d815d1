//! Nodes of the library in this process, instead of nginx: each an instance with its own memory, so that the
//! store sees as many nodes. They get the same hits, and probes.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use ngx_http_rate_limiting_module::library::{
    Datastore, Instance, LimiterOptions, Memory, NewOptions, RateLimiter, WindowType, new_instance,
};
use serde_json::json;

use crate::NANOS;
use crate::client::{Due, Outcome, hurry, now};
use crate::many::{PATIENCE, PAUSE, Probed};
use crate::oracle::Limit;
use crate::random::Random;

/// The `sync_rate` of the nodes.
const PERIOD: Duration = Duration::from_secs(5);

/// The window of probes.
const HOUR: Duration = Duration::from_secs(3600);

/// The nodes.
pub(crate) struct Library(Vec<Node>);

struct Node {
    instance: Instance,
    limiter: RateLimiter,
    /// Its hits are near its limit, so that they are pushed at once.
    probes: RateLimiter,
}

impl Library {
    /// Starts the nodes that `words` describe: a store's kind, its port, and their number, such as `redis:6379:300`.
    /// Returns when all have met the store.
    pub(crate) fn start(words: &str, limit: Limit) -> Library {
        let words: Vec<&str> = words.split(':').collect();
        let &[kind, port, count] = &*words else {
            panic!("a store, its port, and a number of nodes")
        };
        let server = format!("127.0.0.1:{port}");
        let mut options =
            vec![("server", server.as_str()), ("connect_timeout", "30s"), ("timeout", "30s")];
        options.extend((kind == "postgres").then_some(("username", "postgres")));
        let store = Datastore::new(kind, options).expect("a store");
        let count = count.parse::<usize>().expect("a number of nodes");
        let library = Library((0..count).map(|number| Node::new(number, &store, limit)).collect());
        // A few at once, as nodes that are started one after another.
        for nodes in library.0.chunks(20) {
            scope(|scope| {
                nodes.iter().for_each(|node| drop(scope.spawn(|| node.meet())));
            });
        }
        // In the next cycle of the timer, each node learns how many have met the store.
        sleep(PERIOD + PERIOD / 5);
        library
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the start of a window that leaves some time, in milliseconds since 1970, and prints it.
    pub(crate) fn next_window(limit: Limit) -> u64 {
        let start = (now() / NANOS / limit.window + 2) * limit.window;
        println!("{}", json!({ "start": start }));
        std::io::stdout().flush().expect("an output");
        start
    }

    /// Makes each request when it is due, of so many hits, and probes from `begin` on, in nanoseconds since 1970.
    pub(crate) fn send(
        &self,
        dues: &[Due],
        cost: u64,
        begin: u64,
        seed: u64,
    ) -> (Vec<Outcome>, Vec<Probed>) {
        let is_over = AtomicBool::new(false);
        scope(|scope| {
            let prober = scope.spawn(|| self.probe(begin, &is_over, seed));
            hurry();
            let outcomes = dues.iter().map(|due| {
                sleep(Duration::from_nanos(due.at.saturating_sub(now())));
                self.0[due.node].hit(&due.path, cost)
            });
            let outcomes = outcomes.collect();
            is_over.store(true, Ordering::Relaxed);
            (outcomes, prober.join().expect("probes"))
        })
    }

    /// Counts a hit at a node, one after another, each of a key whose limit is 2. Returns the times after which the
    /// other nodes knew of it, in nanoseconds.
    fn probe(&self, begin: u64, is_over: &AtomicBool, seed: u64) -> Vec<Probed> {
        let mut random = Random::new(seed + 2);
        let mut probes = Vec::new();
        sleep(Duration::from_nanos(begin.saturating_sub(now())));
        while !is_over.load(Ordering::Relaxed) {
            sleep(Duration::from_nanos(random.below(2 * PAUSE)));
            let key = format!("probe {}", probes.len());
            let begin = now();
            let node = random.below(self.0.len() as u64) as usize;
            self.0[node].probes.incoming(&key, true).expect("a decision");
            let others = self.0.iter().enumerate().filter(|&(number, _)| number != node);
            let mut asked: Vec<&Node> = others.map(|(_, node)| node).collect();
            let mut known = Vec::new();
            while !asked.is_empty() {
                let age = now() - begin;
                asked.retain(|node| {
                    let is_waiting = age < PATIENCE && node.rate(&key) < 1.0;
                    known.extend((!is_waiting).then_some(age));
                    is_waiting
                });
                // Seldom enough to leave the processors to the nodes.
                sleep(Duration::from_nanos(NANOS + age / 16));
            }
            probes.push(known);
        }
        probes
    }
}

impl Node {
    fn new(number: usize, store: &Datastore, limit: Limit) -> Node {
        let window = Duration::from_millis(limit.window);
        let instance = new_instance(&format!("node {number}")).expect("an instance");
        let options = NewOptions::new(&Memory::heap(1 << 20).expect("memory"));
        let options = options.window_sizes([window, HOUR]).sync_rate(PERIOD);
        instance.new(&options.strategy(store.clone())).expect("a namespace");
        let limiter = |hits: u64, window, is_sliding| {
            let options = LimiterOptions::window(hits as f64, window);
            let options = match is_sliding {
                true => options,
                false => options.window_type(WindowType::Fixed),
            };
            instance.limiter(&options).expect("a limiter")
        };
        let (limiter, probes) =
            (limiter(limit.hits, window, limit.is_sliding), limiter(2, HOUR, false));
        Node { instance, limiter, probes }
    }

    /// Syncs for the first time, which starts the timer.
    fn meet(&self) {
        self.instance.sync(None).expect("a store");
    }

    fn hit(&self, key: &str, cost: u64) -> Outcome {
        let sent = now();
        let decision = self.limiter.incoming_hits(key, cost as f64, true).expect("a decision");
        let status = if decision.is_admitted { 200 } else { 429 };
        Outcome { sent, answered: now(), status, millis: sent / NANOS, total: decision.rate }
    }

    fn rate(&self, key: &str) -> f64 {
        self.instance.sliding_window(key, HOUR, None, None, Some(0.0)).expect("a rate")
    }
}
