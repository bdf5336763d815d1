//! Synchronous requests, between their evaluation and their end: the questions to the datastores,
//! and the use of the answers.
//!
//! A datastore decides about all limits that it counts for in one step, and charges either all or
//! none of them. A clustered one decides separately in each shard, so limits of several keys are
//! asked about one after another, and charges are refunded if a later limit refuses. The answers
//! are also recorded in the node's own table, so that the node can continue from there when the
//! datastore does not answer, and knows for a moment which counters are over their limits.

use smallvec::smallvec;

use super::bound_limit::BoundLimit;
use super::charge::{Charge, Charges};
use super::evaluation::Evaluation;
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::Clock;
use crate::store::contract::decision::{
    Answer, AskedCounter, AskedLimit, Certainty, Few, KeyBytes, Question,
};
use crate::store::contract::strategy::Shard;
use crate::table::{Identity, Key, PushedHits};

/// The deciders of a namespace's counters. Each decides about some of them, in one step, and has a
/// number that is unique among all namespaces and datastores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deciders {
    /// The number of the first shard's decider; those of the other shards follow. A datastore that
    /// does not divide namespaces has one decider for all shards.
    pub first: usize,
    /// Number of shards of the namespace.
    pub shards: u16,
}

/// A limit to check for a request.
#[derive(Clone, Copy, Debug)]
pub struct LimitCheck<'c, 'm> {
    /// The limit.
    pub bound: &'c BoundLimit<'m>,
    /// The limit's hits, or its rate.
    pub hits: Hits,
    /// Key of the counter.
    pub key: &'c Key<'c>,
    /// The hits to charge; zero only asks.
    pub cost: Hits,
    /// The deciders of the datastore; `None` if this node decides.
    pub store: Option<Deciders>,
    /// The number of the limit's rule, if that is tried alone.
    pub trial: Option<usize>,
}

/// A question to a datastore about a request, with the indexes of its checks.
#[derive(Clone, Debug)]
pub struct StoreQuestion {
    /// The number of the decider.
    pub decider: usize,
    /// The question itself.
    pub question: Question,
    /// Whether it is about a rule that is tried alone.
    pub(super) is_trial: bool,
    /// Whether the store has charged it although a limit refused, which only fills a bucket.
    is_filled: bool,
    /// The index of the check for each limit of the question.
    checks: Few<usize>,
    /// This node's hits in the counters of bans, by number, that the store had when the question was
    /// made. The answer may lack a ban that the node pushes meanwhile.
    pushed: Few<(usize, PushedHits)>,
}

/// A datastore's answer for one check.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Whether the limit admits the request.
    pub admitted: bool,
    /// Reading after the decision.
    pub reading: Reading,
    /// Hits charged in the counter, for the first limit that has it; zero for the others.
    pub charged: Hits,
    /// Certainty of a refusal.
    pub certainty: Certainty,
}

impl Deciders {
    /// Returns the number of a key's decider.
    pub fn number_of(&self, key: &[u8]) -> usize {
        self.first.saturating_add(self.shard_number(key).into())
    }

    fn shard_number(&self, key: &[u8]) -> u16 {
        match self.shards {
            // Most namespaces have one decider.
            1 => 0,
            shards => Shard::number_of(key, shards),
        }
    }

    /// Creates the counter of a question, with `cost` to charge.
    pub(crate) fn counter(
        &self,
        bound: &BoundLimit<'_>,
        kind: StoredKind,
        key: Key<'_>,
        cost: Hits,
    ) -> AskedCounter {
        AskedCounter {
            shard: Shard {
                namespace: bound.shared_namespace(),
                number: self.shard_number(key.bytes()),
            },
            key: KeyBytes::from_slice(key.bytes()),
            kind,
            size: bound.limit.size,
            cost,
        }
    }
}

impl<'m> LimitCheck<'_, 'm> {
    pub(super) fn identity(&self) -> Identity {
        self.bound.identity(*self.key, self.hits)
    }

    /// Returns the number of the decider; `None` if this node decides.
    pub(super) fn decider(&self) -> Option<usize> {
        Some(self.store?.number_of(self.key.bytes()))
    }
}

/// A decider, and the number of a rule that is tried alone.
type Asked = (usize, Option<usize>);

