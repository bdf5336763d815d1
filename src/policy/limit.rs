//! Limits, and their verdicts on hits.

use core::cmp::Ordering;
use core::fmt;

use super::algorithm::{Algorithm, BucketLevel, Reading};
use super::calendar::CalendarUnit;
use super::hits::{self, Hits, ParseHitsError};
use super::window::{ParseWindowError, WindowSize};

/// A limit: its name and its window. The number of hits, or the rate, may differ from request to request, so callers
/// pass it separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name of the policy in headers: `<namespace>-<window>`, the window as written.
    pub name: Box<str>,
    /// The size of the window, or the time unit of a rate.
    pub size: WindowSize,
    /// The algorithm by which the stored state is read.
    pub algorithm: Algorithm,
    /// The burst of a rate; zero for other limits.
    pub burst: Burst,
    /// For a ban, the window of the rule's limit that it is named after.
    pub of_rule: Option<WindowSize>,
}

/// The burst and the delay of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Hits that are admitted above the rate.
    pub hits: Hits,
    /// Part of the burst that is admitted without a delay; `None` if no request is delayed.
    pub delay: Option<Hits>,
    /// The rate, if it is the same for each request.
    pub rate: Option<Hits>,
}

impl Burst {
    /// Returns the capacity of a bucket that leaks at this rate.
    #[inline]
    pub fn most(&self, rate: Hits) -> Hits {
        match rate {
            // A rate of zero admits nothing.
            Hits::ZERO => Hits::ZERO,
            _ => self.hits.plus_value(Hits::ONE),
        }
    }
}

/// The bans of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanRule {
    /// The number of the rules that share bans: those with the same limits and `ban_after=`.
    pub rules: u32,
    /// The time for which a key is banned.
    pub size: WindowSize,
    /// The rejections with which a ban begins.
    pub after: Hits,
}

/// The time unit of a rate in hits per second.
const SECOND: WindowSize = match WindowSize::from_millis(1000) {
    Some(second) => second,
    None => WindowSize::MIN,
};

impl Limit {
    /// Creates a limit in windows of this size in `namespace`. Windows of the calendar are fixed.
    pub fn in_windows(namespace: &str, size: WindowSize, algorithm: Algorithm) -> Limit {
        let name = format!("{namespace}-{}", size.name()).into();
        let algorithm = algorithm.of_size(size);
        Limit { name, size, algorithm, burst: Burst::default(), of_rule: None }
    }

    /// Creates a limit of `rate` hits per second with this burst in `namespace`. All requests within the burst are
    /// delayed.
    pub fn per_second(namespace: &str, rate: Hits, burst: Hits) -> Limit {
        Limit {
            name: format!("{namespace}-rate").into(),
            size: SECOND,
            algorithm: Algorithm::Bucket,
            burst: Burst { hits: burst, delay: Some(Hits::ZERO), rate: Some(rate) },
            of_rule: None,
        }
    }

    /// Creates a limit on how many requests are under way in `namespace`.
    pub fn concurrent(namespace: &str) -> Limit {
        Limit {
            name: format!("{namespace}-concurrent").into(),
            size: WindowSize::MIN,
            algorithm: Algorithm::Concurrency,
            burst: Burst::default(),
            of_rule: None,
        }
    }

    /// Returns the window that clients are told about.
    pub fn told_size(&self) -> WindowSize {
        self.of_rule.unwrap_or(self.size)
    }

    /// Returns the maximum number of hits: `told`, or the capacity of a bucket with the rate `told`.
    #[inline]
    pub fn most(&self, told: Hits) -> Hits {
        match self.algorithm {
            Algorithm::Bucket => self.burst.most(told),
            _ => told,
        }
    }

    /// Returns a reading of a counter with its rate replaced by `told`. Limits that express one rate by other numbers
    /// share the counter.
    pub fn reading_at(&self, told: Hits, reading: Reading) -> Reading {
        match self.algorithm {
            Algorithm::Bucket => BucketLevel::from(reading).at_rate(told).into(),
            _ => reading,
        }
    }

    /// Returns the window of [`Limit::most`] in milliseconds, as [`Verdict::window`] does.
    pub fn window(&self, told: Hits) -> Option<u64> {
        let reading = match self.algorithm {
            Algorithm::Bucket => BucketLevel::empty(told).into(),
            _ => Reading::default(),
        };
        let most = self.most(told);
        self.algorithm.window(self.size, &reading, most)
    }
}

