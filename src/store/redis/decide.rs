//! Questions as `decide.lua` is asked them, and its answer as decisions.
//!
//! What questions have in common is sent once, since most of them differ in nothing but their keys;
//! and what the script need not compute is left to this side, since all nodes share the server.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::answer::Answer;
use super::{Redis, Way, key};
use crate::policy::algorithm::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::decision::{self, AskedCounter, Decided, Decider, Few, Question};
use crate::store::error::{Failure, StoreError};
use crate::store::strategy::{Epoch, NodeId, Shard};

/// The counters of one shard with windows of one size, or so many of them as are named at once.
#[derive(Debug)]
struct Place<'q> {
    /// The index of the shard.
    shard: usize,
    size: WindowSize,
    keys: Vec<&'q [u8]>,
}

/// The most keys of a place: what the script has in its hands at once.
const PLACE_KEYS: usize = 1000;

/// Where a counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// The index of the place.
    place: usize,
    /// The index of the key in the place.
    key: usize,
}

/// Questions that differ in their keys only, and follow each other.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// The number of the form.
    form: u16,
    questions: u16,
    /// The numbers of the keys of all counters, each in its place.
    keys: Vec<u16>,
}

/// Questions, as far as the script is asked about them.
#[derive(Debug, Default)]
struct Asked<'q> {
    shards: Vec<&'q Shard>,
    places: Vec<Place<'q>>,
    /// Where the counters are, in the order of questions.
    slots: Vec<Slot>,
    /// What questions have in common, as the script is told it.
    forms: Vec<Vec<i64>>,
    /// The questions, in runs of those with one form.
    runs: Vec<Run>,
}

impl Decider for Redis {
    async fn decide(
        &mut self,
        node: NodeId,
        proposed: Epoch,
        questions: &[Question],
    ) -> Result<Decided, StoreError> {
        let unsupported = |way: &Way, what| StoreError {
            failure: Failure::Unsupported(what),
            ..way.misunderstood("")
        };
        let asked = Asked::new(questions).ok_or_else(|| {
            let what = "more kinds of questions at once than 65535";
            unsupported(&self.way, what)
        })?;
        let shards = asked.shards.iter();
        let shards: Vec<_> = shards.map(|it| key::shard(&self.prefix, it)).collect();
        if let (Way::Cluster(_), [_, _, ..]) = (&self.way, &*shards) {
            let what = "questions about several shards of a Redis Cluster at once";
            return Err(unsupported(&self.way, what));
        }
        // Without questions, any node will do.
        let place = shards.first().cloned().unwrap_or_default();
        let mut call = self.decide.command(&shards);
        call.arg(node.to_string())
            .arg(proposed.to_string())
            .arg(proposed.0.get());
        asked.write(&mut call);
        let read = |value| asked.decided(questions, value);
        self.way.run(&place, &self.decide, call, read).await
    }
}

impl<'q> Asked<'q> {
    /// `None` if they are too many.
    fn new(questions: &'q [Question]) -> Option<Asked<'q>> {
        let mut asked = Asked {
            slots: Vec::with_capacity(questions.len()),
            ..Asked::default()
        };
        asked.find_slots(questions);
        asked.describe(questions)?;
        Some(asked)
    }

    /// Gives each key a place.
    fn find_slots(&mut self, questions: &'q [Question]) {
        let mut slots: BTreeMap<(usize, WindowSize, &[u8]), Slot> = BTreeMap::new();
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter {
                shard, key, size, ..
            } = counter;
            // They are few.
            let known = self.shards.iter().position(|known| *known == shard);
            let shard = known.unwrap_or_else(|| {
                self.shards.push(shard);
                self.shards.len().saturating_sub(1)
            });
            let slot = slots
                .entry((shard, *size, key))
                .or_insert_with(|| self.add_key(shard, *size, key));
            self.slots.push(*slot);
        }
    }

