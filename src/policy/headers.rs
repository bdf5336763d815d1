//! Verdicts as response headers.
//!
//! `ietf`: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/10/>,
//! `draft03`: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/03/>,
//! `legacy`: what gateways sent before, a pair of headers for each window.

use super::hits::Hits;
use super::limit::{Verdict, tightest};

/// The name of the header that carries [`policy`].
pub const POLICY: &str = "RateLimit-Policy";
/// The name of the header that carries [`state`].
pub const STATE: &str = "RateLimit";
/// The name of the header that carries [`retry_after`] in seconds.
pub const RETRY_AFTER: &str = "Retry-After";

/// Draft 03: the limit in whole hits.
pub const LIMIT: &str = "RateLimit-Limit";
/// Draft 03: what remains in whole hits.
pub const REMAINING: &str = "RateLimit-Remaining";
/// Draft 03: the reset in seconds, rounded up.
pub const RESET: &str = "RateLimit-Reset";

/// Before any draft: the limit in whole hits; [`legacy_window`] follows.
pub const LEGACY_LIMIT: &str = "X-RateLimit-Limit-";
/// Before any draft: what remains in whole hits; [`legacy_window`] follows.
pub const LEGACY_REMAINING: &str = "X-RateLimit-Remaining-";

/// What `RateLimit-Policy` says of a limit.
#[derive(Clone, Copy, Debug)]
pub struct PolicyItem<'a> {
    /// Its name.
    pub name: &'a str,
    /// The most hits.
    pub hits: Hits,
    /// Milliseconds of the window that they are for, if there is one.
    pub window: Option<u64>,
}

/// Writes the value of `RateLimit-Policy`: `"api-1s";q=10;w=1, ...`.
///
/// `q` is the integer part of the limit, `w` the window in seconds where those are whole.
pub fn policy<'a>(policies: impl IntoIterator<Item = PolicyItem<'a>>, mut put: impl FnMut(&[u8])) {
    for (index, policy) in policies.into_iter().enumerate() {
        name(index, policy.name, &mut put);
        put(b";q=");
        number(whole(policy.hits), &mut put);
        if let Some(millis) = policy.window.filter(|millis| millis.is_multiple_of(1000)) {
            put(b";w=");
            number(millis / 1000, &mut put);
        }
    }
}

/// Writes the value of `RateLimit` for `verdicts`, in their order: `"api-1s";r=9;t=1, ...`.
///
/// `r` is what remains in whole hits, `t` the reset in seconds, rounded up; a limit without a
/// reset has no `t`.
pub fn state<'a>(verdicts: impl IntoIterator<Item = Verdict<'a>>, mut put: impl FnMut(&[u8])) {
    for (index, verdict) in verdicts.into_iter().enumerate() {
        let remaining = verdict.remaining();
        name(index, &verdict.limit.name, &mut put);
        put(b";r=");
        number(whole(remaining), &mut put);
        if let Some(reset) = verdict.reset(remaining) {
            put(b";t=");
            number(reset.div_ceil(1000), &mut put);
        }
    }
}

/// Milliseconds until every one of `verdicts` would admit the hit again, and not before the reset that
/// is told of the tightest; `None` if one of them never will.
///
/// The tightest may be one that admits: of a limit that refuses a cost above 1, more may be left.
pub fn retry_after<'a>(
    verdicts: impl IntoIterator<Item = Verdict<'a>, IntoIter: Clone>,
) -> Option<u64> {
    let verdicts = verdicts.into_iter();
    let tightest = tightest(verdicts.clone());
    let reset = tightest.and_then(|verdict| verdict.reset(verdict.remaining()));
    let refusals = verdicts.filter(|verdict| !verdict.admitted);
    refusals
        .map(|verdict| verdict.retry_after())
        .try_fold(reset.unwrap_or(0), |latest, wait| Some(latest.max(wait?)))
}

/// The value of `Retry-After`: `millis` in seconds, rounded up, at least 1.
pub fn retry_after_seconds(millis: u64) -> u64 {
    millis.div_ceil(1000).max(1)
}

/// Writes a window of so many milliseconds as `legacy` headers call it: a unit, or the number of seconds.
pub fn legacy_window(millis: u64, mut put: impl FnMut(&[u8])) {
    match millis {
        1_000 => put(b"Second"),
        60_000 => put(b"Minute"),
        3_600_000 => put(b"Hour"),
        86_400_000 => put(b"Day"),
        _ => seconds(millis, &mut put),
    }
}

/// A number of hits as headers have it: the integer part.
pub fn whole(hits: Hits) -> u64 {
    hits.whole().unsigned_abs()
}

fn name(index: usize, name: &str, put: &mut impl FnMut(&[u8])) {
    put(if index == 0 { b"\"" } else { b", \"" });
    put(name.as_bytes());
    put(b"\"");
}

/// The last digit of `number`.
fn digit(number: u64) -> u8 {
    b'0' | (number % 10) as u8
}

/// Writes `number` in decimal.
pub fn number(mut number: u64, put: &mut impl FnMut(&[u8])) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = digit(number);
        start = start.saturating_sub(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    put(digits.get(start..).unwrap_or_default());
}

