//! A load of many keys in one namespace: busy ones, which the nodes judge together, and a trickle of hits to
//! others; and probes, which measure when all nodes know of a hit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::client::{self, Client, Due, Outcome, hits_of, now};
use crate::library::Library;
use crate::oracle::{Limit, Window, judge};
use crate::random::Random;
use crate::{NANOS, percentile};

/// Requests of the fill that wait for an answer.
const FILLING: usize = 200;

/// Pause after a probe, on average, in nanoseconds.
pub(crate) const PAUSE: u64 = 250 * NANOS;

/// Longest time for which a probe waits for the nodes.
pub(crate) const PATIENCE: u64 = 20_000 * NANOS;

/// The times after which nodes knew of a probe, in nanoseconds.
pub(crate) type Probed = Vec<u64>;

/// The load.
struct Load {
    /// Keys.
    busy: u64,
    /// Hits of each request for a busy key.
    cost: u64,
    /// Requests in a second for all busy keys.
    requests: u64,
    /// Other keys.
    others: u64,
    /// Hits in a second for all others.
    trickle: u64,
}

/// Sends a load from `start` on, in milliseconds since 1970, for so many windows. See `main.rs`.
pub(crate) fn run(ports: &[u16], limit: Limit, span: (u64, u64), load: &[u64], seed: u64) {
    let load = Load::new(load);
    if span.1 == 0 {
        return fill(ports, load.others, seed);
    }
    let (dues, keys) = load.arrivals(ports.len(), limit, span, seed);
    let is_over = &AtomicBool::new(false);
    let (outcomes, probes) = std::thread::scope(|scope| {
        // The cluster gets used to the load in the first window.
        let begin = (span.0 + limit.window) * NANOS;
        let prober = scope.spawn(move || probe(ports, begin, is_over, seed));
        let outcomes = client::send(ports, &dues);
        is_over.store(true, Ordering::Relaxed);
        (outcomes, prober.join().expect("probes"))
    });
    println!("{}", load.line(limit, span, (&dues, &keys), &outcomes, probes));
}

/// Plays a load with nodes of the library, which have no other keys.
pub(crate) fn play(library: &Library, limit: Limit, windows: u64, load: &[u64], seed: u64) {
    let (load, span) = (Load::new(load), (Library::next_window(limit), windows));
    let (dues, keys) = load.arrivals(library.len(), limit, span, seed);
    let begin = (span.0 + limit.window) * NANOS;
    let (outcomes, probes) = library.send(&dues, load.cost, begin, seed);
    println!("{}", load.line(limit, span, (&dues, &keys), &outcomes, probes));
}

/// Counts a hit of each of the other keys, at any node, as fast as they answer.
fn fill(ports: &[u16], others: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut client = Client::new(ports);
    for key in 0..others {
        let node = random.below(ports.len() as u64) as usize;
        client.request(node, &format!("/other?k=o{key}"));
        while client.waiting() >= FILLING {
            client.wait(NANOS);
        }
    }
    while client.waiting() > 0 {
        client.wait(NANOS);
    }
    let refused = client.outcomes.iter().filter(|outcome| outcome.status != 200).count();
    assert_eq!(refused, 0, "a node refused a hit of the fill");
}

impl Load {
    fn new(numbers: &[u64]) -> Load {
        let &[busy, cost, requests, others, trickle] = numbers else {
            panic!("five numbers: see scripts/converge/main.rs")
        };
        Load { busy, cost, requests, others, trickle }
    }

    /// Returns the requests from `start` on, and the number of the busy key of each.
    fn arrivals(
        &self,
        nodes: usize,
        limit: Limit,
        (start, windows): (u64, u64),
        seed: u64,
    ) -> (Vec<Due>, Vec<Option<u64>>) {
        let end = windows * limit.window * NANOS;
        let mut random = Random::new(seed);
        let mut all = Vec::new();
        for (rate, keys, is_busy) in
            [(self.requests, self.busy, true), (self.trickle, self.others, false)]
        {
            let mut at = 0;
            if rate * keys == 0 {
                continue;
            }
            loop {
                at += random.exponential(1000 * NANOS / rate);
                if at >= end {
                    break;
                }
                let key = random.below(keys);
                let path = match is_busy {
                    true => format!("/busy?k=b{key}&c={}", self.cost),
                    false => format!("/other?k=o{key}"),
                };
                let node = random.below(nodes as u64) as usize;
                let due = Due { at: start * NANOS + at, node, path };
                all.push((due, is_busy.then_some(key)));
            }
        }
        all.sort_by_key(|(due, _)| due.at);
        all.into_iter().unzip()
    }

