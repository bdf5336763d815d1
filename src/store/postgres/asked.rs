//! Questions, as far as the server is asked about them.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap};

use super::levels::LevelPlace;
use super::push::Addition;
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::decision::{AskedCounter, Question};
use crate::store::strategy::{CLOCK_MARGIN, Shard};

/// What all locks begin with, in 32 bits: others may lock numbers in the same database.
const LOCKS: i64 = 0x7261_7465 << 32;
/// Into how many locks the keys of a shard are divided. A server has room for a few thousand.
const LOCKS_OF_SHARD: u16 = 1024;
/// A counter, which several questions may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place<'q> {
    /// The index of the shard.
    pub(super) shard: usize,
    /// Of a bucket, at no rate: each question tells its own.
    pub(super) kind: StoredKind,
    pub(super) size: WindowSize,
    pub(super) key: &'q [u8],
}

/// Questions, as far as the server is asked about them.
#[derive(Debug, Default)]
pub(super) struct Asked<'q> {
    pub(super) shards: Vec<&'q Shard>,
    /// Each counter once.
    pub(super) places: Vec<Place<'q>>,
    /// The indexes of the counters' places, in the order of questions.
    pub(super) slots: Vec<usize>,
    /// What is locked, in order; nothing, if nothing can be charged.
    pub(super) locks: Vec<i64>,
}

impl<'q> Asked<'q> {
    pub(super) fn new(questions: &'q [Question]) -> Asked<'q> {
        let mut asked = Asked::default();
        let mut shards: HashMap<&Shard, usize> = HashMap::new();
        let mut places: HashMap<Place, usize> = HashMap::new();
        let mut locks = BTreeSet::new();
        let mut is_charged = false;
        for counter in questions.iter().flat_map(|it| &it.counters) {
            let AskedCounter {
                shard,
                key,
                kind,
                size,
                ..
            } = counter;
            is_charged |= counter.cost != Hits::ZERO;
            let place = Place {
                shard: *shards.entry(shard).or_insert_with(|| {
                    asked.shards.push(shard);
                    asked.shards.len().saturating_sub(1)
                }),
                kind: kind.at_rate(Hits::ZERO),
                size: *size,
                key,
            };
            let slot = *places.entry(place).or_insert_with(|| {
                locks.insert(lock(shard, key));
                asked.places.push(place);
                asked.places.len().saturating_sub(1)
            });
            asked.slots.push(slot);
        }
        if is_charged {
            asked.locks.extend(locks);
        }
        asked
    }

    /// The questions, each with the indexes of its counters' places.
    pub(super) fn with_slots<'a, 'b>(
        &'a self,
        questions: &'b [Question],
    ) -> impl Iterator<Item = (&'b Question, &'a [usize])> {
        let mut rest = self.slots.as_slice();
        questions.iter().map(move |question| {
            let (slots, others) = rest
                .split_at_checked(question.counters.len())
                .unwrap_or_default();
            rest = others;
            (question, slots)
        })
    }
}

impl<'q> Place<'q> {
    pub(super) fn is_log(&self) -> bool {
        self.kind == StoredKind::Log
    }

    /// What tells a level from others, if it is one.
    pub(super) fn level((index, place): (usize, &Place<'q>)) -> Option<LevelPlace<'q>> {
        let StoredKind::Level(kind) = place.kind else {
            return None;
        };
        let Place {
            shard, size, key, ..
        } = *place;
        Some(LevelPlace {
            index,
            shard,
            kind,
            size,
            key,
        })
    }

    pub(super) fn addition(&self, now: UnixMillis, charge: i64) -> Addition<'_> {
        let position = self.size.at(now);
        let size = Duration::from_millis(self.size.millis());
        let left = size.saturating_sub(Duration::from_millis(position.elapsed));
        Addition {
            key: self.key,
            size: self.size,
            window: position.number,
            thousandths: charge,
            life: left.saturating_add(size).saturating_add(CLOCK_MARGIN),
        }
    }
}

/// What is locked while it is decided about a key. All nodes must agree.
pub(super) fn lock(shard: &Shard, key: &[u8]) -> i64 {
    let mut name = shard.namespace.as_bytes().to_vec();
    name.extend(shard.number.to_be_bytes());
    let of_shard = i64::from(Shard::number_of(&name, u16::MAX)) << 16;
    LOCKS | of_shard | i64::from(Shard::number_of(key, LOCKS_OF_SHARD))
}
