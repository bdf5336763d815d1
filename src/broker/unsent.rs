//! Hits that were admitted while a store was away, in counters of which no sync tells it: levels and logs. It
//! is asked to charge them when it answers again: what has left their windows by then, or has leaked, no more.
//!
//! A charge that no answer is waited for is sent once at most: if that fails, it is lost. All that is kept here is lost
//! with the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::smallvec;

use crate::policy::algorithm::{Algorithm, Level, LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::decision::{AskedCounter, KeyBytes, Question};
use crate::table::MonotonicMillis;

/// The most counters.
const MOST: usize = 1 << 14;
/// Into how many parts the hits of a log are divided by their times: each leaves as a whole.
const PARTS: u64 = 32;

/// The hits, by their counters.
#[derive(Debug, Default)]
pub struct UnsentHits(BTreeMap<UnsentKey, Unsent>);

/// The namespace, the key, the number of the kind, and its measure.
type UnsentKey = (Arc<str>, KeyBytes, u8, u64);

/// Those of a counter.
#[derive(Debug)]
struct Unsent {
    counter: AskedCounter,
    hits: UnsentOf,
}

/// As the node would keep them if there were no others.
#[derive(Debug)]
enum UnsentOf {
    Level(LevelKind, Level),
    Log(VecDeque<UnsentPart>),
}

/// Hits of a log.
#[derive(Debug)]
struct UnsentPart {
    first: u64,
    last: u64,
    hits: Hits,
}

impl UnsentHits {
    /// Whether a question only charges what may be kept here, or gives it back.
    pub fn are(question: &Question) -> bool {
        let mut counters = question.counters.iter();
        question.limits.is_empty() && counters.all(|it| it.kind != StoredKind::Windows)
    }

    /// Keeps what a question charges, or less where it gives back. Returns whether that could be done: there
    /// may be too many counters, or less than is given back.
    pub fn add(&mut self, question: &Question, now: MonotonicMillis) -> bool {
        let mut is_all = true;
        for counter in &question.counters {
            let AskedCounter {
                shard,
                key,
                kind,
                size,
                cost,
            } = counter;
            let (number, measure) = (kind.wire_id(), kind.measure(*size));
            let name = (shard.namespace.clone(), key.clone(), number, measure);
            let is_known = self.0.contains_key(&name);
            if !is_known && (*cost <= Hits::ZERO || self.0.len() >= MOST) {
                is_all = false;
                continue;
            }
            let unsent = self.0.entry(name).or_insert_with(|| Unsent {
                counter: counter.clone(),
                hits: UnsentOf::none(*kind),
            });
            is_all &= unsent.hits.add(*size, *cost, now);
        }
        is_all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the hits of so many counters: as questions that charge what is left of them, if anything is.
    pub fn take(&mut self, most: usize, now: MonotonicMillis) -> Vec<Question> {
        let taken = core::iter::from_fn(|| self.0.pop_first()).take(most);
        let charges = taken.filter_map(|(_, unsent)| {
            let Unsent { counter, hits } = unsent;
            let cost = hits.left(counter.size, now);
            let counter = AskedCounter { cost, ..counter };
            (cost > Hits::ZERO).then(|| Question {
                counters: smallvec![counter],
                ..Question::nothing()
            })
        });
        charges.collect()
    }
}

impl UnsentOf {
    fn none(kind: StoredKind) -> UnsentOf {
        match kind {
            StoredKind::Level(kind) => UnsentOf::Level(kind, Level::default()),
            // Of windows there are none here.
            StoredKind::Log | StoredKind::Windows => UnsentOf::Log(VecDeque::new()),
        }
    }

    /// Adds hits, or takes them back; returns whether there were as many.
    fn add(&mut self, size: WindowSize, cost: Hits, now: MonotonicMillis) -> bool {
        // Of this clock, differences alone are used.
        let at = UnixMillis(now.0);
        let given_back = Hits::ZERO.minus(cost);
        match self {
            UnsentOf::Level(kind, level) => {
                if cost > Hits::ZERO {
                    *level = kind.after_hit(size, *level, at, cost);
                    return true;
                }
                let is_there = level.hits >= given_back;
                level.hits = level.hits.minus(given_back).max(Hits::ZERO);
                is_there
            }
            UnsentOf::Log(parts) if cost > Hits::ZERO => {
                let width = size.millis() / PARTS;
                match parts.back_mut() {
                    Some(part) if now.0.saturating_sub(part.first) <= width => {
                        part.last = now.0;
                        part.hits = part.hits.plus(cost);
                    }
                    _ => parts.push_back(UnsentPart {
                        first: now.0,
                        last: now.0,
                        hits: cost,
                    }),
                }
                while parts.front().is_some_and(|it| it.has_left(size, now)) {
                    parts.pop_front();
                }
                true
            }
            UnsentOf::Log(parts) => {
                let mut left = given_back;
                for part in parts.iter_mut().rev() {
                    let taken = part.hits.min(left);
                    (part.hits, left) = (part.hits.minus(taken), left.minus(taken));
                }
                left == Hits::ZERO
            }
        }
    }

    /// What is left of them.
    fn left(&self, size: WindowSize, now: MonotonicMillis) -> Hits {
        match self {
            UnsentOf::Level(kind, level) => {
                let reading = kind.reading(size, *level, UnixMillis(now.0));
                Algorithm::of_level(*kind).rate(size, &reading)
            }
            UnsentOf::Log(parts) => {
                let there = parts.iter().filter(|it| !it.has_left(size, now));
                there.fold(Hits::ZERO, |sum, part| sum.plus(part.hits))
            }
        }
    }
}

impl UnsentPart {
    fn has_left(&self, size: WindowSize, now: MonotonicMillis) -> bool {
        now.0.saturating_sub(self.last) > size.millis()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::store::strategy::Shard;

    const T: u64 = 1_000_000;
    const SIZE: u64 = 3200;
    const BUCKET: StoredKind = StoredKind::Level(LevelKind::Bucket(Hits::ONE));
    const ELASTIC: StoredKind = StoredKind::Level(LevelKind::Elastic);

    fn charge(key: &[u8], kind: StoredKind, cost: i64) -> Question {
        let shard = Shard {
            namespace: "api".into(),
            number: 0,
        };
        let counter = AskedCounter {
            shard,
            key: key.into(),
            kind,
            size: WindowSize::from_millis(SIZE).unwrap(),
            cost: hits(cost),
        };
        Question {
            counters: smallvec![counter],
            ..Question::nothing()
        }
    }

    /// What is charged at a time of these hits, each at its time.
    fn charged(kind: StoredKind, counted: &[(u64, i64)], at: u64) -> i64 {
        let mut unsent = UnsentHits::default();
        for (time, cost) in counted {
            assert!(unsent.add(&charge(b"k", kind, *cost), MonotonicMillis(T + time)));
        }
        let taken = unsent.take(9, MonotonicMillis(T + at));
        assert!(unsent.is_empty() && taken.len() < 2);
        let costs = taken.iter().map(|it| it.counters[0].cost.thousandths());
        costs.sum()
    }

    #[test]
    fn what_no_longer_counts_is_not_charged() {
        for kind in [StoredKind::Log, ELASTIC, BUCKET] {
            assert_eq!(charged(kind, &[(0, 2), (0, 3)], 0), 5000, "{kind:?}");
            let left = charged(kind, &[(0, 5), (10, -2)], 10);
            assert!((2990..=3000).contains(&left), "{kind:?}: {left}");
            assert_eq!(charged(kind, &[(0, 2), (1, -2)], 1), 0, "{kind:?}");
            assert_eq!(charged(kind, &[(0, 2)], 3 * SIZE), 0, "{kind:?}");
        }
        // Each leaves for itself.
        let counted = [(0, 1), (1000, 2), (2000, 4)];
        for (at, left) in [(SIZE, 7), (SIZE + 1, 6), (SIZE + 1001, 4), (SIZE + 2001, 0)] {
            assert_eq!(charged(StoredKind::Log, &counted, at), left * 1000, "{at}");
        }
        // All are there until the last is.
        for (at, left) in [(2000 + SIZE - 1, 7), (2000 + SIZE, 0)] {
            assert_eq!(charged(ELASTIC, &counted, at), left * 1000, "{at}");
        }
        // What leaks, at one in this time.
        for (at, left) in [(0, 3000), (SIZE, 2000), (SIZE / 2, 2500)] {
            assert_eq!(charged(BUCKET, &[(0, 3)], at), left, "{at}");
        }
    }

    #[test]
    fn a_log_is_kept_in_few_parts() {
        let mut unsent = UnsentHits::default();
        for time in 0..20 * SIZE {
            unsent.add(&charge(b"k", StoredKind::Log, 1), MonotonicMillis(T + time));
        }
        let (
            _,
            Unsent {
                hits: UnsentOf::Log(parts),
                ..
            },
        ) = unsent.0.first_key_value().unwrap()
        else {
            panic!("a log");
        };
        assert!(parts.len() as u64 <= PARTS + 2, "{}", parts.len());
        let left = unsent.take(1, MonotonicMillis(T + 20 * SIZE));
        let left = left[0].counters[0].cost.whole() as u64;
        assert!((SIZE..=SIZE + SIZE / PARTS + 1).contains(&left), "{left}");
    }

    #[test]
    fn there_are_so_many_counters_at_most() {
        let mut unsent = UnsentHits::default();
        let now = MonotonicMillis(T);
        let key = |number: usize| number.to_be_bytes();
        for number in 0..MOST {
            assert!(unsent.add(&charge(&key(number), ELASTIC, 1), now));
        }
        assert!(!unsent.add(&charge(&key(MOST), ELASTIC, 1), now));
        assert!(unsent.add(&charge(&key(0), ELASTIC, 1), now));
        assert!(!unsent.add(&charge(&key(MOST), ELASTIC, -1), now));
        assert_eq!(unsent.take(MOST, now).len(), MOST);
        // Those in windows are pushed by syncs.
        assert!(!UnsentHits::are(&charge(b"k", StoredKind::Windows, 1)));
        assert!(UnsentHits::are(&charge(b"k", StoredKind::Log, 1)));
    }
}
