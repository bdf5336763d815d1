//! The leaky bucket of nginx's `limit_req`: hits fill it, and leak at a constant rate.
//!
//! Source: `ngx_http_limit_req_lookup()` in nginx's `ngx_http_limit_req_module.c`. What is the *excess*
//! there is one hit less than what is in the bucket here: so an empty bucket holds nothing, and a full
//! one `burst + 1`, which is the limit.

use core::num::{NonZeroU64, NonZeroU128};

use super::level::Level;
use super::method::{Method, has_room};
use super::reading::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};

pub(super) struct LeakyBucket;

/// The level of a key's bucket at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketLevel {
    /// The hits in it.
    pub hits: Hits,
    /// Hits that leak in the time unit of the rate.
    pub rate: Hits,
    /// Time of the last fill.
    pub at: UnixMillis,
    /// Leaked share of the next thousandth, in parts of [`Leak`].
    part: u64,
}

/// The number of thousandths that leak in a millisecond, as a fraction.
#[derive(Clone, Copy, Debug)]
struct Leak {
    parts: u64,
    parts_of_thousandth: NonZeroU64,
}

impl Leak {
    const MINUTE: NonZeroU64 = NonZeroU64::new(60_000).unwrap();
    const SECOND: NonZeroU64 = NonZeroU64::new(1000).unwrap();

    /// The leak of a bucket with `rate` hits in `size`. As in `limit_req`, a whole number for a minute is
    /// one of thousandths for a second, rounded down; what `limit_req` cannot say is exact.
    #[inline]
    fn of(rate: Hits, size: WindowSize) -> Leak {
        let rate = rate.thousandths().cast_unsigned();
        match size.nonzero_millis() {
            Self::MINUTE => Leak::of_minute(rate),
            size => Leak { parts: rate, parts_of_thousandth: size },
        }
    }

    /// The leak of `rate` thousandths in a minute.
    // A function of its own: others need no division.
    #[cold]
    #[inline(never)]
    fn of_minute(rate: u64) -> Leak {
        let (parts, parts_of_thousandth) = match rate.is_multiple_of(1000) {
            true => (rate / 60, Self::SECOND),
            false => (rate, Self::MINUTE),
        };
        Leak { parts, parts_of_thousandth }
    }

    /// Returns the leak of so many milliseconds: thousandths, and parts of the next one.
    #[inline]
    fn in_millis(self, millis: u64) -> (u64, u64) {
        let of = self.parts_of_thousandth;
        match self.parts.checked_mul(millis) {
            Some(parts) => (parts / of, parts % of),
            None => self.in_many_millis(millis),
        }
    }

    /// Computes [`Leak::in_millis`] with more bits, which takes longer.
    #[cold]
    fn in_many_millis(self, millis: u64) -> (u64, u64) {
        let of = NonZeroU128::from(self.parts_of_thousandth);
        let parts = u128::from(self.parts).saturating_mul(millis.into());
        let whole = |parts| u64::try_from(parts).unwrap_or(u64::MAX);
        (whole(parts / of), whole(parts % of))
    }

    /// Milliseconds in which so many thousandths leak, when `part` of the first has leaked; `None`: they
    /// never do.
    #[inline]
    fn time_of(self, thousandths: u64, part: u64) -> Option<u64> {
        if thousandths == 0 {
            return Some(0);
        }
        let leaking = NonZeroU64::new(self.parts)?;
        match thousandths.checked_mul(self.parts_of_thousandth.get()) {
            Some(parts) => Some(parts.saturating_sub(part).div_ceil(leaking.get())),
            None => Some(self.long_time_of(thousandths, part)),
        }
    }

    /// Computes the time of a leak with more bits, which takes longer.
    #[cold]
    fn long_time_of(self, thousandths: u64, part: u64) -> u64 {
        let millis = self.parts_of(thousandths, part).div_ceil(u128::from(self.parts.max(1)));
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    /// Parts of so many thousandths, when `part` of the first has leaked.
    fn parts_of(self, thousandths: u64, part: u64) -> u128 {
        let parts = u128::from(thousandths).saturating_mul(self.parts_of_thousandth.get().into());
        parts.saturating_sub(part.into())
    }
}

impl BucketLevel {
    /// An empty bucket with `rate`.
    pub fn empty(rate: Hits) -> BucketLevel {
        BucketLevel { rate, ..BucketLevel::default() }
    }

    /// Returns the level with another leak rate from now on.
    pub fn at_rate(self, rate: Hits) -> BucketLevel {
        match self.rate == rate {
            true => self,
            false => BucketLevel { rate, part: 0, ..self },
        }
    }

    /// Returns the leak of a bucket with `rate`: thousandths, and the milliseconds in which they
    /// leak.
    pub(super) fn leak(rate: Hits, size: WindowSize) -> (u64, u64) {
        let leak = Leak::of(rate, size);
        (leak.parts, leak.parts_of_thousandth.get())
    }

    /// Returns the hits per second that leak from a bucket with `rate`.
    ///
    /// Both numbers of the fraction fit into a `f64`, and its division is rounded correctly: so equal fractions have
    /// equal bits. Others differ in them, unless they are the same to 15 digits.
    pub(super) fn per_second(rate: Hits, size: WindowSize) -> f64 {
        let Leak { parts, parts_of_thousandth } = Leak::of(rate, size);
        // A thousandth in a millisecond is a hit in a second.
        parts as f64 / parts_of_thousandth.get() as f64
    }

