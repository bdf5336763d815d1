//! `increment`: counts hits whatever the rate, in memory or in the store.

use core::time::Duration;
use std::sync::Arc;

use super::asking::StoreDecisions;
use super::definition::DefinedNamespace;
use super::error::CallError;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Machine};
use crate::policy::algorithm::Weight;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// The checked arguments of `increment`.
pub(super) struct Increment<'k> {
    key: &'k [u8],
    size: WindowSize,
    value: Hits,
    weight: Weight,
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
            weight: arguments::weight(weight)?,
        })
    }

    /// Counts in memory. Returns the rate.
    #[inline]
    pub(super) fn here(&self, namespace: &DefinedNamespace) -> Result<Hits, ArgumentError> {
        let Increment { key, size, value, weight } = *self;
        namespace.with_windows(size, |it| it.increment(key, value, weight, &Machine))
    }
}

/// The outcome of `increment`.
pub(super) enum IncrementOutcome {
    /// The rate, counted in memory.
    Here(Hits),
    ByStore(AskedIncrement),
}

/// An increment that a store counts.
pub(super) struct AskedIncrement {
    pub(super) namespace: Arc<DefinedNamespace>,
    pub(super) decisions: Arc<StoreDecisions>,
}

impl AskedIncrement {
    /// Makes the store count. Returns the rate.
    pub(super) async fn count(&self, increment: &Increment<'_>) -> Result<Hits, CallError> {
        let limiter = self.namespace.unlimited(increment.size)?;
        let asked = AskedHits {
            key: increment.key,
            cost: increment.value,
            commit: true,
            weight: increment.weight,
        };
        let (incoming, _) = self.decisions.incoming(limiter, asked).await?;
        Ok(incoming.rate)
    }
}
