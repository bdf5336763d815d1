//! The simulated cluster: nodes that count hits, push early and read, and one store that serves one
//! exchange at a time.
//!
//! The rule for early pushes and the budget of exchanges are the product's own code. An exchange
//! reaches the store after half of its time. Clocks agree, no exchange fails, and no node comes or
//! goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;

use ngx_http_rate_limiting_module::policy::budget::{Exchange, UsedUntil, interval};
use ngx_http_rate_limiting_module::policy::hits::Hits;
use ngx_http_rate_limiting_module::table::EarlyShare;

use crate::NANOS;
use crate::oracle::Limit;

/// The rules of nodes.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Exchanges in a second that all nodes together make; `None` without a bound.
    pub(crate) exchanges: Option<NonZeroU32>,
    /// Whether a counter is compared with its limit when other nodes' hits become known, not only at
    /// this node's own hits.
    pub(crate) compares_at_news: bool,
    /// Whether a busy node's reads are an interval apart, and use a small part of what is saved.
    pub(crate) spaces_reads: bool,
    /// Whether other nodes' hits since the last exchange are estimated by their last speed.
    pub(crate) estimates: bool,
}

/// Costs of a simulated cluster.
#[derive(Default)]
pub(crate) struct Costs {
    /// Exchanges in each second.
    pub(crate) by_second: BTreeMap<u64, u64>,
    /// Time in which the store was busy.
    pub(crate) busy: u64,
}

/// Period of the syncs that do not depend on a limit.
const PERIOD: u64 = 5000 * NANOS;
/// Time of an exchange, and the part of it that the store works: a script, a read.
const EXCHANGE: u64 = 2 * NANOS;
const PUSH_WORK: u64 = 40_000;
const READ_WORK: u64 = 15_000;
/// Pause between early pushes of a node.
const PAUSE: u64 = 4 * NANOS;
/// Time of the first reads.
const FIRST_READS: u64 = 50 * NANOS;

/// Hits in the current window and the previous one.
#[derive(Clone, Copy, Default)]
struct Windows {
    number: u64,
    hits: [i64; 2],
}

/// A counter of a node.
#[derive(Clone, Copy, Default)]
struct Counter {
    own: Windows,
    /// Those of `own` that were sent to the store.
    pushed: Windows,
    others: Windows,
    is_due: bool,
    /// Hits of others per nanosecond, as last seen, and when.
    speed: f64,
    seen: u64,
}

#[derive(Clone, Default)]
struct Node {
    counters: Vec<Counter>,
    used: UsedUntil,
    /// Whether a push is under way, and whether another one must follow.
    is_pushing: bool,
    must_push: bool,
    /// Time of the next early push.
    next_push: Option<u64>,
    last_push: u64,
    last_read: u64,
    /// Whether a read waits at the store.
    is_reading: bool,
    /// Number of the last change in the store that this node knows.
    known: u64,
}

/// A total in the store.
#[derive(Clone, Default)]
struct Total {
    all: Windows,
    by_node: Vec<Windows>,
    /// Number of its last change.
    changed: u64,
}

/// Hits to add to a counter, in the window with this number and the one before.
struct Diff {
    counter: usize,
    diff: Windows,
}

/// Hits of others, as a node learns them.
struct News {
    others: Vec<(usize, Windows)>,
    up_to: u64,
}

enum Event {
    Period,
    PushIsDue,
    AtStore(Vec<Diff>),
    Pushed(News),
    ReadIsDue,
    ReadAtStore,
    Read(News),
}

/// A cluster.
pub(crate) struct Cluster {
    rules: Rules,
    limit: Limit,
    window: u64,
    share: EarlyShare,
    nodes: Vec<Node>,
    totals: Vec<Total>,
    changes: u64,
    /// Time until which the store is busy.
    store_is_busy: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    by_number: BTreeMap<u64, (usize, Event)>,
    number: u64,
    pub(crate) costs: Costs,
}

impl Windows {
    fn turn(&mut self, number: u64) {
        if number > self.number {
            let previous = if number == self.number + 1 { self.hits[0] } else { 0 };
            *self = Windows { number, hits: [0, previous] };
        }
    }

    fn minus(self, other: Windows) -> Windows {
        let hits = [0, 1].map(|at| self.hits[at] - other.hits[at]);
        Windows { hits, ..self }
    }

    /// Adds hits in this window, the one before, or windows that do not matter any more.
    fn add(&mut self, mut other: Windows) {
        other.turn(self.number);
        for (hits, more) in self.hits.iter_mut().zip(other.hits) {
            *hits += more;
        }
    }
}

impl Counter {
    fn turn(&mut self, number: u64) {
        self.is_due &= self.own.number == number;
        for windows in [&mut self.own, &mut self.pushed, &mut self.others] {
            windows.turn(number);
        }
    }

    fn unpushed(&self) -> i64 {
        self.own.hits[0] - self.pushed.hits[0]
    }
}

