//! Setting a key to zero: the answer to a request for that.

use super::super::{Namespace, RateLimiting};
use super::counting::Counting;
use super::error::ApiError;
use super::key::{key, not_accounted};
use super::request::{KeyCall, ResetCall};
use crate::policy::algorithm::Algorithm;
use crate::policy::namespace::SyncMode;
use crate::policy::window::{Clock, WindowSize};
use crate::table::CountedSize;

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
    let library = RateLimiting::new(namespace).in_counter(call.read.counter.as_deref());
    for (algorithm, size) in &counters {
        library
            .reset(&call.read.key, algorithm.kind(), *size, clock)
            .map_err(not_accounted)?;
    }
    let first = first_of(call, &counters);
    key(&first, namespace, counting, clock)
}

/// The counter of which is answered.
pub(super) fn first_of(call: &ResetCall, counters: &[(Algorithm, WindowSize)]) -> KeyCall {
    let first = counters.first().map(|(algorithm, size)| KeyCall {
        window: Some(*size),
        algorithm: call.algorithm.unwrap_or(*algorithm),
        ..call.read.clone()
    });
    first.unwrap_or_else(|| call.read.clone())
}

/// The counters that are to be set to zero: their algorithms and sizes.
pub(super) fn counters(
    call: &ResetCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
) -> Result<Vec<(Algorithm, WindowSize)>, ApiError> {
    let (windows, rates) = sizes(namespace, counting);
    let is_kept = |it: Algorithm| counting.sync != SyncMode::Synchronous || counting.has(it);
    let sizes = match call.read.window {
        Some(_) => vec![counting.window_of(&call.read)?],
        None => windows,
    };
    let algorithms = match call.algorithm {
        Some(algorithm) => vec![algorithm],
        // Where the store decides by others only, there are none of these.
        None => OF_WINDOWS.into_iter().filter(|it| is_kept(*it)).collect(),
    };
    let of_size = |size: WindowSize| algorithms.iter().map(move |algorithm| (*algorithm, size));
    let mut counters: Vec<_> = sizes.into_iter().flat_map(of_size).collect();
    if call.read.window.is_none() && call.algorithm.is_none() && is_kept(Algorithm::OF_RATES) {
        counters.extend(rates.into_iter().map(|size| (Algorithm::OF_RATES, size)));
    }
    Ok(counters)
}

/// The sizes of the windows that are counted in, and the times of the rates: of rules, and of what other callers have
/// counted in.
fn sizes(namespace: &Namespace<'_>, counting: &Counting<'_>) -> (Vec<WindowSize>, Vec<WindowSize>) {
    let (mut windows, mut rates) = (counting.sizes.to_vec(), counting.rates.to_vec());
    for counted in namespace.table().counted_sizes(namespace.index()) {
        let (sizes, size) = match counted {
            CountedSize::Window(size) if counting.is_open => (&mut windows, size),
            CountedSize::Rate(size) => (&mut rates, size),
            CountedSize::Window(_) => continue,
        };
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    (windows, rates)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::key_tests::key_call;
    use super::*;
    use crate::policy::hits::{Hits, hits};
    use crate::table::testing::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;
    const SECOND: u64 = 1000;

    fn size(millis: u64) -> WindowSize {
        WindowSize::from_millis(millis).unwrap()
    }

    /// Each counter of a namespace with two windows and a rate.
    fn all() -> Vec<(Algorithm, WindowSize)> {
        let windows = [SECOND, MINUTE].map(size).into_iter();
        let windows = windows.flat_map(|size| OF_WINDOWS.map(|algorithm| (algorithm, size)));
        windows
            .chain([(Algorithm::Bucket, size(5 * SECOND))])
            .collect()
    }

    /// A call that reads a counter, or counts in it.
    fn call_of((algorithm, size): (Algorithm, WindowSize), increment: Option<Hits>) -> KeyCall {
        KeyCall {
            algorithm,
            window: Some(size),
            rate: hits(1),
            increment,
            ..key_call(b"k")
        }
    }

    #[test]
    fn a_key_is_set_to_zero_in_the_windows_that_are_named() {
        for (window, algorithm, left) in [
            (None, None, 0),
            (Some(SECOND), None, 4),
            (Some(MINUTE), Some(Algorithm::Moving), 6),
            (None, Some(Algorithm::Fixed), 5),
            (Some(5 * SECOND), Some(Algorithm::Bucket), 6),
        ] {
            let shared = SharedTable::new(1 << 20);
            let namespace = Namespace::new("api", &shared.table).unwrap();
            let clock = TestClock::at(28_000_000 * MINUTE);
            let counting = Counting {
                sync: SyncMode::Local,
                store: None,
                sizes: &[size(SECOND), size(MINUTE)],
                rates: &[size(5 * SECOND)],
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
                    ..key_call(b"k")
                },
                algorithm,
            };
            let body = reset(&call, &namespace, &counting, &clock).unwrap();
            let zeros = "{\"rate\":0,\"current\":0,\"previous\":0,\"diff\":0,\"sync\":0,";
            assert!(body.starts_with(zeros), "{body}");
            let is_left = |counter: &(Algorithm, WindowSize)| {
                !answer(&call_of(*counter, None)).starts_with(zeros)
            };
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
