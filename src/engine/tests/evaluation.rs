//! Requests under limits, and their charges.

use crate::engine::Namespace;
use crate::engine::{BoundLimit, Charge, Evaluation, deferred_hits};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit, Quota, QuotaHits};
use crate::policy::window::Clock as _;
use crate::table::{Key, Outcome};
use crate::testing::table::{SharedTable, TestClock};

/// Requests of the key "k" under limits.
struct Fixture<'m> {
    namespace: Namespace<'m>,
    limits: Vec<(BoundLimit<'m>, Hits)>,
    key: Key<'m>,
    pub(super) clock: TestClock,
    counts_rejected: bool,
}

impl<'m> Fixture<'m> {
    fn new(shared: &'m SharedTable, limits: &[(&str, Algorithm)]) -> Self {
        let mut fixture = Fixture {
            namespace: Namespace::new("foo", &shared.table).unwrap(),
            limits: Vec::new(),
            key: shared.table.key(b"k"),
            clock: TestClock::at(1_700_000_000_000),
            counts_rejected: false,
        };
        fixture.limit_by(limits);
        fixture
    }

    fn limit_by(&mut self, limits: &[(&str, Algorithm)]) {
        for &(quota, algorithm) in limits {
            let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
            let QuotaHits::Constant(hits) = hits else {
                panic!("{quota} is variable");
            };
            let limit = Limit {
                name: quota.into(),
                size,
                algorithm,
                burst: Burst::default(),
                of_rule: None,
            };
            let earlier = self.limits.iter().map(|(bound, _)| bound);
            let bound = BoundLimit::new(limit, &self.namespace, earlier);
            self.limits.push((bound, hits));
        }
    }

    fn charges(&self, cost: i64) -> (bool, Vec<Charge<'_, 'm>>) {
        let mut evaluation = Evaluation::new(Vec::new(), self.counts_rejected);
        for (bound, hits) in &self.limits {
            evaluation.charge(bound, *hits, &self.key, hits_of(cost), &self.clock);
        }
        let (outcome, charges) = evaluation.finish(Outcome::Rejected, &self.clock);
        (outcome == Outcome::Passed, charges)
    }

    /// Returns whether a request is admitted, and the rates afterwards.
    fn evaluate(&self, cost: i64) -> (bool, Vec<i64>) {
        let (admitted, charges) = self.charges(cost);
        let rates = charges.iter().map(|charge| charge.verdict().rate().whole());
        (admitted, rates.collect())
    }
}

fn hits_of(whole: i64) -> Hits {
    Hits::from_thousandths(whole * 1000)
}

use Algorithm::{Elastic, Fixed, Moving, Sliding};

#[test]
fn all_limits_are_charged_or_none() {
    let shared = SharedTable::new(1 << 20);
    let limits = [("10/1m", Sliding), ("2/1h", Sliding), ("10/1d", Sliding)];
    let fixture = Fixture::new(&shared, &limits);
    assert_eq!(fixture.evaluate(1), (true, vec![1, 1, 1]));
    assert_eq!(fixture.evaluate(1), (true, vec![2, 2, 2]));
    for _ in 0..3 {
        assert_eq!(fixture.evaluate(1), (false, vec![2, 2, 2]));
    }
}

#[test]
fn a_counter_that_limits_share_is_charged_once() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared, &[("3/1h", Sliding), ("2/1h", Fixed)]);
    assert_eq!(fixture.evaluate(1), (true, vec![1, 1]));
    assert_eq!(fixture.evaluate(1), (true, vec![2, 2]));
    assert_eq!(fixture.evaluate(1), (false, vec![2, 2]));
}

#[test]
fn asking_costs_nothing() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared, &[("1/1m", Sliding)]);
    let is_admitted = |cost| fixture.evaluate(cost).0;
    assert!(is_admitted(0) && is_admitted(0));
    assert!(is_admitted(1));
    assert!(!is_admitted(0));
}

