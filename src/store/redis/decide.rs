//! Questions as arguments of the script in `decide/`, and its answer as decisions.
//!
//! Common parts of questions are sent once, since most questions differ only in their keys.
//! Computations that the script does not need are made here, since all nodes share the server.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::answer::RedisAnswer;
use super::calendars::CalendarSizes;
use super::{Redis, Transport, key};
use crate::policy::algorithm::{LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::reserve::Witness;
use crate::store::contract::decision::{
    self, AskedCounter, Decided, Decider, Few, Question, ShardHistory,
};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::strategy::{Epoch, NodeId, Shard};
use crate::store::decide::stored::StoredCount;

/// Counters of one shard and kind with windows of one size, or with one rate; at most as many as
/// one group may have.
#[derive(Debug)]
struct CounterGroup<'q> {
    /// Index of the shard.
    shard: usize,
    /// Kind of the state, with a bucket at rate zero: each form has its own rate.
    kind: StoredKind,
    /// [`StoredKind::measure`].
    measure: u64,
    keys: Vec<&'q [u8]>,
}

/// The exchanges that shards must have.
type FollowedShards = [(Shard, Option<Witness>)];

/// Most keys of a group, which the script handles at a time.
const GROUP_KEYS: usize = 1000;

/// The index of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterIndex {
    /// Index of the group.
    group: usize,
    /// Index of the key in the group.
    key: usize,
}

/// Consecutive questions that differ only in their keys.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// Number of the form.
    form: u16,
    questions: u16,
    /// Numbers of the keys of all counters, each in its group.
    keys: Vec<u16>,
}

/// The questions as the script's arguments.
#[derive(Debug, Default)]
struct DecideArguments<'q> {
    shards: Vec<&'q Shard>,
    groups: Vec<CounterGroup<'q>>,
    /// Indexes of the counters, in the order of the questions.
    indexes: Vec<CounterIndex>,
    /// Forms of questions, as the script's arguments.
    forms: Vec<Vec<i64>>,
    /// The questions, in runs with one form.
    runs: Vec<Run>,
}

impl Decider for Redis {
    const KINDS: &'static [StoredKind] = StoredKind::ALL;

    fn follow(&mut self, shard: &Shard, after: Option<Witness>) {
        self.followed.push((shard.clone(), after));
    }

    fn take_history(&mut self, shard: &Shard) -> Option<ShardHistory> {
        let index = self.histories.iter().position(|(it, _)| it == shard)?;
        Some(self.histories.swap_remove(index).1)
    }

    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let unsupported = |way: &Transport, what| StoreError {
            failure: Failure::Unsupported(what),
            ..way.misunderstood("")
        };
        let followed = core::mem::take(&mut self.followed);
        self.histories.clear();
        let asked = DecideArguments::new(questions).ok_or_else(|| {
            let what = "more kinds of questions at once than 65535";
            unsupported(&self.way, what)
        })?;
        if let [shard] = &*asked.shards {
            self.check_layout(shard).await?;
        }
        let shards = asked.shards.iter();
        let shards: Vec<_> = shards.map(|it| key::shard(&self.prefix, it)).collect();
        if let (Transport::Cluster(_), [_, _, ..]) = (&self.way, &*shards) {
            let what = "questions about several shards of a Redis Cluster at once";
            return Err(unsupported(&self.way, what));
        }
        // Without questions, any node can answer.
        let place = shards.first().cloned().unwrap_or_default();
        let calendars = CalendarSizes::of(questions);
        for _ in 0..CalendarSizes::ATTEMPTS {
            let mut call = self.decide.command(&shards);
            call.arg(node.to_string()).arg(proposed.to_string()).arg(proposed.0.get());
            asked.write(&mut call, &doubles(calendars.at(self.now)), &followed);
            let read = |value| match CalendarSizes::time_of(&value) {
                Some(now) => Some(Err(now)),
                None => asked.decided(questions, value, &followed).map(Ok),
            };
            match self.way.run(&place, &self.decide, call, read).await? {
                Ok((decided, histories)) => {
                    (self.now, self.histories) = (decided.now, histories);
                    return Ok(decided);
                }
                Err(now) => self.now = now,
            }
        }
        Err(self.way.misunderstood(self.decide.name))
    }
}

