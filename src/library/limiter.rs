//! Limiters by key, with an interface like OpenResty's `resty.limit.*`.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use super::asking::{StoreDecisions, block_on};
use super::definition::DefinedNamespace;
use super::error::{CallError, NewError};
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{AskedHits, Committed, Env as _, Incoming, Limiter, Machine, SyncCommand};
use crate::policy::algorithm::Algorithm;
use crate::policy::limit::Limit;
use crate::policy::namespace::DEFAULT_NAMESPACE;
use crate::policy::namespace::SyncMode;
use crate::table::{HeldSweep, InTable, LOOK_EVERY, WithTable};

/// Options of a [`RateLimiter`].
#[derive(Clone, Debug)]
pub struct LimiterOptions {
    pub(super) namespace: String,
    admits: Admits,
}

#[derive(Clone, Copy, Debug)]
enum Admits {
    Windows { limit: f64, window: Duration, window_type: WindowType },
    Rate { rate: f64, burst: f64 },
    Concurrent(f64),
}

/// The way in which a window counts hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WindowType {
    /// Counts a share of the previous window too, as
    /// [`Instance::sliding_window`](super::Instance::sliding_window) does.
    #[default]
    Sliding,
    /// Counts only hits of the current window, which begins at a multiple of its size.
    Fixed,
    /// Counts exactly the hits of the last `window`. The limit is at most 100,000.
    Moving,
    /// Counts from the first hit until there was no hit for a whole window.
    Elastic,
}

/// A limit in a namespace, from [`Instance::limiter`](super::Instance::limiter).
#[derive(Debug)]
pub struct RateLimiter {
    limiter: WithTable<LimiterInTable>,
    /// Decisions of the store; `None` if it does not decide.
    decisions: Option<Arc<StoreDecisions>>,
    /// Keeps the sync of the namespace going; `None` without a store.
    _sync: Option<UnboundedSender<SyncCommand>>,
    /// The time of the last look for processes that have ended, and their holds.
    sweep: Mutex<(Option<Duration>, HeldSweep)>,
}

#[derive(Debug)]
struct LimiterInTable;

impl InTable for LimiterInTable {
    type Of<'m> = Limiter<'m>;

    fn shorten<'a, 'm: 'a>(of: &'a Self::Of<'m>) -> &'a Self::Of<'a> {
        of
    }
}

/// The decision of a [`RateLimiter`] about hits.
#[derive(Debug)]
#[non_exhaustive]
pub struct Decision<'l> {
    /// Whether the limit admits the hits.
    pub is_admitted: bool,
    /// Time after which the hits are within the rate, for a limit by a rate; otherwise zero.
    pub delay: Duration,
    /// Hits that the limit would still admit now, with decimals.
    pub remaining: f64,
    /// The rate, including these hits if they are admitted.
    pub rate: f64,
    /// Time after which the same number of hits would be admitted if no others come; `None` if
    /// never.
    pub retry_after: Option<Duration>,
    committed: Option<Committed<'l>>,
    /// Decisions of the store; `None` if it does not decide.
    decisions: Option<&'l StoreDecisions>,
}

impl LimiterOptions {
    /// Creates the options of a limit of `limit` hits in a window. The window slides unless
    /// [`LimiterOptions::window_type`] sets another type.
    pub fn window(limit: f64, window: Duration) -> LimiterOptions {
        LimiterOptions {
            namespace: DEFAULT_NAMESPACE.into(),
            admits: Admits::Windows { limit, window, window_type: WindowType::default() },
        }
    }

    /// Creates the options of a limit of `rate` hits per second, and `burst` more at once: a leaky
    /// bucket, as in nginx's `limit_req`.
    pub fn rate(rate: f64, burst: f64) -> LimiterOptions {
        LimiterOptions { namespace: DEFAULT_NAMESPACE.into(), admits: Admits::Rate { rate, burst } }
    }

    /// Creates the options of a limit of `most` requests at the same time. Each admitted request ends with
    /// [`RateLimiter::leaving`]; what a process held that has ended is given back within a second of another one's calls.
    /// Only in namespaces without a store.
    pub fn concurrent(most: u32) -> LimiterOptions {
        let admits = Admits::Concurrent(most.into());
        LimiterOptions { namespace: DEFAULT_NAMESPACE.into(), admits }
    }

    /// Sets the type of the window. Other limits have no window.
    pub fn window_type(self, window_type: WindowType) -> Self {
        let admits = match self.admits {
            Admits::Windows { limit, window, .. } => Admits::Windows { limit, window, window_type },
            other @ (Admits::Rate { .. } | Admits::Concurrent(_)) => other,
        };
        LimiterOptions { admits, ..self }
    }

    /// Sets the namespace; the default is [`DEFAULT_NAMESPACE`].
    pub fn namespace(self, name: impl Into<String>) -> Self {
        LimiterOptions { namespace: name.into(), ..self }
    }

    /// Creates the limiter in its namespace.
    pub(super) fn make(
        &self,
        namespace: &DefinedNamespace,
        decisions: Option<Arc<StoreDecisions>>,
        sync: Option<UnboundedSender<SyncCommand>>,
    ) -> Result<RateLimiter, NewError> {
        let (limit, hits) = match self.admits {
            Admits::Windows { limit, window, window_type } => {
                let (window, algorithm) = (window.as_secs_f64(), window_type.algorithm());
                arguments::window_limit(namespace.counted(), limit, window, algorithm)?
            }
            Admits::Rate { rate, burst } => {
                let hits = arguments::some_hits("rate", rate)?;
                let burst = arguments::hits("burst", burst)?;
                (Limit::per_second(&namespace.name, hits, burst), hits)
            }
            Admits::Concurrent(most) => arguments::concurrent_limit(&namespace.name, most)?,
        };
        check_algorithm(limit.algorithm, namespace, decisions.as_deref())?;
        let limiter = namespace.keep(|namespace| Limiter::new(&namespace, limit, hits))?;
        Ok(RateLimiter { limiter, decisions, _sync: sync, sweep: Mutex::default() })
    }
}

