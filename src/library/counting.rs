//! `increment`: hits that count whatever the rate, here or by the store's decision.

use core::time::Duration;
use std::sync::Arc;

use super::asking::StoreDecisions;
use super::definition::DefinedNamespace;
use super::error::CallError;
use crate::engine::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Machine};
use crate::policy::algorithm::Algorithm;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// The arguments of `increment`, as they were checked.
pub(super) struct Increment<'k> {
    key: &'k [u8],
    size: WindowSize,
    value: Hits,
    algorithm: Algorithm,
}

impl<'k> Increment<'k> {
    #[inline]
    pub(super) fn check(
        key: &'k [u8],
        window_size: Duration,
        value: f64,
        weight: Option<f64>,
    ) -> Result<Increment<'k>, ArgumentError> {
        Ok(Increment {
            key: arguments::key(key)?,
            size: arguments::window_size("window_size", window_size.as_secs_f64())?,
            value: arguments::hits("value", value)?,
            algorithm: algorithm(weight)?,
        })
    }

    /// Counts here; returns the rate.
    #[inline]
    pub(super) fn here(&self, namespace: &DefinedNamespace) -> Result<Hits, ArgumentError> {
        let Increment {
            key,
            size,
            value,
            algorithm,
        } = *self;
        namespace.with_windows(size, |it| it.increment(key, value, algorithm, &Machine))
    }
}

/// What `increment` comes to.
pub(super) enum IncrementOutcome {
    /// The rate.
    Here(Hits),
    ByStore(AskedIncrement),
}

/// The namespace whose store is to count.
pub(super) struct AskedIncrement {
    pub(super) namespace: Arc<DefinedNamespace>,
    pub(super) decisions: Arc<StoreDecisions>,
}

impl AskedIncrement {
    /// Has the store count; returns the rate.
    pub(super) async fn count(&self, increment: &Increment<'_>) -> Result<Hits, CallError> {
        let limiter = self
            .namespace
            .unlimited(increment.size, increment.algorithm)?;
        let asked = AskedHits {
            key: increment.key,
            cost: increment.value,
            commit: true,
        };
        let (incoming, _) = self.decisions.incoming(limiter, asked).await?;
        Ok(incoming.rate)
    }
}

/// How windows of this weight are read.
pub(super) fn algorithm(weight: Option<f64>) -> Result<Algorithm, ArgumentError> {
    arguments::weight(weight.unwrap_or(1.0))
}
