//! Headers of each format for the same limits, and the additions for rejected clients.

use std::cell::RefCell;

use super::retry_after::retry_after;
use super::*;
use crate::policy::algorithm::{Algorithm, Reading, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit, Quota, QuotaHits, Verdict};

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
        of_rule: None,
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
    let reading = Reading::from(WindowCounts { current, elapsed, ..WindowCounts::default() });
    Verdict { limit, hits: *hits, reading, cost: Hits::ONE, admitted }
}

/// The headers of a response, in the order in which they were added.
#[derive(Default)]
struct Lines(RefCell<Vec<(String, String)>>);

/// Memory of a test is kept until the process ends, as a request's is.
impl HeaderSink<'static> for Lines {
    type Text = Vec<u8>;

    fn text(&self, capacity: usize) -> Option<Vec<u8>> {
        Some(Vec::with_capacity(capacity))
    }

    fn put(&self, name: &'static str, value: &'static [u8]) -> Option<()> {
        self.remove(name);
        let value = String::from_utf8(value.to_vec()).unwrap();
        self.0.borrow_mut().push((name.into(), value));
        Some(())
    }

    fn remove(&self, name: &str) {
        self.0.borrow_mut().retain(|(other, _)| other != name);
    }
}

impl HeaderText<'static> for Vec<u8> {
    fn put(&mut self, part: &[u8]) {
        let room = self.capacity() - self.len();
        assert!(room >= part.len(), "{part:?} is too long");
        self.extend_from_slice(part);
    }

    fn into_bytes(self) -> &'static [u8] {
        self.leak()
    }
}

struct Told(Vec<Verdict<'static>>);

impl ToldLimits<'static> for Told {
    fn verdicts(&self) -> impl Iterator<Item = Verdict<'static>> + Clone {
        self.0.iter().copied()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn policy(&self) -> Option<&'static [u8]> {
        None
    }
}

/// The lines that a format has of verdicts.
fn lines<'v>(
    format: HeaderFormat,
    verdicts: impl IntoIterator<Item = Verdict<'v>>,
) -> Vec<(String, String)> {
    let verdicts = verdicts
        .into_iter()
        .map(|verdict| Verdict { limit: Box::leak(Box::new(verdict.limit.clone())), ..verdict });
    let response = Lines::default();
    let formats = HeaderFormats::default().with(format);
    formats.add(&Told(verdicts.collect()), &response).unwrap();
    response.0.into_inner()
}

/// Converts expected lines to the form of the actual ones.
fn expected<const N: usize>(lines: [(&str, &str); N]) -> Vec<(String, String)> {
    lines.map(|(name, value)| (name.into(), value.into())).into()
}

#[test]
fn ietf_tells_policies_in_their_order_and_states_the_tightest_first() {
    let (second, minute) = (limit("api-1s", "10.9/1s"), limit("api-1m", "100/1m"));
    let short = limit("x", "300/500ms");
    let verdicts = [
        verdict(&second, 1, 900, true),
        verdict(&minute, 88, 29_001, true),
        verdict(&short, 0, 0, true),
    ];
    let told = lines(HeaderFormat::Ietf, verdicts);
    let policy = r#""api-1s";q=10;w=1, "api-1m";q=100;w=60, "x";q=300"#;
    let state = r#""api-1m";r=12;t=31, "api-1s";r=9;t=1, "x";r=300;t=1"#;
    assert_eq!(told, expected([("RateLimit-Policy", policy), ("RateLimit", state)]));
}

#[test]
fn draft03_tells_of_the_tightest() {
    let (second, minute) = (limit("api-1s", "10/1s"), limit("api-1m", "100.5/1m"));
    let verdicts = [verdict(&second, 1, 900, true), verdict(&minute, 88, 29_001, true)];
    let told = lines(HeaderFormat::Draft03, verdicts);
    let tightest =
        [("RateLimit-Limit", "100"), ("RateLimit-Remaining", "12"), ("RateLimit-Reset", "31")];
    assert_eq!(told, expected(tightest));
}

#[test]
fn legacy_has_the_values_of_the_tightest_limit_for_each_window() {
    let (second, minute) = (limit("api-1s", "10/1s"), limit("api-1m", "100/1m"));
    let other = limit("other", "50/1m");
    let verdicts = [
        verdict(&second, 1, 900, true),
        verdict(&minute, 88, 29_001, true),
        verdict(&other, 2, 29_001, true),
    ];
    let told = lines(HeaderFormat::Legacy, verdicts);
    let windows = [
        ("X-RateLimit-Limit-Second", "10"),
        ("X-RateLimit-Remaining-Second", "9"),
        ("X-RateLimit-Limit-Minute", "100"),
        ("X-RateLimit-Remaining-Minute", "12"),
    ];
    assert_eq!(told, expected(windows));
}

#[test]
fn a_limit_that_never_admits_has_no_reset() {
    let limit = limit("a", "0.5/1s");
    let refused = [verdict(&limit, 0, 0, false)];
    let ietf = lines(HeaderFormat::Ietf, refused);
    let state = ("RateLimit", r#""a";r=0"#);
    assert_eq!(ietf, expected([("RateLimit-Policy", r#""a";q=0;w=1"#), state]));
    let draft03 = lines(HeaderFormat::Draft03, refused);
    let hits = [("RateLimit-Limit", "0"), ("RateLimit-Remaining", "0")];
    assert_eq!(draft03, expected(hits));
    assert_eq!(retry_after(refused), None);
}

#[test]
fn earlier_headers_are_replaced_and_meaningless_ones_removed() {
    let response = Lines::default();
    for number in [7, 8] {
        response.put_number("RateLimit-Reset", number).unwrap();
        response.put_number("Retry-After", number).unwrap();
    }
    let once = expected([("RateLimit-Reset", "8"), ("Retry-After", "8")]);
    assert_eq!(*response.0.borrow(), once);
    retry_after::add(None, &response).unwrap();
    let limit = limit("a", "0.5/1s");
    let told = Told(vec![Verdict {
        limit: Box::leak(Box::new(limit.0.clone())),
        ..verdict(&(limit.0.clone(), limit.1), 0, 0, false)
    }]);
    let formats = HeaderFormats::default().with(HeaderFormat::Draft03);
    formats.add(&told, &response).unwrap();
    let hits = [("RateLimit-Limit", "0"), ("RateLimit-Remaining", "0")];
    assert_eq!(response.0.into_inner(), expected(hits));
}

#[test]
fn retry_after_is_that_of_the_last_limit_to_admit_again() {
    let (minute, second) = (limit("m", "10/1m"), limit("s", "10/1s"));
    let rejected = |minute_admits| {
        retry_after([verdict(&second, 10, 0, false), verdict(&minute, 10, 0, minute_admits)])
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
        Verdict { cost: five, ..verdict(&second, 7, 0, false) },
        // 5 of 100, which is enough.
        Verdict { cost: five, ..verdict(&minute, 95, 10_000, true) },
    ];
    assert_eq!(retry_after(verdicts), Some(50_000));
}
