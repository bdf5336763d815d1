//! Compares decisions with those of a model: `policy::algorithm` with the same counts, and a list of hits as the
//! simplest form of a log.

use super::*;
use crate::policy::algorithm::{BucketLevel, Level, LevelKind, MovingCount, WindowCounts};

/// A generator of pseudo-random numbers, which are the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    pub(super) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn question(&mut self, kinds: &[StoredKind], namespaces: [&str; 2]) -> Question {
        let mut counters = Vec::new();
        // Each counter occurs once.
        for (key, namespace) in ["a", "b"].into_iter().zip(namespaces) {
            for size in [size(100), MINUTE, HOUR, LONGEST] {
                if self.below(6) == 0 {
                    // 700 in a minute is 42,000 in an hour.
                    let rates = [1, 700, 42_000, 90_000_000, 7_000_000_000_000];
                    let rate = Hits::from_thousandths(self.one_of(&rates));
                    let new = AskedCounter {
                        shard: shard(namespace),
                        kind: self.one_of(kinds).at_rate(rate),
                        ..counter(key, size, self.one_of(&[1000, 1000, 500, 1, 0, -300]))
                    };
                    let name = |it: &AskedCounter| (it.key.clone(), name_of(it));
                    if counters.iter().all(|it| name(it) != name(&new)) {
                        counters.push(new);
                    }
                }
            }
        }
        let limits = match counters.len() as u64 {
            0 => 0,
            counters => self.below(counters + 2),
        };
        let counts_rejected = self.below(4) == 0;
        // With an entry for each hit: those of a log that is full of its limit would get later times.
        let logs = counters.iter().enumerate();
        let logs = logs.filter(|(_, it)| it.kind == StoredKind::Log);
        let wide: Vec<_> = logs
            .map(|(counter, _)| AskedLimit {
                counter,
                algorithm: Algorithm::Moving,
                hits: MovingCount::MAX_LIMIT,
                cost: Hits::ZERO,
            })
            .collect();
        let limits = (0..limits).map(|_| {
            let counter = self.below(counters.len() as u64) as usize;
            let kind = counters[counter].kind.at_rate(Hits::ZERO);
            let algorithms = Algorithm::ALL.into_iter().chain([Algorithm::Bucket]);
            let algorithms = algorithms.filter(|it| it.kind() == kind);
            AskedLimit {
                counter,
                algorithm: self.one_of(&algorithms.collect::<Vec<_>>()),
                hits: Hits::from_thousandths(self.below(60_000) as i64),
                cost: Hits::from_thousandths(self.one_of(&[1000, 1000, 500, 1, 0])),
            }
        });
        Question {
            counts_rejected,
            limits: limits.chain(wide).collect(),
            counters: counters.into(),
        }
    }
}

pub async fn decisions_follow_the_model<F: Fixture<Store: Decider>>(fixture: &F) {
    follow_the_model(fixture, ["api", "web"]).await;
}

pub async fn decisions_in_one_shard_follow_the_model<F: Fixture<Store: Decider>>(fixture: &F) {
    follow_the_model(fixture, ["api", "api"]).await;
}

/// The content of the store according to the model.
#[derive(Default)]
struct Model {
    /// By key, size and window.
    windows: BTreeMap<(KeyBytes, WindowSize, u64), i64>,
    /// By key; of each kind, by size or rate.
    levels: BTreeMap<(KeyBytes, CounterName), Level>,
    logs: BTreeMap<(KeyBytes, WindowSize), ListOfHits>,
}

/// The name of a counter beside its key: the number of its kind, and its size, or a rate in the
/// lowest terms.
type CounterName = (u8, u64, u64);

fn name_of(asked: &AskedCounter) -> CounterName {
    let (one, two) = match asked.kind.leak(asked.size) {
        None => (asked.size.millis(), 1),
        Some((leaked, millis)) => {
            let (mut divisor, mut rest) = (millis, leaked);
            while rest != 0 {
                (divisor, rest) = (rest, divisor % rest);
            }
            (leaked / divisor, millis / divisor)
        }
    };
    (asked.kind.wire_id(), one, two)
}