/// A parsed limit, `hits/window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota<'a> {
    /// The maximum number of hits.
    pub hits: QuotaHits<'a>,
    /// The size of the window.
    pub size: WindowSize,
    /// The window as written.
    pub window: &'a [u8],
}

/// The hits of a [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaHits<'a> {
    /// A constant, above zero.
    Constant(Hits),
    /// A text with variables.
    Variable(&'a [u8]),
}

impl<'a> Quota<'a> {
    /// Returns the algorithm of the limit in a rule with `algorithm`: windows of the calendar are fixed.
    pub fn algorithm(&self, algorithm: Algorithm) -> Algorithm {
        algorithm.of_size(self.size)
    }

    /// Parses `hits/window`, such as `5/10s`, `0.5/1m` or `$hits/1h`.
    ///
    /// # Errors
    ///
    /// [`ParseQuotaError`] names the part that is wrong.
    pub fn parse(text: &'a [u8]) -> Result<Quota<'a>, ParseQuotaError> {
        let mut parts = text.splitn(2, |&byte| byte == b'/');
        let hits = parts.next().unwrap_or_default();
        let window = parts.next().ok_or(ParseQuotaError::NoWindow)?;
        let hits = if hits.contains(&b'$') {
            QuotaHits::Variable(hits)
        } else {
            match Hits::parse(hits).map_err(ParseQuotaError::Hits)? {
                Hits::ZERO => return Err(ParseQuotaError::NoHits),
                hits => QuotaHits::Constant(hits),
            }
        };
        let size = WindowSize::parse(window).map_err(ParseQuotaError::Window)?;
        Ok(Quota { hits, size, window })
    }

    /// Returns the quota that was probably meant by an invalid `text`, such as a rate of nginx's `limit_req`: `100/1s`
    /// for `100r/s`, `10/1m` for `10/m`, `1000/1d` for `1,000/1d`.
    pub fn meant_by(text: &[u8]) -> Option<String> {
        let (hits, window) = core::str::from_utf8(text).ok()?.split_once('/')?;
        let hits = hits.strip_suffix('r').unwrap_or(hits);
        let meant = hits::meant_by(hits);
        let hits = match Hits::parse(hits.as_bytes()) {
            Err(_) => meant.as_deref().unwrap_or(hits),
            Ok(_) => hits,
        };
        let window = match window {
            "s" | "sec" | "second" => "1s",
            "m" | "min" | "minute" => "1m",
            "h" | "hour" => "1h",
            "d" | "day" => "1d",
            other => other,
        };
        let window = match CalendarUnit::meant_by(window) {
            Some(unit) => unit.name(),
            None => window,
        };
        let meant = format!("{hits}/{window}");
        Quota::parse(meant.as_bytes()).is_ok().then_some(meant)
    }
}

/// The error for a text that is no limit. The message says what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseQuotaError {
    /// There is no slash.
    NoWindow,
    /// The part before the slash is no decimal.
    Hits(ParseHitsError),
    /// The part before the slash is zero, or rounds to it.
    NoHits,
    /// The part after the slash is no window.
    Window(ParseWindowError),
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseQuotaError::NoWindow => f.write_str("a limit is \"hits/window\", such as 5/10s"),
            ParseQuotaError::Hits(error) => {
                write!(
                    f,
                    "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable \
                     ({error})"
                )
            }
            ParseQuotaError::NoHits => f.write_str(
                "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable",
            ),
            ParseQuotaError::Window(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ParseQuotaError {}

/// The verdict of one limit on one hit.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The maximum number of hits that the limit admits.
    pub hits: Hits,
    /// The reading after the decision; it includes the hit if it was charged.
    pub reading: Reading,
    /// The cost of the hit.
    pub cost: Hits,
    /// Whether the limit admits the hit.
    pub admitted: bool,
}

impl Verdict<'_> {
    /// Returns the rate after the hit.
    pub fn rate(&self) -> Hits {
        self.limit.algorithm.rate(self.limit.size, &self.reading)
    }

    /// Returns `limit - rate` after the hit, at least 0.
    pub fn remaining(&self) -> Hits {
        let Limit { size, algorithm, .. } = *self.limit;
        algorithm.remaining(size, &self.reading, self.hits)
    }

