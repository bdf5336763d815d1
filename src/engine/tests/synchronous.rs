//! Questions to stores about a request, decisions from their answers, and the rejection cache.

use core::time::Duration;
use smallvec::smallvec;

use crate::engine::*;
use crate::policy::algorithm::{
    Algorithm, BucketLevel, Level, LevelKind, MovingCount, Reading, StoredKind, WindowCounts,
};
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};
use crate::store::contract::decision::{Answer, AskedCounter, Certainty, Question};
use crate::store::contract::strategy::Shard;
use crate::table::{Key, Outcome};
use crate::testing::table::{SharedTable, TestClock};

const T: u64 = 1_700_000_000_000;

fn size(seconds: u64) -> WindowSize {
    WindowSize::from_millis(seconds * 1000).unwrap()
}

struct Fixture<'m> {
    namespace: Namespace<'m>,
    keys: [Key<'m>; 2],
    pub(super) clock: TestClock,
}

impl<'m> Fixture<'m> {
    fn new(shared: &'m SharedTable) -> Self {
        let namespace = Namespace::new("api", &shared.table).unwrap();
        Fixture {
            namespace: namespace.synced(1).unwrap(),
            keys: [b"a", b"b"].map(|key| shared.table.key(key)),
            clock: TestClock::at(T),
        }
    }

    fn limit(&self, seconds: u64, algorithm: Algorithm) -> BoundLimit<'m> {
        let limit = Limit {
            name: "limit".into(),
            size: size(seconds),
            algorithm,
            burst: Burst::default(),
            of_rule: None,
        };
        BoundLimit::new(limit, &self.namespace, [])
    }

    fn ask<'c>(
        &'c self,
        bound: &'c BoundLimit<'m>,
        limit: i64,
        key: usize,
        cost: i64,
        store: Option<usize>,
    ) -> LimitCheck<'c, 'm> {
        LimitCheck {
            bound,
            hits: hits(limit),
            key: &self.keys[key],
            cost: hits(cost),
            store: store.map(single),
            trial: None,
        }
    }

    /// Asks a store with three shards; the keys are in shards 2 and 1.
    fn ask_cluster<'c>(
        &'c self,
        bound: &'c BoundLimit<'m>,
        key: usize,
        first: usize,
    ) -> LimitCheck<'c, 'm> {
        LimitCheck {
            store: Some(Deciders { first, shards: 3 }),
            ..self.ask(bound, 10, key, 1, None)
        }
    }
}

/// Returns the decider of a store with one shard.
fn single(first: usize) -> Deciders {
    Deciders { first, shards: 1 }
}

fn counts(current: i64, previous: i64, elapsed: u64, size: WindowSize) -> Reading {
    Reading::from(WindowCounts {
        window: T / size.millis(),
        current: hits(current),
        previous: hits(previous),
        elapsed,
    })
}

#[test]
fn limits_that_share_a_counter_charge_it_once() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let same = fixture.limit(60, Algorithm::Sliding);
    let hour = fixture.limit(3600, Algorithm::Fixed);
    let checks = [
        fixture.ask(&minute, 10, 0, 0, Some(0)),
        fixture.ask(&same, 11, 0, 2, Some(0)),
        fixture.ask(&minute, 12, 0, 3, Some(0)),
        fixture.ask(&minute, 13, 1, 4, Some(0)),
        fixture.ask(&hour, 14, 0, 5, None),
        fixture.ask(&hour, 15, 0, 6, Some(1)),
    ];
    let asked = questions(&checks, true);
    let [first, second] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!((first.decider, second.decider), (0, 1));
    let Question { counts_rejected, counters, limits } = &first.question;
    assert!(*counts_rejected);
    let charged: Vec<_> = counters.iter().map(|it| (&it.key[..], it.cost)).collect();
    assert_eq!(charged, [(&b"a"[..], hits(2)), (b"b", hits(4))]);
    let of: Vec<_> = limits.iter().map(|it| (it.counter, it.hits, it.cost)).collect();
    let expected = [(0, 10, 0), (0, 11, 2), (0, 12, 3), (1, 13, 4)];
    assert_eq!(of, expected.map(|(at, limit, cost)| (at, hits(limit), hits(cost))));
    assert_eq!(limits[1].algorithm, Algorithm::Sliding);
    assert_eq!(second.question.counters[0].size, size(3600));

    let back = first.refund();
    let given: Vec<_> = back.counters.iter().map(|it| it.cost).collect();
    assert_eq!(given, [hits(-2), hits(-4)]);
    assert!(back.limits.is_empty());
}