/// Returns the questions about a request, one for each decider, and before those, one for each rule
/// that is tried alone, in the order of their first limits.
pub fn questions(checks: &[LimitCheck<'_, '_>], counts_rejected: bool) -> Few<StoreQuestion> {
    let mut parts: Few<(Asked, Few<(usize, Deciders)>)> = Few::new();
    for (index, check) in checks.iter().enumerate() {
        let (Some(deciders), Some(decider)) = (check.store, check.decider()) else {
            continue;
        };
        let asked = (decider, check.trial);
        match parts.iter_mut().find(|(known, _)| *known == asked) {
            Some((_, part)) => part.push((index, deciders)),
            None => parts.push((asked, smallvec![(index, deciders)])),
        }
    }
    // A rule that is tried is compared with the counts before this request.
    parts.sort_by_key(|((_, trial), _)| trial.is_none());
    let mut questions = Few::new();
    for ((decider, trial), part) in parts {
        let asked = question(checks, decider, &part, counts_rejected);
        questions.push(StoreQuestion { is_trial: trial.is_some(), ..asked });
    }
    questions
}

/// Returns the question to a decider about the checks with these indexes.
fn question(
    checks: &[LimitCheck<'_, '_>],
    decider: usize,
    part: &[(usize, Deciders)],
    counts_rejected: bool,
) -> StoreQuestion {
    let mut identities: Few<Identity> = Few::new();
    let mut counters: Few<AskedCounter> = Few::new();
    let (mut limits, mut indices, mut pushed) = (Few::new(), Few::new(), Few::new());
    for &(index, deciders) in part {
        let Some(check) = checks.get(index) else {
            continue;
        };
        let LimitCheck { bound, hits, key, cost, .. } = *check;
        let identity = check.identity();
        let known = identities.iter().position(|it| *it == identity);
        let counter = known.unwrap_or(counters.len());
        let kind = bound.limit.algorithm.kind().at_rate(hits);
        match counters.get_mut(counter) {
            // A counter that limits share is charged once, by the first limit that charges it.
            Some(counter) if counter.cost == Hits::ZERO => counter.cost = cost,
            Some(_) => {}
            None => {
                let charged = match is_charged_before(checks, index) {
                    true => Hits::ZERO,
                    false => cost,
                };
                if bound.is_of_bans() {
                    pushed.push((counter, bound.pushed(*key)));
                }
                identities.push(identity);
                counters.push(deciders.counter(bound, kind, *key, charged));
            }
        }
        limits.push(match bound.is_of_bans() {
            // Refuses with any ban in the two windows. The node reads whether it has ended.
            true => AskedLimit {
                counter,
                algorithm: Algorithm::Sliding,
                hits: if counts_rejected { Hits::MAX } else { Hits::from_thousandths(1) },
                cost,
            },
            false => AskedLimit {
                counter,
                algorithm: bound.limit.algorithm,
                hits: bound.limit.most(hits),
                cost,
            },
        });
        indices.push(index);
    }
    StoreQuestion {
        decider,
        question: Question { counts_rejected, counters, limits },
        is_trial: false,
        is_filled: false,
        checks: indices,
        pushed,
    }
}

/// Returns whether check number `index` is of a rule that is tried alone, and a rule that is not, and
/// stands before it, charges its counter.
fn is_charged_before(checks: &[LimitCheck<'_, '_>], index: usize) -> bool {
    let Some(tried) = checks.get(index).filter(|check| check.trial.is_some()) else {
        return false;
    };
    checks.iter().take(index).any(|check| {
        check.trial.is_none() && check.cost > Hits::ZERO && check.identity() == tried.identity()
    })
}

impl StoreQuestion {
    /// Returns the question that refunds the charges of this one, as far as they are known.
    pub fn refund(&self) -> Question {
        let mut refund = self.question.refund();
        refund.counters.retain(|counter| !self.is_filled || !counter.kind.is_bucket());
        refund
    }

    /// Returns the question that charges the same hits without limits.
    pub fn charge(self) -> Question {
        Question { limits: Few::new(), ..self.question }
    }

    /// Makes this question one after `charged`: hits that the same request was charged are not charged
    /// again, and leave the room of limits as it was.
    pub(super) fn follow(&mut self, charged: &[AskedCounter]) {
        let Question { counters, limits, .. } = &mut self.question;
        for (number, counter) in counters.iter_mut().enumerate() {
            let Some(before) = charged.iter().find(|it| it.is_same(counter)) else {
                continue;
            };
            if before.cost > Hits::ZERO {
                counter.cost = Hits::ZERO;
                let limits = limits.iter_mut().filter(|limit| limit.counter == number);
                limits.for_each(|limit| limit.hits = limit.hits.plus_value(before.cost));
            }
        }
    }

