//! Sends hits to the nodes of a cluster, and says how far they were from one limiter: what
//! `scripts/converge.sh` runs.
//!
//!     converge SEED WINDOWS START PORT,PORT... LIMIT/MILLIS fixed|sliding PATTERN...
//!
//! Each PATTERN is a lane: the first one's requests are for `/lane/0`, and so on. All begin at START, in
//! milliseconds since 1970, which is when a window starts. A line for each lane is printed, in JSON. Its
//! arrivals are the same of a seed, whatever else is sent.
//!
//! - [`arrivals`], [`random`]: when hits arrive
//! - [`client`]: sends them
//! - [`oracle`]: judges the answers
//! - [`many`]: instead of patterns, a load of many keys
//! - [`library`]: instead of ports, nodes of the library in this process
//!
//! With `many BUSY COST REQUESTS OTHERS TRICKLE` instead of patterns, it sends that load, and prints one line; with no
//! windows, it counts a hit of each of the other keys, and prints nothing.
//!
//! With `library:redis:PORT:NODES` (or `postgres`) instead of ports, it starts so many nodes, chooses START itself,
//! and prints it first. The last line is of the probes.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement ends by panicking, and has no large numbers"
)]

mod arrivals;
mod client;
mod library;
mod many;
mod oracle;
#[path = "../accuracy/random.rs"]
mod random;

use arrivals::{Pattern, Span};
use client::{Due, Outcome};
use library::Library;
use oracle::{Limit, judge};
use random::Random;
use serde_json::{Value, json};

const NANOS: u64 = 1_000_000;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().expect("an argument more: see scripts/converge/main.rs");
    let number = |word: String| word.parse::<u64>().expect("a number");
    let (seed, windows, start) = (number(word()), number(word()), number(word()));
    let nodes = word();
    let quota = word();
    let (hits, window) = quota.split_once('/').expect("LIMIT/MILLIS");
    let limit = Limit {
        hits: number(hits.to_owned()),
        window: number(window.to_owned()),
        is_sliding: word() == "sliding",
    };
    let lanes: Vec<String> = words.collect();
    let load = || lanes[1..].iter().map(|word| number(word.clone())).collect::<Vec<u64>>();
    let is_many = lanes.first().is_some_and(|word| word == "many");
    if let Some(nodes) = nodes.strip_prefix("library:") {
        let library = Library::start(nodes, limit);
        if is_many {
            return many::play(&library, limit, windows, &load(), seed);
        }
        let start = Library::next_window(limit);
        let all = arrivals(&lanes, library.len(), limit, (start, windows), seed);
        let begin = (start + limit.window) * NANOS;
        let (outcomes, probes) = library.send(&all, 1, begin, seed);
        print_lanes(&lanes, limit, (start, windows), &all, &outcomes);
        return println!("{}", Value::from(many::known(probes)));
    }
    let ports = nodes.split(',').map(|port| port.parse().expect("a port")).collect::<Vec<u16>>();
    if is_many {
        return many::run(&ports, limit, (start, windows), &load(), seed);
    }
    let all = arrivals(&lanes, ports.len(), limit, (start, windows), seed);
    print_lanes(&lanes, limit, (start, windows), &all, &client::send(&ports, &all));
}

/// Returns the hits of all lanes, in order.
fn arrivals(
    lanes: &[String],
    nodes: usize,
    limit: Limit,
    (start, windows): (u64, u64),
    seed: u64,
) -> Vec<Due> {
    let span = Span { nodes, limit: limit.hits, window: limit.window * NANOS, windows };
    let mut all = Vec::new();
    for (lane, name) in lanes.iter().enumerate() {
        let pattern = Pattern::parse(name).expect("a pattern such as balanced-2");
        let seed = name.bytes().fold(seed, |seed, byte| seed * 31 % (1 << 40) + u64::from(byte));
        let arrivals = pattern.arrivals(&span, &mut Random::new(seed));
        all.extend(arrivals.into_iter().map(|arrival| Due {
            at: start * NANOS + arrival.at,
            node: arrival.node,
            path: format!("/lane/{lane}"),
        }));
    }
    all.sort_by_key(|due| due.at);
    all
}

/// Prints a line for each lane.
fn print_lanes(
    lanes: &[String],
    limit: Limit,
    (start, windows): (u64, u64),
    all: &[Due],
    outcomes: &[Outcome],
) {
    for (lane, name) in lanes.iter().enumerate() {
        let path = format!("/lane/{lane}");
        let of_lane = all.iter().zip(outcomes).filter(|(due, _)| due.path == path);
        let (due, outcomes): (Vec<&Due>, Vec<Outcome>) = of_lane.unzip();
        println!("{}", lane_line(name, limit, start, windows, &due, &outcomes));
    }
}

/// Formats the line of a lane. The first window, in which nodes meet, is not judged.
fn lane_line(
    name: &str,
    limit: Limit,
    start: u64,
    windows: u64,
    due: &[&Due],
    outcomes: &[Outcome],
) -> Value {
    let with = |status: u16| outcomes.iter().filter(move |outcome| outcome.status == status);
    let (admitted, refused) = (with(200).count(), with(429).count());
    let judged = judge(&client::hits_of(outcomes.iter(), 1), limit, start / limit.window, windows);
    let judged = &judged[1.min(judged.len() - 1)..];
    let excess = |window: &oracle::Window| window.nodes as f64 - window.central as f64;
    let of_limit = |excess: f64| 100.0 * excess / limit.hits as f64;
    let (nodes, central, with_room) =
        judged.iter().fold((0, 0, 0), |(nodes, central, room), it| {
            (nodes + it.nodes, central + it.central, room + it.refused_with_room)
        });
    let of_central = |hits: f64| 100.0 * hits / (central.max(1) as f64);
    let excesses = || judged.iter().map(excess);

    let lateness = due.iter().zip(outcomes).map(|(due, outcome)| outcome.sent - due.at);
    let mut lateness: Vec<u64> = lateness.collect();
    let mut took: Vec<u64> = with(200).chain(with(429)).map(|it| it.answered - it.sent).collect();
    let late = lateness.iter().filter(|&&late| late > NANOS).count();
    json!({
        "pattern": name,
        "hits": due.len(),
        "admitted_in_all": admitted,
        "others": due.len() - admitted - refused,
        "admitted": nodes,
        "central": central,
        "over": of_central(nodes as f64 - central as f64),
        "worst": of_limit(excesses().fold(f64::MIN, f64::max)),
        "least": of_limit(excesses().fold(f64::MAX, f64::min)),
        "refused_with_room": of_central(with_room as f64),
        "late": 100.0 * late as f64 / due.len().max(1) as f64,
        "late_p99_ms": percentile(&mut lateness, 99) / 1e6,
        "answer_p50_ms": percentile(&mut took, 50) / 1e6,
        "answer_p99_ms": percentile(&mut took, 99) / 1e6,
        "windows": judged.iter().map(|it| [it.nodes, it.central]).collect::<Vec<_>>(),
    })
}

fn percentile(values: &mut [u64], percent: usize) -> f64 {
    values.sort_unstable();
    let at = values.len().saturating_sub(1) * percent / 100;
    values.get(at).map_or(0.0, |&value| value as f64)
}
