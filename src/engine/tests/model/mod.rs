//! Random sequences of operations: the table against a naive model of it, with a simulated clock
//! and one caller at a time. The sequences are the same in each run.

mod ops;
mod rates;

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::engine::{BoundLimit, Evaluation, Namespace};
use crate::policy::algorithm::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::limit::Limit;
use crate::policy::window::{Clock, WindowPosition, WindowSize};
use crate::table::*;
use crate::testing::model::{SIZES, SteppedClock, T, World, is_within};
use crate::testing::table::SharedTable;
use ops::{limit, ops, sizes, step};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(3),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn the_table_counts_as_the_model_does(sizes in sizes(), ops in ops(3, 1, 200)) {
        let shared = SharedTable::new(1 << 18);
        let mut world = World::new(&shared.table, sizes);
        for op in &ops {
            world.run(op);
            assert_eq!(shared.table.zone_stats(), ZoneStats::default(), "nothing is evicted");
        }
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_full_table_counts_unevicted_keys_as_the_model_does(
        sizes in sizes(),
        ops in ops(1000, 200, 40),
    ) {
        let shared = SharedTable::new(7 * 4096);
        let mut world = World::new(&shared.table, sizes);
        for op in &ops {
            world.run(op);
            world.check_evictions();
        }
    }

    #[test]
    fn eviction_loses_hits_but_adds_none(
        size in prop::sample::select(&SIZES[..]),
        rounds in prop::collection::vec((0..2000_u32, 1..400_u32, 1..5000_i64, 0..3_u64), 1..12),
    ) {
        let shared = SharedTable::new(7 * 4096);
        let table = &shared.table;
        let size = WindowSize::from_millis(size).unwrap();
        let counter = table.counter(table.namespace(b"default").unwrap(), b"default", size);
        let clock = SteppedClock::at(T);
        // All hits that were ever counted.
        let mut counted = HashMap::<(u32, u64), i64>::new();

        for (from, count, cost, windows) in rounds {
            clock.set(clock.real.get() + windows * size.millis() / 2);
            let window = size.at(clock.now()).number;
            for key in from..from + count {
                let bytes = key.to_le_bytes();
                let hashed = table.key(&bytes);
                let value = Hits::from_thousandths(cost);
                let added = table.add(&counter, hashed, &clock, value, Admission::Unconditional);
                let current = counted.entry((key, window)).or_default();
                *current += cost;
                assert!(added.receipt.is_some(), "no key is refused");
                let counts = added.reading.windows();
                assert!(counts.current >= value && counts.window == window);
                assert!(counts.current.thousandths() <= *current);
            }
            let at_most = |key, window| counted.get(&(key, window)).copied().unwrap_or_default();
            for key in (0..2400).step_by(7) {
                let reading = table.read(&counter, table.key(&u32::to_le_bytes(key)), &clock);
                let counts = reading.windows();
                assert!(counts.current.thousandths() <= at_most(key, window));
                assert!(counts.previous.thousandths() <= at_most(key, window - 1));
            }
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn an_attempt_is_admitted_by_all_limits_and_charged_to_all_or_none(
        limits in prop::collection::vec(limit(), 1..5),
        requests in prop::collection::vec((0..2_u32, 0..6000_i64, step()), 1..100),
        counts_rejected in any::<bool>(),
    ) {
        let shared = SharedTable::new(1 << 18);
        let namespace = Namespace::new("default", &shared.table).unwrap();
        let mut bound = Vec::<(BoundLimit<'_>, Hits)>::new();
        for (hits, limit) in limits {
            let earlier = bound.iter().map(|(limit, _)| limit);
            let limit = BoundLimit::new(limit, &namespace, earlier);
            bound.push((limit, hits));
        }
        let clock = SteppedClock::at(T);
        let mut model = HashMap::<(u32, u64, u64), i64>::new();

        for (key, cost, step) in requests {
            clock.set(step.after(clock.real.get(), &SIZES));
            let bytes = key.to_le_bytes();
            let hashed = shared.table.key(&bytes);
            let read = |limit: &Limit| {
                let counter = namespace.counter(limit.size);
                shared.table.read(&counter, hashed, &clock)
            };
            let expected = |model: &HashMap<(u32, u64, u64), i64>, limit: &Limit| {
                let WindowPosition { number, elapsed } = limit.size.at(clock.now());
                let hits = |number| {
                    let hits = model.get(&(key, limit.size.millis(), number));
                    Hits::from_thousandths(hits.copied().unwrap_or_default())
                };
                WindowCounts {
                    window: number,
                    current: hits(number),
                    previous: hits(number - 1),
                    elapsed,
                }
            };
            let admits = |(bound, hits): &(BoundLimit<'_>, Hits)| {
                let counts = expected(&model, &bound.limit);
                is_within(bound.limit.size, &counts, *hits, bound.limit.algorithm, cost)
            };
            let verdicts: Vec<bool> = bound.iter().map(admits).collect();

            let mut evaluation = Evaluation::new(Vec::new(), counts_rejected);
            for (limit, hits) in &bound {
                evaluation.charge(limit, *hits, &hashed, Hits::from_thousandths(cost), &clock);
            }
            let (outcome, charges) = evaluation.finish(Outcome::Rejected, &clock);

            let admitted = verdicts.iter().all(|&verdict| verdict);
            assert_eq!(outcome == Outcome::Passed, admitted);
            if admitted || counts_rejected {
                let mut sizes: Vec<_> = bound.iter().map(|(bound, _)| bound.limit.size).collect();
                sizes.sort();
                sizes.dedup();
                for size in sizes {
                    let window = (key, size.millis(), size.at(clock.now()).number);
                    *model.entry(window).or_default() += cost;
                }
            }
            assert_eq!(charges.len(), bound.len());
            for (((bound, _), verdict), charge) in bound.iter().zip(verdicts).zip(&charges) {
                let counts = expected(&model, &bound.limit);
                assert_eq!(read(&bound.limit).windows(), counts);
                let charge = charge.verdict();
                assert_eq!((charge.admitted, charge.reading.windows()), (verdict, counts));
            }
        }
    }
}
