//! Costs that are estimates until the response is known, compared with a naive model.

use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;

use crate::engine::*;
use crate::policy::algorithm::{Algorithm, Level, MovingCount, Reading, StoredKind, WindowCounts};
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock as _, WindowSize};
use crate::store::contract::decision::{Answer, Certainty};
use crate::table::Outcome;
use crate::testing::table::{SharedTable, TestClock};

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 10_000;

/// Admits all hits of the tests, and the rate of buckets: a thousandth in a millisecond.
const MOST: i64 = 10;
const BURST: i64 = 1_000_000;

fn limit(algorithm: Algorithm) -> Limit {
    let rate = (algorithm == Algorithm::Bucket).then_some(hits(MOST));
    Limit {
        name: "limit".into(),
        size: WindowSize::from_millis(SIZE).unwrap(),
        algorithm,
        burst: Burst { hits: hits(BURST), delay: None, rate },
        of_rule: None,
    }
}

/// A request: the milliseconds since the one before, its estimate, the milliseconds until its response, and the hits
/// that are known then, if any are.
type TestRequest = (u64, i64, u64, Option<i64>);

/// Hits and the times at which they count.
type Events = Vec<(u64, i64)>;

/// Returns the rate at `now` in thousandths.
fn rate(algorithm: Algorithm, events: &Events, now: u64) -> i64 {
    let sum = |from: u64, to: u64| -> i64 {
        let within = events.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, hits)| hits * 1000).sum()
    };
    let start = now - now % SIZE;
    match algorithm {
        Algorithm::Fixed => sum(start, now + 1),
        Algorithm::Sliding => {
            let left = i64::try_from(SIZE - now % SIZE).unwrap();
            let of_size = i64::try_from(SIZE).unwrap();
            sum(start, now + 1) + (sum(start - SIZE, start) * left + of_size - 1) / of_size
        }
        Algorithm::Moving => sum(now - SIZE, now + 1),
        Algorithm::Concurrency => unreachable!("its counters are no hits"),
        Algorithm::Ban => unreachable!("bans count no hits"),
        Algorithm::Elastic => {
            let (mut level, mut last) = (0, 0);
            for (at, hits) in events.iter().filter(|(at, _)| *at <= now) {
                level = if at - last >= SIZE { 0 } else { level } + hits * 1000;
                last = *at;
            }
            if now - last >= SIZE { 0 } else { level }
        }
        Algorithm::Bucket => {
            let (mut level, mut last) = (0, T);
            for (at, hits) in events.iter().filter(|(at, _)| *at <= now) {
                level = (level - i64::try_from(at - last).unwrap()).max(0) + hits * 1000;
                last = *at;
            }
            (level - i64::try_from(now - last).unwrap()).max(0)
        }
    }
}

