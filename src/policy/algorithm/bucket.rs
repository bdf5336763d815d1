//! The leaky bucket of nginx's `limit_req`: hits fill it, and leak at a constant rate.
//!
//! Source: `ngx_http_limit_req_lookup()` in nginx's `ngx_http_limit_req_module.c`. Its *excess* is one hit less than
//! the level here: an empty bucket holds 0 hits, and a full one holds the limit, `burst + 1`.

use core::num::{NonZeroU64, NonZeroU128};

use super::level::Level;
use super::method::{Method, Reading, has_room};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, UnixSeconds, WindowSize};

pub(super) struct LeakyBucket;

/// The level of a key's bucket at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketLevel {
    /// Hits in the bucket.
    pub hits: Hits,
    /// Hits that leak in the time unit of the rate.
    pub rate: Hits,
    /// Time of the last fill.
    pub at: UnixMillis,
    /// Leaked part of the next thousandth, in units of its [`Leak`]'s `parts_of_thousandth`.
    part: u64,
}

/// A leak rate: thousandths per millisecond, as a fraction.
#[derive(Clone, Copy, Debug)]
struct Leak {
    parts: u64,
    parts_of_thousandth: NonZeroU64,
}

impl Leak {
    const MINUTE: NonZeroU64 = NonZeroU64::new(60_000).unwrap();
    const SECOND: NonZeroU64 = NonZeroU64::new(1000).unwrap();

    /// Returns the leak of a bucket with `rate` hits in `size`. As in `limit_req`, a whole number of hits per minute is
    /// rounded down to thousandths per second. Rates that `limit_req` cannot express are exact.
    #[inline]
    fn of(rate: Hits, size: WindowSize) -> Leak {
        let rate = rate.thousandths().cast_unsigned();
        match size.nonzero_millis() {
            Self::MINUTE => Leak::of_minute(rate),
            size => Leak { parts: rate, parts_of_thousandth: size },
        }
    }

    /// Returns the leak of `rate` thousandths in a minute.
    // Out of line, since rates of other sizes need no division.
    #[cold]
    #[inline(never)]
    fn of_minute(rate: u64) -> Leak {
        let (parts, parts_of_thousandth) = match rate.is_multiple_of(1000) {
            true => (rate / 60, Self::SECOND),
            false => (rate, Self::MINUTE),
        };
        Leak { parts, parts_of_thousandth }
    }

    /// Returns the leak in `millis` milliseconds: whole thousandths, and the parts of the next one.
    #[inline]
    fn in_millis(self, millis: u64) -> (u64, u64) {
        let of = self.parts_of_thousandth;
        match self.parts.checked_mul(millis) {
            Some(parts) => (parts / of, parts % of),
            None => self.in_many_millis(millis),
        }
    }

    /// Computes [`Leak::in_millis`] in 128 bits, which is slower.
    #[cold]
    fn in_many_millis(self, millis: u64) -> (u64, u64) {
        let of = NonZeroU128::from(self.parts_of_thousandth);
        let parts = u128::from(self.parts).saturating_mul(millis.into());
        let whole = |parts| u64::try_from(parts).unwrap_or(u64::MAX);
        (whole(parts / of), whole(parts % of))
    }

    /// Returns the milliseconds in which so many thousandths leak if `part` of the first has leaked already; `None` if
    /// nothing leaks.
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

    /// Computes [`Leak::time_of`] in 128 bits, which is slower.
    #[cold]
    fn long_time_of(self, thousandths: u64, part: u64) -> u64 {
        let millis = self.parts_of(thousandths, part).div_ceil(u128::from(self.parts.max(1)));
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    /// Returns the parts of so many thousandths, less the `part` that has leaked.
    fn parts_of(self, thousandths: u64, part: u64) -> u128 {
        let parts = u128::from(thousandths).saturating_mul(self.parts_of_thousandth.get().into());
        parts.saturating_sub(part.into())
    }
}

impl BucketLevel {
    /// Returns an empty bucket with `rate`.
    pub fn empty(rate: Hits) -> BucketLevel {
        BucketLevel { rate, ..BucketLevel::default() }
    }

    /// Returns the bucket with its leak rate changed to `rate`.
    pub fn at_rate(self, rate: Hits) -> BucketLevel {
        match self.rate == rate {
            true => self,
            false => BucketLevel { rate, part: 0, ..self },
        }
    }