#[test]
fn a_rule_that_is_tried_is_asked_about_first_and_alone() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let hour = fixture.limit(3600, Algorithm::Fixed);
    let mut checks = [(&minute, 10), (&minute, 5), (&hour, 6)]
        .map(|(bound, limit)| fixture.ask(bound, limit, 0, 1, Some(0)));
    checks[1..].iter_mut().for_each(|check| check.trial = Some(1));
    let mut asked = PendingDecision::new(&checks, false);
    // The shared counter is charged once, by the rule that decides.
    let question = asked.question().unwrap().question.clone();
    let costs =
        |question: &Question| -> Vec<Hits> { question.counters.iter().map(|it| it.cost).collect() };
    assert_eq!(costs(&question), [Hits::ZERO, hits(1)]);
    let answer = |admitted: &[bool], readings: &[Reading]| Answer {
        admitted: admitted.into(),
        readings: readings.into(),
        certainty: Certainty::Settled,
    };
    let (minutes, hours) = (counts(5, 0, 0, size(60)), counts(1, 0, 0, size(3600)));
    let refused = answer(&[false, true], &[minutes, hours]);
    assert!(!asked.answer(&refused, &checks, &fixture.clock));
    assert!(asked.is_pending(), "the other rule decides");
    assert_eq!(costs(&asked.question().unwrap().question), [hits(1)]);
    let admitted = answer(&[true], &[counts(6, 0, 0, size(60))]);
    assert!(asked.answer(&admitted, &checks, &fixture.clock));
    assert!(!asked.is_pending());
    let mut evaluation = Evaluation::new(Vec::new(), false);
    asked.conclude(&mut evaluation, &checks, &fixture.clock);
    assert!(!evaluation.is_refused());
    // The store has not charged the refused question.
    assert_eq!(asked.take_charged().len(), 1);
    let (outcome, charges) = evaluation.finish_rare(Outcome::Rejected, &fixture.clock);
    assert_eq!(outcome, Outcome::RejectedDryRun);
    let admitted: Vec<_> = charges.iter().map(|charge| charge.verdict().admitted).collect();
    assert_eq!(admitted, [true, false, true]);
}

#[test]
fn limits_of_all_algorithms_are_asked_about_at_once() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let algorithms = Algorithm::ALL.into_iter().chain([Algorithm::Bucket]);
    let limits: Vec<_> = algorithms.map(|it| fixture.limit(60, it)).collect();
    let checks: Vec<_> = limits.iter().map(|bound| fixture.ask(bound, 10, 0, 1, Some(0))).collect();
    let asked = questions(&checks, false);
    let [StoreQuestion { question, .. }] = &asked[..] else {
        panic!("{asked:?}");
    };
    let asked: Vec<_> = question.limits.iter().map(|it| it.algorithm).collect();
    let of_checks: Vec<_> = limits.iter().map(|it| it.limit.algorithm).collect();
    assert_eq!(asked, of_checks);
    // Sliding and fixed windows read the same counter.
    let counters: Vec<_> = question.limits.iter().map(|it| it.counter).collect();
    assert_eq!(counters, [0, 0, 1, 2, 3]);
}

