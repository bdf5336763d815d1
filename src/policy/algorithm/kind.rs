//! Kinds of stored state: algorithms of one kind read the same state.

use super::bucket::BucketLevel;
use super::elastic::ElasticCount;
use super::level::Level;
use super::method::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// A kind of stored state: algorithms of one kind read the same state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoredKind {
    /// Hits of two adjacent windows, which begin at multiples of their size.
    #[default]
    Windows,
    /// A level, with the time of its last change.
    Level(LevelKind),
    /// The hits of the last `size`, each with its time.
    Log,
    /// The number of requests that are under way, and who holds them. No store has it.
    Holds,
}

impl StoredKind {
    /// Whether it is the level of a bucket.
    pub fn is_bucket(self) -> bool {
        matches!(self, StoredKind::Level(LevelKind::Bucket(_)))
    }

    /// All kinds that stores have; the bucket has rate 0.
    pub const ALL: &[StoredKind] = &[
        StoredKind::Windows,
        StoredKind::Level(LevelKind::Elastic),
        StoredKind::Level(LevelKind::Bucket(Hits::ZERO)),
        StoredKind::Log,
    ];

    /// Returns this kind with the rate at which `reading` was read.
    pub fn at_rate_of(self, reading: &Reading) -> StoredKind {
        self.at_rate(BucketLevel::from(*reading).rate)
    }

    /// Returns the kind's number in counter identities and in stores.
    pub const fn wire_id(self) -> u8 {
        match self {
            StoredKind::Windows => 0,
            StoredKind::Level(LevelKind::Elastic) => 1,
            StoredKind::Log => 2,
            // 3 was a bucket shared by all rates of a key.
            StoredKind::Level(LevelKind::Bucket(_)) => 4,
            StoredKind::Holds => 5,
        }
    }

    /// Returns the number that distinguishes counters of one kind, namespace and key: the window size's bits,
    /// or a rate in hits per second as the bits of an `f64`.
    ///
    /// Rates with equal hits per second are the same: 600 per minute and 10 per second share a counter.
    pub fn measure(self, size: WindowSize) -> u64 {
        match self {
            StoredKind::Level(LevelKind::Bucket(rate)) => {
                BucketLevel::per_second(rate, size).to_bits()
            }
            StoredKind::Windows | StoredKind::Level(LevelKind::Elastic) | StoredKind::Log => {
                size.bits()
            }
            StoredKind::Holds => 0,
        }
    }

    /// Returns this kind for a limit of `hits`, which is the rate of a bucket.
    #[inline]
    pub const fn at_rate(self, hits: Hits) -> StoredKind {
        match self {
            StoredKind::Level(LevelKind::Bucket(_)) => StoredKind::Level(LevelKind::Bucket(hits)),
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Elastic)
            | StoredKind::Log
            | StoredKind::Holds => self,
        }
    }

    /// Returns the leak of a bucket as two whole numbers: thousandths, and the milliseconds in which they leak.
    pub fn leak(self, size: WindowSize) -> Option<(u64, u64)> {
        match self {
            StoredKind::Level(LevelKind::Bucket(rate)) => Some(BucketLevel::leak(rate, size)),
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Elastic)
            | StoredKind::Log
            | StoredKind::Holds => None,
        }
    }

    /// Whether rejected hits change the stored state, too.
    #[inline]
    pub const fn changes_with_refusals(self) -> bool {
        match self {
            StoredKind::Level(LevelKind::Elastic) => true,
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Bucket(_))
            | StoredKind::Log
            | StoredKind::Holds => false,
        }
    }

    /// Encodes the kind for messages between processes of one build: its number, and a bucket's rate.
    pub fn to_word(self) -> u64 {
        let rate = match self {
            StoredKind::Level(LevelKind::Bucket(rate)) => rate.thousandths().unsigned_abs(),
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Elastic)
            | StoredKind::Log
            | StoredKind::Holds => 0,
        };
        rate << 8 | u64::from(self.wire_id())
    }

    /// Decodes a word of [`StoredKind::to_word`].
    pub fn from_word(word: u64) -> Option<StoredKind> {
        let rate = Hits::from_thousandths((word >> 8).cast_signed());
        let mut all = Self::ALL.iter();
        let kind = all.find(|it| u64::from(it.wire_id()) == word & 0xff)?;
        Some(kind.at_rate(rate))
    }
}

