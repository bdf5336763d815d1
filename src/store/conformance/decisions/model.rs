//! Whether decisions are those of a model: what `policy::algorithm` says of the same counts.

use super::*;

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    /// Less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn question(&mut self, kinds: &[StoredKind], namespaces: [&str; 2]) -> Question {
        let mut counters = Vec::new();
        // Each counter once.
        for (key, namespace) in ["a", "b"].into_iter().zip(namespaces) {
            for size in [size(100), MINUTE, HOUR, LONGEST] {
                if self.below(6) == 0 {
                    counters.push(AskedCounter {
                        shard: shard(namespace),
                        kind: self.one_of(kinds),
                        ..counter(key, size, self.one_of(&[1000, 1000, 500, 1, 0, -300]))
                    });
                }
            }
        }
        let limits = match counters.len() as u64 {
            0 => 0,
            counters => self.below(counters + 2),
        };
        let counts_rejected = self.below(4) == 0;
        let limits = (0..limits).map(|_| {
            let counter = self.below(counters.len() as u64) as usize;
            let algorithms = Algorithm::ALL.into_iter();
            let algorithms = algorithms.filter(|it| it.kind() == counters[counter].kind);
            AskedLimit {
                counter,
                algorithm: self.one_of(&algorithms.collect::<Vec<_>>()),
                hits: Hits::from_thousandths(self.below(60_000) as i64),
                cost: Hits::from_thousandths(self.one_of(&[1000, 1000, 500, 1, 0])),
            }
        });
        Question {
            counts_rejected,
            limits: limits.collect(),
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

/// Asks about two keys, which are in these namespaces.
async fn follow_the_model<F: Fixture<Store: Decider>>(fixture: &F, namespaces: [&str; 2]) {
    let mut node = Asking::new(fixture.connect());
    let mut other = Node::join(fixture.connect(), shard("api")).await;
    let mut random = Random(7);
    // What is in the store, by key, size and window.
    let mut model: BTreeMap<(KeyBytes, WindowSize, u64), i64> = BTreeMap::new();
    let mut levels: BTreeMap<(KeyBytes, WindowSize), Level> = BTreeMap::new();
    let now = node.ask(&[]).await.now;
    for size in [MINUTE, HOUR, LONGEST] {
        for ago in 0..2 {
            let window = size.at(now).number - ago;
            let diff = Diff {
                size,
                window,
                ..thousandths(b"a", 25_000)
            };
            other.push(vec![diff]).await;
            model.insert((b"a"[..].into(), size, window), 25_000);
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
            let of_model: Vec<_> = question
                .counters
                .iter()
                .map(|it| {
                    if let StoredKind::Level(kind) = it.kind {
                        let level = levels.get(&(it.key.clone(), it.size)).copied();
                        return kind.reading(it.size, level.unwrap_or_default(), decided.now);
                    }
                    let at = it.size.at(decided.now);
                    let count = |window| model.get(&(it.key.clone(), it.size, window)).copied();
                    let hits = |window| Hits::from_thousandths(count(window).unwrap_or_default());
                    WindowCounts {
                        window: at.number,
                        elapsed: at.elapsed,
                        current: hits(at.number),
                        previous: hits(at.number - 1),
                    }
                    .into()
                })
                .collect();
            let admits = |it: &AskedLimit| {
                let (size, counts) = (question.counters[it.counter].size, of_model[it.counter]);
                let previous = counts.windows().previous;
                weights += u32::from(it.algorithm == Sliding && previous > Hits::ZERO);
                it.algorithm.admits(size, &counts, it.hits, it.cost)
            };
            let expected: Vec<_> = question.limits.iter().map(admits).collect();
            assert_eq!(answer.admitted[..], expected, "{question:?} {of_model:?}");
            let is_admitted = expected.iter().all(|it| *it);
            refusals += u32::from(!is_admitted);
            admissions += u32::from(is_admitted);
            for (index, counter) in question.counters.iter().enumerate() {
                let is_charged = is_admitted || question.counts_rejected;
                if let StoredKind::Level(kind) = counter.kind {
                    let level = levels
                        .entry((counter.key.clone(), counter.size))
                        .or_default();
                    let charge = if is_charged { counter.cost } else { Hits::ZERO };
                    if counter.cost > Hits::ZERO {
                        *level = kind.after_hit(counter.size, *level, decided.now, charge);
                    } else if !level.has_ended(counter.size, decided.now) {
                        level.hits = level.hits.plus(charge).max(Hits::ZERO);
                    }
                    let reading = kind.reading(counter.size, *level, decided.now);
                    assert_eq!(answer.readings[index], reading, "{question:?}");
                    continue;
                }
                let mut counts = of_model[index].windows();
                if is_charged {
                    counts.current = counts.current.plus(counter.cost);
                    let name = (counter.key.clone(), counter.size, counts.window);
                    model.insert(name, counts.current.thousandths());
                }
                assert_eq!(answer.readings[index].windows(), counts, "{question:?}");
            }
        }
    }
    assert!(refusals > 100 && admissions > 100 && weights > 100);
}
