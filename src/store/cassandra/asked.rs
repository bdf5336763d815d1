//! Questions, as far as the store is asked about them: which counters, and what is decided of their counts.

use core::time::Duration;
use std::collections::HashMap;

use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::decision::{Answer, AskedCounter, Few, Question};
use crate::store::stored::{StoredCount, admitted};
use crate::store::strategy::{CLOCK_MARGIN, Shard};

/// A counter, which several questions may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AskedPlace<'q> {
    /// The index of the shard.
    pub(super) shard: usize,
    pub(super) size: WindowSize,
    pub(super) key: &'q [u8],
}

/// The counters that questions are about.
#[derive(Debug, Default)]
pub(super) struct AskedPlaces<'q> {
    pub(super) shards: Vec<&'q Shard>,
    /// Each counter once.
    pub(super) places: Vec<AskedPlace<'q>>,
    /// The indexes of the counters' places, in the order of questions.
    slots: Vec<usize>,
}

impl<'q> AskedPlaces<'q> {
    pub(super) fn new(questions: &'q [Question]) -> AskedPlaces<'q> {
        let mut asked = AskedPlaces::default();
        let mut shards: HashMap<&Shard, usize> = HashMap::new();
        let mut places: HashMap<AskedPlace<'_>, usize> = HashMap::new();
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter {
                shard, key, size, ..
            } = counter;
            let shard = *shards.entry(shard).or_insert_with(|| {
                asked.shards.push(shard);
                asked.shards.len().saturating_sub(1)
            });
            let size = *size;
            let place = AskedPlace { shard, size, key };
            let slot = *places.entry(place).or_insert_with(|| {
                asked.places.push(place);
                asked.places.len().saturating_sub(1)
            });
            asked.slots.push(slot);
        }
        asked
    }

    /// Decides on questions in their order. `counts` are those of the places, and become what they are then.
    ///
    /// After a first time, it is decided again of what others counted meanwhile: what was refused at `first`
    /// stays so, since it was charged nothing.
    pub(super) fn decide(
        &self,
        questions: &[Question],
        counts: &mut [StoredCount],
        now: UnixMillis,
        first: &[Answer],
    ) -> Vec<Answer> {
        let mut rest = self.slots.as_slice();
        let mut first = first.iter();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let slots;
            (slots, rest) = rest
                .split_at_checked(question.counters.len())
                .unwrap_or_default();
            let refused = first.next().filter(|it| it.admitted.contains(&false));
            let admitted = match refused {
                Some(refused) => refused.admitted.clone(),
                None => admitted(question, slots, counts, now),
            };
            let is_charged = question.counts_rejected || !admitted.contains(&false);
            let mut readings = Few::new();
            for (counter, slot) in question.counters.iter().zip(slots) {
                if let Some(count) = counts.get_mut(*slot) {
                    count.ask(counter, is_charged, now);
                    readings.push(count.reading(counter, now));
                }
            }
            answers.push(Answer { admitted, readings });
        }
        answers
    }
}

impl AskedPlace<'_> {
    /// The number of its window at a moment, and for how long from then that matters.
    pub(super) fn window(&self, now: UnixMillis) -> (u64, Duration) {
        let position = self.size.at(now);
        let size = Duration::from_millis(self.size.millis());
        let left = size.saturating_sub(Duration::from_millis(position.elapsed));
        let life = left.saturating_add(size).saturating_add(CLOCK_MARGIN);
        (position.number, life)
    }
}