    /// Returns the milliseconds that headers report as reset. If the hit was admitted and at least one whole hit is
    /// `remaining`, this is the time to the window's end, else [`Verdict::retry_after`].
    pub fn reset(&self, remaining: Hits) -> Option<u64> {
        if self.admitted && remaining.whole() > 0 {
            let Limit { size, algorithm, .. } = *self.limit;
            Some(algorithm.reset(size, &self.reading))
        } else {
            self.retry_after()
        }
    }

    /// Returns the milliseconds until another hit of this cost would be admitted if none came before it; `None` if none
    /// ever will be.
    pub fn retry_after(&self) -> Option<u64> {
        let Limit { size, algorithm, .. } = *self.limit;
        algorithm.retry_after(size, &self.reading, self.hits, self.cost)
    }

    /// Returns the window of `hits` in milliseconds: for a rate, the time in which it admits them; `None` if it never
    /// does. A fractional number of milliseconds is never returned as whole seconds.
    pub fn window(&self) -> Option<u64> {
        let Limit { size, algorithm, of_rule, .. } = *self.limit;
        match of_rule {
            Some(of_rule) => Some(of_rule.millis()).filter(|_| !of_rule.is_of_calendar()),
            None => algorithm.window(size, &self.reading, self.hits),
        }
    }

    /// Returns the milliseconds by which the admitted request is delayed.
    pub fn delay(&self) -> u64 {
        let Limit { size, algorithm, burst, .. } = *self.limit;
        let most = burst.delay.map(|delay| delay.plus_value(Hits::ONE));
        most.map_or(0, |most| algorithm.delay(size, &self.reading, most))
    }

    /// Orders by tightness, tightest first: by the share of the limit that remains, then rejections before admissions,
    /// then longer waits before shorter ones.
    pub fn tightness(&self, other: &Self) -> Ordering {
        // Compares remaining / limit with other.remaining / other.limit without a division. Both products are of
        // numbers with 48 bits.
        let crosswise = |one: &Self, two: &Self| {
            let (remaining, limit) = (one.remaining(), two.hits);
            // After a rejection, less than a whole hit counts as nothing.
            let is_used_up = !one.admitted && remaining.whole() == 0;
            let remaining = if is_used_up { 0 } else { remaining.thousandths() };
            i128::from(remaining).wrapping_mul(i128::from(limit.thousandths()))
        };
        let by_share = crosswise(self, other).cmp(&crosswise(other, self));
        let by_wait = || {
            let wait = |it: &Self| it.retry_after().unwrap_or(u64::MAX);
            if self.admitted || other.admitted {
                Ordering::Equal
            } else {
                wait(other).cmp(&wait(self))
            }
        };
        let by_verdict = self.admitted.cmp(&other.admitted);
        by_share.then(by_verdict).then_with(by_wait)
    }
}

/// Returns the verdicts on one hit, tightest first; equally tight ones keep their order.
pub fn by_tightness<'a>(verdicts: impl IntoIterator<Item = Verdict<'a>>) -> Vec<Verdict<'a>> {
    let mut sorted: Vec<_> = verdicts.into_iter().collect();
    sorted.sort_by(Verdict::tightness);
    sorted
}

