//! Hits that were admitted while a store was down, in counters that no sync pushes: levels and
//! logs. The store is asked to charge them when it answers again, except for those that have left
//! their windows or leaked by then.
//!
//! The number of counters is bounded. Hits without room, and those that do not matter any more, are
//! dropped and counted as lost.
//!
//! A charge without an answer is sent at most once, except if the store has certainly not executed
//! it. All of this is lost with the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::smallvec;

use crate::policy::algorithm::{Algorithm, Level, LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{AskedCounter, KeyBytes, Question};
use crate::table::MonotonicMillis;

/// Number of parts of a window by which a log's hits are grouped. Each group leaves as a whole.
const PARTS: u64 = 32;

/// The unsent hits by counter.
#[derive(Debug, Default)]
pub(super) struct UnsentHits {
    kept: BTreeMap<UnsentKey, Unsent>,
    /// Hits that were taken last, which may be put back.
    taken: Vec<(UnsentKey, Unsent)>,
    /// Lost hits by namespace, until they are counted.
    dropped: Vec<(Arc<str>, Hits)>,
}

/// Namespace, key, number of the kind, and its measure.
type UnsentKey = (Arc<str>, KeyBytes, u8, u64);

/// The unsent hits of one counter.
#[derive(Debug)]
struct Unsent {
    counter: AskedCounter,
    hits: UnsentOf,
    /// Sum of all hits, including those that do not count any more.
    sum: Hits,
}

/// The state of the counter as if it had only these hits.
#[derive(Debug)]
enum UnsentOf {
    Level(LevelKind, Level),
    Log(VecDeque<UnsentPart>),
}

/// Hits of a log in one part of a window.
#[derive(Debug)]
struct UnsentPart {
    first: u64,
    last: u64,
    hits: Hits,
}

impl UnsentHits {
    /// Most counters.
    pub(super) const MOST: usize = 1 << 14;

    /// Returns whether a question only charges or refunds hits that can be kept here.
    pub(super) fn are(question: &Question) -> bool {
        let mut counters = question.counters.iter();
        question.limits.is_empty() && counters.all(|it| it.kind != StoredKind::Windows)
    }

    /// Keeps the hits that a question charges at `now`, or removes those that it refunds. Returns
    /// the rest of a refund, whose hits were charged while the store was up.
    pub(super) fn add(&mut self, question: &Question, now: MonotonicMillis) -> Option<Question> {
        let rest = question.counters.iter().filter_map(|counter| {
            let cost = self.add_to(counter, now);
            let counter = counter.clone();
            (cost < Hits::ZERO).then_some(AskedCounter { cost, ..counter })
        });
        let rest = Question { counters: rest.collect(), ..Question::nothing() };
        (!rest.counters.is_empty()).then_some(rest)
    }

    /// Returns the hits that are left to refund.
    fn add_to(&mut self, counter: &AskedCounter, now: MonotonicMillis) -> Hits {
        let AskedCounter { shard, key, kind, size, cost } = counter;
        let (number, measure) = (kind.wire_id(), kind.measure(*size));
        let name = (shard.namespace.clone(), key.clone(), number, measure);
        let is_known = self.kept.contains_key(&name);
        if !is_known && *cost <= Hits::ZERO {
            return *cost;
        }
        if !is_known && self.kept.len() >= Self::MOST {
            self.drop_hits(&shard.namespace, *cost);
            return Hits::ZERO;
        }
        let unsent = self.kept.entry(name).or_insert_with(|| Unsent {
            counter: counter.clone(),
            hits: UnsentOf::none(*kind),
            sum: Hits::ZERO,
        });
        let rest = unsent.hits.add(*size, *cost, now);
        unsent.sum = unsent.sum.plus(*cost).minus(rest);
        rest
    }

    /// Returns whether there are no hits.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the number of counters with unsent hits.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Takes the hits of up to `most` counters, as questions that charge those that still count.
    pub(super) fn take(&mut self, most: usize, now: MonotonicMillis) -> Vec<Question> {
        self.forget_taken();
        let taken: Vec<_> = core::iter::from_fn(|| self.kept.pop_first()).take(most).collect();
        let mut questions = Vec::with_capacity(taken.len());
        for (name, unsent) in taken {
            let Unsent { counter, hits, sum } = &unsent;
            let cost = hits.left(counter.size, now);
            let gone = sum.minus(cost);
            self.drop_hits(&counter.shard.namespace, gone);
            if cost > Hits::ZERO {
                let counter = AskedCounter { cost, ..counter.clone() };
                questions.push(Question { counters: smallvec![counter], ..Question::nothing() });
                let sum = sum.minus(gone.max(Hits::ZERO));
                self.taken.push((name, Unsent { sum, ..unsent }));
            }
        }
        questions
    }

    /// Drops the hits that were taken last, since the store has charged them.
    pub(super) fn forget_taken(&mut self) {
        self.taken.clear();
    }

    /// Puts back the hits that were taken last, since the store has charged none of them.
    pub(super) fn put_back(&mut self) {
        self.kept.extend(self.taken.drain(..));
    }

    /// Drops all hits.
    pub(super) fn forget(&mut self) {
        while let Some((_, Unsent { counter, sum, .. })) = self.kept.pop_first() {
            self.drop_hits(&counter.shard.namespace, sum);
        }
    }

    /// Takes the lost hits by namespace.
    pub(super) fn take_dropped(&mut self) -> Vec<(Arc<str>, Hits)> {
        core::mem::take(&mut self.dropped)
    }

    fn drop_hits(&mut self, namespace: &Arc<str>, hits: Hits) {
        if hits <= Hits::ZERO {
            return;
        }
        match self.dropped.iter_mut().find(|(it, _)| it == namespace) {
            Some((_, sum)) => *sum = sum.plus(hits),
            None => self.dropped.push((namespace.clone(), hits)),
        }
    }
}

impl UnsentOf {
    fn none(kind: StoredKind) -> UnsentOf {
        match kind {
            StoredKind::Level(kind) => UnsentOf::Level(kind, Level::default()),
            // Windows and holds never come here.
            StoredKind::Log | StoredKind::Windows | StoredKind::Holds => {
                UnsentOf::Log(VecDeque::new())
            }
        }
    }

    /// Adds hits, or subtracts a refund. Returns the hits that are left to refund.
    fn add(&mut self, size: WindowSize, cost: Hits, now: MonotonicMillis) -> Hits {
        // Only differences of this clock are used.
        let at = UnixMillis(now.0);
        let given_back = Hits::ZERO.minus(cost);
        match self {
            UnsentOf::Level(kind, level) => {
                if cost > Hits::ZERO {
                    *level = kind.after_hit(size, *level, at, cost);
                    return Hits::ZERO;
                }
                let rest = level.hits.minus(given_back);
                level.hits = rest.max(Hits::ZERO);
                rest.min(Hits::ZERO)
            }
            UnsentOf::Log(parts) if cost > Hits::ZERO => {
                let width = size.millis() / PARTS;
                match parts.back_mut() {
                    Some(part) if now.0.saturating_sub(part.first) <= width => {
                        part.last = now.0;
                        part.hits = part.hits.plus(cost);
                    }
                    _ => parts.push_back(UnsentPart { first: now.0, last: now.0, hits: cost }),
                }
                while parts.front().is_some_and(|it| it.has_left(size, now)) {
                    parts.pop_front();
                }
                Hits::ZERO
            }
            UnsentOf::Log(parts) => {
                let mut left = given_back;
                for part in parts.iter_mut().rev() {
                    let taken = part.hits.min(left);
                    (part.hits, left) = (part.hits.minus(taken), left.minus(taken));
                }
                Hits::ZERO.minus(left)
            }
        }
    }

    /// Returns the hits that still count at `now`.
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
    use crate::store::contract::strategy::Shard;

    const T: u64 = 1_000_000;
    const SIZE: u64 = 3200;
    const BUCKET: StoredKind = StoredKind::Level(LevelKind::Bucket(Hits::ONE));
    const ELASTIC: StoredKind = StoredKind::Level(LevelKind::Elastic);

    fn charge(key: &[u8], kind: StoredKind, cost: i64) -> Question {
        let shard = Shard { namespace: "api".into(), number: 0 };
        let counter = AskedCounter {
            shard,
            key: key.into(),
            kind,
            size: WindowSize::from_millis(SIZE).unwrap(),
            cost: hits(cost),
        };
        Question { counters: smallvec![counter], ..Question::nothing() }
    }

    /// Returns the hits, each with its time, that still count at time `at`.
    fn charged(kind: StoredKind, counted: &[(u64, i64)], at: u64) -> i64 {
        let mut unsent = UnsentHits::default();
        for (time, cost) in counted {
            let rest = unsent.add(&charge(b"k", kind, *cost), MonotonicMillis(T + time));
            assert_eq!(rest, None);
        }
        let taken = unsent.take(9, MonotonicMillis(T + at));
        assert!(unsent.is_empty() && taken.len() < 2);
        let costs = taken.iter().map(|it| it.counters[0].cost.thousandths());
        costs.sum()
    }

    #[test]
    fn hits_that_no_longer_count_are_not_charged() {
        for kind in [StoredKind::Log, ELASTIC, BUCKET] {
            assert_eq!(charged(kind, &[(0, 2), (0, 3)], 0), 5000, "{kind:?}");
            let left = charged(kind, &[(0, 5), (10, -2)], 10);
            assert!((2990..=3000).contains(&left), "{kind:?}: {left}");
            assert_eq!(charged(kind, &[(0, 2), (1, -2)], 1), 0, "{kind:?}");
            assert_eq!(charged(kind, &[(0, 2)], 3 * SIZE), 0, "{kind:?}");
        }
        // Each hit leaves separately.
        let counted = [(0, 1), (1000, 2), (2000, 4)];
        for (at, left) in [(SIZE, 7), (SIZE + 1, 6), (SIZE + 1001, 4), (SIZE + 2001, 0)] {
            assert_eq!(charged(StoredKind::Log, &counted, at), left * 1000, "{at}");
        }
        // All count until the last one leaves.
        for (at, left) in [(2000 + SIZE - 1, 7), (2000 + SIZE, 0)] {
            assert_eq!(charged(ELASTIC, &counted, at), left * 1000, "{at}");
        }
        // They leak at one hit in this time.
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
        let (_, Unsent { hits: UnsentOf::Log(parts), .. }) = unsent.kept.first_key_value().unwrap()
        else {
            panic!("a log");
        };
        assert!(parts.len() as u64 <= PARTS + 2, "{}", parts.len());
        let left = unsent.take(1, MonotonicMillis(T + 20 * SIZE));
        let left = left[0].counters[0].cost.whole() as u64;
        assert!((SIZE..=SIZE + SIZE / PARTS + 1).contains(&left), "{left}");
    }

    #[test]
    fn hits_without_room_and_those_that_no_longer_count_are_reported_as_dropped() {
        let (mut unsent, now) = (UnsentHits::default(), MonotonicMillis(T));
        let key = |number: usize| number.to_be_bytes();
        for number in 0..UnsentHits::MOST {
            assert_eq!(unsent.add(&charge(&key(number), ELASTIC, 1), now), None);
        }
        let dropped = |unsent: &mut UnsentHits| {
            let dropped = unsent.take_dropped().into_iter();
            dropped.map(|(name, hits)| (name.to_string(), hits)).collect::<Vec<_>>()
        };
        assert_eq!(dropped(&mut unsent), []);
        let another = key(UnsentHits::MOST);
        assert_eq!(unsent.add(&charge(&another, ELASTIC, 2), now), None);
        assert_eq!(unsent.len(), UnsentHits::MOST);
        assert_eq!(dropped(&mut unsent), [("api".into(), hits(2))]);
        assert_eq!(unsent.add(&charge(&key(0), ELASTIC, 1), now), None);
        assert_eq!(unsent.take(UnsentHits::MOST, now).len(), UnsentHits::MOST);
        assert_eq!(dropped(&mut unsent), []);
        // In a log, the hits that have left.
        for (time, cost) in [(0, 9), (SIZE, 4)] {
            let at = MonotonicMillis(T + time);
            assert_eq!(unsent.add(&charge(b"k", StoredKind::Log, cost), at), None);
        }
        let later = MonotonicMillis(T + SIZE + 1);
        assert_eq!(unsent.take(1, later)[0].counters[0].cost, hits(4));
        assert_eq!(dropped(&mut unsent), [("api".into(), hits(9))]);
        // Syncs push the hits of windows.
        assert!(!UnsentHits::are(&charge(b"k", StoredKind::Windows, 1)));
        assert!(UnsentHits::are(&charge(b"k", StoredKind::Log, 1)));
    }

    #[test]
    fn hits_that_a_store_did_not_charge_keep_their_age() {
        for kind in [StoredKind::Log, ELASTIC] {
            let mut unsent = UnsentHits::default();
            unsent.add(&charge(b"k", kind, 3), MonotonicMillis(T));
            for at in [SIZE / 2, SIZE - 1] {
                let taken = unsent.take(1, MonotonicMillis(T + at));
                assert_eq!(taken[0].counters[0].cost, hits(3), "{kind:?}");
                unsent.put_back();
            }
            assert_eq!(unsent.take(1, MonotonicMillis(T + SIZE + 1)), [], "{kind:?}");
            unsent.put_back();
            assert!(unsent.is_empty());
            assert_eq!(unsent.take_dropped(), [("api".into(), hits(3))]);
        }
    }

    #[test]
    fn a_refund_of_hits_charged_before_the_loss_remains() {
        for kind in [StoredKind::Log, ELASTIC, BUCKET] {
            let (mut unsent, now) = (UnsentHits::default(), MonotonicMillis(T));
            let unknown = charge(b"k", kind, -2);
            assert_eq!(unsent.add(&unknown, now), Some(unknown));
            unsent.add(&charge(b"k", kind, 3), now);
            let rest = unsent.add(&charge(b"k", kind, -5), now).unwrap();
            assert_eq!(rest.counters[0].cost, hits(-2), "{kind:?}");
            assert_eq!(unsent.take(1, now), []);
            assert_eq!(unsent.take_dropped(), []);
        }
    }
}