impl Model {
    fn level(&mut self, asked: &AskedCounter) -> &mut Level {
        let name = (asked.key.clone(), name_of(asked));
        self.levels.entry(name).or_default()
    }

    fn log(&mut self, asked: &AskedCounter, now: UnixMillis) -> &mut ListOfHits {
        let name = (asked.key.clone(), asked.size);
        let log = self.logs.entry(name).or_default();
        log.leave(asked.size, now.0);
        log
    }

    /// Returns the reading of a counter, of which `limits` are asked.
    fn read(&mut self, asked: &AskedCounter, limits: &[AskedLimit], now: UnixMillis) -> Reading {
        match asked.kind {
            StoredKind::Windows => {
                let at = asked.size.at(now);
                let hits = |window| {
                    let name = (asked.key.clone(), asked.size, window);
                    Hits::from_thousandths(self.windows.get(&name).copied().unwrap_or_default())
                };
                WindowCounts {
                    window: at.number,
                    elapsed: at.elapsed,
                    current: hits(at.number),
                    previous: hits(at.number - 1),
                }
                .into()
            }
            StoredKind::Level(kind) => kind.reading(asked.size, *self.level(asked), now),
            StoredKind::Log => {
                let log = self.log(asked, now);
                let most = |it: &AskedLimit| {
                    let cost = it.cost.thousandths().max(1);
                    log.wait(asked.size, now.0, it.hits.thousandths() - cost)
                };
                let (wait, oldest) = (limits.iter().filter_map(most).max(), log.oldest(now.0));
                MovingCount {
                    hits: Hits::from_thousandths(log.sum()),
                    oldest: UnixMillis(oldest),
                    age: now.0 - oldest,
                    wait: wait.unwrap_or_default(),
                }
                .into()
            }
            StoredKind::Holds => unreachable!("no store has holds"),
        }
    }

    /// A question was decided, which charges the counter or not; a bucket is filled to `most`.
    fn ask(&mut self, asked: &AskedCounter, is_charged: bool, most: Hits, now: UnixMillis) {
        let charge = if is_charged { asked.cost } else { Hits::ZERO };
        match asked.kind {
            StoredKind::Windows => {
                let name = (asked.key.clone(), asked.size, asked.size.at(now).number);
                let count = self.windows.entry(name).or_default();
                let (charge, sum) = (charge.thousandths(), *count + charge.thousandths());
                *count = match charge {
                    0 => *count,
                    1.. => sum.max(charge),
                    // A refund takes no count below zero.
                    _ => sum.max(0).min(*count),
                };
            }
            StoredKind::Level(kind) if asked.cost > Hits::ZERO => {
                let level = self.level(asked);
                let before = kind.after_hit(asked.size, *level, now, Hits::ZERO);
                *level = kind.after_hit(asked.size, *level, now, charge);
                if let LevelKind::Bucket(rate) = kind
                    && level.hits > most
                {
                    let reading = kind.reading(asked.size, before, now);
                    let there = BucketLevel::from(reading).hits;
                    let added = most.minus(there).max(Hits::ZERO);
                    assert!(added < charge && rate >= Hits::ZERO);
                    *level = kind.after_hit(asked.size, before, now, added);
                }
            }
            StoredKind::Level(_) => {
                let level = self.level(asked);
                level.hits = level.hits.plus(charge).max(Hits::ZERO);
            }
            StoredKind::Log => self.log(asked, now).charge(now.0, charge.thousandths()),
            StoredKind::Holds => unreachable!("no store has holds"),
        }
    }
}