#[test]
fn limits_in_one_shard_of_a_cluster_are_one_question() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let hour = fixture.limit(3600, Algorithm::Fixed);
    let web = Namespace::new("web", &shared.table).unwrap();
    let of_web = BoundLimit::new(minute.limit.clone(), &web, []);
    let checks = [
        fixture.ask_cluster(&minute, 0, 5),
        fixture.ask_cluster(&minute, 1, 5),
        fixture.ask_cluster(&hour, 0, 5),
        fixture.ask_cluster(&of_web, 0, 8),
        fixture.ask(&hour, 10, 1, 1, Some(3)),
        fixture.ask_cluster(&hour, 1, 5),
        fixture.ask(&hour, 10, 1, 1, None),
    ];
    let mut asked = questions(&checks, false);
    let parts: Vec<_> = asked
        .iter()
        .map(|part| {
            let counters = part.question.counters.iter();
            let of = |it: &AskedCounter| (it.shard.namespace.to_string(), it.shard.number);
            let mut shards: Vec<_> = counters.map(of).collect();
            let counters = shards.len();
            shards.dedup();
            assert_eq!(shards.len(), 1);
            (part.decider, shards.remove(0), counters)
        })
        .collect();
    let shard = |name: &str, number| (name.to_owned(), number);
    let expected = [
        (7, shard("api", 2), 2),
        (6, shard("api", Shard::number_of(b"b", 3)), 2),
        (10, shard("web", 2), 1),
        (3, shard("api", 0), 1),
    ];
    assert_eq!(parts, expected);

    // The answer of a part belongs to its own limits.
    let answer = Answer {
        admitted: smallvec![true, false],
        readings: smallvec![counts(1, 0, 0, size(60)), counts(2, 0, 0, size(3600))],
        certainty: Certainty::Settled,
    };
    let mut answered = vec![None; checks.len()];
    assert!(!asked[1].note(&answer, &checks, &mut answered, &fixture.clock));
    let admitted = answered.iter().map(|it| it.map(|it| it.admitted));
    let expected = [None, Some(true), None, None, None, Some(false), None];
    assert_eq!(admitted.collect::<Vec<_>>(), expected);
}

/// Returns hits that are known only with the response.
fn of_response<'a, 'c, 'm>(
    charges: &'a [Charge<'c, 'm>],
    value: i64,
) -> Vec<DeferredHits<'a, 'c, 'm>> {
    deferred_hits(charges, |_| Some(hits(value)), |_| false)
}

#[test]
fn hits_of_a_response_are_charged_in_each_shard() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let hour = fixture.limit(3600, Algorithm::Fixed);
    let other = fixture.limit(60, Algorithm::Fixed);
    let checks = [
        fixture.ask_cluster(&minute, 0, 5),
        fixture.ask_cluster(&other, 1, 5),
        fixture.ask_cluster(&hour, 0, 5),
    ];
    let checks = checks.map(|check| LimitCheck { cost: Hits::ZERO, ..check });
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &[None; 3], &fixture.clock);
    let store = Deciders { first: 5, shards: 3 };
    let charges = evaluation.end(&fixture.clock);
    let deferred = deferred_charges(&of_response(&charges, 4), |_| Some(store));
    let told: Vec<_> = deferred
        .iter()
        .map(|deferred| {
            let counters = deferred.question.counters.iter();
            let shards: Vec<_> = counters.map(|it| it.shard.number).collect();
            (deferred.decider, shards)
        })
        .collect();
    assert_eq!(told, [(7, vec![2, 2]), (6, vec![1])]);
}