impl Cluster {
    /// Creates a cluster. `random` returns numbers below its argument.
    pub(crate) fn new(
        rules: Rules,
        limit: Limit,
        (nodes, counters): (usize, usize),
        mut random: impl FnMut(u64) -> u64,
    ) -> Cluster {
        let node = Node { counters: vec![Counter::default(); counters], ..Node::default() };
        let total = Total { by_node: vec![Windows::default(); nodes], ..Total::default() };
        let mut cluster = Cluster {
            rules,
            limit,
            window: limit.window * NANOS,
            share: EarlyShare::of_milli_percent(2000),
            nodes: vec![node; nodes],
            totals: vec![total; counters],
            changes: 0,
            store_is_busy: 0,
            events: BinaryHeap::new(),
            by_number: BTreeMap::new(),
            number: 0,
            costs: Costs::default(),
        };
        for node in 0..nodes {
            cluster.schedule(random(PERIOD), node, Event::Period);
            cluster.schedule(random(FIRST_READS), node, Event::ReadIsDue);
        }
        cluster
    }

    /// Decides about a hit at this time, the latest so far.
    pub(crate) fn hit(&mut self, at: u64, node: usize, counter: usize) -> bool {
        while let Some(&Reverse((time, number))) = self.events.peek()
            && time <= at
        {
            self.events.pop();
            let (of, event) = self.by_number.remove(&number).expect("an event");
            self.run(time, of, event);
        }
        let number = at / self.window;
        let it = &mut self.nodes[node].counters[counter];
        it.turn(number);
        let it = *it;
        let known = self.rate(&it, at);
        let estimate = match self.rules.estimates && it.seen / self.window == number {
            true => it.speed * (at - it.seen + EXCHANGE) as f64,
            false => 0.0,
        };
        let is_admitted = known + estimate + 1.0 <= self.limit.hits as f64;
        if is_admitted {
            self.nodes[node].counters[counter].own.hits[0] += 1;
            self.compare(at, node, counter);
        }
        is_admitted
    }

    fn rate(&self, counter: &Counter, at: u64) -> f64 {
        let [current, previous] =
            [0, 1].map(|window| (counter.own.hits[window] + counter.others.hits[window]) as f64);
        let left = (self.window - at % self.window) as f64 / self.window as f64;
        current + if self.limit.is_sliding { previous * left } else { 0.0 }
    }

    /// Pushes a counter early if it is due.
    fn compare(&mut self, at: u64, node: usize, counter: usize) {
        let it = self.nodes[node].counters[counter];
        let hits = |hits: f64| Hits::from_thousandths((hits * 1000.0) as i64);
        let limit = self.limit.hits as f64;
        let rest = hits(limit - self.rate(&it, at));
        let kept = self.share.kept(self.nodes.len() as u32, hits(limit), rest);
        let is_due = kept.is_some_and(|kept| hits(it.unpushed() as f64) >= kept);
        if is_due && !it.is_due {
            self.nodes[node].counters[counter].is_due = true;
            self.want_push(at, node);
        }
    }

    fn want_push(&mut self, at: u64, node: usize) {
        let it = &mut self.nodes[node];
        if it.is_pushing {
            it.must_push = true;
            return;
        }
        let at = at.max(it.last_push + PAUSE) + it.used.wait(Exchange::Push, at / 1000) * 1000;
        if self.nodes[node].next_push.is_none_or(|next| next > at) {
            self.nodes[node].next_push = Some(at);
            self.schedule(at, node, Event::PushIsDue);
        }
    }

    /// Sends the due counters, or all that changed.
    fn push(&mut self, at: u64, node: usize, is_early: bool) {
        self.count_exchange(at, node);
        let number = at / self.window;
        let mut diffs = Vec::new();
        let it = &mut self.nodes[node];
        for (counter, of) in it.counters.iter_mut().enumerate() {
            of.turn(number);
            let diff = of.own.minus(of.pushed);
            if diff.hits != [0, 0] && (of.is_due || !is_early) {
                of.pushed = of.own;
                diffs.push(Diff { counter, diff });
            }
            of.is_due = false;
        }
        (it.is_pushing, it.must_push, it.next_push, it.last_push) = (true, false, None, at);
        self.schedule(at + EXCHANGE / 2, node, Event::AtStore(diffs));
    }

    fn read(&mut self, at: u64, node: usize) {
        let it = &self.nodes[node];
        let mut next = at + self.read_wait(at, node);
        if self.rules.spaces_reads && !it.used.is_unused(at / 1000) {
            next = next.max(it.last_read + self.interval());
        }
        if next > at {
            self.schedule(next, node, Event::ReadIsDue);
            return;
        }
        self.nodes[node].last_read = at;
        self.count_exchange(at, node);
        self.schedule(at + EXCHANGE / 2, node, Event::ReadAtStore);
    }

    fn read_wait(&self, at: u64, node: usize) -> u64 {
        let kind = if self.rules.spaces_reads { Exchange::Read } else { Exchange::Push };
        self.nodes[node].used.wait(kind, at / 1000) * 1000
    }

