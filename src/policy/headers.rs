//! Verdicts as response headers.
//!
//! `ietf`: <https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/10/>

use super::limit::{Limit, Verdict};

/// The name of the header that carries [`policy`].
pub const POLICY: &str = "RateLimit-Policy";
/// The name of the header that carries [`state`].
pub const STATE: &str = "RateLimit";
/// The name of the header that carries [`retry_after`].
pub const RETRY_AFTER: &str = "Retry-After";

/// Writes the value of `RateLimit-Policy` for `limits`: `"api-1s";q=10;w=1, ...`.
///
/// `q` is the integer part of the limit, `w` the window in seconds where those are whole.
pub fn policy<'a>(limits: impl IntoIterator<Item = &'a Limit>, mut put: impl FnMut(&[u8])) {
    for (index, limit) in limits.into_iter().enumerate() {
        name(index, limit, &mut put);
        put(b";q=");
        number(limit.hits.whole().unsigned_abs(), &mut put);
        if let Some(seconds) = limit.size.seconds() {
            put(b";w=");
            number(seconds, &mut put);
        }
    }
}

/// Writes the value of `RateLimit` for `verdicts`, in their order: `"api-1s";r=9;t=1, ...`.
///
/// `r` is what remains in whole hits, `t` the reset in seconds, rounded up; a limit without a
/// reset has no `t`.
pub fn state<'a>(verdicts: impl IntoIterator<Item = &'a Verdict<'a>>, mut put: impl FnMut(&[u8])) {
    for (index, verdict) in verdicts.into_iter().enumerate() {
        name(index, verdict.limit, &mut put);
        put(b";r=");
        number(verdict.remaining().whole().unsigned_abs(), &mut put);
        if let Some(reset) = verdict.reset() {
            put(b";t=");
            number(reset.div_ceil(1000), &mut put);
        }
    }
}

/// The value of `Retry-After` in seconds: when every one of `verdicts` would admit the hit again,
/// rounded up, at least 1; `None` if one of them never will.
pub fn retry_after<'a>(verdicts: impl IntoIterator<Item = &'a Verdict<'a>>) -> Option<u64> {
    let mut latest = 1;
    for verdict in verdicts.into_iter().filter(|verdict| !verdict.admitted) {
        latest = latest.max(verdict.retry_after()?.div_ceil(1000));
    }
    Some(latest)
}

fn name(index: usize, limit: &Limit, put: &mut impl FnMut(&[u8])) {
    put(if index == 0 { b"\"" } else { b", \"" });
    put(limit.name.as_bytes());
    put(b"\"");
}

/// Writes `number` in decimal.
pub fn number(mut number: u64, put: &mut impl FnMut(&[u8])) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' | (number % 10) as u8;
        start = start.saturating_sub(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    put(digits.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::hits::Hits;
    use super::super::limit::Quota;
    use super::super::window::{Counts, WindowType};
    use super::*;

    fn limit(name: &str, quota: &str) -> Limit {
        let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
        Limit {
            name: name.into(),
            hits,
            size,
            window_type: WindowType::Sliding,
        }
    }

    fn verdict(limit: &Limit, current: i64, elapsed: u64, admitted: bool) -> Verdict<'_> {
        let current = Hits::from_thousandths(current * 1000);
        let counts = Counts {
            current,
            elapsed,
            ..Counts::default()
        };
        Verdict {
            limit,
            counts,
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
            text(|put| policy(&limits, put)),
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
            text(|put| state(&verdicts, put)),
            r#""api-1m";r=12;t=31, "api-1s";r=9;t=1"#
        );
    }

    #[test]
    fn a_limit_that_never_admits_has_no_reset() {
        let limit = limit("a", "0.5/1s");
        assert_eq!(
            text(|put| state(&[verdict(&limit, 0, 0, false)], put)),
            r#""a";r=0"#
        );
        assert_eq!(retry_after(&[verdict(&limit, 0, 0, false)]), None);
    }

    #[test]
    fn retry_after_is_that_of_the_last_limit_to_admit_again() {
        let (minute, second) = (limit("m", "10/1m"), limit("s", "10/1s"));
        let rejected = |minute_admits| {
            retry_after(&[
                verdict(&second, 10, 0, false),
                verdict(&minute, 10, 0, minute_admits),
            ])
        };
        assert_eq!(rejected(true), Some(2));
        assert_eq!(rejected(false), Some(66));
    }

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 7, 10, 123, u64::MAX] {
            assert_eq!(text(|mut put| number(value, &mut put)), value.to_string());
        }
    }
}
