//! Arrivals of hits, and the nodes at which they arrive: equal for one seed on every machine.

use crate::random::Random;

/// A hit that is to arrive.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// Nanoseconds after the start.
    pub(crate) at: u64,
    pub(crate) node: usize,
}

/// A distribution of loads over time and nodes. A load is in multiples of the limit in a window.
#[derive(Clone, Copy)]
pub(crate) enum Pattern {
    /// All nodes get the same.
    Balanced(u64),
    /// The first node gets a share, the second half of it, the third a third, and so on.
    Zipf(u64),
    /// The first node gets nine tenths.
    Hot(u64),
    /// Four fifths go to one node, which is another one three times in a window; the rest to all.
    Shift(u64),
    /// A window's load comes within 2 % of it.
    Burst(u64),
}

impl Pattern {
    /// The pattern of a name such as `zipf-2`.
    pub(crate) fn parse(name: &str) -> Option<Pattern> {
        let (kind, load) = name.split_once('-')?;
        let load = load.parse().ok().filter(|&load| load > 0)?;
        Some(match kind {
            "balanced" => Pattern::Balanced(load),
            "zipf" => Pattern::Zipf(load),
            "hot" => Pattern::Hot(load),
            "shift" => Pattern::Shift(load),
            "burst" => Pattern::Burst(load),
            _ => return None,
        })
    }

    /// Returns the arrivals in so many windows, each of so many nanoseconds, of so many hits'
    /// limit.
    pub(crate) fn arrivals(self, of: &Span, random: &mut Random) -> Vec<Arrival> {
        match self {
            Pattern::Burst(load) => bursts(load, of, random),
            Pattern::Balanced(load)
            | Pattern::Zipf(load)
            | Pattern::Hot(load)
            | Pattern::Shift(load) => self.steady(load, of, random),
        }
    }

    fn steady(self, load: u64, of: &Span, random: &mut Random) -> Vec<Arrival> {
        let (mean, end) = (of.window / (load * of.limit), of.window * of.windows);
        let (mut at, mut hot, mut moves) = (0, 0, 0);
        let mut arrivals = Vec::new();
        loop {
            at += random.exponential(mean);
            if at >= end {
                return arrivals;
            }
            while at >= moves {
                hot = random.below(of.nodes as u64) as usize;
                moves += of.window / 3;
            }
            let node = match self {
                Pattern::Zipf(_) => zipf(of.nodes, random),
                Pattern::Hot(_) if random.below(10) < 9 => 0,
                Pattern::Hot(_) => 1 + random.below(of.nodes as u64 - 1) as usize,
                Pattern::Shift(_) if random.below(5) < 4 => hot,
                _ => random.below(of.nodes as u64) as usize,
            };
            arrivals.push(Arrival { at, node });
        }
    }
}

/// For how long, and over how many nodes.
pub(crate) struct Span {
    pub(crate) nodes: usize,
    pub(crate) limit: u64,
    /// Window size, in nanoseconds.
    pub(crate) window: u64,
    pub(crate) windows: u64,
}

fn bursts(load: u64, of: &Span, random: &mut Random) -> Vec<Arrival> {
    let (latest, length) = (of.window / 100 * 97, of.window / 50);
    let mut arrivals = Vec::new();
    for window in 0..of.windows {
        let start = window * of.window + random.below(latest);
        arrivals.extend((0..load * of.limit).map(|_| Arrival {
            at: start + random.below(length),
            node: random.below(of.nodes as u64) as usize,
        }));
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

fn zipf(nodes: usize, random: &mut Random) -> usize {
    let share = |node: usize| (1 << 32) / (node as u64 + 1);
    let mut left = random.below((0..nodes).map(share).sum());
    (0..nodes)
        .find(|&node| {
            let is_here = left < share(node);
            left = left.saturating_sub(share(node));
            is_here
        })
        .unwrap_or(0)
}