    fn interval(&self) -> u64 {
        let exchanges = self.rules.exchanges;
        exchanges.map_or(0, |exchanges| interval(self.nodes.len() as u64, exchanges) * 1000)
    }

    fn count_exchange(&mut self, at: u64, node: usize) {
        let interval = self.interval() / 1000;
        if interval > 0 {
            let used = &mut self.nodes[node].used;
            *used = used.after_exchange(at / 1000, interval);
        }
        *self.costs.by_second.entry(at / (1000 * NANOS)).or_default() += 1;
    }

    fn schedule(&mut self, at: u64, node: usize, event: Event) {
        self.number += 1;
        self.by_number.insert(self.number, (node, event));
        self.events.push(Reverse((at, self.number)));
    }

    fn run(&mut self, at: u64, node: usize, event: Event) {
        match event {
            Event::Period => {
                match self.nodes[node].is_pushing {
                    true => self.nodes[node].must_push = true,
                    false => self.push(at, node, false),
                }
                self.schedule(at + PERIOD, node, Event::Period);
            }
            Event::PushIsDue if self.nodes[node].next_push != Some(at) => {}
            Event::PushIsDue => {
                self.nodes[node].next_push = None;
                let wait = self.nodes[node].used.wait(Exchange::Push, at / 1000);
                match self.nodes[node].is_pushing || wait > 0 {
                    true => self.want_push(at, node),
                    false => self.push(at, node, true),
                }
            }
            Event::AtStore(diffs) => self.apply(at, node, diffs),
            Event::Pushed(news) => {
                self.nodes[node].is_pushing = false;
                self.learn(at, node, news);
                // Hits that came meanwhile.
                for counter in 0..self.totals.len() {
                    self.compare(at, node, counter);
                }
                if self.nodes[node].must_push {
                    self.want_push(at, node);
                }
            }
            Event::ReadIsDue => self.read(at, node),
            Event::ReadAtStore if self.nodes[node].known < self.changes => {
                self.answer_read(at, node);
            }
            Event::ReadAtStore => self.nodes[node].is_reading = true,
            Event::Read(news) => {
                self.learn(at, node, news);
                self.read(at, node);
            }
        }
    }

    /// Adds hits in the store, and wakes the reads that wait.
    fn apply(&mut self, at: u64, node: usize, diffs: Vec<Diff>) {
        let at = self.serve(at, PUSH_WORK);
        let is_change = !diffs.is_empty();
        self.changes += u64::from(is_change);
        for Diff { counter, diff } in diffs {
            let total = &mut self.totals[counter];
            for windows in [&mut total.all, &mut total.by_node[node]] {
                windows.turn(at / self.window);
                windows.add(diff);
            }
            total.changed = self.changes;
        }
        let news = self.news_for(at, node);
        self.schedule(at + EXCHANGE / 2, node, Event::Pushed(news));
        for reading in 0..self.nodes.len() {
            if is_change && self.nodes[reading].is_reading {
                self.nodes[reading].is_reading = false;
                self.answer_read(at, reading);
            }
        }
    }

    fn answer_read(&mut self, at: u64, node: usize) {
        let at = self.serve(at, READ_WORK);
        let news = self.news_for(at, node);
        self.schedule(at + EXCHANGE / 2, node, Event::Read(news));
    }

    /// Returns the time at which the store has done some work.
    fn serve(&mut self, at: u64, work: u64) -> u64 {
        self.costs.busy += work;
        self.store_is_busy = self.store_is_busy.max(at) + work;
        self.store_is_busy
    }

    fn news_for(&self, at: u64, node: usize) -> News {
        let known = self.nodes[node].known;
        let totals = self.totals.iter().enumerate();
        let changed = totals.filter(|(_, total)| total.changed > known);
        let others = changed.map(|(counter, total)| {
            let (mut all, mut own) = (total.all, total.by_node[node]);
            all.turn(at / self.window);
            own.turn(at / self.window);
            (counter, all.minus(own))
        });
        News { others: others.collect(), up_to: self.changes }
    }

    fn learn(&mut self, at: u64, node: usize, News { others, up_to }: News) {
        let number = at / self.window;
        self.nodes[node].known = self.nodes[node].known.max(up_to);
        for (counter, mut now) in others {
            let it = &mut self.nodes[node].counters[counter];
            it.turn(number);
            now.turn(number);
            if it.seen / self.window == number && at > it.seen {
                let grown = (now.hits[0] - it.others.hits[0]).max(0) as f64;
                it.speed = (it.speed + grown / (at - it.seen) as f64) / 2.0;
            }
            it.seen = at;
            // A read and a push may overtake each other.
            for (known, now) in it.others.hits.iter_mut().zip(now.hits) {
                *known = now.max(*known);
            }
            if self.rules.compares_at_news && !self.nodes[node].is_pushing {
                self.compare(at, node, counter);
            }
        }
    }
}
