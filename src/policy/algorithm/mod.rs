//! Algorithms: the interpretation of a key's stored state, and the verdict on one more hit.
//!
//! Each algorithm is a variant of [`Algorithm`], and a type that implements [`Method`](method::Method) in a file of its
//! own. All other code only passes an [`Algorithm`] on.

mod ban;
mod bucket;
mod concurrency;
mod elastic;
mod fixed;
mod kind;
mod level;
mod method;
mod moving;
mod sliding;
mod weight;
mod windows;

use core::fmt;

pub use self::ban::BanCounts;
use self::ban::Banned;
pub use self::bucket::BucketLevel;
use self::bucket::LeakyBucket;
use self::concurrency::Concurrency;
pub use self::concurrency::UnderWay;
use self::elastic::Elastic;
pub use self::elastic::ElasticCount;
use self::fixed::Fixed;
pub use self::kind::{LevelKind, StoredKind};
pub use self::level::Level;
use self::method::Method as _;
pub use self::method::Reading;
use self::moving::Moving;
pub use self::moving::MovingCount;
use self::sliding::Sliding;
pub use self::weight::Weight;
pub use self::windows::WindowCounts;
use super::hits::Hits;
use super::window::{UnixMillis, WindowSize};

/// An algorithm: an interpretation of a key's stored state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The previous window counts by the share of it that lies less than `size` ago.
    #[default]
    Sliding,
    /// The previous window does not count.
    Fixed,
    /// A window begins with a hit, and each further one extends it to its full size.
    Elastic,
    /// A leaky bucket: counted hits leak at a constant rate.
    Bucket,
    /// The window always ends now: exactly the hits of the last `size` count.
    Moving,
    /// A request counts from its admission to its end.
    Concurrency,
    /// The counts tell until when a key is banned. Only nodes read them so; stores only count.
    Ban,
}

/// The error for a name of no algorithm. The message lists the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseAlgorithmError;

impl fmt::Display for ParseAlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected ")?;
        for (index, algorithm) in Algorithm::ALL.iter().enumerate() {
            f.write_str(match index {
                0 => "",
                index if index.saturating_add(1) == Algorithm::ALL.len() => " or ",
                _ => ", ",
            })?;
            f.write_str(algorithm.name())?;
        }
        Ok(())
    }
}

impl core::error::Error for ParseAlgorithmError {}

/// Calls a function of the algorithm's [`Method`], with the reading converted to its type.
macro_rules! of_method {
    ($algorithm:expr, $function:ident, $size:expr, $reading:expr $(, $argument:expr)*) => {
        match $algorithm {
            Algorithm::Sliding => Sliding::$function($size, &(*$reading).into() $(, $argument)*),
            Algorithm::Fixed => Fixed::$function($size, &(*$reading).into() $(, $argument)*),
            Algorithm::Elastic => Elastic::$function($size, &(*$reading).into() $(, $argument)*),
            Algorithm::Bucket => LeakyBucket::$function($size, &(*$reading).into() $(, $argument)*),
            Algorithm::Moving => Moving::$function($size, &(*$reading).into() $(, $argument)*),
            Algorithm::Concurrency => {
                Concurrency::$function($size, &(*$reading).into() $(, $argument)*)
            }
            Algorithm::Ban => Banned::$function($size, &(*$reading).into() $(, $argument)*),
        }
    };
}

impl Algorithm {
    /// All algorithms that `window=` names.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Sliding, Algorithm::Fixed, Algorithm::Elastic, Algorithm::Moving];

    /// The algorithm of `rate=`, which `window=` does not name. That of `concurrent=` is [`Algorithm::Concurrency`].
    pub const OF_RATES: Algorithm = Algorithm::Bucket;

    /// Returns the algorithm that reads levels of this kind.
    pub const fn of_level(kind: LevelKind) -> Algorithm {
        match kind {
            LevelKind::Elastic => Algorithm::Elastic,
            LevelKind::Bucket(_) => Algorithm::Bucket,
        }
    }

    /// Whether its limits are rates with a burst, instead of hits in a window.
    #[inline]
    pub const fn is_of_rates(self) -> bool {
        matches!(self, Self::OF_RATES)
    }

    /// Whether its limits are numbers of requests that are under way, without a window.
    #[inline]
    pub const fn is_of_concurrency(self) -> bool {
        matches!(self, Algorithm::Concurrency)
    }

    /// Returns this algorithm for windows of an ordinary size, and the one that windows of the calendar have.
    pub fn of_size(self, size: WindowSize) -> Algorithm {
        if size.is_of_calendar() { Algorithm::Fixed } else { self }
    }

    /// Returns the kind of stored state that the algorithm reads. A bucket has no rate yet ([`StoredKind::at_rate`]).
    #[inline]
    pub const fn kind(self) -> StoredKind {
        match self {
            Algorithm::Sliding | Algorithm::Fixed | Algorithm::Ban => StoredKind::Windows,
            Algorithm::Elastic => StoredKind::Level(LevelKind::Elastic),
            Algorithm::Bucket => StoredKind::Level(LevelKind::Bucket(Hits::ZERO)),
            Algorithm::Moving => StoredKind::Log,
            Algorithm::Concurrency => StoredKind::Holds,
        }
    }