#[test]
fn answers_are_combined_with_decisions_of_this_node() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let (minute, hour) =
        (fixture.limit(60, Algorithm::Fixed), fixture.limit(3600, Algorithm::Fixed));
    for (admitted, here, outcome) in [(true, 5, Outcome::Passed), (false, 5, Outcome::Rejected)] {
        let checks = [fixture.ask(&hour, 100, 1, 5, None), fixture.ask(&minute, 10, 0, 5, Some(0))];
        let mut asked = questions(&checks, false).remove(0);
        let answer = Answer {
            admitted: smallvec![admitted],
            readings: smallvec![counts(9, 3, 0, size(60))],
            certainty: Certainty::Settled,
        };
        let mut answered = vec![None; 2];
        assert_eq!(asked.note(&answer, &checks, &mut answered, &fixture.clock), admitted);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        conclude(&mut evaluation, &checks, &answered, &fixture.clock);
        let (told, charges) = evaluation.finish(Outcome::Rejected, &fixture.clock);
        assert_eq!(told, outcome);
        assert_eq!(charges[0].verdict().reading.windows().current, hits(here));
        let verdict = charges[1].verdict();
        assert_eq!((verdict.reading.windows().current, verdict.admitted), (hits(9), admitted));
        // The node has recorded the store's count.
        let known = fixture.namespace.table().read(
            &fixture.namespace.counter(size(60)),
            fixture.keys[0],
            &fixture.clock,
        );
        assert_eq!((known.windows().current, known.windows().previous), (hits(9), hits(3)));
    }
    let counted = || {
        let namespace = &fixture.namespace;
        namespace.table().namespace_stats(namespace.index()).hits
    };
    assert_eq!(counted(), 10_000, "what was refused is not counted");
    // Without an answer, the node's own counts are returned, and nothing is charged.
    let checks = [fixture.ask(&minute, 10, 0, 1, Some(0))];
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &[None], &fixture.clock);
    let charges = evaluation.end(&fixture.clock);
    assert_eq!(charges[0].verdict().reading.windows().current, hits(9));
}

#[test]
fn a_key_above_its_limit_is_remembered_for_a_second() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let at = Duration::from_millis;
    for (algorithm, elapsed, refused_at, not_at) in [
        // A window that does not end in this time.
        (Algorithm::Fixed, 10_000, &[0, 500, 1000][..], &[1001][..]),
        // A window that ends: the next one is unknown.
        (Algorithm::Fixed, 59_500, &[0, 499], &[500, 1000]),
        // It weighs as the previous window: 10 of 10, and a 60th less each second.
        (Algorithm::Sliding, 59_500, &[0, 499, 500, 1000], &[1001]),
    ] {
        let minute = fixture.limit(60, algorithm);
        let checks = [fixture.ask(&minute, 10, 0, 1, Some(0))];
        let counts = counts(10, 0, elapsed, size(60));
        let refused = Answered {
            admitted: false,
            reading: counts,
            charged: Hits::ZERO,
            certainty: Certainty::Settled,
        };
        let mut refusals = RejectionCache::default();
        assert!(refusals.recall(&checks, at(0)).is_none());
        refusals.remember(&checks, &[Some(refused)], at(0));
        for time in refused_at {
            let known = refusals.recall(&checks, at(*time));
            assert!(known.is_some(), "{algorithm:?} {time}");
        }
        for time in not_at {
            assert!(refusals.recall(&checks, at(*time)).is_none(), "{time}");
        }
        // The rate is known, not the verdict.
        for (limit, cost, is_refused) in [(11, 1, false), (11, 2, true), (10, 0, true)] {
            let checks = [fixture.ask(&minute, limit, 0, cost, Some(0))];
            assert_eq!(refusals.recall(&checks, at(0)).is_some(), is_refused);
        }
        // For this counter only.
        let others = [fixture.ask(&minute, 1, 1, 1, Some(0)), fixture.ask(&minute, 1, 0, 1, None)];
        for other in others {
            assert!(refusals.recall(&[other], at(0)).is_none());
        }
    }
}