    fn add_key(&mut self, shard: usize, size: WindowSize, key: &'q [u8]) -> Slot {
        let mut places = self.places.iter();
        let has_room =
            |it: &Place<'_>| it.shard == shard && it.size == size && it.keys.len() < PLACE_KEYS;
        let place = places.position(has_room).unwrap_or_else(|| {
            self.places.push(Place {
                shard,
                size,
                keys: Vec::new(),
            });
            self.places.len().saturating_sub(1)
        });
        let mut index = 0;
        if let Some(place) = self.places.get_mut(place) {
            index = place.keys.len();
            place.keys.push(key);
        }
        Slot { place, key: index }
    }

    /// The indices of places, in the order in which the script has them.
    fn places_in_order(&self) -> impl Iterator<Item = usize> {
        let shards = 0..self.shards.len();
        shards.flat_map(|shard| {
            let places = self.places.iter().enumerate();
            places.filter_map(move |(index, place)| (place.shard == shard).then_some(index))
        })
    }

    /// Finds the forms and the runs. `None` if there are too many forms.
    fn describe(&mut self, questions: &[Question]) -> Option<()> {
        let mut numbers = vec![0; self.places.len()];
        for (index, number) in self.places_in_order().zip(1..) {
            if let Some(place) = numbers.get_mut(index) {
                *place = number;
            }
        }
        let mut forms: BTreeMap<Vec<i64>, u16> = BTreeMap::new();
        let mut left = &*self.slots;
        let mut last: Option<(&Question, &[Slot])> = None;
        for question in questions {
            let (slots, others) = left.split_at_checked(question.counters.len())?;
            left = others;
            let is_like = |(question_before, slots_before)| {
                has_form_of(question, slots, question_before, slots_before)
            };
            let run = self.runs.last_mut().filter(|run| {
                let keys = run.keys.len().saturating_add(slots.len());
                run.questions < u16::MAX && keys <= PLACE_KEYS && last.is_some_and(is_like)
            });
            let run = match run {
                Some(run) => run,
                None => {
                    let form = form_of(question, slots, &numbers);
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
                    self.runs.push(Run {
                        form: number,
                        questions: 0,
                        keys: Vec::new(),
                    });
                    self.runs.last_mut()?
                }
            };
            run.questions = run.questions.saturating_add(1);
            for slot in slots {
                // At most 1000.
                run.keys.push(u16::try_from(number(slot.key)).ok()?);
            }
            last = Some((question, slots));
        }
        Some(())
    }

    fn write(&self, call: &mut Cmd) {
        let mut runs = Vec::new();
        for run in &self.runs {
            let numbers = [run.form, run.questions].into_iter();
            let numbers = numbers.chain(run.keys.iter().copied());
            runs.extend(numbers.flat_map(u16::to_be_bytes));
        }
        call.arg(runs);
        for shard in 0..self.shards.len() {
            let places = self.places.iter().filter(|place| place.shard == shard);
            let sizes = places.clone().flat_map(|place| {
                let size = place.size.millis().cast_signed();
                [size, length(&place.keys)]
            });
            call.arg(doubles(sizes));
            for place in places {
                call.arg(&place.keys);
            }
        }
        for form in &self.forms {
            call.arg(doubles(form.iter().copied()));
        }
    }

    /// What the script answered.
    fn decided(&self, questions: &[Question], answer: Value) -> Option<Decided> {
        let mut parts = Answer(answer).list()?.into_iter().map(Answer);
        let now = super::answer::unix_millis(parts.next()?.number()?, parts.next()?.number()?)?;
        let mut counts = vec![(Vec::new(), Vec::new()); self.places.len()];
        for index in self.places_in_order() {
            let (current, previous) = (parts.next()?.totals()?, parts.next()?.totals()?);
            let keys = self.places.get(index)?.keys.len();
            if current.len() != keys || previous.len() != keys {
                return None;
            }
            *counts.get_mut(index)? = (current, previous);
        }
        let refused = parts.next()?.list()?.into_iter();
        let mut refused = refused.map(|it| Answer(it).number()).peekable();

        let mut limits = 1_i64..;
        let mut slots = self.slots.iter();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let (mut admitted, mut is_charged) = (Few::new(), true);
            for _ in &question.limits {
                let is_refused = refused.next_if_eq(&limits.next()).is_some();
                is_charged &= !is_refused || question.counts_rejected;
                admitted.push(!is_refused);
            }
            let mut of_question = Few::new();
            for (counter, slot) in question.counters.iter().zip(slots.by_ref()) {
                let (current, previous) = counts.get_mut(slot.place)?;
                let current = current.get_mut(slot.key)?;
                if is_charged {
                    *current = current.saturating_add(counter.cost.thousandths());
                }
                let previous = *previous.get(slot.key)?;
                of_question.push(
                    WindowCounts::of(
                        counter.size.at(now),
                        Hits::from_thousandths(*current),
                        Hits::from_thousandths(previous),
                    )
                    .into(),
                );
            }
            answers.push(decision::Answer {
                readings: of_question,
                admitted,
            });
        }
        // All refusals are of limits.
        refused.next().is_none().then_some(Decided { now, answers })
    }
}

