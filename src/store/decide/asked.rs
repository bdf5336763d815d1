//! The counters of some questions, each once, for deciders that read the counts, decide here, and
//! write.

use core::time::Duration;
use std::collections::HashMap;

use crate::policy::algorithm::{LevelKind, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::decision::{AskedCounter, Question};
use crate::store::contract::strategy::{CLOCK_MARGIN, Shard};

/// A counter of one or more questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AskedPlace<'q> {
    /// Index of the shard.
    pub(crate) shard: usize,
    /// Kind of the state, with a bucket at rate zero: each question has its own rate.
    pub(crate) kind: StoredKind,
    /// Size of its windows; arbitrary for a bucket.
    pub(crate) size: WindowSize,
    /// Measure that distinguishes it from others of its kind: [`StoredKind::measure`].
    pub(crate) measure: u64,
    pub(crate) key: &'q [u8],
}

/// The counters of some questions.
#[derive(Debug, Default)]
pub(crate) struct AskedPlaces<'q> {
    pub(crate) shards: Vec<&'q Shard>,
    /// Each counter once.
    pub(crate) places: Vec<AskedPlace<'q>>,
    /// The index of each counter's place, in the order of the questions.
    slots: Vec<usize>,
    /// Whether any question can charge hits.
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
                    | StoredKind::Log
                    | StoredKind::Holds => *size,
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

    /// Returns the questions, each with the indexes of its counters' places.
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
    /// Returns the number of the window at `now`, and the time for which it matters.
    pub(crate) fn window(&self, now: UnixMillis) -> (u64, Duration) {
        let window = self.size.at(now).number;
        let end = self.size.end_of(window.saturating_add(1));
        let left = Duration::from_millis(end.0.saturating_sub(now.0));
        (window, left.saturating_add(CLOCK_MARGIN))
    }
}