    /// Formats the result.
    fn line(
        &self,
        limit: Limit,
        span: (u64, u64),
        (dues, keys): (&[Due], &[Option<u64>]),
        outcomes: &[Outcome],
        probes: Vec<Probed>,
    ) -> Value {
        let judged = judge_keys(keys, outcomes, limit, span, self);
        let lateness = dues.iter().zip(outcomes).map(|(due, it)| it.sent - due.at);
        let mut lateness: Vec<u64> = lateness.collect();
        let answered = || outcomes.iter().filter(|it| it.status != 0);
        let mut took: Vec<u64> = answered().map(|it| it.answered - it.sent).collect();
        let mut line = json!({
            "requests": dues.len(),
            "hits": keys.iter().map(|key| key.map_or(1, |_| self.cost)).sum::<u64>(),
            "others": dues.len() - outcomes.iter().filter(|it| matches!(it.status, 200 | 429)).count(),
            "windows": judged.iter().map(|it| [it.nodes, it.central, it.refused_with_room]).collect::<Vec<_>>(),
            "late_p99_ms": percentile(&mut lateness, 99) / 1e6,
            "answer_p50_ms": percentile(&mut took, 50) / 1e6,
            "answer_p99_ms": percentile(&mut took, 99) / 1e6,
        });
        line.as_object_mut().expect("an object").extend(known(probes));
        line
    }
}

/// Formats the times after which one node, and all of them, knew of a hit.
pub(crate) fn known(probes: Vec<Probed>) -> Map<String, Value> {
    let everywhere = probes.iter().map(|it| it.iter().copied().max().unwrap_or(0));
    let mut everywhere: Vec<u64> = everywhere.collect();
    let mut each: Vec<u64> = probes.into_iter().flatten().collect();
    let known = json!({
        "probes": everywhere.len(),
        "known_p50_ms": percentile(&mut each, 50) / 1e6,
        "known_p99_ms": percentile(&mut each, 99) / 1e6,
        "everywhere_p50_ms": percentile(&mut everywhere, 50) / 1e6,
        "everywhere_p99_ms": percentile(&mut everywhere, 99) / 1e6,
    });
    known.as_object().expect("an object").clone()
}

/// Judges each busy key by itself; returns the sums of the windows.
fn judge_keys(
    keys: &[Option<u64>],
    outcomes: &[Outcome],
    limit: Limit,
    (start, windows): (u64, u64),
    load: &Load,
) -> Vec<Window> {
    let mut sums = vec![Window::default(); windows as usize];
    for key in 0..load.busy {
        let of_key = keys.iter().zip(outcomes).filter(|(of, _)| **of == Some(key));
        let of_key = of_key.map(|(_, outcome)| outcome);
        let hits = hits_of(of_key, load.cost);
        let judged = judge(&hits, limit, start / limit.window, windows);
        for (sum, window) in sums.iter_mut().zip(judged) {
            sum.nodes += window.nodes;
            sum.central += window.central;
            sum.refused_with_room += window.refused_with_room;
        }
    }
    sums
}

/// Counts a hit at a node, one after another, each of a key whose limit is 2, so that it is pushed at once; asks all
/// others until they know of it. Returns, for each, the times after which they did, in nanoseconds.
fn probe(ports: &[u16], start: u64, is_over: &AtomicBool, seed: u64) -> Vec<Probed> {
    let mut random = Random::new(seed + 2);
    let mut client = Client::new(ports);
    let mut probes = Vec::new();
    std::thread::sleep(Duration::from_nanos(start.saturating_sub(now())));
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_nanos(random.below(2 * PAUSE)));
        let (number, node) = (probes.len(), random.below(ports.len() as u64) as usize);
        let hit = client.request(node, &format!("/probe?k=p{number}&c=1"));
        while client.outcomes[hit].status == 0 {
            client.wait(NANOS);
        }
        let begin = client.outcomes[hit].sent;
        let others = (0..ports.len()).filter(|&other| other != node);
        let others: Vec<usize> = others.collect();
        probes.push(ask(&mut client, &others, number, begin));
    }
    probes
}

/// Asks nodes until they know of a probe: after a millisecond, and then again after an eighth of the time.
fn ask(client: &mut Client, nodes: &[usize], number: usize, begin: u64) -> Vec<u64> {
    let path = format!("/probe?k=p{number}&c=0");
    let mut known = Vec::new();
    // The node, when to ask it, and the request that it has not answered.
    let mut asked: Vec<(usize, u64, Option<usize>)> =
        nodes.iter().map(|&node| (node, begin + NANOS, None)).collect();
    while !asked.is_empty() {
        let time = now();
        asked.retain_mut(|(node, at, request)| {
            if let Some(outcome) = request.map(|index| client.outcomes[index]) {
                if outcome.status == 0 {
                    return true;
                }
                let age = outcome.answered - begin;
                if outcome.total >= 1.0 || age > PATIENCE {
                    known.push(age);
                    return false;
                }
                (*at, *request) = (outcome.answered + (age / 8).max(NANOS), None);
            }
            if *at <= time {
                *request = Some(client.request(*node, &path));
            }
            true
        });
        client.wait(NANOS / 2);
    }
    known
}
