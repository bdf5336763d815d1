//! Bans, compared with a naive model; and questions to stores about them.

use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;

use crate::engine::*;
use crate::policy::algorithm::{Algorithm, BanCounts, WindowCounts};
use crate::policy::hits::{Hits, hits};
use crate::policy::limit::{BanRule, Burst, Limit};
use crate::policy::window::{Clock as _, UnixMillis, WindowSize};
use crate::store::contract::decision::{Answer, Certainty};
use crate::table::{Outcome, WindowChange};
use crate::testing::table::{SharedTable, TestClock};

const T: u64 = 1_700_000_000_000;

fn size(millis: u64) -> WindowSize {
    WindowSize::from_millis(millis).unwrap()
}

fn limit(millis: u64) -> Limit {
    Limit {
        name: "limit".into(),
        size: size(millis),
        algorithm: Algorithm::Fixed,
        burst: Burst::default(),
        of_rule: None,
    }
}

fn ban_of<'m>(namespace: &Namespace<'m>, millis: u64, after: i64) -> Ban<'m> {
    let ban = BanRule { rules: 7, size: size(millis), after: hits(after) };
    Ban::new(ban, [&limit(1_000), &limit(5_000)], namespace).unwrap()
}

/// The rejections and the bans of a key, by the words of the reference.
#[derive(Default)]
struct Model {
    rejections: Vec<u64>,
    until: u64,
}

impl Model {
    /// Records a rejection. Returns whether it begins a ban.
    fn reject(&mut self, now: u64, (millis, after): (u64, i64)) -> bool {
        self.rejections.push(now);
        let counted = self.rejections.iter().filter(|at| **at >= now - 5_000).count();
        let is_ban = i64::try_from(counted).unwrap() >= after && now >= self.until;
        if is_ban {
            self.until = now + millis;
        }
        is_ban
    }
}

proptest! {
    #[test]
    fn a_key_is_banned_exactly_from_its_last_rejection_on(
        millis in prop_oneof![Just(1_u64), 2_u64..20_000],
        after in 1_i64..5,
        steps in vec((0_u64..4_000, 0_u8..8), 1..60),
    ) {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let (ban, clock) = (ban_of(&namespace, millis, after), TestClock::at(T));
        let mut models = [Model::default(), Model::default()];
        let mut now = T;
        for (pause, action) in steps {
            now += pause;
            clock.set(now);
            let (key, model) = match action % 2 {
                0 => (b"one", &mut models[0]),
                _ => (b"two", &mut models[1]),
            };
            // A request that is banned is not counted.
            let left = ban.left_of(key, &clock);
            prop_assert_eq!(left, (model.until > now).then(|| model.until - now));
            if action == 7 {
                prop_assert_eq!(ban.lift(key, &clock), left.is_some());
                *model = Model::default();
            } else if left.is_none() {
                prop_assert_eq!(ban.record(key, &clock), model.reject(now, (millis, after)));
            }
        }
    }
}

#[test]
fn a_rejection_that_was_being_decided_begins_no_other_ban() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let (ban, clock) = (ban_of(&namespace, 10_000, 1), TestClock::at(T));
    assert!(ban.record(b"k", &clock));
    clock.set(T + 4_000);
    assert!(!ban.record(b"k", &clock));
    assert_eq!(ban.left_of(b"k", &clock), Some(6_000));
}

#[test]
fn a_banned_request_is_charged_nowhere_and_refused_by_the_ban_alone() {
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap();
    let (ban, clock) = (ban_of(&namespace, 10_000, 1), TestClock::at(T));
    ban.record(b"k", &clock);
    let name = ban.name(b"k");
    let (key, name) = (shared.table.key(b"k"), shared.table.key(&name));
    let first = BoundLimit::new(limit(5_000), &namespace, []);
    // Even where rejected hits count.
    let mut evaluation = Evaluation::new(Vec::new(), true);
    evaluation.charge(&first, hits(9), &key, hits(1), &clock);
    assert!(evaluation.check_ban(&ban.bound, hits(3), &name, None, false, &clock));
    assert!(!evaluation.is_charged());
    let (outcome, charges) = evaluation.finish_rare(Outcome::Rejected, &clock);
    assert_eq!((outcome, charges.len()), (Outcome::Rejected, 2));
    assert_eq!(first.verdict(hits(9), key, Hits::ZERO, &clock).rate(), Hits::ZERO);
    let verdict = charges[1].verdict();
    assert_eq!((verdict.retry_after(), verdict.remaining()), (Some(10_000), Hits::ZERO));
    assert_eq!(verdict.window(), Some(5_000));
}

