//! What `new` is told of a namespace.

use core::time::Duration;

use super::datastore::Datastore;
use super::memory::Memory;
use crate::engine::arguments::{self, ArgumentError};
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncMode};
use crate::policy::window::WindowSize;

/// What [`Instance::new`](super::Instance::new) is told of a namespace: the specification's options.
#[derive(Clone, Debug)]
pub struct NewOptions {
    pub(super) dict: Memory,
    namespace: String,
    window_sizes: Vec<Duration>,
    sync_rate: Option<Duration>,
    pub(super) strategy: Option<Datastore>,
}

/// The options, as they were checked.
pub(super) struct Checked {
    pub(super) name: Box<str>,
    pub(super) sizes: Vec<WindowSize>,
    /// The period; `None`: it is local.
    pub(super) period: Option<Duration>,
}

impl NewOptions {
    /// A namespace of the name [`DEFAULT_NAMESPACE`] that counts in `dict`, in windows of any size, and is
    /// never synced.
    pub fn new(dict: &Memory) -> NewOptions {
        NewOptions {
            dict: dict.clone(),
            namespace: DEFAULT_NAMESPACE.into(),
            window_sizes: Vec::new(),
            sync_rate: None,
            strategy: None,
        }
    }

    /// The name: 1 to 64 of `A-Z a-z 0-9 _ . -`, and not `off`.
    pub fn namespace(self, name: impl Into<String>) -> Self {
        NewOptions {
            namespace: name.into(),
            ..self
        }
    }

    /// The sizes of windows that are counted in: 1 ms to 366 days. A namespace that is synced needs them;
    /// for another one, none means any.
    pub fn window_sizes(self, sizes: impl IntoIterator<Item = Duration>) -> Self {
        NewOptions {
            window_sizes: sizes.into_iter().collect(),
            ..self
        }
    }

    /// After what time the namespace is synced with its store, again and again: 1 ms to 366 days.
    pub fn sync_rate(self, period: Duration) -> Self {
        NewOptions {
            sync_rate: Some(period),
            ..self
        }
    }

    /// The store that it is synced with: the specification's `strategy` and `strategy_opts`.
    pub fn strategy(self, store: Datastore) -> Self {
        NewOptions {
            strategy: Some(store),
            ..self
        }
    }

    pub(super) fn check(&self) -> Result<Checked, ArgumentError> {
        let name = arguments::name("namespace", self.namespace.as_bytes())?;
        let sizes = self.window_sizes.iter();
        let sizes = sizes.map(|size| arguments::window_size("window_sizes", size.as_secs_f64()));
        let mut sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        let period = match (self.sync_rate, &self.strategy) {
            (None, None) => None,
            (None, Some(_)) => return Err(missing("sync_rate", "strategy")),
            (Some(_), None) => return Err(missing("strategy", "sync_rate")),
            (Some(rate), Some(_)) => Some(period(rate)?),
        };
        if period.is_some() && sizes.is_empty() {
            return Err(missing("window_sizes", "sync_rate"));
        }
        Ok(Checked {
            name: name.into(),
            sizes,
            period,
        })
    }
}

fn missing(argument: &str, beside: &str) -> ArgumentError {
    let expected = format!("some beside \"{beside}\"");
    ArgumentError::new(argument, &expected, "none")
}

fn period(rate: Duration) -> Result<Duration, ArgumentError> {
    match arguments::sync_rate(rate.as_secs_f64())? {
        SyncMode::Periodic(period) => Ok(period),
        SyncMode::Synchronous | SyncMode::Local => {
            let expected = "seconds from 0.001 to 31622400 (0 is not in this build)";
            Err(ArgumentError::new(
                "sync_rate",
                expected,
                rate.as_secs_f64(),
            ))
        }
    }
}
