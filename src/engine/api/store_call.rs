//! Calls of a synchronous namespace: the questions to its store, and the answers to the call.

use core::time::Duration;

use super::call_limit::{CallLimit, reading_and_decision};
use super::counting::Counting;
use super::json::ApiError;
use super::key::{self, check_key};
use super::request::{ApiCall, KeyCall};
use super::store_reset::{AfterStore, StoreReset};
use crate::engine::{
    Deciders, Evaluation, LimitCheck, Namespace, PendingDecision, questions, unsent_charges,
};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::namespace::{OnError, SyncMode};
use crate::policy::window::{Clock, WindowSize};
use crate::store::contract::decision::{Answer, Question};
use crate::table::Key;

/// A call that a store decides about.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "who keeps one has it in a box")]
pub enum StoreCall<'n, 'm> {
    /// Hits to be counted, with or without a limit, or a counter to be read.
    Hits(StoreHits<'n, 'm>),
    /// A key to be set to zero.
    Reset(StoreReset<'n, 'm>),
}

/// Hits to be counted in a counter, or the counter to be read.
#[derive(Debug)]
pub struct StoreHits<'n, 'm> {
    call: KeyCall,
    size: WindowSize,
    namespace: &'n Namespace<'m>,
    limit: CallLimit<'m>,
}

impl<'n, 'm> StoreCall<'n, 'm> {
    /// Creates the store call for `call`; `None` if this node answers alone.
    ///
    /// # Errors
    ///
    /// 400 if the window is none of the namespace's, the key is empty, or the store does not support the algorithm; 404
    /// if no rule has the counter.
    pub fn new(
        call: &ApiCall,
        namespace: &'n Namespace<'m>,
        counting: &Counting<'_>,
    ) -> Result<Option<Self>, ApiError> {
        if counting.sync != SyncMode::Synchronous {
            return Ok(None);
        }
        Ok(match call {
            // Counters that the store does not support may exist on this node.
            ApiCall::Key(call) if call.increment.is_none() && !counting.has(call.algorithm) => None,
            ApiCall::Key(call) => Some(StoreCall::Hits(StoreHits::new(call, namespace, counting)?)),
            ApiCall::Reset(call) => {
                Some(StoreCall::Reset(StoreReset::new(call, namespace, counting)?))
            }
            _ => None,
        })
    }

    /// Whether the namespace has to be synced before the store is asked. A sync that enters a new epoch voids negative
    /// diffs, so the node must be in the current epoch before a reset creates some.
    pub fn begins_with_sync(&self) -> bool {
        match self {
            StoreCall::Hits(_) => false,
            StoreCall::Reset(reset) => reset.needs_sync(),
        }
    }

    /// Returns the question, and the number of its decider among those of the namespace.
    pub fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        match self {
            StoreCall::Hits(hits) => hits.question(store),
            StoreCall::Reset(reset) => reset.question(store),
        }
    }

    /// Processes the store's answer, and returns the next step.
    ///
    /// # Errors
    ///
    /// 400 if a key cannot be counted, which [`StoreCall::new`] has ruled out.
    pub fn answered(
        &mut self,
        store: Deciders,
        answer: &Answer,
        clock: &impl Clock,
    ) -> Result<AfterStore, ApiError> {
        match self {
            StoreCall::Hits(hits) => hits.answered(store, answer, clock).map(AfterStore::Body),
            StoreCall::Reset(reset) => reset.answered(answer, clock),
        }
    }

    /// Returns the answer when the store did not answer, by `on_error`. Passes to `charge_later` the questions, with
    /// the numbers of their deciders, that charge hits which were counted here and which no sync pushes.
    ///
    /// # Errors
    ///
    /// 503 if `on_error deny` rejects the hits, or the call is a reset.
    pub fn without_store(
        &self,
        store: Deciders,
        on_error: OnError,
        clock: &impl Clock,
        charge_later: impl FnMut(usize, Question),
    ) -> Result<String, ApiError> {
        match self {
            StoreCall::Hits(hits) => hits.without_store(store, on_error, clock, charge_later),
            StoreCall::Reset(_) => Err(no_answer("the key may not be zero")),
        }
    }

    /// Returns the questions to be asked after the sync, with the numbers of their deciders. Nobody waits for their
    /// answers.
    pub fn repairs(&self, store: Deciders) -> Vec<(usize, Question)> {
        match self {
            StoreCall::Hits(_) => Vec::new(),
            StoreCall::Reset(reset) => reset.repairs(store),
        }
    }

    /// Returns the answer after the sync.
    ///
    /// # Errors
    ///
    /// 400 if a key cannot be counted, which [`StoreCall::new`] has ruled out.
    pub fn synced(&mut self, clock: &impl Clock) -> Result<String, ApiError> {
        match self {
            StoreCall::Hits(StoreHits { call, size, namespace, .. }) => {
                key::read(call, namespace, *size, clock)
            }
            StoreCall::Reset(reset) => Ok(reset.done()),
        }
    }

    /// Counts the time for which the call waited for the store.
    pub fn count_wait(&self, time: Duration) {
        match self {
            StoreCall::Hits(hits) => hits.limit.bound.count_wait(time),
            StoreCall::Reset(reset) => reset.count_wait(time),
        }
    }
}

