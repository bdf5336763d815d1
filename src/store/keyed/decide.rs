//! Decisions: from the values that are read to those that are written.

use core::time::Duration;

use super::name;
use super::value::{self, NewTotals};
use crate::policy::algorithm::{Level, LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::decision::{Answer, Certainty, Few, Question};
use crate::store::contract::strategy::{CLOCK_MARGIN, MAX_TOTAL};
use crate::store::decide::asked::{AskedPlace, AskedPlaces};
use crate::store::decide::stored::{StoredCount, admitted};

/// Kinds of state. Not [`StoredKind::Log`]: a log of thousands of hits would be rewritten with each of them.
pub(crate) const KINDS: &[StoredKind] = &[
    StoredKind::Windows,
    StoredKind::Level(LevelKind::Elastic),
    StoredKind::Level(LevelKind::Bucket(Hits::ZERO)),
];

/// Questions, and the time at which they are decided.
#[derive(Debug)]
pub(crate) struct KeyedDecision<'q> {
    pub(crate) asked: AskedPlaces<'q>,
    questions: &'q [Question],
    pub(crate) now: UnixMillis,
}

/// The values of a shard that a decision changes.
#[derive(Debug, Default)]
pub(crate) struct ChangedValues<'q> {
    pub(crate) totals: NewTotals<'q>,
    /// The levels by their names, and the time for which each matters.
    pub(crate) levels: Vec<(Vec<u8>, (String, Duration))>,
}

impl<'q> KeyedDecision<'q> {
    pub(crate) fn of(questions: &'q [Question]) -> KeyedDecision<'q> {
        KeyedDecision { asked: AskedPlaces::new(questions), questions, now: value::now() }
    }

    /// Returns the names of the values of all places, each with the index of its shard.
    pub(crate) fn names(&self) -> Vec<(usize, Vec<u8>)> {
        let mut names = Vec::new();
        for place in &self.asked.places {
            let (window, _) = place.window(self.now);
            let counter = |window| name::counter((place.size, window, place.key));
            match place.kind {
                StoredKind::Level(_) => names.push((place.shard, name::level(place))),
                _ => {
                    let windows = [window, window.saturating_sub(1)];
                    names.extend(windows.map(|window| (place.shard, counter(window))));
                }
            }
        }
        names
    }

    /// Parses the values of all places. Fails with the index of a shard in which somebody else wrote one.
    pub(crate) fn counts<'v>(
        &self,
        mut found: impl Iterator<Item = Option<&'v [u8]>>,
    ) -> Result<Vec<StoredCount>, usize> {
        let mut next = || found.next().flatten();
        let places = self.asked.places.iter();
        let counts = places.map(|place| {
            let count = match place.kind {
                StoredKind::Level(_) => value::level(next()),
                _ => {
                    let [current, previous] = [next(), next()].map(value::total);
                    current
                        .zip(previous)
                        .map(|(current, previous)| StoredCount::windows(current, previous))
                }
            };
            count.ok_or(place.shard)
        });
        counts.collect()
    }

    /// Decides about the questions in their order, and charges them in `counts`.
    pub(crate) fn answers(&self, counts: &mut [StoredCount]) -> Vec<Answer> {
        let now = self.now;
        let answers = self.asked.with_slots(self.questions).map(|(question, slots)| {
            let admitted = admitted(question, slots, counts, now);
            let is_charged = question.counts_rejected || admitted.iter().all(|it| *it);
            let mut readings = Few::new();
            for (index, (counter, slot)) in question.counters.iter().zip(slots).enumerate() {
                if let Some(count) = counts.get_mut(*slot) {
                    count.ask(question, index, is_charged, now);
                    readings.push(count.reading(counter, now));
                }
            }
            Answer { admitted, readings, certainty: Certainty::Settled }
        });
        answers.collect()
    }

    /// Returns the changed values of the shard with this index.
    pub(crate) fn changed(
        &self,
        shard: usize,
        before: &[StoredCount],
        after: &[StoredCount],
    ) -> ChangedValues<'q> {
        let mut changed = ChangedValues::default();
        let counts = self.asked.places.iter().zip(before.iter().zip(after));
        for (place, (before, after)) in counts.filter(|(place, _)| place.shard == shard) {
            match after {
                _ if before == after => {}
                StoredCount::Windows { current, .. } => {
                    let (window, life) = place.window(self.now);
                    let total = (*current).clamp(-MAX_TOTAL, MAX_TOTAL);
                    changed.totals.insert((place.size, window, place.key), (total, life));
                }
                StoredCount::Level(level) => {
                    let value = (value::of_level(level), life_of(place, level));
                    changed.levels.push((name::level(place), value));
                }
                StoredCount::Log(_) => {}
            }
        }
        changed
    }
}

impl ChangedValues<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.totals.is_empty() && self.levels.is_empty()
    }
}

/// Returns the time for which a level matters.
fn life_of(place: &AskedPlace<'_>, level: &Level) -> Duration {
    let millis = match place.kind {
        // The time until the bucket is empty.
        StoredKind::Level(LevelKind::Bucket(_)) => level.mark.millis().0.saturating_sub(level.at.0),
        _ => place.size.millis(),
    };
    Duration::from_millis(millis).saturating_add(CLOCK_MARGIN)
}
