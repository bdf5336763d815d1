//! Evaluations with rules that are tried alone, compared with a naive model.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::engine::*;
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::WindowSize;
use crate::table::Outcome;
use crate::testing::table::{SharedTable, TestClock};

/// A rule: whether it is tried alone, and the hits of its limits.
type TestRule = (bool, Vec<i64>);

/// The hits of each limit of each rule, and the decisions, by the words of the reference.
struct Model<'r> {
    rules: &'r [TestRule],
    counts_rejected: bool,
    counts: Vec<Vec<i64>>,
}

impl Model<'_> {
    fn decide(&mut self, cost: i64) -> Outcome {
        let rules = self.rules.iter().zip(&self.counts);
        let admits: Vec<bool> = rules
            .map(|((_, limits), counts)| {
                let mut limits = limits.iter().zip(counts);
                limits.all(|(limit, count)| count + cost.max(1) <= *limit)
            })
            .collect();
        let refused = |tried| {
            let mut rules = self.rules.iter().zip(&admits);
            rules.any(|((is_tried, _), admits)| *is_tried == tried && !admits)
        };
        let outcome = match (refused(false), refused(true)) {
            (true, _) => Outcome::Rejected,
            (false, true) => Outcome::RejectedDryRun,
            (false, false) => Outcome::Passed,
        };
        for (((is_tried, _), admits), counts) in
            self.rules.iter().zip(&admits).zip(&mut self.counts)
        {
            let is_charged = outcome != Outcome::Rejected && (*admits || !is_tried);
            if is_charged || self.counts_rejected {
                counts.iter_mut().for_each(|count| *count += cost);
            }
        }
        outcome
    }
}

proptest! {
    #[test]
    fn a_rule_that_is_tried_charges_what_it_admits_and_refuses_no_request(
        rules in vec((any::<bool>(), vec(1_i64..8, 1..4)), 1..5),
        costs in vec(0_i64..4, 1..20),
        counts_rejected: bool,
    ) {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let clock = TestClock::at(1_700_000_000_000);
        let key = shared.table.key(b"k");
        // Each limit has a window of its own.
        let mut sizes = (1_u64..).map(|days| WindowSize::from_millis(days * 86_400_000).unwrap());
        let bounds: Vec<_> = rules
            .iter()
            .enumerate()
            .map(|(number, (is_tried, limits))| {
                let limits = limits.iter().zip(&mut sizes).map(|(most, size)| {
                    let limit = Limit {
                        name: "limit".into(),
                        size,
                        algorithm: Algorithm::Fixed,
                        burst: Burst::default(),
                        of_rule: None,
                    };
                    (BoundLimit::new(limit, &namespace, []), hits(*most))
                });
                (is_tried.then_some(number), limits.collect::<Vec<_>>())
            })
            .collect();
        let counts = rules.iter().map(|(_, limits)| vec![0; limits.len()]).collect();
        let mut model = Model { rules: &rules, counts_rejected, counts };
        for cost in costs {
            let mut evaluation = Evaluation::new(Vec::new(), counts_rejected);
            for (trial, limits) in &bounds {
                for (bound, most) in limits {
                    evaluation.enter(*trial);
                    evaluation.charge(bound, *most, &key, hits(cost), &clock);
                }
            }
            let (outcome, _) = evaluation.finish_rare(Outcome::Rejected, &clock);
            prop_assert_eq!(outcome, model.decide(cost));
            let counted = bounds.iter().map(|(_, limits)| {
                let limits = limits.iter();
                limits.map(|(bound, most)| bound.verdict(*most, key, Hits::ZERO, &clock).rate())
            });
            let counted: Vec<Vec<Hits>> = counted.map(Iterator::collect).collect();
            let expected = model.counts.iter().map(|counts| counts.iter().map(|it| hits(*it)));
            let expected: Vec<Vec<Hits>> = expected.map(Iterator::collect).collect();
            prop_assert_eq!(counted, expected);
        }
    }
}