impl<'q> DecideArguments<'q> {
    /// Returns `None` if there are too many questions.
    fn new(questions: &'q [Question]) -> Option<DecideArguments<'q>> {
        let mut asked = DecideArguments {
            indexes: Vec::with_capacity(questions.len()),
            ..DecideArguments::default()
        };
        asked.find_counters(questions);
        asked.describe(questions)?;
        Some(asked)
    }

    /// Assigns an index to each counter.
    fn find_counters(&mut self, questions: &'q [Question]) {
        let mut indexes: BTreeMap<(usize, u8, u64, &[u8]), CounterIndex> = BTreeMap::new();
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter { shard, key, kind, size, .. } = counter;
            // There are few shards.
            let known = self.shards.iter().position(|known| *known == shard);
            let shard = known.unwrap_or_else(|| {
                self.shards.push(shard);
                self.shards.len().saturating_sub(1)
            });
            let measure = kind.measure(*size);
            let index = indexes
                .entry((shard, kind.wire_id(), measure, key))
                .or_insert_with(|| self.add_key(shard, kind.at_rate(Hits::ZERO), measure, key));
            self.indexes.push(*index);
        }
    }

    fn add_key(
        &mut self,
        shard: usize,
        kind: StoredKind,
        measure: u64,
        key: &'q [u8],
    ) -> CounterIndex {
        let mut groups = self.groups.iter();
        let has_room = |it: &CounterGroup<'_>| {
            (it.shard, it.kind, it.measure) == (shard, kind, measure) && it.keys.len() < GROUP_KEYS
        };
        let group = groups.position(has_room).unwrap_or_else(|| {
            self.groups.push(CounterGroup { shard, kind, measure, keys: Vec::new() });
            self.groups.len().saturating_sub(1)
        });
        let mut index = 0;
        if let Some(group) = self.groups.get_mut(group) {
            index = group.keys.len();
            group.keys.push(key);
        }
        CounterIndex { group, key: index }
    }

    /// Returns the indexes of groups in the script's order.
    fn groups_in_order(&self) -> impl Iterator<Item = usize> {
        let shards = 0..self.shards.len();
        shards.flat_map(|shard| {
            let groups = self.groups.iter().enumerate();
            groups.filter_map(move |(index, group)| (group.shard == shard).then_some(index))
        })
    }

    /// Finds the forms and the runs. `None` if there are too many forms.
    fn describe(&mut self, questions: &[Question]) -> Option<()> {
        let mut numbers = vec![0; self.groups.len()];
        for (index, number) in self.groups_in_order().zip(1..) {
            if let Some(group) = numbers.get_mut(index) {
                *group = number;
            }
        }
        let mut forms: BTreeMap<Vec<i64>, u16> = BTreeMap::new();
        let mut left = &*self.indexes;
        let mut last: Option<(&Question, &[CounterIndex])> = None;
        for question in questions {
            let (indexes, others) = left.split_at_checked(question.counters.len())?;
            left = others;
            let is_like = |(question_before, indexes_before)| {
                has_form_of(question, indexes, question_before, indexes_before)
            };
            let run = self.runs.last_mut().filter(|run| {
                let keys = run.keys.len().saturating_add(indexes.len());
                run.questions < u16::MAX && keys <= GROUP_KEYS && last.is_some_and(is_like)
            });
            let run = match run {
                Some(run) => run,
                None => {
                    let form = form_of(question, indexes, &numbers);
                    let known = forms.get(&form).copied();
                    let number = match known {
                        Some(known) => known,
                        None => {
                            self.forms.push(form.clone());
                            let new = u16::try_from(self.forms.len()).ok()?;
                            forms.insert(form, new);
                            new
                        }
                    };
                    self.runs.push(Run { form: number, questions: 0, keys: Vec::new() });
                    self.runs.last_mut()?
                }
            };
            run.questions = run.questions.saturating_add(1);
            for index in indexes {
                // At most 1000.
                run.keys.push(u16::try_from(number(index.key)).ok()?);
            }
            last = Some((question, indexes));
        }
        Some(())
    }

    fn write(&self, call: &mut Cmd, calendars: &[u8], followed: &FollowedShards) {
        let mut runs = Vec::new();
        for run in &self.runs {
            let numbers = [run.form, run.questions].into_iter();
            let numbers = numbers.chain(run.keys.iter().copied());
            runs.extend(numbers.flat_map(u16::to_be_bytes));
        }
        call.arg(runs).arg(calendars);
        for (shard, name) in self.shards.iter().enumerate() {
            let mut followed = followed.iter();
            let follows = followed.find(|(it, _)| it == *name);
            call.arg(follows.map_or(String::new(), |(_, after)| key::follows(*after)));
            let groups = self.groups.iter().filter(|group| group.shard == shard);
            let places = groups.clone().flat_map(|group| {
                let numbers = [
                    f64::from(group.kind.wire_id()),
                    group.measure_for_script(),
                    double(length(&group.keys)),
                ];
                numbers.map(f64::to_be_bytes)
            });
            call.arg(places.flatten().collect::<Vec<u8>>());
            for group in groups {
                call.arg(&group.keys);
            }
        }
        for form in &self.forms {
            call.arg(doubles(form.iter().copied()));
        }
    }

    /// Parses the script's answer.
    fn decided(
        &self,
        questions: &[Question],
        answer: Value,
        followed: &FollowedShards,
    ) -> Option<(Decided, Vec<(Shard, ShardHistory)>)> {
        let mut parts = RedisAnswer(answer).list()?.into_iter().map(RedisAnswer);
        let now = super::answer::unix_millis(parts.next()?.number()?, parts.next()?.number()?)?;
        let mut counts: Vec<Vec<StoredCount>> = vec![Vec::new(); self.groups.len()];
        for index in self.groups_in_order() {
            let group = self.groups.get(index)?;
            *counts.get_mut(index)? = group.counts(|| parts.next()?.totals())?;
        }
        let mut numbers = || {
            let list = parts.next()?.list()?.into_iter();
            Some(list.map(|it| RedisAnswer(it).number()))
        };
        let (mut refused, mut obstacles) = (numbers()?.peekable(), numbers()?);
        let asked = self.shards.iter().map(|it| (*it).clone());
        let asked = asked.filter(|shard| followed.iter().any(|(it, _)| it == shard));
        let told = parts.next()?.list()?.into_iter();
        let histories = asked.zip(told.map(RedisAnswer)).map(|(shard, told)| {
            let mut parts = told.list()?.into_iter().map(RedisAnswer);
            let witness = key::witness(parts.next()?.position()?)?;
            let is_whole = parts.next()?.number()? != 0;
            Some((shard, ShardHistory { witness, is_whole }))
        });
        let histories = histories.collect::<Option<Vec<_>>>()?;

        let mut limits = 1_i64..;
        let mut indexes = self.indexes.iter();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let (mut admitted, mut is_charged) = (Few::new(), true);
            for _ in &question.limits {
                let is_refused = refused.next_if_eq(&limits.next()).is_some();
                is_charged &= !is_refused || question.counts_rejected;
                admitted.push(!is_refused);
            }
            let mut of_question = Few::new();
            let counters = question.counters.iter().zip(indexes.by_ref());
            for (number, (counter, index)) in counters.enumerate() {
                let stored = counts.get_mut(index.group)?.get_mut(index.key)?;
                stored.ask(question, number, is_charged, now);
                let mut count = *stored;
                if count.obstacle(question, number).is_some() {
                    count.record_obstacle(counter.size, obstacles.next()??, now);
                }
                of_question.push(count.reading(counter, now));
            }
            answers.push(decision::Answer {
                readings: of_question,
                admitted,
                certainty: decision::Certainty::Settled,
            });
        }
        // All refusals must belong to limits, and all obstacles to logs.
        let is_all = refused.next().is_none() && obstacles.next().is_none();
        is_all.then_some((Decided { now, answers }, histories))
    }
}