    /// Returns `level` as it is at `now`, in a bucket with `rate`.
    #[inline]
    pub(super) fn of(rate: Hits, size: WindowSize, level: Level, now: UnixMillis) -> BucketLevel {
        let (leaked, part) = Leak::of(rate, size).in_millis(level.age(now));
        let hits = level.hits.without_thousandths(leaked);
        BucketLevel { hits, rate, at: level.at, part: if hits == Hits::ZERO { 0 } else { part } }
    }

    /// A level of which the same is read at `now`, whatever clock it was read by: to the thousandth, or
    /// to what leaks in a millisecond if that is more.
    pub(super) fn level(self, size: WindowSize, now: UnixMillis) -> Level {
        // So long ago that the part has leaked since.
        let leaking = self.part.checked_div(Leak::of(self.rate, size).parts);
        let at = now.0.saturating_sub(leaking.unwrap_or(0));
        BucketLevel { part: 0, ..self }.filled(size, UnixMillis(at))
    }

    /// The level of the bucket that holds this at a moment, when no part has leaked.
    #[inline]
    fn filled(self, size: WindowSize, at: UnixMillis) -> Level {
        let leak = Leak::of(self.rate, size);
        let empty_after = leak.time_of(self.hits.thousandths().cast_unsigned(), self.part);
        let empty_after = empty_after.unwrap_or(u64::MAX);
        let UnixSeconds(second) = UnixSeconds::of(UnixMillis(at.0.saturating_add(empty_after)));
        Level {
            hits: self.hits,
            at,
            // After it is empty.
            mark: UnixSeconds(second.saturating_add(1)),
        }
    }

    /// The level of the bucket that `counted` hits were added to at `now`, and what it is then. A hit that is
    /// refused changes nothing, unless the clock was set back, when what is in the bucket begins to leak anew.
    #[inline]
    pub(super) fn after_hit(
        self,
        size: WindowSize,
        before: Level,
        now: UnixMillis,
        counted: Hits,
    ) -> (Level, BucketLevel) {
        let at = before.time_of_hit(now);
        if counted == Hits::ZERO && at >= before.at {
            return (before, self);
        }
        let filled = BucketLevel { hits: self.hits.plus_value(counted), at, part: 0, ..self };
        (filled.filled(size, at), filled)
    }

    /// Milliseconds until no more than `most` hits are in it; `None`: that is never so.
    #[inline]
    fn time_until(&self, size: WindowSize, most: Hits) -> Option<u64> {
        let above = u64::try_from(self.hits.minus(most).thousandths()).unwrap_or(0);
        if most < Hits::ZERO {
            return None;
        }
        Leak::of(self.rate, size).time_of(above, self.part)
    }

    /// The parts above `most` hits, and how many leak in a millisecond.
    fn parts_above(&self, size: WindowSize, most: Hits) -> Option<(u128, u64)> {
        let leak = Leak::of(self.rate, size);
        let above = u64::try_from(self.hits.minus(most).thousandths()).unwrap_or(0);
        (most >= Hits::ZERO).then(|| (leak.parts_of(above, self.part), leak.parts))
    }
}

/// Milliseconds in which `limit` hits leak at a rate of `rate` in `size`; `None`: they never do. If that
/// is no whole number, neither is it one of seconds.
fn refill(limit: Hits, rate: Hits, size: WindowSize) -> Option<u64> {
    let [limit, rate] = [limit, rate].map(|hits| i128::from(hits.thousandths()));
    let product = limit.checked_mul(size.millis().into())?;
    let millis = product.checked_div(rate)?;
    let is_exact = product.checked_rem(rate)? == 0;
    let millis = u64::try_from(millis).ok()?;
    match is_exact || !millis.is_multiple_of(1000) {
        true => Some(millis),
        false => millis.checked_add(1),
    }
}

impl Method for LeakyBucket {
    type Stored = BucketLevel;

    fn rate(_: WindowSize, level: &BucketLevel) -> Hits {
        level.hits
    }

    #[inline]
    fn admits(_: WindowSize, level: &BucketLevel, limit: Hits, cost: Hits) -> bool {
        has_room(level.hits, limit, cost)
    }

    fn start(_: WindowSize, level: &BucketLevel) -> UnixMillis {
        level.at
    }

    /// Returns the milliseconds until the bucket is empty.
    fn reset(size: WindowSize, level: &BucketLevel) -> u64 {
        level.time_until(size, Hits::ZERO).unwrap_or(u64::MAX)
    }

    fn retry_after(size: WindowSize, level: &BucketLevel, limit: Hits, cost: Hits) -> Option<u64> {
        // "Below" a limit is "at most" a thousandth less.
        let cost = cost.max(Hits::from_thousandths(1));
        level.time_until(size, limit.minus(cost))
    }

    /// Until so much has leaked, rounded down.
    fn delay(size: WindowSize, level: &BucketLevel, most: Hits) -> u64 {
        let millis = level.parts_above(size, most).map_or(0, |(parts, leak)| match parts {
            0 => 0,
            // What never leaks is waited for as long as there are numbers.
            parts => parts.checked_div(leak.into()).unwrap_or(u128::MAX),
        });
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    fn window(size: WindowSize, level: &BucketLevel, limit: Hits) -> Option<u64> {
        refill(limit, level.rate, size)
    }
}

impl From<BucketLevel> for Reading {
    #[inline]
    fn from(level: BucketLevel) -> Reading {
        Reading { start: level.at.0, hits: level.hits, previous: level.rate, elapsed: level.part }
    }
}

impl From<Reading> for BucketLevel {
    #[inline]
    fn from(reading: Reading) -> BucketLevel {
        BucketLevel {
            hits: reading.hits,
            rate: reading.previous,
            at: UnixMillis(reading.start),
            part: reading.elapsed,
        }
    }
}
