//! Options of a new namespace.

use core::ops::RangeInclusive;
use core::time::Duration;

use super::datastore::Datastore;
use super::memory::Memory;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::policy::algorithm::Algorithm;
use crate::policy::namespace::{
    DEFAULT_NAMESPACE, DEFAULT_TIMEOUT, MAX_TIMEOUT, OnError, SyncEarly, SyncMode,
};
use crate::policy::window::WindowSize;

/// Options of [`Instance::new`](super::Instance::new), as in the specification.
#[derive(Clone, Debug)]
pub struct NewOptions {
    pub(super) dict: Memory,
    namespace: String,
    window_sizes: Vec<Duration>,
    sync_rate: Option<Duration>,
    sync_early: Option<f64>,
    strategy: Option<Datastore>,
    timeout: Option<Duration>,
    on_error: Option<OnError>,
}

/// The checked options.
pub(super) struct Checked<'o> {
    pub(super) name: Box<str>,
    pub(super) sizes: Vec<WindowSize>,
    /// `None` if the namespace is local.
    pub(super) store: Option<(&'o Datastore, StoreUse)>,
}

/// The purpose of a namespace's store.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreUse {
    /// The namespace is synced once in each period, and parts of it early.
    Periodic(Duration, SyncEarly),
    /// The store decides about each hit.
    Synchronous(DecisionOptions),
}

/// Options of decisions: the wait for the store, and the decision without it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionOptions {
    pub(super) timeout: Duration,
    pub(super) on_error: OnError,
}

/// Accepted timeouts, as in nginx.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=MAX_TIMEOUT;

/// Returns the time that stands for a window of the calendar wherever a window is expected: `hour`, `day`, `week` or
/// `month`, in UTC, or in the time zone behind it, as in `day tz=Europe/Berlin`. Such a window is fixed.
///
/// # Errors
///
/// If the text is of no window of the calendar, or the time zone is unknown.
pub fn calendar_window(text: &str) -> Result<Duration, ArgumentError> {
    let seconds = arguments::calendar_window("window", text.as_bytes())?;
    Ok(Duration::from_secs_f64(seconds))
}

impl NewOptions {
    /// Creates the options of a local namespace named [`DEFAULT_NAMESPACE`] that counts in `dict`,
    /// in windows of any size.
    pub fn new(dict: &Memory) -> NewOptions {
        NewOptions {
            dict: dict.clone(),
            namespace: DEFAULT_NAMESPACE.into(),
            window_sizes: Vec::new(),
            sync_rate: None,
            sync_early: None,
            strategy: None,
            timeout: None,
            on_error: None,
        }
    }

    /// Sets the name: 1 to 64 characters of `A-Z a-z 0-9 _ . -`, and not `off`.
    pub fn namespace(self, name: impl Into<String>) -> Self {
        NewOptions { namespace: name.into(), ..self }
    }

    /// Sets the window sizes, each from 1 ms to 366 days. A synced namespace needs them; a local
    /// one without them accepts any size.
    pub fn window_sizes(self, sizes: impl IntoIterator<Item = Duration>) -> Self {
        NewOptions { window_sizes: sizes.into_iter().collect(), ..self }
    }

    /// Sets the period of the sync with the store: 1 ms to 366 days.
    ///
    /// Zero means that the store decides about each hit before the call returns. It decides
    /// atomically for all nodes, so a limit is never exceeded. Hits that were decided without the
    /// store are pushed when it is back.
    pub fn sync_rate(self, period: Duration) -> Self {
        NewOptions { sync_rate: Some(period), ..self }
    }

    /// Sets the share of a limit that all nodes together may leave unpushed until the next sync:
    /// from 0.001 to 0.5, or 0, with which nothing is pushed early; 0.02 by default.
    ///
    /// Hits that a [`RateLimiter`](super::RateLimiter) counts near its limit are pushed at once,
    /// and other nodes learn of them as soon as the store can tell them. It begins with the first
    /// [`sync`](super::Instance::sync).
    pub fn sync_early(self, share: f64) -> Self {
        NewOptions { sync_early: Some(share), ..self }
    }