    /// Returns whether a ban of the rules in the question refuses the request, after the answer was noted.
    pub(super) fn is_banned(&self, checks: &[LimitCheck<'_, '_>], clock: &impl Clock) -> bool {
        let checks = self.checks.iter().filter_map(|index| checks.get(*index));
        let mut bans = checks.filter(|check| check.bound.is_of_bans());
        bans.any(|ban| !ban.bound.verdict(ban.hits, *ban.key, Hits::ZERO, clock).admitted)
    }

    /// Forgets what the store has charged by the noted answer.
    pub(super) fn forget_charges(&self, answered: &mut [Option<Answered>]) {
        for index in &self.checks {
            if let Some(Some(answered)) = answered.get_mut(*index) {
                answered.charged = Hits::ZERO;
            }
        }
    }

    /// Makes the store admit a key that it refused only because of bans that have ended. Returns
    /// whether it did so.
    pub(super) fn ignore_ended_bans(
        &mut self,
        answer: &Answer,
        checks: &[LimitCheck<'_, '_>],
    ) -> bool {
        let limits = self.question.limits.iter_mut().zip(&self.checks).zip(&answer.admitted);
        let mut ended = Few::new();
        for ((asked, index), _) in limits.filter(|(_, admitted)| !**admitted) {
            let Some(check) = checks.get(*index).filter(|it| it.bound.is_of_bans()) else {
                return false;
            };
            let limit = &check.bound.limit;
            let reading = answer.readings.get(asked.counter).copied().unwrap_or_default();
            if !limit.algorithm.admits(limit.size, &reading, check.hits, Hits::ZERO) {
                return false;
            }
            ended.push(asked);
        }
        let has_ended = !ended.is_empty();
        ended.into_iter().for_each(|asked: &mut AskedLimit| asked.hits = Hits::MAX);
        has_ended
    }

    /// Records the answer for each check, and in the node's table. Returns whether all limits admit
    /// the request.
    pub fn note(
        &mut self,
        answer: &Answer,
        checks: &[LimitCheck<'_, '_>],
        answered: &mut [Option<Answered>],
        clock: &impl Clock,
    ) -> bool {
        let limits = self.question.limits.iter();
        for ((limit, &index), &admitted) in limits.zip(&self.checks).zip(&answer.admitted) {
            let reading = answer.readings.get(limit.counter).copied();
            if let (Some(reading), Some(place)) = (reading, answered.get_mut(index)) {
                let left = checks.get(index).map_or(Hits::ZERO, |it| it.left(&reading));
                *place = Some(Answered {
                    admitted,
                    // The store's count includes the node's unspent reserve.
                    reading: reading.minus(left),
                    charged: Hits::ZERO,
                    certainty: answer.certainty,
                });
            }
        }
        let is_admitted = answer.admitted.iter().all(|admitted| *admitted);
        let is_charged = is_admitted || self.question.counts_rejected;
        self.is_filled = is_charged && !is_admitted;
        let counters = self.question.counters.iter().enumerate();
        for ((number, counter), reading) in counters.zip(&answer.readings) {
            // The first limit with the counter has its key.
            let mut limits = self.question.limits.iter().zip(&self.checks);
            let Some((_, &index)) = limits.find(|(limit, _)| limit.counter == number) else {
                continue;
            };
            if let Some(check) = checks.get(index) {
                let pushed = self.pushed.iter().find(|(counter, _)| *counter == number);
                let pushed = pushed.map(|(_, hits)| hits);
                check.bound.record_store(*check.key, reading, pushed, clock);
            }
            if let Some(Some(answered)) = answered.get_mut(index).filter(|_| is_charged) {
                answered.charged = counter.cost;
            }
        }
        is_admitted
    }
}

