//! What a datastore has of a counter, and what a question makes of it: for deciders that let this side
//! compute what they need not.

use super::decision::AskedCounter;
use crate::policy::algorithm::{Level, LevelKind, Reading, StoredKind, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// What is kept of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredCount {
    /// In thousandths, of the present window and of the one before: more than there can be hits.
    Windows { current: i64, previous: i64 },
    /// What changed last at a moment.
    Level(LevelKind, Level),
}

impl StoredCount {
    /// That of a counter which a store has nothing of.
    pub(super) fn none(kind: StoredKind) -> StoredCount {
        match kind {
            // No store keeps a log: nobody asks.
            StoredKind::Windows | StoredKind::Log => StoredCount::windows(0, 0),
            StoredKind::Level(kind) => StoredCount::Level(kind, Level::default()),
        }
    }

    /// Thousandths, of the present window and of the one before.
    pub(super) fn windows(current: i64, previous: i64) -> StoredCount {
        StoredCount::Windows { current, previous }
    }

    /// Thousandths, and milliseconds of Unix time: when they changed last, and when they began.
    pub(super) fn level(kind: LevelKind, hits: i64, at: i64, first: i64) -> StoredCount {
        let time = |millis: i64| UnixMillis(u64::try_from(millis).unwrap_or_default());
        StoredCount::Level(
            kind,
            Level {
                hits: Hits::from_thousandths(hits).max(Hits::ZERO),
                at: time(at),
                mark: time(first),
            },
        )
    }

    /// A question was decided at `now`, which charges the counter, or not.
    pub(super) fn ask(&mut self, asked: &AskedCounter, is_charged: bool, now: UnixMillis) {
        let charge = if is_charged { asked.cost } else { Hits::ZERO };
        match self {
            StoredCount::Windows { current, .. } => {
                *current = current.saturating_add(charge.thousandths());
            }
            StoredCount::Level(kind, level) if asked.cost > Hits::ZERO => {
                *level = kind.after_hit(asked.size, *level, now, charge);
            }
            StoredCount::Level(_, level) => {
                level.hits = level.hits.plus(charge).max(Hits::ZERO);
            }
        }
    }

    /// What is to be added to `before`, in thousandths, in the present window; none to a level, which
    /// is replaced.
    pub(super) fn charged_since(&self, before: &StoredCount) -> i64 {
        match (self, before) {
            (
                StoredCount::Windows { current, .. },
                StoredCount::Windows {
                    current: before, ..
                },
            ) => current.saturating_sub(*before),
            _ => 0,
        }
    }

    /// What is read at `now`.
    pub(super) fn reading(&self, size: WindowSize, now: UnixMillis) -> Reading {
        match *self {
            StoredCount::Windows { current, previous } => {
                let [current, previous] = [current, previous].map(Hits::from_thousandths);
                WindowCounts::of(size.at(now), current, previous).into()
            }
            StoredCount::Level(kind, level) => kind.reading(size, level, now),
        }
    }
}