#[test]
fn a_full_bucket_is_remembered_for_a_second() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let at = Duration::from_millis;
    let mut rate = fixture.limit(1, Algorithm::Bucket);
    rate.limit.burst.hits = hits(2);
    let kind = LevelKind::Bucket(hits(10));
    let level = Level { hits: hits(3), at: UnixMillis(T - 30), mark: UnixSeconds(0) };
    let refused = Answered {
        admitted: false,
        reading: kind.reading(size(1), level, UnixMillis(T)),
        charged: Hits::ZERO,
        certainty: Certainty::Settled,
    };
    let (moving, elastic) =
        (fixture.limit(1, Algorithm::Moving), fixture.limit(1, Algorithm::Elastic));
    let checks = [fixture.ask(&rate, 10, 0, 1, Some(0))];
    let mut refusals = RejectionCache::default();
    refusals.remember(&checks, &[Some(refused)], at(0));
    let is_refused = |checks: &[LimitCheck<'_, '_>], time| {
        let known = refusals.recall(checks, at(time));
        known.is_some_and(|known| known.iter().flatten().any(|it| !it.admitted))
    };
    // One hit leaks in 100 milliseconds, of which 30 had passed.
    assert!(is_refused(&checks, 0) && is_refused(&checks, 69));
    assert!(!is_refused(&checks, 70) && !is_refused(&checks, 1001));
    let costly = [fixture.ask(&rate, 10, 0, 2, Some(0))];
    assert!(is_refused(&costly, 169) && !is_refused(&costly, 170));
    // At another rate, more may have leaked.
    for told in [0, 1, 100] {
        assert!(!is_refused(&[fixture.ask(&rate, told, 0, 1, Some(0))], 0));
    }
    let beside =
        |bound| [fixture.ask(&rate, 10, 0, 1, Some(0)), fixture.ask(bound, 10, 0, 1, Some(0))];
    assert!(is_refused(&beside(&moving), 0), "it is charged nothing");
    assert!(!is_refused(&beside(&elastic), 0), "it is extended");
}

#[test]
fn a_full_log_is_remembered_until_the_time_that_the_store_returned() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let at = Duration::from_millis;
    let moving = fixture.limit(60, Algorithm::Moving);
    let refused = |wait| Answered {
        admitted: false,
        reading: Reading::from(MovingCount {
            hits: hits(10),
            oldest: UnixMillis(T - 1000),
            age: 1000,
            wait,
        }),
        charged: Hits::ZERO,
        certainty: Certainty::Settled,
    };
    let check = |most, cost| fixture.ask(&moving, most, 0, cost, Some(0));
    let mut refusals = RejectionCache::default();
    refusals.remember(&[check(10, 3)], &[Some(refused(500))], at(0));
    let known = refusals.recall(&[check(10, 3)], at(200)).unwrap();
    let count = MovingCount::from(known[0].unwrap().reading);
    assert_eq!((count.wait, count.age, count.hits), (300, 1200, hits(10)));
    let is_refused = |most, cost, time| refusals.recall(&[check(most, cost)], at(time)).is_some();
    assert!(is_refused(10, 3, 499) && !is_refused(10, 3, 500));
    // The hits that have left meanwhile may be enough for a smaller cost.
    assert!(is_refused(9, 2, 499) && is_refused(7, 0, 499));
    assert!(!is_refused(10, 2, 0) && !is_refused(11, 3, 0) && !is_refused(8, 0, 0));
    // It is unknown which of several limits has room when.
    let both = [check(10, 1), check(2, 1)];
    let mut refusals = RejectionCache::default();
    refusals.remember(&both, &[Some(refused(500)), Some(refused(500))], at(0));
    assert!(refusals.recall(&both, at(0)).is_none());
    // A limit that never has room is asked about.
    refusals.remember(&[check(1, 2)], &[Some(refused(0))], at(0));
    assert!(refusals.recall(&[check(1, 2)], at(0)).is_none());
    // The cache does not know keys that were reset.
    let checks = [check(10, 3)];
    refusals.remember(&checks, &[Some(refused(500))], at(0));
    assert!(refusals.recall(&checks, at(0)).is_some());
    shared.table.record_reset();
    assert!(refusals.recall(&checks, at(0)).is_none());
}

#[test]
fn an_admission_is_not_remembered() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let checks = [fixture.ask(&minute, 10, 0, 1, Some(0))];
    let admitted = Answered {
        admitted: true,
        reading: counts(10, 0, 0, size(60)),
        charged: Hits::ZERO,
        certainty: Certainty::Settled,
    };
    let mut refusals = RejectionCache::default();
    refusals.remember(&checks, &[Some(admitted)], Duration::ZERO);
    assert!(refusals.recall(&checks, Duration::ZERO).is_none());
}