/// Returns the 503 for a call that the store did not answer; `what` is the consequence.
fn no_answer(what: &str) -> ApiError {
    ApiError::new(503, format!("the store has not answered in time: {what}"))
}

impl<'n, 'm> StoreHits<'n, 'm> {
    fn new(
        call: &KeyCall,
        namespace: &'n Namespace<'m>,
        counting: &Counting<'_>,
    ) -> Result<Self, ApiError> {
        counting.check_counter(call.counter.as_deref())?;
        let size = counting.window_of(call)?;
        let call = &call.in_window(size);
        counting.check(call.algorithm)?;
        check_key(&call.key)?;
        if call.increment.is_some() {
            namespace.record_counted(call.algorithm, size, call.rate);
        }
        Ok(StoreHits {
            call: call.clone(),
            size,
            namespace,
            limit: CallLimit::new(call, namespace, size),
        })
    }

    /// Calls `callback` with the check of the limit, in `store` if there is one.
    fn with_check<T>(
        &self,
        store: Option<Deciders>,
        callback: impl FnOnce(LimitCheck<'_, 'm>) -> T,
    ) -> T {
        let name = counted_name(&self.call.key, self.call.counter.as_deref());
        let key: Key<'_> = self.namespace.table().key(&name);
        callback(LimitCheck {
            bound: &self.limit.bound,
            hits: self.limit.hits,
            key: &key,
            cost: self.call.increment.unwrap_or(Hits::ZERO),
            store,
            trial: None,
        })
    }

    fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        self.with_check(Some(store), |check| {
            let asked = questions(&[check], self.limit.is_unlimited).pop()?;
            Some((asked.decider, asked.question))
        })
    }

    fn answered(
        &self,
        store: Deciders,
        answer: &Answer,
        clock: &impl Clock,
    ) -> Result<String, ApiError> {
        let (reading, decided) = self.with_check(Some(store), |check| {
            let mut decision = PendingDecision::new(&[check], self.limit.is_unlimited);
            decision.answer(answer, &[check], clock);
            let mut evaluation = Evaluation::new(Vec::new(), self.limit.is_unlimited);
            decision.conclude(&mut evaluation, &[check], clock);
            match self.limit.is_unlimited {
                true => (reading_and_decision(&evaluation.end(clock)).0, None),
                false => {
                    let (reading, decided) = self.limit.finish(evaluation, clock);
                    (reading, Some(decided))
                }
            }
        });
        let StoreHits { call, namespace, size, .. } = self;
        key::answer(call, namespace, *size, &reading, decided, clock)
    }

    fn without_store(
        &self,
        store: Deciders,
        on_error: OnError,
        clock: &impl Clock,
        mut charge_later: impl FnMut(usize, Question),
    ) -> Result<String, ApiError> {
        if self.call.increment.is_none() {
            return key::read(&self.call, self.namespace, self.size, clock);
        }
        self.limit.bound.count_fallback(on_error);
        if on_error == OnError::Deny {
            return Err(no_answer("on_error deny refuses the hits"));
        }
        // Hits without a limit are counted here, except with `on_error deny`.
        let counts = on_error == OnError::Local || self.limit.is_unlimited;
        let (reading, decided) = self.with_check(None, |check| {
            let LimitCheck { bound, hits, key, cost, .. } = check;
            let mut evaluation = Evaluation::new(Vec::new(), self.limit.is_unlimited);
            match counts {
                true => evaluation.charge(bound, hits, key, cost, clock),
                false => evaluation.ask(bound, hits, key, cost, clock),
            }
            let charges = evaluation.end(clock);
            for (decider, question) in unsent_charges(&charges, |_| Some(store)) {
                charge_later(decider, question);
            }
            reading_and_decision(&charges)
        });
        let decided = (!self.limit.is_unlimited).then(|| match on_error {
            OnError::Allow => decided.admitting(),
            OnError::Local | OnError::Deny => decided,
        });
        let StoreHits { call, namespace, size, .. } = self;
        key::answer(call, namespace, *size, &reading, decided, clock)
    }
}
