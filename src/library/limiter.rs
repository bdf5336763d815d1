//! Limits that are asked by key, shaped like OpenResty's `resty.limit.*`.

use core::time::Duration;
use std::sync::Arc;

use super::asking::{CommittedHits, StoreDecisions};
use super::block_on::block_on;
use super::definition::DefinedNamespace;
use super::error::{CallError, NewError};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Incoming, Limiter, Machine};
use crate::policy::algorithm::{Algorithm, Weight};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::namespace::DEFAULT_NAMESPACE;
use crate::table::{InTable, WithTable};

/// Options of a [`RateLimiter`]: the hits that it admits.
#[derive(Clone, Debug)]
pub struct LimiterOptions {
    pub(super) namespace: String,
    admits: Admits,
}

#[derive(Clone, Copy, Debug)]
enum Admits {
    Windows { limit: f64, window: Duration, window_type: WindowType },
    Rate { rate: f64, burst: f64 },
}

/// The type of a window: how its hits are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowType {
    /// With a share of the window before, as of [`Instance::sliding_window`](super::Instance::sliding_window).
    #[default]
    Sliding,
    /// Only the hits of the current window; a window begins at a multiple of its size.
    Fixed,
    /// Exactly the hits of the last `window`; the limit is 100,000 at most.
    Moving,
    /// From the first hit on, until there were none for a whole window.
    Elastic,
}

/// A limit in a namespace: what [`Instance::limiter`](super::Instance::limiter) returns.
#[derive(Debug)]
pub struct RateLimiter {
    limiter: WithTable<LimiterInTable>,
    /// Decisions of the store, if it decides.
    decisions: Option<Arc<StoreDecisions>>,
}

#[derive(Debug)]
struct LimiterInTable;

impl InTable for LimiterInTable {
    type Of<'m> = Limiter<'m>;

    fn shorten<'a, 'm: 'a>(of: &'a Self::Of<'m>) -> &'a Self::Of<'a> {
        of
    }
}

/// The decision of a [`RateLimiter`] on hits.
#[derive(Debug)]
#[non_exhaustive]
pub struct Decision<'l> {
    /// Whether the limit admits them.
    pub is_admitted: bool,
    /// After what time they are within the rate, for a limit by a rate; otherwise zero.
    pub delay: Duration,
    /// Number of hits that would still be admitted now, with a fraction.
    pub remaining: f64,
    /// Rate, with these hits if they are admitted.
    pub rate: f64,
    /// After what time as many hits would be admitted if none came before; `None`: never.
    pub retry_after: Option<Duration>,
    committed: Option<CommittedHits<'l>>,
}

impl LimiterOptions {
    /// Admits `limit` hits in a window of this size, which slides unless
    /// [`LimiterOptions::window_type`] says otherwise.
    pub fn window(limit: f64, window: Duration) -> LimiterOptions {
        LimiterOptions {
            namespace: DEFAULT_NAMESPACE.into(),
            admits: Admits::Windows { limit, window, window_type: WindowType::default() },
        }
    }

    /// Admits `rate` hits a second, and `burst` more at once: a leaky bucket, as in nginx's
    /// `limit_req`.
    pub fn rate(rate: f64, burst: f64) -> LimiterOptions {
        LimiterOptions { namespace: DEFAULT_NAMESPACE.into(), admits: Admits::Rate { rate, burst } }
    }

    /// Sets the type of the window; a limit by a rate has no window.
    pub fn window_type(self, window_type: WindowType) -> Self {
        let admits = match self.admits {
            Admits::Windows { limit, window, .. } => Admits::Windows { limit, window, window_type },
            rate @ Admits::Rate { .. } => rate,
        };
        LimiterOptions { admits, ..self }
    }

    /// The namespace to count in, in place of [`DEFAULT_NAMESPACE`].
    pub fn namespace(self, name: impl Into<String>) -> Self {
        LimiterOptions { namespace: name.into(), ..self }
    }

    /// The limiter in its namespace.
    pub(super) fn make(
        &self,
        namespace: &DefinedNamespace,
        decisions: Option<Arc<StoreDecisions>>,
    ) -> Result<RateLimiter, NewError> {
        let (limit, hits) = match self.admits {
            Admits::Windows { limit, window, window_type } => {
                let hits = arguments::limit(limit, window_type.algorithm())?;
                let size = arguments::window_size("window", window.as_secs_f64())?;
                namespace.check_size("window", size)?;
                let limit = Limit {
                    name: format!("{}-{size}", namespace.name).into(),
                    size,
                    algorithm: window_type.algorithm(),
                    burst: Burst::default(),
                };
                (limit, hits)
            }
            Admits::Rate { rate, burst } => {
                let hits = arguments::some_hits("rate", rate)?;
                let burst = arguments::hits("burst", burst)?;
                (Limit::per_second(&namespace.name, hits, burst), hits)
            }
        };
        check_algorithm(limit.algorithm, namespace, decisions.as_deref())?;
        let limiter = namespace.keep(|namespace| Limiter::new(&namespace, limit, hits))?;
        Ok(RateLimiter { limiter, decisions })
    }
}