/// Writes `millis` as seconds with up to three decimals: `60`, `0.5`.
pub fn seconds(millis: u64, put: &mut impl FnMut(&[u8])) {
    number(millis / 1000, put);
    let rest = millis % 1000;
    if rest != 0 {
        let decimals = [b'.', digit(rest / 100), digit(rest / 10), digit(rest)];
        let zeros = decimals.iter().rev().take_while(|&&digit| digit == b'0');
        let len = decimals.len().saturating_sub(zeros.count());
        put(decimals.get(..len).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::{Algorithm, Reading, WindowCounts};
    use super::super::limit::{Burst, Limit, Quota, QuotaHits, by_tightness};
    use super::super::window::WindowSize;
    use super::*;

    fn limit(name: &str, quota: &str) -> (Limit, Hits) {
        let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
        let QuotaHits::Constant(hits) = hits else {
            panic!("{quota} is variable");
        };
        let limit = Limit {
            name: name.into(),
            size,
            algorithm: Algorithm::Sliding,
            burst: Burst::default(),
        };
        (limit, hits)
    }

    fn verdict(
        (limit, hits): &(Limit, Hits),
        current: i64,
        elapsed: u64,
        admitted: bool,
    ) -> Verdict<'_> {
        let current = Hits::from_thousandths(current * 1000);
        let reading = Reading::from(WindowCounts {
            current,
            elapsed,
            ..WindowCounts::default()
        });
        Verdict {
            limit,
            hits: *hits,
            reading,
            cost: Hits::ONE,
            admitted,
        }
    }

    fn text(write: impl FnOnce(&mut dyn FnMut(&[u8]))) -> String {
        let mut bytes = Vec::new();
        write(&mut |part| bytes.extend_from_slice(part));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn policies_name_quota_and_window() {
        let limits = [
            limit("api-1s", "10.9/1s"),
            limit("api-1m", "100/1m"),
            limit("x", "3/500ms"),
        ];
        assert_eq!(
            text(|put| policy(
                limits.iter().map(|(limit, hits)| PolicyItem {
                    name: &limit.name,
                    hits: *hits,
                    window: limit.window(*hits)
                }),
                put
            )),
            r#""api-1s";q=10;w=1, "api-1m";q=100;w=60, "x";q=3"#
        );
    }

    #[test]
    fn the_state_tells_what_remains_and_for_how_long() {
        let (minute, second) = (limit("api-1m", "100/1m"), limit("api-1s", "10/1s"));
        let verdicts = [
            verdict(&minute, 88, 29_001, true),
            verdict(&second, 1, 900, true),
        ];
        assert_eq!(
            text(|put| state(verdicts, put)),
            r#""api-1m";r=12;t=31, "api-1s";r=9;t=1"#
        );
    }

    #[test]
    fn a_limit_that_never_admits_has_no_reset() {
        let limit = limit("a", "0.5/1s");
        assert_eq!(
            text(|put| state([verdict(&limit, 0, 0, false)], put)),
            r#""a";r=0"#
        );
        assert_eq!(retry_after([verdict(&limit, 0, 0, false)]), None);
    }

    #[test]
    fn retry_after_is_that_of_the_last_limit_to_admit_again() {
        let (minute, second) = (limit("m", "10/1m"), limit("s", "10/1s"));
        let rejected = |minute_admits| {
            retry_after([
                verdict(&second, 10, 0, false),
                verdict(&minute, 10, 0, minute_admits),
            ])
        };
        assert_eq!(rejected(true), Some(1_100));
        assert_eq!(rejected(false), Some(66_000));
    }

    #[test]
    fn retry_after_is_not_before_the_reset_of_the_tightest() {
        let (minute, second) = (limit("m", "100/1m"), limit("s", "10/1s"));
        let five = Hits::from_thousandths(5_000);
        let verdicts = [
            // 3 of 10 are left, which is too few.
            Verdict {
                cost: five,
                ..verdict(&second, 7, 0, false)
            },
            // 5 of 100, which is enough.
            Verdict {
                cost: five,
                ..verdict(&minute, 95, 10_000, true)
            },
        ];
        assert_eq!(
            text(|put| state(by_tightness(verdicts), put)),
            r#""m";r=5;t=50, "s";r=3;t=2"#
        );
        assert_eq!(retry_after(verdicts), Some(50_000));
    }

    #[test]
    fn retry_after_is_at_least_a_second_and_rounded_up() {
        assert_eq!([0, 1, 1_000, 1_001].map(retry_after_seconds), [1, 1, 1, 2]);
    }

    #[test]
    fn legacy_windows_have_names_or_are_seconds() {
        for (window, name) in [
            ("1s", "Second"),
            ("60", "Minute"),
            ("1h", "Hour"),
            ("24h", "Day"),
            ("10s", "10"),
            ("30d", "2592000"),
            ("500ms", "0.5"),
            ("1.25", "1.25"),
            ("1ms", "0.001"),
            ("10.05", "10.05"),
        ] {
            let size = WindowSize::parse(window.as_bytes()).unwrap();
            assert_eq!(text(|put| legacy_window(size.millis(), put)), name);
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 7, 10, 123, u64::MAX] {
            assert_eq!(text(|mut put| number(value, &mut put)), value.to_string());
        }
    }
}