/// Adds the result of each check to `evaluation`: the datastores' answers, and for other limits
/// this node's decision. If a datastore was not asked, since another limit had refused before, the
/// node's own counters are read.
pub fn conclude<'c, 'm: 'c, L: Charges<'c, 'm>>(
    evaluation: &mut Evaluation<L>,
    checks: &[LimitCheck<'c, 'm>],
    answers: &[Option<Answered>],
    clock: &impl Clock,
) {
    let has_decided =
        each_unbanned(evaluation, checks, answers, clock, |evaluation, check, answered| {
            let LimitCheck { bound, hits, key, cost, store, .. } = *check;
            match (store, answered) {
                (None, _) => evaluation.charge(bound, hits, key, cost, clock),
                (Some(_), Some(Answered { admitted, reading, .. })) => {
                    let most = bound.limit.most(hits);
                    let later = charged_later(check, checks, answers);
                    let reading = bound.limit.reading_at(hits, reading.plus(later));
                    evaluation.note(bound, most, key, cost, reading, admitted);
                }
                (Some(_), None) => evaluation.ask(bound, hits, key, cost, clock),
            }
        });
    if !has_decided {
        return;
    }
    // Only now: a store's charge is refunded if another limit refuses.
    for (check, answered) in checks.iter().zip(answers) {
        let LimitCheck { bound, hits, key, .. } = *check;
        let charged = answered.map_or(Hits::ZERO, |it| it.charged);
        if !evaluation.is_charged() {
            evaluation.note_refund(&bound.counter_at(hits), *key, charged);
            continue;
        }
        if !bound.is_estimated() {
            bound.count_hits(charged);
        }
        bound.log_charged(hits, *key, charged, clock);
    }
}

/// Calls `decide` for each limit that no ban replaces, with the answer to its check. A ban of a rule that is
/// not tried alone refuses the request, and no limit is decided; a ban of a rule that is tried alone
/// replaces the limits of that rule. Returns whether the limits were decided.
pub(super) fn each_unbanned<'c, 'm: 'c, L: Charges<'c, 'm>>(
    evaluation: &mut Evaluation<L>,
    checks: &[LimitCheck<'c, 'm>],
    answers: &[Option<Answered>],
    clock: &impl Clock,
    mut decide: impl FnMut(&mut Evaluation<L>, &LimitCheck<'c, 'm>, Option<Answered>),
) -> bool {
    let with_answers = || {
        let answers = answers.iter().copied().chain(core::iter::repeat(None));
        checks.iter().zip(answers)
    };
    let is_banned =
        |evaluation: &mut Evaluation<L>, check: &LimitCheck<'c, 'm>, answer: Option<Answered>| {
            let LimitCheck { bound, hits, key, trial, .. } = *check;
            let reading = answer.map(|it| it.reading);
            evaluation.check_ban(bound, hits, key, reading, trial.is_some(), clock)
        };
    let mut untried =
        with_answers().filter(|(check, _)| check.trial.is_none() && check.bound.is_of_bans());
    if untried.any(|(check, answer)| is_banned(evaluation, check, answer)) {
        return false;
    }
    let mut banned = None;
    for (check, answer) in with_answers() {
        evaluation.enter(check.trial);
        if check.bound.is_of_bans() {
            // It stands before the limits of its rule.
            if check.trial.is_some() && is_banned(evaluation, check, answer) {
                banned = check.trial;
            }
        } else if check.trial.is_none() || check.trial != banned {
            decide(evaluation, check, answer);
        }
    }
    evaluation.enter(None);
    true
}

/// Returns the hits that the same request was charged in the counter of a rule that is tried alone
/// after the answer about that rule.
fn charged_later(
    tried: &LimitCheck<'_, '_>,
    checks: &[LimitCheck<'_, '_>],
    answers: &[Option<Answered>],
) -> Hits {
    let others = checks.iter().zip(answers).filter(|(check, _)| {
        tried.trial.is_some() && check.trial.is_none() && check.identity() == tried.identity()
    });
    others.fold(Hits::ZERO, |all, (_, answered)| {
        all.plus_value(answered.map_or(Hits::ZERO, |it| it.charged))
    })
}

/// Returns the questions by which deciders later charge hits that this node charged without them,
/// in counters that no sync pushes. Each has the decider's number.
pub fn unsent_charges<'m>(
    charges: &[Charge<'_, 'm>],
    store_of: impl Fn(&BoundLimit<'m>) -> Option<Deciders>,
) -> Few<(usize, Question)> {
    let mut questions: Few<(usize, Question)> = Few::new();
    for charge in charges.iter().filter(|it| it.charged() > Hits::ZERO) {
        let kind = charge.counter().kind();
        let Some(deciders) = store_of(charge.bound()).filter(|_| kind != StoredKind::Windows)
        else {
            continue;
        };
        let counter = deciders.counter(charge.bound(), kind, charge.key(), charge.charged());
        let decider = deciders.number_of(&counter.key);
        match questions.iter_mut().find(|(it, _)| *it == decider) {
            Some((_, question)) => question.counters.push(counter),
            None => questions
                .push((decider, Question { counters: smallvec![counter], ..Question::nothing() })),
        }
    }
    questions
}