    /// Sets the store: `strategy` and `strategy_opts` of the specification.
    pub fn strategy(self, store: Datastore) -> Self {
        NewOptions { strategy: Some(store), ..self }
    }

    /// Sets the longest wait for the store's decision if `sync_rate` is zero: 1 ms to 1 minute; 50
    /// ms by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        NewOptions { timeout: Some(timeout), ..self }
    }

    /// Sets the decision about a hit after the timeout. It also applies while the store is known to
    /// be down, without a wait. [`OnError::Local`] by default.
    pub fn on_error(self, on_error: OnError) -> Self {
        NewOptions { on_error: Some(on_error), ..self }
    }

    pub(super) fn check(&self) -> Result<Checked<'_>, ArgumentError> {
        let name = arguments::name("namespace", self.namespace.as_bytes())?;
        let sizes = arguments::window_sizes(self.window_sizes.iter().map(Duration::as_secs_f64))?;
        let store = match (self.sync_rate, &self.strategy) {
            (None, None) => None,
            (None, Some(_)) => return Err(missing("sync_rate", "strategy")),
            (Some(_), None) => return Err(missing("strategy", "sync_rate")),
            (Some(rate), Some(store)) => Some((store, self.store_use(rate, store)?)),
        };
        if store.is_some() && sizes.is_empty() {
            return Err(missing("window_sizes", "sync_rate"));
        }
        if !matches!(store, Some((_, StoreUse::Synchronous(_)))) {
            self.check_periodic()?;
        }
        if !matches!(store, Some((_, StoreUse::Periodic(..)))) {
            self.check_not_periodic()?;
        }
        Ok(Checked { name: name.into(), sizes, store })
    }

    /// Returns the purpose of the store, if it supports that.
    fn store_use(&self, rate: Duration, store: &Datastore) -> Result<StoreUse, ArgumentError> {
        match arguments::sync_rate(rate.as_secs_f64())? {
            SyncMode::Periodic(period) => {
                let early = self.sync_early.map(arguments::sync_early).transpose()?;
                return Ok(StoreUse::Periodic(period, early.unwrap_or_default()));
            }
            SyncMode::Synchronous | SyncMode::Local => {}
        }
        if !store.decides_by(Algorithm::Sliding) {
            let expected = "a store that decides, beside a sync_rate of 0";
            return Err(ArgumentError::new("strategy", expected, "one that syncs"));
        }
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        if !TIMEOUTS.contains(&timeout) {
            let (expected, given) = ("seconds from 0.001 to 60", timeout.as_secs_f64());
            return Err(ArgumentError::new("timeout", expected, given));
        }
        Ok(StoreUse::Synchronous(DecisionOptions {
            timeout,
            on_error: self.on_error.unwrap_or_default(),
        }))
    }

    /// Checks that no option of periodic syncs is set.
    fn check_not_periodic(&self) -> Result<(), ArgumentError> {
        match self.sync_early {
            None => Ok(()),
            Some(share) => {
                let expected = "none but beside a sync_rate above 0";
                Err(ArgumentError::new("sync_early", expected, share))
            }
        }
    }

    /// Checks that no option of deciding stores is set.
    fn check_periodic(&self) -> Result<(), ArgumentError> {
        let expected = "none but beside a sync_rate of 0";
        if let Some(timeout) = self.timeout {
            let given = timeout.as_secs_f64();
            return Err(ArgumentError::new("timeout", expected, given));
        }
        if let Some(on_error) = self.on_error {
            let given = format_args!("{on_error:?}");
            return Err(ArgumentError::new("on_error", expected, given));
        }
        Ok(())
    }
}

fn missing(argument: &str, beside: &str) -> ArgumentError {
    let expected = format!("some beside \"{beside}\"");
    ArgumentError::new(argument, &expected, "none")
}
