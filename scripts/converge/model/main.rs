//! A model of many nodes, which shows how much they admit beyond one limiter, and how many exchanges
//! they make: `scripts/converge.sh --model`.
//!
//!     convergence-model SEED WINDOWS
//!
//! Prints a table for each number of nodes, with the rules of the product and others that were
//! tried. Arrivals and the oracle are those of the measurement with real nodes.
//!
//! - [`cluster`]: nodes and their store
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model ends by panicking, and has no large numbers"
)]

#[path = "../arrivals.rs"]
mod arrivals;
mod cluster;
#[path = "../oracle.rs"]
mod oracle;
#[path = "../../accuracy/random.rs"]
mod random;

use std::num::NonZeroU32;

use arrivals::{Pattern, Span};
use cluster::{Cluster, Rules};
use oracle::{Hit, Limit, judge};
use random::Random;

const NANOS: u64 = 1_000_000;
const NODES: [usize; 4] = [10, 50, 100, 300];
const STEADY: [&str; 6] = ["balanced-1", "balanced-2", "balanced-10", "zipf-2", "hot-3", "shift-3"];

/// The product's rules.
const PRODUCT: Rules = Rules {
    exchanges: NonZeroU32::new(5000),
    compares_at_news: true,
    spaces_reads: true,
    estimates: false,
};

const VARIANTS: [(&str, Rules); 6] = [
    (
        "no budget, compared at own hits only",
        Rules { exchanges: None, compares_at_news: false, ..PRODUCT },
    ),
    ("no budget", Rules { exchanges: None, ..PRODUCT }),
    ("5000 exchanges", PRODUCT),
    ("... reads as pushes", Rules { spaces_reads: false, ..PRODUCT }),
    ("... others' hits estimated", Rules { estimates: true, ..PRODUCT }),
    ("1000 exchanges", Rules { exchanges: NonZeroU32::new(1000), ..PRODUCT }),
];

/// The result of a pattern, in percent.
struct Outcome {
    /// Admitted beyond one limiter, of what that admits.
    over: f64,
    /// Refused while all nodes together had admitted less than the limit, likewise.
    refused_with_room: f64,
    /// The time in which the store is busy.
    busy: f64,
    /// Exchanges of all nodes in a second: mean, and in the busiest one.
    exchanges: [f64; 2],
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (seed, windows) = (words.next().expect("SEED"), words.next().expect("WINDOWS"));
    for is_sliding in [false, true] {
        let algorithm = if is_sliding { "sliding" } else { "fixed" };
        println!(
            "\n{algorithm}, 1000 in 5 s; burst: 20 for each node; share 2 %, an exchange takes 2 ms\n"
        );
        println!(
            "nodes rules                                  mean  worst  burst  room  exchanges/s  busiest"
        );
        for nodes in NODES {
            for (name, rules) in VARIANTS {
                let of = |hits, pattern| {
                    let limit = Limit { hits, window: 5000, is_sliding };
                    simulate(rules, limit, (nodes, 1), pattern, seed, windows)
                };
                let steady = STEADY.map(|pattern| of(1000, pattern));
                let burst = of(20 * nodes as u64, "burst-2");
                let most =
                    |get: fn(&Outcome) -> f64| steady.iter().map(get).fold(f64::MIN, f64::max);
                let mean = |get: fn(&Outcome) -> f64| steady.iter().map(get).sum::<f64>() / 6.0;
                println!(
                    "{nodes:5} {name:36} {:6.2} {:6.2} {:6.1} {:5.1} {:12.0} {:8.0}",
                    mean(|it| it.over),
                    most(|it| it.over),
                    burst.over,
                    most(|it| it.refused_with_room).max(burst.refused_with_room),
                    mean(|it| it.exchanges[0]),
                    most(|it| it.exchanges[1]).max(burst.exchanges[1]),
                );
            }
        }
    }
    println!("\n20 busy keys of 10000 in 5 s, sliding, at their limits\n");
    println!("nodes rules                                  mean  exchanges/s  busiest  store busy");
    for nodes in NODES {
        for (name, rules) in [VARIANTS[1], VARIANTS[2]] {
            let limit = Limit { hits: 10_000, window: 5000, is_sliding: true };
            let it = simulate(rules, limit, (nodes, 20), "balanced-1", seed, windows.min(3));
            let [mean, busiest] = it.exchanges;
            println!(
                "{nodes:5} {name:36} {:6.2} {mean:12.0} {busiest:8.0} {:9.1} %",
                it.over, it.busy
            );
        }
    }
}

/// Simulates a pattern, with arrivals of its own for each counter. The first window, in which nodes
/// meet, is not judged.
fn simulate(
    rules: Rules,
    limit: Limit,
    (nodes, counters): (usize, usize),
    pattern: &str,
    seed: u64,
    windows: u64,
) -> Outcome {
    let span = Span { nodes, limit: limit.hits, window: limit.window * NANOS, windows };
    let mut arrivals = Vec::new();
    for counter in 0..counters {
        let seed = pattern.bytes().fold(seed, |seed, byte| seed * 31 % (1 << 40) + u64::from(byte));
        let mut random = Random::new(seed + counter as u64);
        let of = Pattern::parse(pattern).expect("a pattern").arrivals(&span, &mut random);
        arrivals.extend(of.into_iter().map(|arrival| (arrival.at, arrival.node, counter)));
    }
    arrivals.sort_unstable();
    let mut random = Random::new(seed);
    let mut cluster = Cluster::new(rules, limit, (nodes, counters), |end| random.below(end));
    let mut hits = vec![Vec::new(); counters];
    for (at, node, counter) in arrivals {
        let is_admitted = cluster.hit(at, node, counter);
        hits[counter].push(Hit { millis: at / NANOS, cost: 1, is_admitted });
    }
    let judged = hits.iter().flat_map(|hits| judge(hits, limit, 0, windows).into_iter().skip(1));
    let (of_nodes, central, with_room) = judged.fold((0, 0, 0), |(nodes, central, room), it| {
        (nodes + it.nodes, central + it.central, room + it.refused_with_room)
    });
    let of_central = |hits: f64| 100.0 * hits / central as f64;
    let costs = cluster.costs;
    let seconds = (windows * limit.window) as f64 / 1000.0;
    let all: u64 = costs.by_second.values().sum();
    Outcome {
        over: of_central(of_nodes as f64 - central as f64),
        refused_with_room: of_central(with_room as f64),
        busy: 100.0 * costs.busy as f64 / (seconds * 1000.0 * NANOS as f64),
        exchanges: [
            all as f64 / seconds,
            costs.by_second.values().max().map_or(0.0, |&it| it as f64),
        ],
    }
}