proptest! {
    /// Windows and logs count exactly what is known. A level never counts less, and never more than without what was
    /// given back.
    #[test]
    fn an_estimate_is_replaced_by_what_is_known(
        algorithm in prop_oneof![
            Just(Algorithm::Fixed),
            Just(Algorithm::Sliding),
            Just(Algorithm::Moving),
            Just(Algorithm::Elastic),
            Just(Algorithm::Bucket),
        ],
        requests in vec((0_u64..6_000, 0_i64..9, 0_u64..15_000, proptest::option::of(0_i64..12)), 1..20),
    ) {
        let requests: Vec<TestRequest> = requests;
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let bound = BoundLimit::new(limit(algorithm), &namespace, []).estimated(true);
        let most = if algorithm == Algorithm::Bucket { hits(MOST) } else { hits(100_000) };
        let (clock, key) = (TestClock::at(T), shared.table.key(b"k"));
        // Each request, and the response to it, in the order of time.
        let mut steps = Vec::new();
        let mut at = T;
        for (index, (pause, _, wait, _)) in requests.iter().enumerate() {
            at += pause;
            steps.push((at, index, false));
            steps.push((at + wait, index, true));
        }
        steps.sort_unstable();
        let (mut least, mut greatest): (Events, Events) = Default::default();
        let mut charges = Vec::new();
        let mut final_hits = 0;
        for (at, index, is_response) in steps {
            let (_, estimate, wait, known) = requests[index];
            clock.set(at);
            if !is_response {
                let mut evaluation = Evaluation::new(Vec::new(), false);
                evaluation.charge(&bound, most, &key, hits(estimate), &clock);
                let (outcome, charged) = evaluation.finish_rare(Outcome::Rejected, &clock);
                prop_assert_eq!(outcome, Outcome::Passed);
                charges.push((index, charged));
                // Asking does not extend an elastic window.
                for events in [&mut least, &mut greatest].into_iter().filter(|_| estimate > 0) {
                    events.push((at, estimate));
                }
            } else {
                let (_, charged) = charges.iter().find(|(it, _)| *it == index).unwrap();
                let deferred = deferred_hits(charged, |_| known.map(hits), |_| false);
                for it in &deferred {
                    it.charge(&clock);
                    prop_assert_eq!(it.give_back(None, wait, &clock), None);
                }
                let known = known.unwrap_or(estimate);
                final_hits += known;
                if known > estimate {
                    least.push((at, known - estimate));
                    greatest.push((at, known - estimate));
                } else if known < estimate && (algorithm != Algorithm::Moving || wait < SIZE - 1000) {
                    let began = at - wait;
                    let charged = least.iter_mut().find(|it| **it == (began, estimate)).unwrap();
                    charged.1 = known;
                }
            }
            // A refund may change hits that were counted before others of the same time.
            let counted = bound.verdict(most, key, Hits::ZERO, &clock).rate().thousandths();
            let (least, greatest) = (rate(algorithm, &least, at), rate(algorithm, &greatest, at));
            match algorithm {
                Algorithm::Elastic | Algorithm::Bucket => {
                    prop_assert!(counted >= least, "{} {}", counted, least);
                    prop_assert!(counted <= greatest, "{} {}", counted, greatest);
                }
                _ => prop_assert_eq!(counted, least),
            }
        }
        let stats = shared.table.namespace_stats(namespace.index());
        prop_assert_eq!(stats.hits, final_hits.cast_unsigned() * 1000);
    }
}

#[test]
fn a_counter_that_another_limit_has_charged_stays() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let (clock, key) = (TestClock::at(T), shared.table.key(b"k"));
    let plain = BoundLimit::new(limit(Algorithm::Fixed), &namespace, []);
    let estimated =
        BoundLimit::new(limit(Algorithm::Sliding), &namespace, [&plain]).estimated(true);
    for (first, second, counted) in [(&plain, &estimated, 2), (&estimated, &plain, 9)] {
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for bound in [first, second] {
            evaluation.charge(bound, hits(100), &key, hits(2), &clock);
        }
        let (_, charges) = evaluation.finish_rare(Outcome::Rejected, &clock);
        let value_of = |bound: &BoundLimit<'_>| {
            (bound.limit.algorithm == Algorithm::Sliding).then_some(hits(9))
        };
        let before = plain.verdict(hits(100), key, Hits::ZERO, &clock).rate();
        deferred_hits(&charges, value_of, |_| false).iter().for_each(|it| it.charge(&clock));
        let after = plain.verdict(hits(100), key, Hits::ZERO, &clock).rate();
        assert_eq!(after.minus(before), hits(counted - 2));
    }
}