/// Checks that a namespace supports the algorithm.
fn check_algorithm(
    algorithm: Algorithm,
    namespace: &DefinedNamespace,
    decisions: Option<&StoreDecisions>,
) -> Result<(), ArgumentError> {
    let decides = || decisions.is_some_and(|it| it.are_by(algorithm));
    // No sync of the library tells other nodes what is under way.
    let is_told = namespace.sync == SyncMode::Local || !algorithm.is_of_concurrency();
    if is_told && namespace.sync.goes_with(algorithm, decides) {
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
    /// Decides on one hit of `key`, and counts it if it is admitted and `commit` is true. If
    /// `sync_rate` is zero, the store decides, and the call waits for it.
    ///
    /// # Errors
    ///
    /// [`CallError::Argument`] if the key is empty; [`CallError::NoAnswer`] if the store does not
    /// answer and `on_error` denies.
    pub fn incoming(&self, key: impl AsRef<[u8]>, commit: bool) -> Result<Decision<'_>, CallError> {
        self.incoming_hits(key, 1.0, commit)
    }

    /// Decides on `cost` hits of `key`, all or none. See [`RateLimiter::incoming`].
    ///
    /// # Errors
    ///
    /// See [`RateLimiter::incoming`]; also if `cost` is not a number of at least 0.001.
    pub fn incoming_hits(
        &self,
        key: impl AsRef<[u8]>,
        cost: f64,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        let asked = AskedHits::new(key.as_ref(), cost, commit)?;
        // A future is used only to wait for a store, as in `Instance::increment`.
        match &self.decisions {
            None => Ok(self.decide_here(asked)),
            Some(decisions) => block_on(self.decide_by(decisions, asked)),
        }
    }

    /// Async variant of [`RateLimiter::incoming`], for any executor. If the future is dropped, the
    /// hit may count.
    ///
    /// # Errors
    ///
    /// See [`RateLimiter::incoming`].
    pub async fn incoming_async(
        &self,
        key: impl AsRef<[u8]>,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        self.incoming_hits_async(key, 1.0, commit).await
    }

    /// Async variant of [`RateLimiter::incoming_hits`], for any executor. If the future is dropped,
    /// the hits may count.
    ///
    /// # Errors
    ///
    /// See [`RateLimiter::incoming_hits`].
    pub async fn incoming_hits_async(
        &self,
        key: impl AsRef<[u8]>,
        cost: f64,
        commit: bool,
    ) -> Result<Decision<'_>, CallError> {
        let asked = AskedHits::new(key.as_ref(), cost, commit)?;
        match &self.decisions {
            None => Ok(self.decide_here(asked)),
            Some(decisions) => self.decide_by(decisions, asked).await,
        }
    }

    /// Ends a request of `key` that [`RateLimiter::incoming`] has admitted in this process, under a limit of concurrent
    /// requests. Returns false if there is none.
    pub fn leaving(&self, key: impl AsRef<[u8]>) -> bool {
        let limiter = self.limiter.get();
        limiter.is_of_concurrency() && limiter.leaving(key.as_ref(), &Machine)
    }

    /// Gives back what ended processes held, if nobody of this process has looked for a while.
    #[cold]
    fn look_at_holders(&self) {
        let Ok(mut sweep) = self.sweep.try_lock() else { return };
        let (last, sweep) = &mut *sweep;
        let now = Machine.uptime();
        if last.is_some_and(|last| now.saturating_sub(last) < LOOK_EVERY) {
            return;
        }
        *last = Some(now);
        let table = self.limiter.get().bound().table();
        if table.look_at_holders(sweep) {
            while table.sweep_holds(sweep, &Machine) {}
        }
    }

    fn decide_here(&self, asked: AskedHits<'_>) -> Decision<'_> {
        if self.limiter.get().is_of_concurrency() {
            self.look_at_holders();
        }
        let (incoming, committed) = self.limiter.get().incoming(asked, &Machine);
        Decision::new(incoming, committed, None)
    }

    async fn decide_by<'l>(
        &'l self,
        decisions: &'l StoreDecisions,
        asked: AskedHits<'_>,
    ) -> Result<Decision<'l>, CallError> {
        let (incoming, committed) = decisions.incoming(self.limiter.get(), asked).await?;
        Ok(Decision::new(incoming, committed, Some(decisions)))
    }
}

impl<'l> Decision<'l> {
    fn new(
        incoming: Incoming,
        committed: Option<Committed<'l>>,
        decisions: Option<&'l StoreDecisions>,
    ) -> Decision<'l> {
        let Incoming { is_admitted, rate, remaining, delay, retry_after } = incoming;
        Decision {
            is_admitted,
            delay: Duration::from_millis(delay),
            remaining: remaining.to_f64(),
            rate: rate.to_f64(),
            retry_after: retry_after.map(Duration::from_millis),
            committed,
            decisions,
        }
    }

    /// Refunds the hits that were counted. Returns false if none were counted, or their window has
    /// ended. A store that has charged them is asked to refund them, without waiting for it.
    pub fn uncommit(self) -> bool {
        self.committed.is_some_and(|committed| committed.give_back(self.decisions))
    }
}