/// Returns the tightest of the verdicts on one hit, the first of equally tight ones.
pub fn tightest<'a>(verdicts: impl IntoIterator<Item = Verdict<'a>>) -> Option<Verdict<'a>> {
    verdicts.into_iter().min_by(Verdict::tightness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::algorithm::WindowCounts;

    fn limit(quota: &str, algorithm: Algorithm) -> (Hits, Limit) {
        let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
        let QuotaHits::Constant(hits) = hits else {
            panic!("{quota} is variable");
        };
        let limit =
            Limit { name: quota.into(), size, algorithm, burst: Burst::default(), of_rule: None };
        (hits, limit)
    }

    fn verdict(
        (hits, limit): &(Hits, Limit),
        current: i64,
        elapsed: u64,
        admitted: bool,
    ) -> Verdict<'_> {
        let current = Hits::from_thousandths(current);
        let reading = Reading::from(WindowCounts { current, elapsed, ..WindowCounts::default() });
        Verdict { limit, hits: *hits, reading, cost: Hits::ONE, admitted }
    }

    #[test]
    fn a_quota_is_hits_and_a_window() {
        let quota = Quota::parse(b"0.5/1h30m").unwrap();
        let half = Hits::from_thousandths(500);
        assert_eq!(quota.hits, QuotaHits::Constant(half));
        assert_eq!(quota.size.millis(), 5_400_000);
        assert_eq!(quota.window, b"1h30m");
        let quota = Quota::parse(b"${plan}0/0.5").unwrap();
        assert_eq!(quota.hits, QuotaHits::Variable(b"${plan}0"));
        assert_eq!(quota.size.millis(), 500);
    }

    #[test]
    fn an_error_about_a_wrong_quota_suggests_a_right_one() {
        for (text, message) in [
            ("5", "a limit is \"hits/window\", such as 5/10s"),
            (
                "x/10s",
                "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable (not a plain decimal)",
            ),
            (
                "-1/10s",
                "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable (not a plain decimal)",
            ),
            ("0/10s", "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable"),
            (
                "0.0001/10s",
                "the hits are a decimal of at least 0.001, such as 5 or 0.5, or a variable",
            ),
            (
                "5/",
                "a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month",
            ),
            (
                "5/10x",
                "a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month",
            ),
            (
                "5/10s/1",
                "a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month",
            ),
        ] {
            assert_eq!(Quota::parse(text.as_bytes()).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_rate_of_limit_req_means_a_quota() {
        for (text, meant) in [
            ("100r/s", Some("100/1s")),
            ("100r/m", Some("100/1m")),
            ("10/m", Some("10/1m")),
            ("0.5/hour", Some("0.5/1h")),
            ("10r/10s", Some("10/10s")),
            ("$plan/d", Some("$plan/1d")),
            ("10/M", None),
            ("r/s", None),
            ("0r/s", None),
            ("10", None),
            ("10/", None),
            ("x/s", None),
        ] {
            assert_eq!(Quota::meant_by(text.as_bytes()).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn the_remaining_hits_are_never_negative() {
        let limit = limit("5/10s", Algorithm::Sliding);
        assert_eq!(verdict(&limit, 1_500, 0, true).remaining().thousandths(), 3_500);
        assert_eq!(verdict(&limit, 7_000, 0, false).remaining(), Hits::ZERO);
    }

    #[test]
    fn the_reset_is_the_end_of_the_window_while_something_remains() {
        let limit = limit("5/10s", Algorithm::Sliding);
        let reset = |current, admitted| {
            let verdict = verdict(&limit, current, 4_000, admitted);
            verdict.reset(verdict.remaining())
        };
        assert_eq!(reset(1_000, true), Some(6_000));
        // Less than a whole hit remains: 4.5 + 1 > 5 until an eighth of the hits has expired.
        assert_eq!(reset(4_500, true), Some(6_000 + 1_112));
        assert_eq!(reset(5_000, false), Some(6_000 + 2_000));
    }

    #[test]
    fn the_tightest_has_the_smallest_share_left() {
        let (few, many) = (limit("10/1s", Algorithm::Fixed), limit("100/1m", Algorithm::Fixed));
        let (nine_tenths, half) = (verdict(&few, 1_000, 0, true), verdict(&many, 50_000, 0, true));
        assert_eq!(half.tightness(&nine_tenths), Ordering::Less);
        assert_eq!(nine_tenths.tightness(&half), Ordering::Greater);
        assert_eq!(verdict(&many, 10_000, 0, true).tightness(&nine_tenths), Ordering::Equal);
        let refused = verdict(&many, 10_000, 0, false);
        assert_eq!(refused.tightness(&nine_tenths), Ordering::Less);
        assert_eq!(refused.tightness(&half), Ordering::Greater);
        let currents = |verdicts: Vec<Verdict<'_>>| -> Vec<i64> {
            verdicts.iter().map(|verdict| verdict.reading.windows().current.whole()).collect()
        };
        let verdicts = [nine_tenths, half, refused];
        assert_eq!(currents(by_tightness(verdicts)), [50, 10, 1]);
        assert_eq!(currents(tightest(verdicts).into_iter().collect()), [50]);

        // Both limits are used up, the minute's for longer.
        let (short, long) = (verdict(&few, 10_000, 0, false), verdict(&many, 100_000, 0, false));
        assert_eq!(long.tightness(&short), Ordering::Less);
        assert_eq!(short.tightness(&long), Ordering::Greater);
    }
}