impl CounterGroup<'_> {
    /// Returns the size of the windows in milliseconds; or, for a rate, the hits per second.
    fn measure_for_script(&self) -> f64 {
        match self.kind {
            StoredKind::Level(LevelKind::Bucket(_)) => f64::from_bits(self.measure),
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Elastic)
            | StoredKind::Log
            | StoredKind::Holds => double(self.measure.cast_signed()),
        }
    }

    /// Parses the state of each key from lists of numbers, one for each key, which `numbers`
    /// returns in turn.
    fn counts(&self, mut numbers: impl FnMut() -> Option<Vec<i64>>) -> Option<Vec<StoredCount>> {
        let mut list = || numbers().filter(|it| it.len() == self.keys.len());
        let (first, second) = (list()?.into_iter(), list()?.into_iter());
        match self.kind {
            StoredKind::Windows => {
                let pairs = first.zip(second);
                let counts =
                    pairs.map(|(current, previous)| StoredCount::windows(current, previous));
                Some(counts.collect())
            }
            StoredKind::Level(LevelKind::Bucket(_)) => {
                let levels = first.zip(second);
                let counts = levels.map(|(hits, at)| StoredCount::level(hits, at, 0));
                Some(counts.collect())
            }
            StoredKind::Level(LevelKind::Elastic) => {
                let levels = first.zip(second).zip(list()?);
                let counts = levels.map(|((hits, at), first)| StoredCount::level(hits, at, first));
                Some(counts.collect())
            }
            StoredKind::Log => {
                let logs = first.zip(second);
                let counts = logs.map(|(hits, oldest)| StoredCount::log(hits, oldest));
                Some(counts.collect())
            }
            // No store is asked about them.
            StoredKind::Holds => None,
        }
    }
}