#[test]
fn a_refusal_by_charges_that_may_be_taken_back_is_not_remembered() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Fixed);
    let checks = [fixture.ask(&minute, 10, 0, 1, Some(0))];
    let mut asked = questions(&checks, false).remove(0);
    for (certainty, is_remembered) in
        [(Certainty::Unsettled, false), (Certainty::Raced, false), (Certainty::Settled, true)]
    {
        let answer = Answer {
            admitted: smallvec![false],
            readings: smallvec![counts(10, 0, 0, size(60))],
            certainty,
        };
        let mut answered = vec![None];
        asked.note(&answer, &checks, &mut answered, &fixture.clock);
        let mut refusals = RejectionCache::default();
        refusals.remember(&checks, &answered, Duration::ZERO);
        let known = refusals.recall(&checks, Duration::ZERO);
        assert_eq!(known.is_some(), is_remembered, "{certainty:?}");
    }
}

#[test]
fn hits_of_a_response_are_charged_once_for_a_counter() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let (minute, hour) =
        (fixture.limit(60, Algorithm::Fixed), fixture.limit(3600, Algorithm::Fixed));
    let same = fixture.limit(60, Algorithm::Sliding);
    let checks = [
        fixture.ask(&minute, 10, 0, 0, Some(0)),
        fixture.ask(&same, 10, 0, 0, Some(0)),
        fixture.ask(&hour, 10, 0, 0, None),
    ];
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &[None; 3], &fixture.clock);
    let charges = evaluation.end(&fixture.clock);
    let store_of = |bound: &BoundLimit<'_>| (bound.limit.size == size(60)).then_some(single(7));
    let deferred = deferred_charges(&of_response(&charges, 4), store_of);
    assert_eq!(deferred.len(), 1);
    let DeferredCharge { decider, question, .. } = &deferred[0];
    let costs: Vec<_> = question.counters.iter().map(|it| it.cost).collect();
    assert_eq!((*decider, &costs[..]), (7, &[hits(4)][..]));
    deferred[0].count(&fixture.clock);
    let namespace = &fixture.namespace;
    let stats = namespace.table().namespace_stats(namespace.index());
    assert_eq!(stats.hits, 4000);
}

#[test]
fn hits_that_a_store_admits_to_a_moving_window_are_counted_here_too() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let minute = fixture.limit(60, Algorithm::Moving);
    let other = fixture.limit(60, Algorithm::Fixed);
    let counted_here = || {
        let counter = fixture.namespace.counter_of(StoredKind::Log, size(60));
        let reading = shared.table.read(&counter, fixture.keys[0], &fixture.clock);
        MovingCount::from(reading).hits
    };
    // The store does not return the times of many nodes' hits.
    let reading: Reading =
        MovingCount { hits: hits(7), oldest: UnixMillis(T - 1000), age: 1000, wait: 0 }.into();
    let checks = [fixture.ask(&minute, 10, 0, 2, Some(0)), fixture.ask(&other, 10, 1, 1, Some(1))];
    let asked = questions(&checks, false);
    let evaluate = |by_moving: bool, by_other: bool| {
        let mut answered = vec![None; 2];
        for (mut part, admitted) in asked.clone().into_iter().zip([by_moving, by_other]) {
            let is_moving = part.decider == 0;
            let answer = Answer {
                admitted: smallvec![admitted],
                readings: smallvec![match is_moving {
                    true => reading,
                    false => counts(1, 0, 0, size(60)),
                }],
                certainty: Certainty::Settled,
            };
            part.note(&answer, &checks, &mut answered, &fixture.clock);
        }
        let mut evaluation = Evaluation::new(Vec::new(), false);
        conclude(&mut evaluation, &checks, &answered, &fixture.clock);
        let (_, charges) = evaluation.finish(Outcome::Rejected, &fixture.clock);
        // Without those that are refunded.
        let rate = if by_moving && !by_other { hits(5) } else { hits(7) };
        assert_eq!(charges[0].verdict().rate(), rate, "the store's");
        counted_here()
    };
    assert_eq!(evaluate(true, true), hits(2));
    assert_eq!(evaluate(false, true), hits(2));
    assert_eq!(evaluate(true, false), hits(2), "it is refunded");
    assert_eq!(evaluate(true, true), hits(4));
    // Hits that depend on the response.
    let checks = [fixture.ask(&minute, 10, 0, 0, Some(0))];
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &[None], &fixture.clock);
    let charges = evaluation.end(&fixture.clock);
    let deferred = deferred_charges(&of_response(&charges, 3), |_| Some(single(0)));
    deferred[0].count(&fixture.clock);
    assert_eq!(counted_here(), hits(7));
    // They leave when they are older than the window.
    fixture.clock.set(T + 60_001);
    assert_eq!(counted_here(), Hits::ZERO);
}

