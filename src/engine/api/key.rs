//! What is counted of a key: the answer to a request for it.

use serde::Serialize;

use super::super::{Namespace, RateLimiting, RateLimitingError};
use super::error::ApiError;
use super::json::{Thousandths, json};
use super::request::KeyCall;
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, WindowSize};

/// Answers [`ApiCall::Key`](super::ApiCall::Key) for a counter of `namespace`, which counts in windows of `sizes`; other
/// ones may be asked for only if `is_open`.
///
/// # Errors
///
/// 400 if the window or the key is none of the namespace's.
pub fn key(
    call: &KeyCall,
    namespace: &Namespace<'_>,
    sizes: &[WindowSize],
    is_open: bool,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    #[derive(Serialize)]
    struct CounterBody {
        rate: Thousandths,
        current: Thousandths,
        previous: Thousandths,
        diff: Thousandths,
        sync: Thousandths,
        window_start: Thousandths,
        remaining: Option<Thousandths>,
    }
    let expected = || {
        let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
        sizes.join(", ")
    };
    let size = match (call.window, sizes) {
        // The time of a rate is no window.
        (Some(size), _) if call.algorithm == Algorithm::Bucket => size,
        (Some(size), sizes) if is_open || sizes.contains(&size) => size,
        (Some(size), _) => {
            let message = format!(
                "the window {size} is not one of the namespace's: expected {}",
                expected()
            );
            return Err(ApiError::new(400, message));
        }
        (None, [size]) => *size,
        (None, []) => {
            return Err(ApiError::new(
                400,
                "no window: expected window=, such as 60",
            ));
        }
        (None, _) => {
            let message = format!("no window: expected window=, one of {}", expected());
            return Err(ApiError::new(400, message));
        }
    };
    let not_accounted = |error: RateLimitingError| ApiError::new(400, error.to_string());
    let library = RateLimiting::new(namespace).in_counter(call.counter.as_deref());
    let library = library.at_rate(call.rate);
    if let Some(value) = call.increment {
        library
            .increment(&call.key, size, value, call.algorithm, clock)
            .map_err(not_accounted)?;
    }
    let reading = library
        .reading(&call.key, call.algorithm.kind(), size, clock)
        .map_err(not_accounted)?;
    let rate = call.algorithm.rate(size, &reading);
    let (current, previous, diff) = match call.algorithm.kind() {
        StoredKind::Windows => {
            let counts = reading.windows();
            let diff = library.unsent(&call.key, size, counts.window, clock);
            (
                counts.current,
                counts.previous,
                diff.map_err(not_accounted)?,
            )
        }
        StoredKind::Level(_) | StoredKind::Log => {
            // What no store is told of is this node's.
            let is_local = namespace.sync_states().is_empty();
            let diff = if is_local { rate } else { Hits::ZERO };
            (rate, Hits::ZERO, diff)
        }
    };
    let remaining = call.limit.map(|limit| {
        let most = limit.min(call.algorithm.max_limit());
        call.algorithm.remaining(size, &reading, most)
    });
    Ok(json(&CounterBody {
        rate: rate.into(),
        current: current.into(),
        previous: previous.into(),
        diff: diff.into(),
        sync: current.minus(diff).into(),
        window_start: Thousandths::of(call.algorithm.start(size, &reading).0),
        // Whole hits, as in headers.
        remaining: remaining.map(|hits| Thousandths(hits.whole().saturating_mul(1000))),
    }))
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use crate::table::testing::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    pub(in super::super) fn key_call(key: &[u8]) -> KeyCall {
        KeyCall {
            namespace: b"api".into(),
            key: key.into(),
            counter: None,
            window: None,
            algorithm: Algorithm::Sliding,
            rate: Hits::ZERO,
            limit: None,
            increment: None,
        }
    }

    #[test]
    fn a_counter_is_told_of_in_json() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let answer = |call: &KeyCall| key(call, &namespace, &[size], false, &clock);
        assert_eq!(
            answer(&key_call(b"k")).unwrap(),
            r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":1680000000,"remaining":null}"#
        );
        let posted = KeyCall {
            increment: Some(Hits::from_thousandths(1_500)),
            limit: Some(Hits::from_thousandths(10_000)),
            ..key_call(b"k")
        };
        answer(&posted).unwrap();
        let elsewhere = KeyCall {
            counter: Some("login".into()),
            ..key_call(b"k")
        };
        let body = answer(&elsewhere).unwrap();
        assert!(body.contains("\"current\":0,"), "{body}");
        clock.set(28_000_001 * MINUTE + MINUTE / 2);
        assert_eq!(
            answer(&posted).unwrap(),
            r#"{"rate":2.25,"current":1.5,"previous":1.5,"diff":1.5,"sync":0,"window_start":1680000060,"remaining":7}"#
        );
        for (call, message) in [
            (key_call(b""), "the key is empty"),
            (
                KeyCall {
                    window: WindowSize::from_millis(1000),
                    ..key_call(b"k")
                },
                "the window 1s is not one of the namespace's: expected 1m",
            ),
        ] {
            let error = answer(&call).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(message), "{error}");
        }
        let none = key(&key_call(b"k"), &namespace, &[], true, &clock);
        assert_eq!(
            none.unwrap_err().message,
            "no window: expected window=, such as 60"
        );
    }

    #[test]
    fn a_moving_window_begins_with_its_oldest_hit() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let now = 28_000_000 * MINUTE;
        let clock = TestClock::at(now);
        let answer = |call: &KeyCall| key(call, &namespace, &[size], false, &clock).unwrap();
        let asked = KeyCall {
            algorithm: Algorithm::Moving,
            limit: Some(Hits::from_thousandths(10_000)),
            ..key_call(b"k")
        };
        let posted = KeyCall {
            increment: Some(Hits::from_thousandths(1_500)),
            ..asked.clone()
        };
        assert_eq!(
            answer(&asked),
            r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":1680000000,"remaining":10}"#
        );
        answer(&posted);
        clock.set(now + 1500);
        assert_eq!(
            answer(&posted),
            r#"{"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":1680000000,"remaining":7}"#
        );
        clock.set(now + MINUTE + 1);
        assert_eq!(
            answer(&asked),
            r#"{"rate":1.5,"current":1.5,"previous":0,"diff":1.5,"sync":0,"window_start":1680000001.5,"remaining":8}"#
        );
        let unlimited = KeyCall {
            limit: None,
            ..asked.clone()
        };
        assert!(answer(&unlimited).ends_with(r#""remaining":null}"#));
        let boundless = KeyCall {
            limit: Some(Hits::MAX),
            ..asked
        };
        assert!(answer(&boundless).ends_with(r#""remaining":99998}"#));
    }

    #[test]
    fn a_rate_is_read_and_filled() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let now = 28_000_000 * MINUTE;
        let clock = TestClock::at(now);
        // Its time is none of the namespace's windows.
        let answer = |call: &KeyCall| key(call, &namespace, &[size], false, &clock).unwrap();
        let asked = KeyCall {
            algorithm: Algorithm::Bucket,
            window: WindowSize::from_millis(1000),
            rate: Hits::from_thousandths(10_000),
            limit: Some(Hits::from_thousandths(21_000)),
            ..key_call(b"k")
        };
        assert_eq!(
            answer(&asked),
            r#"{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":0,"remaining":21}"#
        );
        let posted = KeyCall {
            increment: Some(Hits::from_thousandths(5_000)),
            ..asked.clone()
        };
        answer(&posted);
        clock.set(now + 250);
        assert_eq!(
            answer(&asked),
            r#"{"rate":2.5,"current":2.5,"previous":0,"diff":2.5,"sync":0,"window_start":1680000000,"remaining":18}"#
        );
    }
}
