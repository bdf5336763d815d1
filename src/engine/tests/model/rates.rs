//! Requests under several rates, against a model that stores the bucket of each by its rate in
//! lowest terms.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{T, config};
use crate::engine::{BoundLimit, Evaluation, Namespace};
use crate::policy::algorithm::{Algorithm, BucketLevel, Level, LevelKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock as _, WindowSize};
use crate::table::Outcome;
use crate::testing::table::{SharedTable, TestClock};

/// A rate in thousandths per number of milliseconds, and its burst in thousandths.
#[derive(Clone, Copy, Debug)]
struct Rate {
    hits: i64,
    millis: u64,
    burst: i64,
    /// Whether each request chooses it.
    is_told: bool,
}

impl Rate {
    fn kind(self) -> LevelKind {
        LevelKind::Bucket(Hits::from_thousandths(self.hits))
    }

    fn size(self) -> WindowSize {
        WindowSize::from_millis(self.millis).unwrap()
    }

    fn most(self) -> Hits {
        Hits::from_thousandths(self.burst + 1000)
    }

    /// Returns the value by which two rates are equal. None of these is rounded as in `limit_req`.
    fn value(self) -> (u64, u64) {
        let hits = self.hits.unsigned_abs();
        let (mut divisor, mut rest) = (self.millis, hits);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        (hits / divisor, self.millis / divisor)
    }
}

fn rate() -> impl Strategy<Value = Rate> {
    let same = [(1000, 1000), (60_000, 60_000), (7000, 7000)];
    let others = [(10_000, 1000), (100, 1000), (3, 7), (9, 21), (1, 90_000)];
    let rates = [&same[..], &others].concat();
    let (rate, burst) = (prop::sample::select(rates), 0..9_000_i64);
    (rate, burst, any::<bool>()).prop_map(|((hits, millis), burst, is_told)| Rate {
        hits,
        millis,
        burst,
        is_told,
    })
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn each_rate_has_a_bucket_of_its_own(
        rates in prop::collection::vec(rate(), 1..5),
        requests in prop::collection::vec((1..4000_i64, prop::sample::select(vec![0, 1, 40, 999, 5000, 1 << 40])), 1..80),
        counts_rejected in any::<bool>(),
    ) {
        let shared = SharedTable::new(1 << 18);
        let namespace = Namespace::new("default", &shared.table).unwrap();
        let (clock, key) = (TestClock::at(T), shared.table.key(b"k"));
        let mut bound: Vec<BoundLimit<'_>> = Vec::new();
        for rate in &rates {
            let limit = Limit {
                name: "".into(),
                size: rate.size(),
                algorithm: Algorithm::Bucket,
                burst: Burst {
                    hits: Hits::from_thousandths(rate.burst),
                    delay: None,
                    rate: (!rate.is_told).then_some(Hits::from_thousandths(rate.hits)),
                },
                of_rule: None,
            };
            let new = BoundLimit::new(limit, &namespace, &bound);
            bound.push(new);
        }
        let mut model: HashMap<(u64, u64), Level> = HashMap::new();
        for (cost, later) in requests {
            let cost = Hits::from_thousandths(cost);
            clock.set(clock.now().0 + later);
            let now = clock.now();
            let read = |model: &HashMap<(u64, u64), Level>, rate: &Rate| {
                let level = model.get(&rate.value()).copied().unwrap_or_default();
                (level, BucketLevel::from(rate.kind().reading(rate.size(), level, now)).hits)
            };
            let admits = |rate: &Rate| read(&model, rate).1.plus(cost) <= rate.most();
            let expected: Vec<bool> = rates.iter().map(admits).collect();
            let is_admitted = expected.iter().all(|it| *it);
            if is_admitted || counts_rejected {
                for (index, rate) in rates.iter().enumerate() {
                    // Of rates that share a bucket, the first charges it.
                    if rates[..index].iter().any(|it| it.value() == rate.value()) {
                        continue;
                    }
                    let (level, there) = read(&model, rate);
                    let room = rate.most().minus(there).max(Hits::ZERO);
                    let level = rate.kind().after_hit(rate.size(), level, now, cost.min(room));
                    model.insert(rate.value(), level);
                }
            }
            let mut evaluation = Evaluation::new(Vec::new(), counts_rejected);
            for (bound, rate) in bound.iter().zip(&rates) {
                let told = Hits::from_thousandths(rate.hits);
                evaluation.charge(bound, told, &key, cost, &clock);
            }
            let (outcome, charges) = evaluation.finish(Outcome::Rejected, &clock);
            assert_eq!(outcome == Outcome::Passed, is_admitted);
            for ((charge, expected), rate) in charges.iter().zip(&expected).zip(&rates) {
                let verdict = charge.verdict();
                assert_eq!(verdict.admitted, *expected, "{rate:?}");
                assert_eq!(verdict.rate(), read(&model, rate).1, "{rate:?}");
            }
        }
    }
}