/// The rule by which time and hits change a [`Level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LevelKind {
    /// An elastic window: time ends it, and each hit extends it.
    Elastic,
    /// A bucket with this leak rate, in hits per size of the limit's window.
    Bucket(Hits),
}

impl LevelKind {
    /// Returns the reading of a level at `now`.
    #[inline]
    pub fn reading(self, size: WindowSize, level: Level, now: UnixMillis) -> Reading {
        match self {
            LevelKind::Elastic => ElasticCount::of(size, level, now).into(),
            LevelKind::Bucket(rate) => BucketLevel::of(rate, size, level, now).into(),
        }
    }

    /// Returns how many of `hits` a rejected hit adds where rejected hits count: a bucket is filled at most to `most`.
    #[inline]
    pub fn filling(self, read: &Reading, most: Hits, hits: Hits) -> Hits {
        match self {
            LevelKind::Elastic => hits,
            LevelKind::Bucket(_) => {
                let room = most.minus(BucketLevel::from(*read).hits);
                hits.min(room.max(Hits::ZERO))
            }
        }
    }

    /// Returns the level that yields `reading` at `now`. For a bucket, it may differ from the one that was read.
    pub fn level_of(self, size: WindowSize, reading: Reading, now: UnixMillis) -> Level {
        match self {
            LevelKind::Elastic => ElasticCount::from(reading).level(now),
            LevelKind::Bucket(_) => BucketLevel::from(reading).level(size, now),
        }
    }

    /// Returns the level after a hit at `now`; `counted` is 0 for a rejected hit.
    pub fn after_hit(
        self,
        size: WindowSize,
        level: Level,
        now: UnixMillis,
        counted: Hits,
    ) -> Level {
        let read = self.reading(size, level, now);
        self.after_hit_on(size, level, read, now, counted).0
    }

    /// Returns the level after a hit, and its reading; `read` is the reading of `level` at `now`.
    #[inline]
    pub fn after_hit_on(
        self,
        size: WindowSize,
        level: Level,
        read: Reading,
        now: UnixMillis,
        counted: Hits,
    ) -> (Level, Reading) {
        match self {
            LevelKind::Elastic => {
                let read = ElasticCount::from(read);
                let (level, after) = read.after_hit(size, level, now, counted);
                (level, after.into())
            }
            LevelKind::Bucket(_) => {
                let read = BucketLevel::from(read);
                let (level, after) = read.after_hit(size, level, now, counted);
                (level, after.into())
            }
        }
    }

    /// Returns the level without the `counted` hits of one charge; `before` is the level before that charge, if known.
    pub fn without_hit(
        self,
        size: WindowSize,
        level: Level,
        before: Option<Level>,
        counted: Hits,
    ) -> Level {
        if let (LevelKind::Bucket(_), Some(before)) = (self, before) {
            // Restoring `before` keeps the parts of a thousandth that had leaked, however often hits are refunded.
            let after = self.after_hit(size, before, level.at, counted);
            if (after.hits, after.at) == (level.hits, level.at) {
                return before;
            }
        }
        // At least zero: the bucket may have been full, and have taken fewer hits.
        let hits = level.hits.minus(counted).max(Hits::ZERO);
        Level { hits, ..level }
    }

    /// Returns a number that distinguishes the level from earlier ones of the counter. A refund applies only to the
    /// level that was charged.
    #[inline]
    pub fn era(self, level: &Level) -> u64 {
        match self {
            LevelKind::Elastic => level.mark.0,
            LevelKind::Bucket(_) => 0,
        }
    }
}