/// Whether two questions differ in nothing but keys. Each has slots for its counters.
fn has_form_of(one: &Question, slots: &[Slot], other: &Question, other_slots: &[Slot]) -> bool {
    let counters = one.counters.iter().zip(slots);
    let mut counters = counters.zip(other.counters.iter().zip(other_slots));
    one.counts_rejected == other.counts_rejected
        && one.limits == other.limits
        && slots.len() == other_slots.len()
        && counters.all(|((one, slot), (other, other_slot))| {
            one.cost == other.cost && slot.place == other_slot.place
        })
}

/// What a question may have in common with others, as the script is told it.
fn form_of(question: &Question, slots: &[Slot], places: &[i64]) -> Vec<i64> {
    let counters = question.counters.iter().zip(slots);
    let counters = counters.flat_map(|(counter, slot)| {
        let place = places.get(slot.place).copied();
        [place.unwrap_or(0), counter.cost.thousandths()]
    });
    let limits = question.limits.iter().flat_map(|limit| {
        let algorithm = limit.algorithm.wire_id().into();
        let (hits, cost) = (limit.hits.thousandths(), limit.cost.thousandths());
        [number(limit.counter), algorithm, hits, cost]
    });
    let mut form = vec![i64::from(question.counts_rejected), length(slots)];
    form.extend(counters);
    form.push(length(&question.limits));
    form.extend(limits);
    form
}

/// Numbers as the script reads several at once: Lua has no others than doubles.
#[expect(
    clippy::cast_precision_loss,
    reason = "the script would lose it otherwise"
)]
fn doubles(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    numbers
        .flat_map(|number| (number as f64).to_be_bytes())
        .collect()
}

/// The number of the thing with this index, for a script.
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
    use crate::store::conformance::question;

    #[test]
    fn what_questions_have_in_common_is_sent_once() {
        let mut questions: Vec<_> = ["a", "b", "a"]
            .map(|key| question(key, Algorithm::Sliding, 5))
            .into();
        let asked = Asked::new(&questions).unwrap();
        assert_eq!(asked.forms, [[0, 1, 1, 1000, 1, 1, 1, 5000, 1000]]);
        let run = |form, keys: &[u16]| Run {
            form,
            questions: keys.len() as u16,
            keys: keys.to_vec(),
        };
        assert_eq!(asked.runs, [run(1, &[1, 2, 1])]);
        let places: Vec<_> = asked.places.into_iter().map(|it| it.keys).collect();
        assert_eq!(places, [[b"a", b"b"]]);

        questions[1].counts_rejected = true;
        let asked = Asked::new(&questions).unwrap();
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
        assert!(Asked::new(&questions(65_535)).is_some());
        assert!(Asked::new(&questions(65_536)).is_none());
    }

    #[test]
    fn places_have_no_more_keys_than_a_script_can_hold() {
        let of_key = |key: u32| question(&format!("{key}"), Algorithm::Fixed, 1);
        let questions: Vec<_> = (0..2500).chain(0..2500).map(of_key).collect();
        let asked = Asked::new(&questions).unwrap();
        let lengths: Vec<_> = asked.places.iter().map(|it| it.keys.len()).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        assert_eq!(asked.forms.len(), 3);
        // Nor have runs.
        let keys: usize = asked.runs.iter().map(|run| run.keys.len()).sum();
        assert_eq!(keys, 5000);
        assert!(asked.runs.iter().all(|run| run.keys.len() <= PLACE_KEYS));
    }
}
