//! What is kept of a key: algorithms of one kind read the same.

use super::super::hits::Hits;
use super::super::window::{UnixMillis, WindowSize};
use super::elastic::ElasticCount;
use super::level::Level;
use super::reading::Reading;

/// What is kept of a key: algorithms of one kind read the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoredKind {
    /// The hits of two windows, which begin at multiples of their size.
    #[default]
    Windows,
    /// A level that changed last at a moment.
    Level(LevelKind),
}

impl StoredKind {
    /// All of them.
    pub const ALL: [StoredKind; 2] = [StoredKind::Windows, StoredKind::Level(LevelKind::Elastic)];

    /// Its number in identities of counters, in messages between processes of one build, and in stores.
    pub const fn wire_id(self) -> u8 {
        match self {
            StoredKind::Windows => 0,
            StoredKind::Level(LevelKind::Elastic) => 1,
        }
    }

    /// The kind of this number.
    pub fn from_wire_id(id: u64) -> Option<StoredKind> {
        let mut all = Self::ALL.into_iter();
        all.find(|it| u64::from(it.wire_id()) == id)
    }
}

/// How time and hits change a [`Level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LevelKind {
    /// An elastic window: time ends it, and each hit extends it.
    Elastic,
}

impl LevelKind {
    /// What is read of a level at `now`.
    pub fn reading(self, size: WindowSize, level: Level, now: UnixMillis) -> Reading {
        match self {
            LevelKind::Elastic => ElasticCount::of(size, level, now).into(),
        }
    }

    /// The level that a reading of `now` was made of.
    pub fn level_of(self, reading: Reading, now: UnixMillis) -> Level {
        match self {
            LevelKind::Elastic => ElasticCount::from(reading).level(now),
        }
    }

    /// What a level becomes with a hit at `now`, of which `counted` hits are counted: none of one that
    /// is refused.
    pub fn after_hit(
        self,
        size: WindowSize,
        level: Level,
        now: UnixMillis,
        counted: Hits,
    ) -> Level {
        match self {
            LevelKind::Elastic => ElasticCount::of(size, level, now).after_hit(level, now, counted),
        }
    }
}
