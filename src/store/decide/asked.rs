//! The counters that questions are about, each once: for deciders that read what there is of them, decide, and write.

use core::time::Duration;
use std::collections::HashMap;

use crate::policy::algorithm::{LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{AskedCounter, Question};
use crate::store::contract::strategy::{CLOCK_MARGIN, Shard};

/// A counter, which several questions may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AskedPlace<'q> {
    /// The index of the shard.
    pub(crate) shard: usize,
    /// Kind of state, a bucket at no rate: each question has the numbers of its own rate.
    pub(crate) kind: StoredKind,
    /// The size of its windows; of a bucket, any.
    pub(crate) size: WindowSize,
    /// Measure that tells it from others of its kind: [`StoredKind::measure`].
    pub(crate) measure: u64,
    pub(crate) key: &'q [u8],
}

/// The counters that questions are about.
#[derive(Debug, Default)]
pub(crate) struct AskedPlaces<'q> {
    pub(crate) shards: Vec<&'q Shard>,
    /// Each counter once.
    pub(crate) places: Vec<AskedPlace<'q>>,
    /// The indexes of the counters' places, in the order of questions.
    slots: Vec<usize>,
    /// Whether anything can be charged.
    pub(crate) are_charged: bool,
}

impl<'q> AskedPlaces<'q> {
    pub(crate) fn new(questions: &'q [Question]) -> AskedPlaces<'q> {
        let mut asked = AskedPlaces::default();
        let mut shards: HashMap<&Shard, usize> = HashMap::new();
        let mut places: HashMap<AskedPlace<'_>, usize> = HashMap::new();
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter { shard, key, kind, size, cost } = counter;
            asked.are_charged |= *cost != Hits::ZERO;
            let place = AskedPlace {
                shard: *shards.entry(shard).or_insert_with(|| {
                    asked.shards.push(shard);
                    asked.shards.len().saturating_sub(1)
                }),
                kind: kind.at_rate(Hits::ZERO),
                size: match kind {
                    StoredKind::Level(LevelKind::Bucket(_)) => WindowSize::MIN,
                    StoredKind::Windows
                    | StoredKind::Level(LevelKind::Elastic)
                    | StoredKind::Log => *size,
                },
                measure: kind.measure(*size),
                key,
            };
            let slot = *places.entry(place).or_insert_with(|| {
                asked.places.push(place);
                asked.places.len().saturating_sub(1)
            });
            asked.slots.push(slot);
        }
        asked
    }

    /// The questions, each with the indexes of its counters' places.
    pub(crate) fn with_slots<'a, 'b>(
        &'a self,
        questions: &'b [Question],
    ) -> impl Iterator<Item = (&'b Question, &'a [usize])> {
        let mut rest = self.slots.as_slice();
        questions.iter().map(move |question| {
            let (slots, others) =
                rest.split_at_checked(question.counters.len()).unwrap_or_default();
            rest = others;
            (question, slots)
        })
    }
}

impl AskedPlace<'_> {
    /// The number of its window at a moment, and for how long from then that matters.
    pub(crate) fn window(&self, now: UnixMillis) -> (u64, Duration) {
        let position = self.size.at(now);
        let size = Duration::from_millis(self.size.millis());
        let left = size.saturating_sub(Duration::from_millis(position.elapsed));
        let life = left.saturating_add(size).saturating_add(CLOCK_MARGIN);
        (position.number, life)
    }
}