#[test]
fn a_limit_that_only_asked_tells_the_rate_after_the_request() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared, &[("5/1h", Fixed), ("9/1h", Fixed)]);
    let mut evaluation = Evaluation::new(Vec::new(), false);
    for ((bound, hits), cost) in fixture.limits.iter().zip([0, 2]) {
        evaluation.charge(bound, *hits, &fixture.key, hits_of(cost), &fixture.clock);
    }
    let (_, charges) = evaluation.finish(Outcome::Rejected, &fixture.clock);
    let rates = charges.iter().map(|charge| charge.verdict().rate().whole());
    assert_eq!(rates.collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn rejected_hits_count_in_every_limit_if_they_are_to() {
    let shared = SharedTable::new(1 << 20);
    let limits = [("10/1m", Fixed), ("2/1h", Fixed), ("2/1h", Sliding)];
    let mut fixture = Fixture::new(&shared, &limits);
    fixture.counts_rejected = true;
    assert_eq!(fixture.evaluate(1), (true, vec![1, 1, 1]));
    assert_eq!(fixture.evaluate(2), (false, vec![3, 3, 3]));
    assert_eq!(fixture.evaluate(1), (false, vec![4, 4, 4]));
}

/// Charges hits that are known only with the response.
fn charge_later(charges: &[Charge<'_, '_>], hits: i64, clock: &TestClock) {
    let hits = deferred_hits(charges, |_| Some(hits_of(hits)), |_| false);
    hits.iter().for_each(|it| it.charge(clock));
}

#[test]
fn late_hits_are_charged_once_to_a_shared_counter() {
    let shared = SharedTable::new(1 << 20);
    let limits = [("9/1m", Fixed), ("9/1h", Fixed), ("9/1h", Sliding)];
    let fixture = Fixture::new(&shared, &limits);
    let (_, charges) = fixture.charges(0);
    charge_later(&charges, 5, &fixture.clock);
    assert_eq!(fixture.evaluate(0), (true, vec![5, 5, 5]));

    let (_, charges) = fixture.charges(1);
    charge_later(&charges, 5, &fixture.clock);
    assert_eq!(fixture.evaluate(0), (true, vec![6, 6, 6]), "charged at once");
}

#[test]
fn hits_that_are_given_back_were_never_counted() {
    let shared = SharedTable::new(1 << 20);
    let mut fixture = Fixture::new(&shared, &[("9/1m", Fixed), ("2/1h", Fixed)]);
    let hits = || shared.table.namespace_stats(fixture.namespace.index()).hits;
    let mut evaluation = Evaluation::new(Vec::new(), false);
    for (bound, limit) in &fixture.limits {
        evaluation.charge(bound, *limit, &fixture.key, hits_of(2), &fixture.clock);
    }
    assert_eq!(hits(), 0, "not decided yet");
    evaluation.finish(Outcome::Rejected, &fixture.clock);
    assert_eq!(hits(), 4_000, "by each counter");
    assert!(!fixture.evaluate(1).0);
    assert_eq!(hits(), 4_000);
    fixture.counts_rejected = true;
    assert!(!fixture.evaluate(1).0);
    let stats = shared.table.namespace_stats(fixture.namespace.index());
    assert_eq!(stats.hits, 6_000);
}

#[test]
fn an_outcome_counts_once_in_a_namespace() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared, &[("2/1m", Fixed), ("9/1h", Fixed)]);
    for _ in 0..3 {
        fixture.evaluate(1);
    }
    let stats = shared.table.namespace_stats(fixture.namespace.index());
    assert_eq!(stats.outcomes, [2, 1, 0]);
}

const T: u64 = 1_700_000_000_000;

/// Returns the milliseconds until each limit would admit one more hit.
fn waits(charges: &[Charge<'_, '_>]) -> Vec<Option<u64>> {
    let waits = charges.iter().map(|charge| charge.verdict().retry_after());
    waits.collect()
}

#[test]
fn moving_limits_that_share_a_counter_return_when_they_have_room() {
    let shared = SharedTable::new(1 << 20);
    let mut fixture = Fixture::new(&shared, &[("10/1m", Moving), ("3/1m", Moving)]);
    for seconds in [0, 10, 20] {
        fixture.clock.set(T + seconds * 1000);
        assert!(fixture.evaluate(1).0);
    }
    fixture.clock.set(T + 30_000);
    let (admitted, charges) = fixture.charges(1);
    assert!(!admitted);
    // The charge of the first limit is refunded, so one hit must leave, not two.
    assert_eq!(waits(&charges), [Some(0), Some(30_001)]);
    fixture.clock.set(T + 60_000);
    assert!(!fixture.evaluate(1).0, "as old as the window is in it");
    fixture.clock.set(T + 60_001);
    assert_eq!(fixture.evaluate(1), (true, vec![3, 3]));
    // A rejected hit that is counted must leave, too.
    fixture.counts_rejected = true;
    let (_, charges) = fixture.charges(1);
    assert_eq!(waits(&charges), [Some(0), Some(20_000)]);
}