/// The question about a key that may be banned: the store's counts of the windows, and whether the key is banned, the
/// question asked again, or the request admitted.
#[test]
fn a_store_is_asked_for_the_bans_that_another_node_began() {
    let clock = TestClock::at(T);
    let millis = 10_000;
    let began = |at: u64| BanCounts::hits(size(millis), UnixMillis(at));
    for (current, previous, is_banned, is_asked_again) in [
        (Hits::ZERO, Hits::ZERO, false, false),
        (began(T - T % millis), Hits::ZERO, true, false),
        (Hits::ZERO, began(T - 9_999), true, false),
        (Hits::ZERO, began(T - 10_000), false, true),
    ] {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap().synced(1).unwrap();
        let ban = ban_of(&namespace, millis, 1);
        let name = ban.name(b"k");
        let (key, name) = (shared.table.key(b"k"), shared.table.key(&name));
        let bound = BoundLimit::new(limit(5_000), &namespace, []);
        let store = Some(Deciders { first: 0, shards: 1 });
        let check = |bound, key, cost| LimitCheck {
            bound,
            hits: hits(3),
            key,
            cost: hits(cost),
            store,
            trial: None,
        };
        let checks = [check(&ban.bound, &name, 0), check(&bound, &key, 1)];
        let mut decision = PendingDecision::new(&checks, false);
        let answer = |admits: bool| {
            let counts = |size: WindowSize, current, previous| {
                WindowCounts::of(size.at(clock.now()), current, previous).into()
            };
            Answer {
                admitted: smallvec![admits, true],
                readings: smallvec![
                    counts(size(millis), current, previous),
                    counts(size(5_000), hits(i64::from(admits)), Hits::ZERO)
                ],
                certainty: Certainty::Settled,
            }
        };
        // As a store decides by the limit of the question.
        let asked = decision.question().unwrap().question.limits[0];
        let reading = answer(true).readings[0];
        let cost = asked.cost;
        let admits = asked.algorithm.admits(size(millis), &reading, asked.hits, cost);
        decision.answer(&answer(admits), &checks, &clock);
        assert_eq!(decision.is_pending(), is_asked_again, "{current} {previous}");
        if is_asked_again {
            let asked = decision.question().unwrap().question.limits[0];
            assert!(asked.algorithm.admits(size(millis), &reading, asked.hits, cost));
            decision.answer(&answer(true), &checks, &clock);
        }
        let mut evaluation = Evaluation::new(Vec::new(), false);
        decision.conclude(&mut evaluation, &checks, &clock);
        let (outcome, charges) = evaluation.finish_rare(Outcome::Rejected, &clock);
        let expected = if is_banned { Outcome::Rejected } else { Outcome::Passed };
        assert_eq!((outcome, charges.len()), (expected, 1), "{current} {previous}");
        assert_eq!(charges[0].bound().is_of_bans(), is_banned);
        // The node knows it, too, if the store goes away.
        assert_eq!(ban.left_of(b"k", &clock).is_some(), is_banned);
    }
}

/// The node tells the store of its ban while it asks about the key, and the answer is without the ban. A later answer
/// without it says that another node has lifted it.
#[test]
fn an_answer_from_before_the_store_knew_of_a_ban_does_not_end_it() {
    let (clock, millis) = (TestClock::at(T), 10_000);
    let shared = SharedTable::new(1 << 20);
    let namespace = Namespace::new("api", &shared.table).unwrap().synced(1).unwrap();
    let ban = ban_of(&namespace, millis, 1);
    let (key, name) = (shared.table.key(b"k"), ban.name(b"k"));
    let name = shared.table.key(&name);
    let bound = BoundLimit::new(limit(5_000), &namespace, []);
    let store = Some(Deciders { first: 0, shards: 1 });
    let check =
        |bound, key, cost| LimitCheck { bound, hits: hits(3), key, cost, store, trial: None };
    let checks = [check(&ban.bound, &name, Hits::ZERO), check(&bound, &key, Hits::ONE)];
    let nothing =
        |millis: u64| WindowCounts::of(size(millis).at(clock.now()), Hits::ZERO, Hits::ZERO).into();
    let decide = |decision: &mut PendingDecision| {
        let readings = smallvec![nothing(millis), nothing(5_000)];
        let admitted = smallvec![true, false];
        let answer = Answer { admitted, readings, certainty: Certainty::Settled };
        decision.answer(&answer, &checks, &clock);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        decision.conclude(&mut evaluation, &checks, &clock);
        let (_, charges) = evaluation.finish_rare(Outcome::Rejected, &clock);
        charges[0].bound().is_of_bans()
    };
    assert!(ban.record(b"k", &clock));
    let mut decision = PendingDecision::new(&checks, false);
    let mut told = 0;
    for group in 0..shared.table.change_groups() {
        shared.table.take_changes(group, namespace.index(), clock.now(), |change| {
            for WindowChange { number, local, pushed } in change.windows {
                shared
                    .table
                    .advance_pushed(change.counter, number, (pushed, local), &|| true)
                    .unwrap();
                told += 1;
            }
        });
    }
    assert_eq!(told, 1);
    assert!(decide(&mut decision), "the request");
    assert_eq!(ban.left_of(b"k", &clock), Some(millis), "the next one");
    let mut decision = PendingDecision::new(&checks, false);
    assert!(!decide(&mut decision), "a lifted ban");
    assert_eq!(ban.left_of(b"k", &clock), None);
}
