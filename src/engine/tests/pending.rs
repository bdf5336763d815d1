//! Pending decisions with stores that charge, reject, or do not answer at random.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::engine::*;
use crate::policy::algorithm::{Algorithm, Reading};
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::WindowSize;
use crate::store::contract::decision::{Answer, Certainty, Question};
use crate::table::Key;
use crate::testing::table::{SharedTable, TestClock};

/// A store's reaction to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Admits,
    Rejects,
    IsSilent,
}

/// The hits that each decider has charged, by key.
#[derive(Debug, Default, PartialEq, Eq)]
struct Charged(BTreeMap<(usize, Vec<u8>), Hits>);

impl Charged {
    fn charge(&mut self, decider: usize, question: &Question) {
        for counter in question.counters.iter().filter(|it| it.cost != Hits::ZERO) {
            let hits = self.0.entry((decider, counter.key.to_vec())).or_insert(Hits::ZERO);
            *hits = hits.plus_value(counter.cost);
        }
        self.0.retain(|_, hits| *hits != Hits::ZERO);
    }
}

fn stores() -> impl Strategy<Value = Store> {
    prop_oneof![4 => Just(Store::Admits), 2 => Just(Store::Rejects), 1 => Just(Store::IsSilent)]
}

proptest! {
    /// Each store charges a request once if all stores admit it or rejected requests are counted;
    /// otherwise none does. No store is asked twice, or after the end.
    #[test]
    fn a_request_is_charged_by_all_stores_or_none(
        checks in vec((0_usize..5, 0_i64..4, 0_usize..4), 0..6),
        stores in vec(stores(), 4),
        counts_rejected: bool,
    ) {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let clock = TestClock::at(1_700_000_000_000);
        let limit = Limit {
            name: "limit".into(),
            size: WindowSize::from_millis(60_000).unwrap(),
            algorithm: Algorithm::Fixed,
            burst: Burst::default(),
            of_rule: None,
        };
        let bound = BoundLimit::new(limit, &namespace, []);
        let names = ["a", "b", "c", "d", "e"];
        let keys: Vec<Key<'_>> = names.iter().map(|name| shared.table.key(name.as_bytes())).collect();
        let checks: Vec<_> = checks
            .iter()
            .map(|(key, cost, store)| LimitCheck {
                bound: &bound,
                hits: hits(10),
                key: &keys[*key],
                cost: hits(*cost),
                // The last one is not a store.
                store: (*store < 3).then_some(Deciders { first: *store, shards: 1 }),
                trial: None,
            })
            .collect();

        let mut decision = PendingDecision::new(&checks, counts_rejected);
        let ahead: Vec<usize> = decision.deciders().collect();
        let (mut asked, mut charged) = (Vec::new(), Charged::default());
        while let Some(question) = decision.question().cloned() {
            prop_assert!(decision.is_pending());
            prop_assert_eq!(decision.deciders().next(), Some(question.decider));
            asked.push(question.decider);
            let store = stores[question.decider];
            if store == Store::IsSilent {
                decision.fail(question.decider);
                continue;
            }
            let is_admitted = store == Store::Admits;
            if is_admitted || counts_rejected {
                charged.charge(question.decider, &question.question);
            }
            let answer = Answer {
                admitted: question.question.limits.iter().map(|_| is_admitted).collect(),
                readings: question.question.counters.iter().map(|_| Reading::default()).collect(),
                certainty: Certainty::Settled,
            };
            prop_assert_eq!(decision.answer(&answer, &checks, &clock), is_admitted);
        }
        prop_assert!(!decision.is_pending());

        // The model: the deciders up to the first one that ends the decision.
        let ends = |decider: &usize| match stores[*decider] {
            Store::Admits => false,
            Store::Rejects => !counts_rejected,
            Store::IsSilent => true,
        };
        let end = ahead.iter().position(ends);
        let of_model = &ahead[..end.map_or(ahead.len(), |end| end + 1)];
        prop_assert_eq!(&asked[..], of_model);
        let is_silent = end.is_some_and(|end| stores[ahead[end]] == Store::IsSilent);
        prop_assert_eq!(decision.has_failed(), is_silent);
        prop_assert_eq!(decision.silent_namespace(), is_silent.then_some("api"));
        let is_rejected = asked.iter().any(|decider| stores[*decider] == Store::Rejects);
        for (check, answered) in checks.iter().zip(decision.answered()) {
            let decider = check.store.map(|it| it.first);
            let answers = decider.filter(|it| asked.contains(it) && stores[*it] != Store::IsSilent);
            let admitted = answers.map(|it| stores[it] == Store::Admits);
            prop_assert_eq!(answered.as_ref().map(|it| it.admitted), admitted);
        }
        let stays = !is_silent && (!is_rejected || counts_rejected);
        let mut left = Charged::default();
        for question in decision.take_charged() {
            match stays {
                true => left.charge(question.decider, &question.question),
                false => charged.charge(question.decider, &question.refund()),
            }
        }
        // The charges that stay are known, and nothing else is left.
        prop_assert_eq!(charged, left);
        prop_assert!(decision.question().is_none() && decision.take_charged().is_empty());
    }
}