#[test]
fn a_moving_limit_that_only_asked_returns_when_it_has_room_after_the_request() {
    let shared = SharedTable::new(1 << 20);
    let fixture = Fixture::new(&shared, &[("2/1m", Moving), ("9/1m", Moving)]);
    for (seconds, expected) in [(0, [Some(0), Some(0)]), (10, [Some(50_001), Some(0)])] {
        fixture.clock.set(T + seconds * 1000);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for ((bound, hits), cost) in fixture.limits.iter().zip([0, 1]) {
            evaluation.charge(bound, *hits, &fixture.key, hits_of(cost), &fixture.clock);
        }
        let (outcome, charges) = evaluation.finish(Outcome::Rejected, &fixture.clock);
        assert_eq!(outcome, Outcome::Passed);
        assert_eq!(waits(&charges), expected);
    }
}

#[test]
fn limits_of_all_algorithms_are_charged_or_none() {
    let shared = SharedTable::new(1 << 20);
    let limits = [
        ("9/1h", Moving),
        ("9/1h", Elastic),
        ("9/1h", Sliding),
        ("9/1h", Algorithm::Bucket),
        ("2/1m", Moving),
    ];
    let mut fixture = Fixture::new(&shared, &limits);
    for (bound, _) in &mut fixture.limits {
        bound.limit.burst.hits = hits_of(8);
    }
    assert_eq!(fixture.evaluate(1), (true, vec![1; 5]));
    assert_eq!(fixture.evaluate(1), (true, vec![2; 5]));
    for _ in 0..3 {
        assert_eq!(fixture.evaluate(1), (false, vec![2; 5]));
    }
    let (_, charges) = fixture.charges(0);
    charge_later(&charges, 3, &fixture.clock);
    assert_eq!(fixture.evaluate(0), (false, vec![5; 5]));
    fixture.counts_rejected = true;
    assert_eq!(fixture.evaluate(1), (false, vec![6; 5]));
}

#[test]
fn the_keys_that_limits_refuse_are_counted_once_a_request() {
    let shared = SharedTable::new(1 << 20);
    // Two limits refuse one key, and the last limit the other.
    let limits =
        [("1/1m", Algorithm::Fixed), ("1/1s", Algorithm::Moving), ("1/2s", Algorithm::Fixed)];
    let fixture = Fixture::new(&shared, &limits);
    let keys = ["one", "one", "two"].map(|key| shared.table.key(key.as_bytes()));
    for _ in 0..4 {
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for ((bound, hits), key) in fixture.limits.iter().zip(&keys) {
            evaluation.charge(bound, *hits, key, Hits::ONE, &fixture.clock);
        }
        evaluation.finish(Outcome::Rejected, &fixture.clock);
    }
    let (namespace, now) = (fixture.namespace.index(), fixture.clock.now());
    let top = shared.table.top_rejected(namespace, now);
    let counts: Vec<_> = top.keys.iter().map(|key| (&*key.name, key.count)).collect();
    assert_eq!(counts, [(&b"one"[..], 3), (b"two", 3)]);
}

#[test]
fn a_share_of_a_limit_holds_for_questions_and_for_rejected_hits_that_count() {
    for counts_rejected in [false, true] {
        let shared = SharedTable::new(1 << 20);
        let mut fixture = Fixture::new(&shared, &[]);
        fixture.namespace = fixture.namespace.synced(1).unwrap();
        fixture.counts_rejected = counts_rejected;
        let limits = [("100/1h", Fixed), ("50/1h", Sliding)];
        fixture.limit_by(&limits);
        let state = fixture.namespace.sync_state().unwrap();
        state.record_living(10, None);
        state.set_alone(true);
        let admitted = || (0..20).filter(|_| fixture.evaluate(1).0).count();
        // The hits of the further limit.
        assert_eq!(admitted(), 5, "{counts_rejected}");
        // For example, of a `charge=`.
        assert!(!fixture.evaluate(0).0);
        state.set_alone(false);
        assert!(fixture.evaluate(0).0);
    }
}