#[test]
fn a_bucket_of_the_store_is_recorded_at_its_rate() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let mut rate = fixture.limit(1, Algorithm::Bucket);
    rate.limit.burst.hits = hits(4);
    let level = Level { hits: hits(3), at: UnixMillis(T), mark: UnixSeconds(0) };
    let kind = LevelKind::Bucket(hits(10));
    let reading = kind.reading(size(1), level, UnixMillis(T));
    let checks = [fixture.ask(&rate, 10, 0, 1, Some(0))];
    let mut asked = questions(&checks, false).remove(0);
    let answer = Answer {
        admitted: smallvec![true],
        readings: smallvec![reading],
        certainty: Certainty::Settled,
    };
    let mut answered = vec![None];
    asked.note(&answer, &checks, &mut answered, &fixture.clock);
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &answered, &fixture.clock);
    let (_, charges) = evaluation.finish(Outcome::Rejected, &fixture.clock);
    assert_eq!(charges[0].verdict().remaining(), hits(2), "of five");
    // The node continues from there.
    let counter = fixture.namespace.counter_of(StoredKind::Level(kind), size(1));
    let left = |at| {
        fixture.clock.set(at);
        let reading = shared.table.read(&counter, fixture.keys[0], &fixture.clock);
        BucketLevel::from(reading).hits
    };
    assert_eq!(
        (left(T), left(T + 100), left(T + 299)),
        (hits(3), hits(2), Hits::from_thousandths(10))
    );
}

