//! Verdicts as response headers.
//!
//! A format is a variant of [`HeaderFormat`] and a file here, which puts its headers into a
//! [`HeaderSink`]. All others only pass formats on.

mod draft03;
mod ietf;
mod legacy;
mod sink;
mod text;

pub use self::ietf::{PolicyItem, policy};
pub use self::sink::{HeaderSink, Told};
pub use self::text::{HeaderText, number, seconds, whole};
use super::limit::{Verdict, tightest};

/// The name of the header that carries [`retry_after`] in seconds.
pub const RETRY_AFTER: &str = "Retry-After";

/// In which way clients are told about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFormat {
    /// `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    Draft03,
    /// `X-RateLimit-Limit-...` and `X-RateLimit-Remaining-...`.
    Legacy,
}

/// Some of the formats; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFormats(u8);

impl HeaderFormat {
    /// All of them, in the order in which their headers are sent.
    pub const ALL: [HeaderFormat; 3] = [
        HeaderFormat::Ietf,
        HeaderFormat::Draft03,
        HeaderFormat::Legacy,
    ];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            HeaderFormat::Ietf => "ietf",
            HeaderFormat::Draft03 => "draft03",
            HeaderFormat::Legacy => "legacy",
        }
    }

    /// The format of this name.
    pub fn parse(name: &[u8]) -> Option<HeaderFormat> {
        let mut all = Self::ALL.into_iter();
        all.find(|it| it.name().as_bytes() == name)
    }

    /// Puts the headers of this format into `sink`. `None`: there is no memory.
    #[inline(always)]
    fn put<'t, S: HeaderSink<'t>>(
        self,
        told: &Told<'t, impl Iterator<Item = Verdict<'t>> + Clone>,
        sink: &mut S,
    ) -> Option<()> {
        match self {
            HeaderFormat::Ietf => ietf::put(told, sink),
            HeaderFormat::Draft03 => draft03::put(told, sink),
            HeaderFormat::Legacy => legacy::put(told, sink),
        }
    }
}

impl HeaderFormats {
    /// Those of the default.
    pub const DEFAULT: HeaderFormats = HeaderFormats(1 << HeaderFormat::Ietf as u8);

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `format` is one of them.
    #[inline]
    pub fn has(self, format: HeaderFormat) -> bool {
        self.0 & 1 << format as u8 != 0
    }

    /// Adds a format; returns whether it was none of them.
    pub fn add(&mut self, format: HeaderFormat) -> bool {
        let is_new = !self.has(format);
        self.0 |= 1 << format as u8;
        is_new
    }

    /// Puts the headers of these formats into `sink`. `None`: there is no memory.
    #[inline(always)]
    pub fn put<'t, S: HeaderSink<'t>>(
        self,
        told: &Told<'t, impl Iterator<Item = Verdict<'t>> + Clone>,
        sink: &mut S,
    ) -> Option<()> {
        let mut formats = HeaderFormat::ALL.into_iter().filter(|it| self.has(*it));
        formats.try_for_each(|format| format.put(told, sink))
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

#[cfg(test)]
mod tests {
    use super::super::algorithm::{Algorithm, Reading, WindowCounts};
    use super::super::hits::Hits;
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

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_format_has_a_name() {
        let mut formats = HeaderFormats::default();
        for format in HeaderFormat::ALL {
            assert_eq!(HeaderFormat::parse(format.name().as_bytes()), Some(format));
            assert!(!formats.has(format) && formats.add(format) && !formats.add(format));
        }
        assert!(HeaderFormats::default().is_empty() && !formats.is_empty());
        assert_eq!(HeaderFormat::parse(b"Ietf"), None);
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
            text(|put| ietf::state(verdicts, put)),
            r#""api-1m";r=12;t=31, "api-1s";r=9;t=1"#
        );
    }

    #[test]
    fn a_limit_that_never_admits_has_no_reset() {
        let limit = limit("a", "0.5/1s");
        assert_eq!(
            text(|put| ietf::state([verdict(&limit, 0, 0, false)], put)),
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
            text(|put| ietf::state(by_tightness(verdicts), put)),
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
            assert_eq!(text(|put| legacy::write_window(size.millis(), put)), name);
        }
    }
}
