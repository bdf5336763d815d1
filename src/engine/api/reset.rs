//! Setting a key to zero: the answer to a request for that.

use super::super::{Namespace, RateLimiting};
use super::counting::Counting;
use super::error::ApiError;
use super::key::{key, not_accounted};
use super::request::{KeyCall, ResetCall};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::namespace::SyncMode;
use crate::policy::window::{Clock, WindowSize};
use crate::table::CountedRate;

/// The algorithms of which each has counters of its own, but for those without windows.
const OF_WINDOWS: [Algorithm; 3] = [Algorithm::Sliding, Algorithm::Elastic, Algorithm::Moving];

/// Answers [`ApiCall::Reset`](super::ApiCall::Reset) for a key in `namespace`, which counts so: as what is
/// then read of the first of the counters.
///
/// # Errors
///
/// 400 if the window or the key is none of the namespace's.
pub fn reset(
    call: &ResetCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    let counters = counters(call, namespace, counting)?;
    for counter in &counters {
        let library = RateLimiting::new(namespace).in_counter(call.read.counter.as_deref());
        let KeyCounter {
            algorithm,
            size,
            rate,
        } = *counter;
        library
            .at_rate(rate)
            .reset(&call.read.key, algorithm.kind(), size, clock)
            .map_err(not_accounted)?;
    }
    let first = first_of(call, &counters);
    key(&first, namespace, counting, clock)
}

/// A counter of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyCounter {
    pub(super) algorithm: Algorithm,
    pub(super) size: WindowSize,
    /// The rate of a bucket.
    pub(super) rate: Hits,
}

/// The counter of which is answered.
pub(super) fn first_of(call: &ResetCall, counters: &[KeyCounter]) -> KeyCall {
    let first = counters.first().map(|counter| KeyCall {
        window: Some(counter.size),
        algorithm: call.algorithm.unwrap_or(counter.algorithm),
        rate: counter.rate,
        ..call.read.clone()
    });
    first.unwrap_or_else(|| call.read.clone())
}

/// The counters that are to be set to zero.
pub(super) fn counters(
    call: &ResetCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
) -> Result<Vec<KeyCounter>, ApiError> {
    let is_kept = |it: Algorithm| counting.sync != SyncMode::Synchronous || counting.has(it);
    let sizes = match call.read.window {
        Some(_) => vec![counting.window_of(&call.read)?],
        None => sizes(namespace, counting),
    };
    let algorithms = match call.algorithm {
        Some(algorithm) => vec![algorithm],
        // Where the store decides by others only, there are none of these.
        None => OF_WINDOWS.into_iter().filter(|it| is_kept(*it)).collect(),
    };
    let of_size = |size: WindowSize| {
        algorithms.iter().map(move |algorithm| KeyCounter {
            algorithm: *algorithm,
            size,
            rate: call.read.rate,
        })
    };
    let mut counters: Vec<_> = sizes.into_iter().flat_map(of_size).collect();
    if call.read.window.is_none() && call.algorithm.is_none() && is_kept(Algorithm::OF_RATES) {
        let rates = rates(namespace, counting).into_iter();
        counters.extend(rates.map(|CountedRate { hits, size }| KeyCounter {
            algorithm: Algorithm::OF_RATES,
            size,
            rate: hits,
        }));
    }
    Ok(counters)
}

/// The sizes of the windows that are counted in: of rules, and of what other callers have counted in.
fn sizes(namespace: &Namespace<'_>, counting: &Counting<'_>) -> Vec<WindowSize> {
    let mut sizes = counting.sizes.to_vec();
    if counting.is_open {
        let noted = namespace.table().counted_sizes(namespace.index());
        sizes.extend(noted.iter().filter(|size| !counting.sizes.contains(size)));
    }
    sizes
}