    /// Returns the name that users know.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Sliding => "sliding",
            Algorithm::Fixed => "fixed",
            Algorithm::Elastic => "elastic",
            Algorithm::Bucket => "rate",
            Algorithm::Moving => "moving",
            Algorithm::Concurrency => "concurrent",
            Algorithm::Ban => "ban",
        }
    }

    /// Returns the algorithm's number in messages between processes of one build, and in arguments of scripts.
    pub const fn wire_id(self) -> u8 {
        match self {
            Algorithm::Fixed => 0,
            Algorithm::Sliding => 1,
            Algorithm::Elastic => 2,
            Algorithm::Bucket => 4,
            Algorithm::Moving => 3,
            // No store and no other process is asked about it.
            Algorithm::Concurrency => 5,
            Algorithm::Ban => 6,
        }
    }

    /// Returns the algorithm with this number.
    pub fn from_wire_id(id: u64) -> Option<Algorithm> {
        let mut all = Self::ALL.into_iter().chain([Self::OF_RATES]);
        all.find(|it| u64::from(it.wire_id()) == id)
    }

    /// Returns the algorithm with this name.
    ///
    /// # Errors
    ///
    /// If no algorithm has the name.
    pub fn parse(name: &[u8]) -> Result<Algorithm, ParseAlgorithmError> {
        let mut all = Self::ALL.into_iter();
        let known = all.find(|it| it.name().as_bytes() == name);
        known.ok_or(ParseAlgorithmError)
    }

    /// Returns the largest limit that the algorithm supports.
    pub const fn max_limit(self) -> Hits {
        match self {
            Algorithm::Moving => MovingCount::MAX_LIMIT,
            Algorithm::Concurrency => concurrency::MAX_LIMIT,
            Algorithm::Sliding
            | Algorithm::Fixed
            | Algorithm::Elastic
            | Algorithm::Bucket
            | Algorithm::Ban => Hits::MAX,
        }
    }

    /// Returns the rate of `reading`, rounded up to a thousandth.
    ///
    /// Limits and costs are whole thousandths, so rounding up changes no comparison.
    pub fn rate(self, size: WindowSize, reading: &Reading) -> Hits {
        of_method!(self, rate, size, reading)
    }

    /// Returns `limit - rate`, at least 0.
    pub fn remaining(self, size: WindowSize, reading: &Reading, limit: Hits) -> Hits {
        of_method!(self, remaining, size, reading, limit)
    }

    /// Whether a hit of `cost` is admitted on top of `reading`.
    ///
    /// With a cost above zero, the rate including it must be at most `limit`. With a cost of zero, the rate must be
    /// below `limit`.
    // Always inlined: a call takes 22 instructions for each limit of a request.
    #[inline(always)]
    pub fn admits(self, size: WindowSize, reading: &Reading, limit: Hits, cost: Hits) -> bool {
        of_method!(self, admits, size, reading, limit, cost)
    }

    /// Returns the start of the current window.
    pub fn start(self, size: WindowSize, reading: &Reading) -> UnixMillis {
        of_method!(self, start, size, reading)
    }

    /// Returns the milliseconds until the end of the current window.
    pub fn reset(self, size: WindowSize, reading: &Reading) -> u64 {
        of_method!(self, reset, size, reading)
    }

    /// Returns the milliseconds until a hit of `cost` would be admitted if none came before it; `None` if it never
    /// would be.
    pub fn retry_after(
        self,
        size: WindowSize,
        reading: &Reading,
        limit: Hits,
        cost: Hits,
    ) -> Option<u64> {
        of_method!(self, retry_after, size, reading, limit, cost)
    }

    /// Returns the milliseconds until a bucket holds at most `most` hits, rounded down; 0 for other algorithms.
    pub fn delay(self, size: WindowSize, reading: &Reading, most: Hits) -> u64 {
        of_method!(self, delay, size, reading, most)
    }

    /// Returns how many of `charged` hits certainly still count, after `age` milliseconds or less, in the level or log
    /// that they were charged to. Windows tell that themselves: it is all of them.
    pub fn left_of(self, size: WindowSize, reading: &Reading, charged: Hits, age: u64) -> Hits {
        of_method!(self, left_of, size, reading, charged, age)
    }

    /// Returns the window of `limit` in milliseconds: for a bucket, the time in which `limit` hits leak; `None` if they
    /// never leak. A fractional number of milliseconds is never returned as whole seconds.
    pub fn window(self, size: WindowSize, reading: &Reading, limit: Hits) -> Option<u64> {
        of_method!(self, window, size, reading, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hits::hits;

    fn size(text: &str) -> WindowSize {
        WindowSize::parse(text.as_bytes()).unwrap()
    }

    fn counts(current: i64, previous: i64, elapsed: u64) -> Reading {
        Reading::from(WindowCounts {
            window: 0,
            current: hits(current),
            previous: hits(previous),
            elapsed,
        })
    }

    #[test]
    fn an_algorithm_has_a_name_and_a_number() {
        for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::OF_RATES]) {
            let id = algorithm.wire_id().into();
            assert_eq!(Algorithm::from_wire_id(id), Some(algorithm));
        }
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name().as_bytes()), Ok(algorithm));
        }
        assert_eq!(Algorithm::from_wire_id(256), None);
        for name in ["", "Fixed", "rate"] {
            let error = Algorithm::parse(name.as_bytes()).unwrap_err();
            let message = "expected sliding, fixed, elastic or moving";
            assert_eq!(error.to_string(), message, "{name}");
        }
    }

    #[test]
    fn the_rates_of_the_specification() {
        let minute = size("60s");
        assert_eq!(Algorithm::Sliding.rate(minute, &counts(10, 40, 30_000)), hits(30));
        assert_eq!(Algorithm::Sliding.rate(minute, &counts(10, 20, 30_000)), hits(20));
        assert_eq!(Algorithm::Fixed.rate(minute, &counts(10, 40, 30_000)), hits(10));
        assert_eq!(Algorithm::Sliding.rate(minute, &counts(10, 40, 0)), hits(50));
        // A third is rounded up.
        assert_eq!(
            Algorithm::Sliding.rate(size("3s"), &counts(0, 1, 2_000)),
            Hits::from_thousandths(334)
        );
    }

    #[test]
    fn rates_do_not_overflow() {
        let year = size("366d");
        let full = Reading::from(WindowCounts {
            window: 0,
            current: Hits::MAX,
            previous: Hits::MAX,
            elapsed: 0,
        });
        assert_eq!(Algorithm::Sliding.rate(year, &full), Hits::MAX);
        assert!(!Algorithm::Sliding.admits(year, &full, Hits::MAX, Hits::MAX));
        assert!(Algorithm::Sliding.retry_after(year, &full, Hits::MAX, Hits::ONE).is_some());
    }

    #[test]
    fn a_hit_is_admitted_up_to_the_limit() {
        let minute = size("60s");
        assert!(Algorithm::Sliding.admits(minute, &counts(9, 0, 0), hits(10), Hits::ONE));
        assert!(!Algorithm::Sliding.admits(minute, &counts(10, 0, 0), hits(10), Hits::ONE));
        assert!(Algorithm::Sliding.admits(minute, &counts(9, 40, 60_000), hits(10), Hits::ONE));
        assert!(!Algorithm::Sliding.admits(minute, &counts(9, 40, 59_999), hits(10), Hits::ONE));
        assert!(Algorithm::Fixed.admits(minute, &counts(9, 40, 0), hits(10), Hits::ONE));
    }

    #[test]
    fn asking_without_counting_needs_a_rate_below_the_limit() {
        let minute = size("60s");
        assert!(Algorithm::Fixed.admits(minute, &counts(9, 0, 0), hits(10), Hits::ZERO));
        assert!(!Algorithm::Fixed.admits(minute, &counts(10, 0, 0), hits(10), Hits::ZERO));
        // 10 - 1/60000 is below 10.
        assert!(Algorithm::Sliding.admits(minute, &counts(9, 1, 1), hits(10), Hits::ZERO));
        assert!(!Algorithm::Sliding.admits(minute, &counts(9, 1, 0), hits(10), Hits::ZERO));
    }

    #[test]
    fn retry_after_is_the_first_moment_that_admits() {
        // For a log, the counts alone do not determine it.
        let all = Algorithm::ALL.into_iter();
        for algorithm in all.filter(|it| it.kind() != StoredKind::Log) {
            for (current, previous, elapsed, limit, cost) in [
                (10, 40, 30, 10, 1),
                (0, 40, 0, 10, 1),
                (5, 7, 13, 9, 2),
                (9, 0, 99, 10, 1),
                (10, 0, 0, 10, 10),
                (10, 3, 50, 10, 0),
                (3, 3, 50, 10, 0),
                (25, 0, 10, 10, 5),
                (1000, 1000, 10, 1, 1),
            ] {
                let tenth = WindowSize::from_millis(100).unwrap();
                let start = counts(current, previous, elapsed);
                let wait = algorithm.retry_after(tenth, &start, hits(limit), hits(cost)).unwrap();
                let admitted_after = |wait: u64| {
                    let at = elapsed + wait;
                    let later = match at / 100 {
                        0 => counts(current, previous, at),
                        1 => counts(0, current, at - 100),
                        _ => counts(0, 0, at % 100),
                    };
                    algorithm.admits(tenth, &later, hits(limit), hits(cost))
                };
                let first = (0..).find(|&wait| admitted_after(wait)).unwrap();
                assert_eq!(
                    wait, first,
                    "{algorithm:?} {current} {previous} {elapsed} {limit} {cost}"
                );
            }
        }
    }

    #[test]
    fn a_cost_above_the_limit_is_never_admitted() {
        let minute = size("60s");
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.retry_after(minute, &counts(0, 0, 0), hits(5), hits(6)), None);
            assert_eq!(
                algorithm.retry_after(minute, &counts(9, 0, 0), Hits::ZERO, Hits::ZERO),
                None
            );
        }
    }
}
