//! Decides by the counts that were read, and finds refusals that are certain, since they rest on
//! charges that stay.
//!
//! A count may include charges that another decider takes back within an exchange. So a counter is
//! certainly full if it was found full for longer than exchanges take; until then a refusal is not
//! certain.

use std::collections::HashMap;

use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::cassandra::name::Partition;
use crate::store::contract::decision::{Answer, Certainty, Few, Question};
use crate::store::contract::strategy::Epoch;
use crate::store::decide::asked::{AskedPlace, AskedPlaces};
use crate::store::decide::stored::{StoredCount, admitted};

/// Time in milliseconds for which a counter must refuse until that is certain: longer than a
/// successful exchange takes.
const SETTLES: u64 = 1000;
/// Milliseconds without a refusal after which the start of the refusals is dropped.
const FORGOTTEN: u64 = 3 * SETTLES;
/// Most counters that are tracked.
const MOST: usize = 4096;

/// The counters that refuse, with the time of the first refusal.
#[derive(Debug, Default)]
pub(crate) struct FullCounters(HashMap<(Epoch, Partition, Box<[u8]>), Refusing>);

#[derive(Clone, Copy, Debug)]
struct Refusing {
    since: UnixMillis,
    last: UnixMillis,
}

impl Refusing {
    fn is_known(&self, now: UnixMillis) -> bool {
        now.0.saturating_sub(self.last.0) <= FORGOTTEN
    }
}

impl FullCounters {
    /// Sets the certainty of each answer. Questions that were not refused at `first`, but in the
    /// end, have raced.
    pub(crate) fn judge(
        &mut self,
        asked: &AskedPlaces<'_>,
        epochs: &[Epoch],
        questions: &[Question],
        first: &[Answer],
        answers: &mut [Answer],
        now: UnixMillis,
    ) {
        // For each place, whether a limit refused, and whether something was charged.
        let mut places = vec![(false, false); asked.places.len()];
        for ((question, slots), answer) in asked.with_slots(questions).zip(&*answers) {
            for slot in refusing(question, slots, answer) {
                if let Some((is_refused, _)) = places.get_mut(slot) {
                    *is_refused = true;
                }
            }
            let is_admitted = !answer.admitted.contains(&false);
            for (counter, slot) in question.counters.iter().zip(slots) {
                if let Some((_, is_charged)) = places.get_mut(*slot) {
                    *is_charged |= is_admitted && counter.cost != Hits::ZERO;
                }
            }
        }
        let are_full: Vec<bool> = asked
            .places
            .iter()
            .zip(places)
            .map(|(place, (is_refused, is_charged))| match epochs.get(place.shard) {
                Some(epoch) if is_refused && !is_charged => self.refuses(*epoch, place, now),
                Some(epoch) if is_charged => {
                    self.0.remove(&name(*epoch, place, now));
                    false
                }
                _ => false,
            })
            .collect();
        let mut first = first.iter();
        for ((question, slots), answer) in asked.with_slots(questions).zip(answers) {
            let had_room = first.next().is_some_and(|it| !it.admitted.contains(&false));
            let is_admitted = !answer.admitted.contains(&false);
            let are_full =
                refusing(question, slots, answer).all(|slot| are_full.get(slot) == Some(&true));
            answer.certainty = match is_admitted {
                // Hits that are charged in any case need not be asked again.
                false if had_room && !question.counts_rejected => Certainty::Raced,
                false if !are_full => Certainty::Unsettled,
                _ => Certainty::Settled,
            };
        }
    }

    /// Records that a counter refuses. Returns whether it has done so for long enough.
    fn refuses(&mut self, epoch: Epoch, place: &AskedPlace<'_>, now: UnixMillis) -> bool {
        if self.0.len() >= MOST {
            self.0.retain(|_, refusing| refusing.is_known(now));
        }
        let name = name(epoch, place, now);
        if self.0.len() >= MOST && !self.0.contains_key(&name) {
            return false;
        }
        let begins = Refusing { since: now, last: now };
        let refusing = self.0.entry(name).or_insert(begins);
        if !refusing.is_known(now) {
            *refusing = begins;
        }
        refusing.last = now;
        now.0.saturating_sub(refusing.since.0) >= SETTLES
    }
}

/// Returns the places whose limits refuse a question.
fn refusing(question: &Question, slots: &[usize], answer: &Answer) -> impl Iterator<Item = usize> {
    let limits = question.limits.iter().zip(&answer.admitted);
    let refusing = limits.filter(|(_, admits)| !**admits);
    refusing.filter_map(|(limit, _)| slots.get(limit.counter).copied())
}

/// Returns the key of a counter in the current window.
fn name(epoch: Epoch, place: &AskedPlace<'_>, now: UnixMillis) -> (Epoch, Partition, Box<[u8]>) {
    let (window, _) = place.window(now);
    let partition = Partition::of(place.key, place.size, window);
    (epoch, partition, place.key.into())
}

/// Decides about questions in their order. `counts` are the counts of the places, which the
/// decisions change.
///
/// In the second decision, after other deciders' charges were read, questions that were refused at
/// `first` stay refused, since nothing was charged for them.
pub(crate) fn answers(
    asked: &AskedPlaces<'_>,
    questions: &[Question],
    counts: &mut [StoredCount],
    now: UnixMillis,
    first: &[Answer],
) -> Vec<Answer> {
    let mut first = first.iter();
    let mut answers = Vec::with_capacity(questions.len());
    for (question, slots) in asked.with_slots(questions) {
        let refused = first.next().filter(|it| it.admitted.contains(&false));
        let admitted = match refused {
            Some(refused) => refused.admitted.clone(),
            None => admitted(question, slots, counts, now),
        };
        let is_charged = question.counts_rejected || !admitted.contains(&false);
        let mut readings = Few::new();
        for (index, (counter, slot)) in question.counters.iter().zip(slots).enumerate() {
            if let Some(count) = counts.get_mut(*slot) {
                count.ask(question, index, is_charged, now);
                readings.push(count.reading(counter, now));
            }
        }
        answers.push(Answer { admitted, readings, certainty: Certainty::Settled });
    }
    answers
}
