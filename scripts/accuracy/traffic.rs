//! Clients, and when they send their requests. Times are in microseconds since the beginning.

use crate::limiter::{Answer, Quota};
use crate::random::Random;

/// Says when a client sends its next request; is told the time, and what came of its last one.
pub(crate) type Client = Box<dyn FnMut(u64, &Answer) -> u64>;

/// Requests of some clients, each of which has a key of its own.
#[derive(Clone)]
pub(crate) struct Traffic {
    pub(crate) name: String,
    pub(crate) clients: usize,
    /// For how many windows they go on.
    pub(crate) windows: u64,
    pub(crate) pattern: Pattern,
    /// Whether rejected requests count: `ratelimit_count_rejected`.
    pub(crate) counts_rejected: bool,
}

/// The behaviour of clients. A load is in percent: a client of 100 sends as much as the limit
/// admits.
#[derive(Clone, Copy)]
pub(crate) enum Pattern {
    /// Requests that do not depend on each other.
    Poisson { load: u64 },
    /// Poisson for a third of a window on average, and nothing for twice as long.
    OnOff { load: u64 },
    /// Poisson; the load is `least` at midnight, `most` at noon, and a parabola over the day.
    Diurnal { least: u64, most: u64 },
    /// The limit's requests in the second before every other window's end, and in the one after it.
    Boundaries,
    /// Worst for a sliding window: the limit's requests in the last millisecond of a window; then
    /// twice as many, evenly, until the last one of the next; then none for a window.
    Late,
    /// Six times as much as the limit admits, but a rejected client waits for `Retry-After`.
    Patient,
    /// Poisson; the first client has this load, the second half of it, the third a third: Zipf.
    Zipf { load: u64 },
    /// Poisson; loads from 0 to `most`, evenly. But each hundredth client attacks: it has a load of
    /// `attack` for three windows on average, and nothing for six.
    Attacked { most: u64, attack: u64 },
}

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

impl Traffic {
    /// Clients under whom rejected requests do not count.
    pub(crate) fn new(name: &str, clients: usize, windows: u64, pattern: Pattern) -> Traffic {
        Traffic { name: name.to_owned(), clients, windows, pattern, counts_rejected: false }
    }

    /// Client number `index`, the same one at each call.
    pub(crate) fn client(&self, index: usize, quota: Quota) -> Client {
        let number = index as u64 + 1;
        let random = Random::new(number);
        let window = quota.window * MILLI;
        let gap = |load: u64| window * 100 / quota.hits / load;
        match self.pattern {
            Pattern::Poisson { load } => poisson(random, gap(load)),
            Pattern::Zipf { load } => poisson(random, gap(load) * number),
            Pattern::OnOff { load } => on_off(random, gap(load), window / 3),
            Pattern::Attacked { attack, .. } if number.is_multiple_of(100) => {
                on_off(random, gap(attack), window * 3)
            }
            Pattern::Attacked { most, .. } => {
                poisson(random, gap(most) * self.clients as u64 / number)
            }
            Pattern::Diurnal { least, most } => diurnal(random, gap(most), least, most),
            Pattern::Boundaries => boundaries(random, window, quota.hits),
            Pattern::Late => late(window, quota.hits),
            Pattern::Patient => with_longer_timeout(random, gap(600)),
        }
    }
}

fn poisson(mut random: Random, gap: u64) -> Client {
    Box::new(move |now, _| now + random.exponential(gap))
}

fn on_off(mut random: Random, gap: u64, on: u64) -> Client {
    let mut end = 0;
    Box::new(move |now, _| {
        let mut next = now + random.exponential(gap);
        while next >= end {
            let start = end + random.exponential(2 * on);
            end = start + random.exponential(on);
            next = start + random.exponential(gap);
        }
        next
    })
}

fn diurnal(mut random: Random, gap: u64, least: u64, most: u64) -> Client {
    // A subset of the requests of the highest load.
    const NOON: u64 = 1_000_000;
    Box::new(move |mut now, _| {
        loop {
            now += random.exponential(gap);
            let [past, left] = [now % DAY, DAY - now % DAY].map(u128::from);
            let height = 4 * past * left * u128::from(NOON) / u128::from(DAY).pow(2);
            let load = least * NOON + (most - least) * height as u64;
            if random.below(most * NOON) < load {
                return now;
            }
        }
    })
}

fn boundaries(mut random: Random, window: u64, limit: u64) -> Client {
    let gap = SECOND / limit;
    let offset = random.below(gap);
    let mut sent = 0;
    Box::new(move |_, _| {
        let (round, step) = (sent / (2 * limit), sent % (2 * limit));
        sent += 1;
        (2 * round + 1) * window - SECOND + step * gap + offset
    })
}

fn late(window: u64, limit: u64) -> Client {
    let mut sent = 0;
    Box::new(move |_, _| {
        let (round, step) = (sent / (3 * limit), sent % (3 * limit));
        sent += 1;
        let start = (3 * round + 2) * window - MILLI;
        match step.checked_sub(limit) {
            None => start + step * MILLI / limit,
            Some(step) => start + (step + 1) * window / (2 * limit),
        }
    })
}

fn with_longer_timeout(mut random: Random, gap: u64) -> Client {
    Box::new(move |now, answer| {
        let wait = answer.retry_after.unwrap_or_default() * SECOND;
        now + wait + random.exponential(gap)
    })
}