/// Returns whether two questions differ only in keys. Each has the indexes of its counters.
fn has_form_of(
    one: &Question,
    indexes: &[CounterIndex],
    other: &Question,
    other_indexes: &[CounterIndex],
) -> bool {
    let counters = one.counters.iter().zip(indexes);
    let mut counters = counters.zip(other.counters.iter().zip(other_indexes));
    one.counts_rejected == other.counts_rejected
        && one.limits == other.limits
        && indexes.len() == other_indexes.len()
        && counters.all(|((one, index), (other, other_index))| {
            (one.cost, one.kind, index.group) == (other.cost, other.kind, other_index.group)
        })
}

/// Returns the form of a question as the script's argument.
fn form_of(question: &Question, indexes: &[CounterIndex], groups: &[i64]) -> Vec<i64> {
    let counters = question.counters.iter().zip(indexes);
    let counters = counters.flat_map(|(counter, index)| {
        let group = groups.get(index.group).copied();
        [group.unwrap_or(0), counter.cost.thousandths()]
    });
    let limits = question.limits.iter().flat_map(|limit| {
        let algorithm = limit.algorithm.wire_id().into();
        let hits = limit.hits.min(limit.algorithm.max_limit());
        let (hits, cost) = (hits.thousandths(), limit.cost.thousandths());
        [number(limit.counter), algorithm, hits, cost]
    });
    let mut form = vec![i64::from(question.counts_rejected), length(indexes)];
    form.extend(counters);
    form.push(length(&question.limits));
    form.extend(limits);
    let leaks = question.counters.iter().map(|it| it.kind.leak(it.size));
    if leaks.clone().any(|leak| leak.is_some()) {
        let leaks = leaks.flat_map(|leak| <[u64; 2]>::from(leak.unwrap_or_default()));
        form.extend(leaks.map(u64::cast_signed));
    }
    form
}

/// Encodes numbers as doubles, which the script unpacks.
fn doubles(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    numbers.flat_map(|number| double(number).to_be_bytes()).collect()
}

/// Converts a number to Lua's.
#[expect(clippy::cast_precision_loss, reason = "the script would lose it otherwise")]
fn double(number: i64) -> f64 {
    number as f64
}

/// Converts an index to a number.
fn number(index: usize) -> i64 {
    i64::try_from(index).map_or(i64::MAX, |index| index.saturating_add(1))
}

fn length<T>(list: &[T]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::algorithm::Algorithm;
    use crate::testing::conformance::question;

    #[test]
    fn common_parts_of_questions_are_sent_once() {
        let mut questions: Vec<_> =
            ["a", "b", "a"].map(|key| question(key, Algorithm::Sliding, 5)).into();
        let asked = DecideArguments::new(&questions).unwrap();
        assert_eq!(asked.forms, [[0, 1, 1, 1000, 1, 1, 1, 5000, 1000]]);
        let run =
            |form, keys: &[u16]| Run { form, questions: keys.len() as u16, keys: keys.to_vec() };
        assert_eq!(asked.runs, [run(1, &[1, 2, 1])]);
        let groups: Vec<_> = asked.groups.into_iter().map(|it| it.keys).collect();
        assert_eq!(groups, [[b"a", b"b"]]);

        questions[1].counts_rejected = true;
        let asked = DecideArguments::new(&questions).unwrap();
        assert_eq!(asked.forms.len(), 2);
        let runs = [run(1, &[1]), run(2, &[2]), run(1, &[1])];
        assert_eq!(asked.runs, runs);
    }

    #[test]
    fn there_are_as_many_forms_as_two_bytes_can_tell() {
        let questions = |count| -> Vec<_> {
            let hits = (1..=count).map(|hits| question("a", Algorithm::Fixed, hits));
            hits.collect()
        };
        assert!(DecideArguments::new(&questions(65_535)).is_some());
        assert!(DecideArguments::new(&questions(65_536)).is_none());
    }

    #[test]
    fn groups_have_no_more_keys_than_a_script_can_hold() {
        let of_key = |key: u32| question(&format!("{key}"), Algorithm::Fixed, 1);
        let questions: Vec<_> = (0..2500).chain(0..2500).map(of_key).collect();
        let asked = DecideArguments::new(&questions).unwrap();
        let lengths: Vec<_> = asked.groups.iter().map(|it| it.keys.len()).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        assert_eq!(asked.forms.len(), 3);
        // Neither have runs.
        let keys: usize = asked.runs.iter().map(|run| run.keys.len()).sum();
        assert_eq!(keys, 5000);
        assert!(asked.runs.iter().all(|run| run.keys.len() <= GROUP_KEYS));
    }
}