/// The rates that are counted at, each once: of rules, and those that requests and other callers have told.
fn rates(namespace: &Namespace<'_>, counting: &Counting<'_>) -> Vec<CountedRate> {
    let mut rates: Vec<CountedRate> = Vec::new();
    let noted = namespace.table().counted_rates(namespace.index());
    for rate in counting.rates.iter().chain(&noted) {
        let measure =
            |it: &CountedRate| Algorithm::OF_RATES.kind().at_rate(it.hits).measure(it.size);
        if !rates.iter().any(|known| measure(known) == measure(rate)) {
            rates.push(*rate);
        }
    }
    rates
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::key_tests::key_call;
    use super::*;
    use crate::policy::hits::hits;
    use crate::table::testing::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;
    const SECOND: u64 = 1000;

    fn size(millis: u64) -> WindowSize {
        WindowSize::from_millis(millis).unwrap()
    }

    fn at_rate(rate: i64, millis: u64) -> KeyCounter {
        KeyCounter {
            algorithm: Algorithm::Bucket,
            size: size(millis),
            rate: hits(rate),
        }
    }

    /// Each counter of a namespace with two windows and two rates.
    fn all() -> Vec<KeyCounter> {
        let windows = [SECOND, MINUTE].map(size).into_iter();
        let windows = windows.flat_map(|size| {
            OF_WINDOWS.map(|algorithm| KeyCounter {
                algorithm,
                size,
                rate: Hits::ZERO,
            })
        });
        windows
            .chain([at_rate(1, 5 * SECOND), at_rate(2, 5 * SECOND)])
            .collect()
    }

    /// A call that reads a counter, or counts in it.
    fn call_of(counter: KeyCounter, increment: Option<Hits>) -> KeyCall {
        KeyCall {
            algorithm: counter.algorithm,
            window: Some(counter.size),
            rate: counter.rate,
            increment,
            ..key_call(b"k")
        }
    }

    #[test]
    fn a_key_is_set_to_zero_in_the_windows_that_are_named() {
        for (window, algorithm, left) in [
            (None, None, 0),
            (Some(SECOND), None, 5),
            (Some(MINUTE), Some(Algorithm::Moving), 7),
            (None, Some(Algorithm::Fixed), 6),
            (Some(5 * SECOND), Some(Algorithm::Bucket), 7),
        ] {
            let shared = SharedTable::new(1 << 20);
            let namespace = Namespace::new("api", &shared.table).unwrap();
            let clock = TestClock::at(28_000_000 * MINUTE);
            let counting = Counting {
                sync: SyncMode::Local,
                store: None,
                sizes: &[size(SECOND), size(MINUTE)],
                rates: &[CountedRate {
                    hits: hits(1),
                    size: size(5 * SECOND),
                }],
                is_open: false,
            };
            let answer = |call: &KeyCall| key(call, &namespace, &counting, &clock).unwrap();
            for counter in all() {
                answer(&call_of(counter, Some(hits(3))));
            }
            let call = ResetCall {
                read: KeyCall {
                    window: window.map(size),
                    algorithm: algorithm.unwrap_or_default(),
                    rate: hits(1),
                    ..key_call(b"k")
                },
                algorithm,
            };
            let body = reset(&call, &namespace, &counting, &clock).unwrap();
            let zeros = "{\"rate\":0,\"current\":0,\"previous\":0,\"diff\":0,\"sync\":0,";
            assert!(body.starts_with(zeros), "{body}");
            let is_left =
                |counter: &KeyCounter| !answer(&call_of(*counter, None)).starts_with(zeros);
            let counted = all().into_iter().filter(is_left).count();
            assert_eq!(counted, left, "{window:?} {algorithm:?}");
        }
    }

    #[test]
    fn windows_of_which_no_rule_tells_are_set_to_zero_too() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let counting = Counting {
            sync: SyncMode::Local,
            store: None,
            sizes: &[],
            rates: &[],
            is_open: true,
        };
        let answer = |call: &KeyCall| key(call, &namespace, &counting, &clock).unwrap();
        for counter in all() {
            answer(&call_of(counter, Some(hits(3))));
        }
        let call = ResetCall {
            read: key_call(b"k"),
            algorithm: None,
        };
        reset(&call, &namespace, &counting, &clock).unwrap();
        for counter in all() {
            let body = answer(&call_of(counter, None));
            assert!(body.starts_with("{\"rate\":0,"), "{counter:?} {body}");
        }
    }

    #[test]
    fn what_cannot_be_set_to_zero_is_told() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("api", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let sizes = [size(SECOND)];
        let answer = |key: &[u8], window: Option<u64>, sync, sizes: &[WindowSize]| {
            let counting = Counting {
                sync,
                store: None,
                sizes,
                rates: &[],
                is_open: false,
            };
            let read = KeyCall {
                window: window.map(size),
                limit: Some(Hits::ONE),
                ..key_call(key)
            };
            let call = ResetCall {
                read,
                algorithm: None,
            };
            reset(&call, &namespace, &counting, &clock).map_err(|it| it.status)
        };
        let local = SyncMode::Local;
        assert_eq!(answer(b"", None, local, &sizes), Err(400));
        assert_eq!(answer(b"k", Some(MINUTE), local, &sizes), Err(400));
        assert_eq!(answer(b"k", None, local, &[]), Err(400));
        let unseen = answer(b"k", None, local, &sizes).unwrap();
        assert!(unseen.ends_with("\"remaining\":1}"), "{unseen}");
    }
}