#[test]
fn a_store_is_told_the_difference() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap().synced(1).unwrap();
    let (clock, key) = (TestClock::at(T), shared.table.key(b"k"));
    let store = Deciders { first: 0, shards: 1 };
    let size = WindowSize::from_millis(SIZE).unwrap();
    for (algorithm, value, age, told, given_back, counted) in [
        (Algorithm::Fixed, Some(9), 0, Some(4), None, 5),
        (Algorithm::Fixed, Some(5), 0, None, None, 5),
        (Algorithm::Fixed, None, 0, None, None, 5),
        // The node pushes what it gives back in the window of the decision.
        (Algorithm::Fixed, Some(2), 0, None, None, 2),
        (Algorithm::Elastic, Some(9), 0, Some(4), None, 5),
        (Algorithm::Elastic, Some(2), 5_000, None, Some(-3000), 5),
        // The window may have ended.
        (Algorithm::Elastic, Some(2), 9_500, None, None, 5),
        (Algorithm::Bucket, Some(2), 1_000, None, Some(-3000), 5),
        (Algorithm::Bucket, Some(2), 3_999, None, Some(-1000), 5),
        (Algorithm::Bucket, Some(2), 6_000, None, None, 5),
        // A store would give back other requests' hits.
        (Algorithm::Moving, Some(2), 0, None, None, 5),
    ] {
        let bound = BoundLimit::new(limit(algorithm), &namespace, []).estimated(true);
        let most = if algorithm == Algorithm::Bucket { hits(MOST) } else { hits(100) };
        let checks = [LimitCheck {
            bound: &bound,
            hits: most,
            key: &key,
            cost: hits(5),
            store: Some(store),
            trial: None,
        }];
        let reading: Reading = match bound.limit.algorithm.kind().at_rate(hits(MOST)) {
            StoredKind::Windows => {
                WindowCounts::of(size.at(clock.now()), hits(5), Hits::ZERO).into()
            }
            StoredKind::Level(kind) => {
                let level = kind.after_hit(size, Level::default(), clock.now(), hits(5));
                kind.reading(size, level, clock.now())
            }
            StoredKind::Log => {
                MovingCount { hits: hits(5), oldest: clock.now(), age: 0, wait: 0 }.into()
            }
            StoredKind::Holds => unreachable!("no store has holds"),
        };
        let answer = Answer {
            admitted: smallvec![true],
            readings: smallvec![reading],
            certainty: Certainty::Settled,
        };
        let mut answered = vec![None];
        questions(&checks, false)[0].note(&answer, &checks, &mut answered, &clock);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        conclude(&mut evaluation, &checks, &answered, &clock);
        let before = shared.table.namespace_stats(namespace.index()).hits;
        let (_, charges) = evaluation.finish_rare(Outcome::Rejected, &clock);
        let deferred = deferred_hits(&charges, |_| value.map(hits), |_| true);
        let case = (algorithm, value, age);
        let charged = deferred_charges(&deferred, |_| Some(store));
        charged.iter().for_each(|it| it.count(&clock));
        let costs = charged.iter().map(|it| it.question.counters[0].cost);
        assert_eq!(
            costs.collect::<Vec<_>>(),
            told.map(hits).into_iter().collect::<Vec<_>>(),
            "{case:?}"
        );
        let questions = deferred.iter().filter_map(|it| it.give_back(Some(store), age, &clock));
        let costs = questions.map(|(_, it)| it.counters[0].cost.thousandths());
        let last = costs.collect::<Vec<_>>();
        // A bucket may have leaked a part of a thousandth more.
        let expected: Vec<i64> = given_back.into_iter().collect();
        assert!(
            last.iter().zip(&expected).all(|(it, most)| (it - most).abs() <= 1),
            "{case:?} {last:?}"
        );
        assert_eq!(last.len(), expected.len(), "{case:?}");
        if bound.limit.algorithm.kind() == StoredKind::Windows {
            let rate = bound.verdict(most, key, Hits::ZERO, &clock).rate();
            assert_eq!(rate, hits(counted), "{case:?}");
        }
        let after = shared.table.namespace_stats(namespace.index()).hits;
        let known = u64::try_from(value.unwrap_or(5)).unwrap();
        assert_eq!(after - before, known * 1000, "{case:?}");
    }
}