/// Checks that a namespace counts so.
fn check_algorithm(
    algorithm: Algorithm,
    namespace: &DefinedNamespace,
    decisions: Option<&StoreDecisions>,
) -> Result<(), ArgumentError> {
    let decides = || decisions.is_some_and(|it| it.are_by(algorithm));
    if namespace.sync.goes_with(algorithm, decides) {
        return Ok(());
    }
    let (argument, given) = arguments::algorithm_argument(algorithm);
    let name = &namespace.name;
    let expected = match decisions {
        Some(_) => format!("what the store of namespace \"{name}\" decides by"),
        None => format!("sliding or fixed windows in namespace \"{name}\", which is synced"),
    };
    Err(ArgumentError::new(argument, &expected, given))
}

impl WindowType {
    pub(super) fn algorithm(self) -> Algorithm {
        match self {
            WindowType::Sliding => Algorithm::Sliding,
            WindowType::Fixed => Algorithm::Fixed,
            WindowType::Moving => Algorithm::Moving,
            WindowType::Elastic => Algorithm::Elastic,
        }
    }
}

impl RateLimiter {
    /// Decides on one hit of `key`, which is counted if it is admitted and `commit` is true. Where `sync_rate`
    /// is zero, the store decides, and this waits for it.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`]: the key is empty. [`CallError::NoAnswer`]: the store
    /// is silent, and hits are denied then.
    pub fn incoming(&self, key: impl AsRef<[u8]>, commit: bool) -> Result<Decision<'_>, CallError> {
        self.incoming_hits(key, 1.0, commit)
    }

    /// Decides on `cost` hits of `key`, all or none, like [`RateLimiter::incoming`].
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::incoming`], or `cost` is no number of 0.001 or more.
    pub fn incoming_hits(
        &self,
        key: impl AsRef<[u8]>,
        cost: f64,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        let asked = asked(key.as_ref(), cost, commit)?;
        // As in `Instance::increment`: no future, unless there is something to wait for.
        match &self.decisions {
            None => Ok(self.decide_here(asked)),
            Some(decisions) => block_on(self.decide_by(decisions, asked)),
        }
    }

    /// Decides as [`RateLimiter::incoming`] does, as a future that any executor can run. The hit
    /// may count if it is dropped.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::incoming`].
    pub async fn incoming_async(
        &self,
        key: impl AsRef<[u8]>,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        self.incoming_hits_async(key, 1.0, commit).await
    }

    /// Decides as [`RateLimiter::incoming_hits`] does, as a future that any executor can run. Hits
    /// may count if it is dropped.
    ///
    /// # Errors
    ///
    /// As [`RateLimiter::incoming_hits`].
    pub async fn incoming_hits_async(
        &self,
        key: impl AsRef<[u8]>,
        cost: f64,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        let asked = asked(key.as_ref(), cost, commit)?;
        match &self.decisions {
            None => Ok(self.decide_here(asked)),
            Some(decisions) => self.decide_by(decisions, asked).await,
        }
    }

    fn decide_here(&self, asked: AskedHits<'_>) -> Decision<'_> {
        let (incoming, refund) = self.limiter.get().incoming(asked, &Machine);
        Decision::new(incoming, refund.map(CommittedHits::Here))
    }

    async fn decide_by<'l>(
        &'l self,
        decisions: &'l StoreDecisions,
        asked: AskedHits<'_>,
    ) -> Result<Decision<'l>, CallError> {
        let (incoming, committed) = decisions.incoming(self.limiter.get(), asked).await?;
        Ok(Decision::new(incoming, committed))
    }
}

fn asked(key: &[u8], cost: f64, commit: bool) -> Result<AskedHits<'_>, ArgumentError> {
    Ok(AskedHits {
        key: arguments::key(key)?,
        cost: arguments::some_hits("cost", cost)?,
        commit,
        weight: Weight::default(),
    })
}

impl<'l> Decision<'l> {
    fn new(incoming: Incoming, committed: Option<CommittedHits<'l>>) -> Decision<'l> {
        let Incoming { is_admitted, rate, remaining, delay, retry_after } = incoming;
        Decision {
            is_admitted,
            delay: Duration::from_millis(delay),
            remaining: number(remaining),
            rate: number(rate),
            retry_after: retry_after.map(Duration::from_millis),
            committed,
        }
    }

    /// Gives the hits back that were counted, as if they had never come; returns whether it did: not if
    /// none were counted, or their window has ended. A store that has counted them is told, and not waited
    /// for.
    pub fn uncommit(self) -> bool {
        self.committed.is_some_and(CommittedHits::give_back)
    }
}

/// Hits as callers have them.
pub(super) fn number(hits: Hits) -> f64 {
    hits.thousandths() as f64 / 1000.0
}