/// Asks about two keys, which are in these namespaces.
async fn follow_the_model<F: Fixture<Store: Decider>>(fixture: &F, namespaces: [&str; 2]) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let mut random = Random(7);
    let mut model = Model::default();
    let now = node.ask(&[]).await.now;
    for size in [MINUTE, HOUR, LONGEST] {
        for ago in 0..2 {
            let window = size.at(now).number - ago;
            let diff = Diff { size, window, ..thousandths(b"a", 25_000) };
            other.push(vec![diff]).await;
            model.windows.insert((b"a"[..].into(), size, window), 25_000);
        }
    }
    let (mut refusals, mut admissions, mut weights) = (0, 0, 0);
    for _ in 0..150 {
        let count = random.below(20);
        let questions = (0..count).map(|_| random.question(F::Store::KINDS, namespaces));
        let questions: Vec<_> = questions.collect();
        let decided = node.ask(&questions).await;
        assert_eq!(decided.answers.len(), questions.len());
        for (question, answer) in questions.iter().zip(&decided.answers) {
            let counters = question.counters.iter();
            let before = counters.map(|it| model.read(it, &[], decided.now));
            let before: Vec<_> = before.collect();
            let admits = |it: &AskedLimit| {
                let (size, reading) = (question.counters[it.counter].size, before[it.counter]);
                let previous = reading.windows().previous;
                weights += u32::from(it.algorithm == Sliding && previous > Hits::ZERO);
                it.algorithm.admits(size, &reading, it.hits, it.cost)
            };
            let expected: Vec<_> = question.limits.iter().map(admits).collect();
            assert_eq!(answer.admitted[..], expected, "{question:?} {before:?}");
            let is_admitted = expected.iter().all(|it| *it);
            refusals += u32::from(!is_admitted);
            admissions += u32::from(is_admitted);
            for (index, counter) in question.counters.iter().enumerate() {
                let limits = question.limits.iter().copied();
                let limits: Vec<_> = limits.filter(|it| it.counter == index).collect();
                let most = limits.first().map(|it| it.hits);
                let most = most.filter(|_| question.counts_rejected);
                let is_charged = is_admitted || question.counts_rejected;
                let most = most.unwrap_or(Hits::MAX);
                model.ask(counter, is_charged, most, decided.now);
                let reading = model.read(counter, &limits, decided.now);
                assert_eq!(answer.readings[index], reading, "{question:?}");
            }
        }
    }
    assert!(refusals > 100 && admissions > 100 && weights > 50);
}

/// A log in the simplest form: the hits of a key with their times, oldest first: in thousandths and milliseconds.
#[derive(Debug, Default)]
pub(crate) struct ListOfHits(Vec<(u64, i64)>);

impl ListOfHits {
    /// Removes the hits that have left the window.
    pub(crate) fn leave(&mut self, size: WindowSize, now: u64) {
        self.0.retain(|(at, _)| at + size.millis() >= now);
    }

    /// Returns the sum of all hits.
    pub(crate) fn sum(&self) -> i64 {
        self.0.iter().map(|(_, hits)| hits).sum()
    }

    /// Adds hits, or removes the newest ones.
    pub(crate) fn charge(&mut self, now: u64, cost: i64) {
        if cost > 0 {
            self.0.push((now, cost));
            return;
        }
        let mut back = -cost;
        while let Some((_, hits)) = self.0.last_mut() {
            let taken = back.min(*hits);
            *hits -= taken;
            back -= taken;
            if *hits > 0 {
                break;
            }
            self.0.pop();
        }
    }

    /// Returns the time of the oldest hit; `now` if there are none.
    pub(crate) fn oldest(&self, now: u64) -> u64 {
        self.0.first().map_or(now, |(at, _)| *at)
    }

    /// Returns the milliseconds until at most `most` are left; `None` if that is so already, or never will be.
    pub(crate) fn wait(&self, size: WindowSize, now: u64, most: i64) -> Option<u64> {
        if most < 0 {
            return None;
        }
        let mut left = self.sum();
        self.0.iter().find_map(|(at, hits)| {
            let is_full = left > most;
            left -= hits;
            (is_full && left <= most).then(|| at + size.millis() + 1 - now)
        })
    }
}
