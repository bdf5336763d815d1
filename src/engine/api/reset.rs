//! The answers to requests that set all counters of a key to zero, or read them.

use serde::Serialize;

use super::counting::Counting;
use super::json::{ApiError, Thousandths, WindowBody, json, object};
use super::key::{check_key, not_accounted};
use super::request::CountersCall;
use crate::engine::{Namespace, RateLimiting};
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::namespace::SyncMode;
use crate::policy::window::{Clock, WindowSize};
use crate::table::CountedRate;

/// The algorithms of `window=` that have counters of their own. `Fixed` shares those of `Sliding`.
pub(super) const OF_WINDOWS: [Algorithm; 3] =
    [Algorithm::Sliding, Algorithm::Elastic, Algorithm::Moving];

/// Answers [`ApiCall::Reset`](super::ApiCall::Reset) for a key in `namespace` with the counters that had hits, and
/// their rates.
///
/// # Errors
///
/// 400 if the window is none of the namespace's or the key is empty, 404 if no rule has the counter.
pub fn reset(
    call: &CountersCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    check_key(&call.read.key)?;
    let mut had = Vec::new();
    for counter in counters_of(call, namespace, counting)? {
        had.extend(counter.body(&counter.reading(&call.read.key, namespace, clock)?));
        counter.reset(&call.read.key, namespace, clock)?;
    }
    Ok(reset_body(had))
}

/// Answers [`ApiCall::Counters`](super::ApiCall::Counters) for a key in `namespace` with the counters that have hits,
/// as far as this node knows, and their rates.
///
/// # Errors
///
/// Those of [`reset`].
pub fn counters(
    call: &CountersCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
    clock: &impl Clock,
) -> Result<String, ApiError> {
    check_key(&call.read.key)?;
    let mut counters = Vec::new();
    for counter in counters_of(call, namespace, counting)? {
        counters.extend(counter.body(&counter.reading(&call.read.key, namespace, clock)?));
    }
    Ok(json(&object! { counters: counters }))
}

/// Returns the answer that lists these counters as reset.
pub(super) fn reset_body(reset: Vec<CounterBody>) -> String {
    json(&object! { reset: reset })
}

/// A counter in an answer, with its rate.
#[derive(Debug, Serialize)]
pub(super) struct CounterBody {
    window: WindowBody,
    window_type: &'static str,
    counter: Option<String>,
    rate: Thousandths,
    /// The rate at which a bucket leaks, in the syntax of rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    leak: Option<String>,
}

/// A counter of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyCounter {
    /// The counter's name; `None` for the shared one.
    pub(super) name: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) size: WindowSize,
    /// The rate of a bucket; zero for other algorithms.
    pub(super) rate: Hits,
}

impl KeyCounter {
    fn library<'n, 'm>(&'n self, namespace: &'n Namespace<'m>) -> RateLimiting<'n, 'm> {
        let library = RateLimiting::new(namespace).in_counter(self.name.as_deref());
        library.at_rate(self.rate)
    }

    fn reading(
        &self,
        key: &[u8],
        namespace: &Namespace<'_>,
        clock: &impl Clock,
    ) -> Result<Reading, ApiError> {
        let library = self.library(namespace);
        let reading = library.reading(key, self.algorithm.kind(), self.size, clock);
        reading.map_err(not_accounted)
    }

    /// Sets the counter of `key` to zero.
    pub(super) fn reset(
        &self,
        key: &[u8],
        namespace: &Namespace<'_>,
        clock: &impl Clock,
    ) -> Result<(), ApiError> {
        let library = self.library(namespace);
        let reset = library.reset(key, self.algorithm.kind(), self.size, clock);
        reset.map_err(not_accounted)
    }

    /// Returns the counter's part of an answer; `None` if `reading` has no hits.
    pub(super) fn body(&self, reading: &Reading) -> Option<CounterBody> {
        let rate = self.algorithm.rate(self.size, reading);
        has_hits(self.algorithm, self.size, reading).then(|| CounterBody {
            window: WindowBody(self.size),
            window_type: self.algorithm.name(),
            counter: self.name.clone(),
            rate: rate.into(),
            leak: self.algorithm.is_of_rates().then(|| format!("{}/{}", self.rate, self.size)),
        })
    }
}

/// Whether a counter with this reading has hits.
pub(super) fn has_hits(algorithm: Algorithm, size: WindowSize, reading: &Reading) -> bool {
    match algorithm.kind() {
        StoredKind::Windows => {
            let counts = reading.windows();
            [counts.current, counts.previous].iter().any(|hits| *hits != Hits::ZERO)
        }
        StoredKind::Level(_) | StoredKind::Log | StoredKind::Holds => {
            algorithm.rate(size, reading) != Hits::ZERO
        }
    }
}

/// Returns the counters that a call is about.
pub(super) fn counters_of(
    call: &CountersCall,
    namespace: &Namespace<'_>,
    counting: &Counting<'_>,
) -> Result<Vec<KeyCounter>, ApiError> {
    counting.check_counter(call.read.counter.as_deref())?;
    let of_shared = counters_of_name(call, namespace, counting)?;
    if !call.has_all_names {
        return Ok(of_shared);
    }
    let named = counting.counters.iter().flat_map(|name| {
        of_shared
            .iter()
            .map(move |counter| KeyCounter { name: Some(name.as_ref().into()), ..counter.clone() })
    });
    Ok(of_shared.iter().cloned().chain(named).collect())
}

/// Returns the counters with the name in `call` that the call is about.
fn counters_of_name(
    call: &CountersCall,
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
        // A synchronous store keeps none for algorithms that it does not support.
        None => OF_WINDOWS.into_iter().filter(|it| is_kept(*it)).collect(),
    };
    let of = |algorithm: Algorithm, size: WindowSize, rate: Hits| KeyCounter {
        name: call.read.counter.clone(),
        algorithm,
        size,
        rate,
    };
    let of_size = |size: WindowSize| {
        // A window of the calendar is only fixed.
        let has = move |it: &&Algorithm| !size.is_of_calendar() || it.kind() == StoredKind::Windows;
        let algorithms = algorithms.iter().filter(has);
        algorithms.map(move |algorithm| of(algorithm.of_size(size), size, call.read.rate))
    };
    let mut counters: Vec<_> = sizes.into_iter().flat_map(of_size).collect();
    if call.read.window.is_none() && call.algorithm.is_none() && is_kept(Algorithm::OF_RATES) {
        let rates = rates(namespace, counting).into_iter();
        counters
            .extend(rates.map(|CountedRate { hits, size }| of(Algorithm::OF_RATES, size, hits)));
    }
    Ok(counters)
}

/// Returns the sizes of windows with hits: those of the configuration, and those in which other callers have counted.
fn sizes(namespace: &Namespace<'_>, counting: &Counting<'_>) -> Vec<WindowSize> {
    let mut sizes = counting.sizes.to_vec();
    if counting.is_open {
        let noted = namespace.table().counted_sizes(namespace.index());
        sizes.extend(noted.iter().filter(|size| !counting.sizes.contains(size)));
    }
    sizes
}

/// Returns the rates with hits, each once: those of rules, and those that requests and other callers have used.
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