#[test]
fn a_question_about_a_bucket_has_its_rate_and_size() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let rate = |seconds, burst| {
        let limit = Limit {
            name: "limit".into(),
            size: size(seconds),
            algorithm: Algorithm::Bucket,
            burst: Burst { hits: hits(burst), delay: Some(Hits::ZERO), rate: None },
            of_rule: None,
        };
        BoundLimit::new(limit, &fixture.namespace, [])
    };
    let (few, many) = (rate(1, 4), rate(2, 9));
    let asked = |checks: &[LimitCheck<'_, '_>]| {
        let asked = questions(checks, false).remove(0);
        let Question { counters, limits, .. } = &asked.question;
        assert_eq!(asked.refund().counters[0].kind, counters[0].kind);
        let StoredKind::Level(LevelKind::Bucket(rate)) = counters[0].kind else {
            panic!("{counters:?}");
        };
        let most: Vec<_> = limits.iter().map(|it| it.hits.whole()).collect();
        (counters.len(), rate.whole(), counters[0].cost.whole(), most)
    };
    let ask = |bound, told, cost| fixture.ask(bound, told, 0, cost, Some(0));
    assert_eq!(asked(&[ask(&few, 10, 1)]), (1, 10, 1, vec![5]));
    let closed = [ask(&few, 0, 1)];
    assert_eq!(asked(&closed), (1, 0, 1, vec![0]), "nothing is admitted");
    // Each rate has its own counter.
    let both = [ask(&few, 10, 1), ask(&many, 10, 1)];
    assert_eq!(asked(&both), (2, 10, 1, vec![5, 10]));
    // 20 in two seconds is the same rate as 10 in one.
    let both = [ask(&few, 10, 0), ask(&many, 20, 2)];
    assert_eq!(asked(&both), (1, 10, 2, vec![5, 10]));
    let both = [ask(&few, 10, 2), ask(&many, 20, 3)];
    assert_eq!(asked(&both), (1, 10, 2, vec![5, 10]));

    // Each limit reads the answer at its own rate.
    let level = Level { hits: hits(3), at: UnixMillis(T), mark: UnixSeconds(0) };
    let reading = LevelKind::Bucket(hits(10)).reading(size(1), level, UnixMillis(T));
    let answer = Answer {
        admitted: smallvec![true, true],
        readings: smallvec![reading],
        certainty: Certainty::Settled,
    };
    let mut answered = vec![None; 2];
    questions(&both, false)[0].note(&answer, &both, &mut answered, &fixture.clock);
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &both, &answered, &fixture.clock);
    let charges = evaluation.end(&fixture.clock);
    let of_each =
        |charge: &Charge<'_, '_>| (charge.verdict().remaining(), charge.verdict().delay());
    let told: Vec<_> = charges.iter().map(of_each).collect();
    assert_eq!(told, [(hits(2), 200), (hits(7), 200)]);

    // Hits that depend on the response leak at that rate, too.
    let checks = [ask(&few, 10, 0)];
    let mut evaluation = Evaluation::new(Vec::new(), false);
    conclude(&mut evaluation, &checks, &[None], &fixture.clock);
    let charges = evaluation.end(&fixture.clock);
    let deferred = deferred_charges(&of_response(&charges, 3), |_| Some(single(0)));
    let counter = &deferred[0].question.counters[0];
    let kind = StoredKind::Level(LevelKind::Bucket(hits(10)));
    assert_eq!((counter.kind, counter.cost), (kind, hits(3)));
}

#[test]
fn hits_of_a_response_that_a_reserve_does_not_cover_use_it_up() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared);
    let bound = fixture.limit(60, Algorithm::Fixed).reserving(&fixture.namespace);
    // A `charge=`: a request is admitted by the hits counted so far.
    let checks = [fixture.ask(&bound, 1000, 0, 0, Some(0))];
    let time_of = |_| Some(UnixMillis(T));
    let reserve = bound.reserve(fixture.keys[0], hits(1000)).unwrap();
    let grant = |part| {
        let window = T / size(60).millis();
        assert!(shared.table.grant(&reserve, hits(part), window, &fixture.clock));
    };
    let is_spent = |cost| {
        let spending = spend(&checks, time_of).expect("it is admitted");
        let mut evaluation = Evaluation::new(Vec::new(), false);
        conclude(&mut evaluation, &checks, &spending.answered, &fixture.clock);
        let charges = evaluation.end(&fixture.clock);
        let mut deferred = deferred_charges(&of_response(&charges, cost), |_| Some(single(0)));
        let [deferred] = &mut deferred[..] else {
            panic!("one decider");
        };
        let spent = deferred.spend(time_of);
        let asked = deferred.question.counters.iter().map(|it| it.cost);
        let asked = asked.fold(Hits::ZERO, Hits::plus);
        (asked, spent, deferred.is_spent())
    };
    grant(5);
    assert!(matches!(is_spent(3), (Hits::ZERO, _, true)));
    let (asked, spent, is_all) = is_spent(10);
    assert_eq!((asked, is_all), (hits(8), false));
    // The next request asks.
    assert!(spend(&checks, time_of).is_none());
    // No decider takes the rest, so all of it is counted elsewhere.
    spent.into_iter().for_each(SpentReserve::put_back);
    assert_eq!(spend(&checks, time_of).unwrap().spent[0].spent.left, hits(2));
}