    /// Returns the leak of a bucket with `rate` as a fraction: thousandths, and the milliseconds in which they leak.
    pub(super) fn leak(rate: Hits, size: WindowSize) -> (u64, u64) {
        let leak = Leak::of(rate, size);
        (leak.parts, leak.parts_of_thousandth.get())
    }

    /// Returns the hits that leak per second from a bucket with `rate`.
    ///
    /// Both numbers of the fraction fit into an `f64`, and IEEE division rounds correctly, so equal fractions have
    /// equal bits. Different fractions have different bits unless they agree to 15 digits.
    pub(super) fn per_second(rate: Hits, size: WindowSize) -> f64 {
        let Leak { parts, parts_of_thousandth } = Leak::of(rate, size);
        // Thousandths per millisecond equal hits per second.
        parts as f64 / parts_of_thousandth.get() as f64
    }

    /// Returns the bucket at `now`, given the stored `level` and its leak `rate`.
    #[inline]
    pub(super) fn of(rate: Hits, size: WindowSize, level: Level, now: UnixMillis) -> BucketLevel {
        let (leaked, part) = Leak::of(rate, size).in_millis(level.age(now));
        let hits = level.hits.without_thousandths(leaked);
        BucketLevel { hits, rate, at: level.at, part: if hits == Hits::ZERO { 0 } else { part } }
    }

    /// Returns a stored level that yields this reading at `now`, exact to a thousandth, or to the leak of a millisecond
    /// if that is more. The reading may come from another clock.
    pub(super) fn level(self, size: WindowSize, now: UnixMillis) -> Level {
        // Dates the fill back by the time in which the part leaked.
        let leaking = self.part.checked_div(Leak::of(self.rate, size).parts);
        let at = now.0.saturating_sub(leaking.unwrap_or(0));
        BucketLevel { part: 0, ..self }.filled(size, UnixMillis(at))
    }

    /// Returns the stored level of a bucket that was filled to this at `at`, with no part leaked.
    #[inline]
    fn filled(self, size: WindowSize, at: UnixMillis) -> Level {
        let leak = Leak::of(self.rate, size);
        let empty_after = leak.time_of(self.hits.thousandths().cast_unsigned(), self.part);
        let empty_after = empty_after.unwrap_or(u64::MAX);
        let UnixSeconds(second) = UnixSeconds::of(UnixMillis(at.0.saturating_add(empty_after)));
        Level {
            hits: self.hits,
            at,
            // Rounded up, so that the bucket is empty by then.
            mark: UnixSeconds(second.saturating_add(1)),
        }
    }

    /// Returns the stored level and the reading after `counted` hits are added at `now`. A rejected hit changes
    /// neither, unless the clock was set back: the level then leaks from the new time.
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

    /// Returns the milliseconds until the bucket holds at most `most` hits; `None` if it never will.
    #[inline]
    fn time_until(&self, size: WindowSize, most: Hits) -> Option<u64> {
        let above = u64::try_from(self.hits.minus(most).thousandths()).unwrap_or(0);
        if most < Hits::ZERO {
            return None;
        }
        Leak::of(self.rate, size).time_of(above, self.part)
    }

    /// Returns the parts above `most` hits, and the parts that leak per millisecond.
    fn parts_above(&self, size: WindowSize, most: Hits) -> Option<(u128, u64)> {
        let leak = Leak::of(self.rate, size);
        let above = u64::try_from(self.hits.minus(most).thousandths()).unwrap_or(0);
        (most >= Hits::ZERO).then(|| (leak.parts_of(above, self.part), leak.parts))
    }
}

/// Returns the milliseconds in which `limit` hits leak at `rate` per `size`; `None` if they never leak. A fractional
/// number of milliseconds is never returned as whole seconds.
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

    /// If the bucket was empty since, at least `charged` hits have leaked.
    fn left_of(size: WindowSize, bucket: &BucketLevel, charged: Hits, age: u64) -> Hits {
        let (leaked, _) = Leak::of(bucket.rate, size).in_millis(age);
        charged.without_thousandths(leaked.saturating_add(1))
    }

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

    /// Returns the milliseconds until the excess over `most` has leaked, rounded down.
    fn delay(size: WindowSize, level: &BucketLevel, most: Hits) -> u64 {
        let millis = level.parts_above(size, most).map_or(0, |(parts, leak)| match parts {
            0 => 0,
            // A bucket without a leak delays for as long as the type allows.
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
