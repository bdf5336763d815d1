//! A call that a store decides about, where `sync_rate` is 0: what the store is asked, and what is answered then.

use core::time::Duration;

use super::call_limit::{CallLimit, said};
use super::counting::Counting;
use super::error::ApiError;
use super::key::{self, check_key};
use super::request::{ApiCall, KeyCall};
use super::store_reset::{AfterStore, StoreReset};
use crate::engine::{
    Deciders, Evaluation, LimitCheck, Namespace, StoreQuestion, conclude, questions, unsent_charges,
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
    /// Hits that are to be counted, under a limit or without, or only read.
    Hits(StoreHits<'n, 'm>),
    /// A key that is to be set to zero.
    Reset(StoreReset<'n, 'm>),
}

/// Hits that are to be counted, or only read.
#[derive(Debug)]
pub struct StoreHits<'n, 'm> {
    call: KeyCall,
    size: WindowSize,
    namespace: &'n Namespace<'m>,
    limit: CallLimit<'m>,
}

impl<'n, 'm> StoreCall<'n, 'm> {
    /// Creates the questions to a store for `call`, of a namespace that counts so. `None`: this
    /// node answers it.
    ///
    /// # Errors
    ///
    /// 400 if the window or the key is none of the namespace's, or its store does not decide by the algorithm.
    pub fn new(
        call: &ApiCall,
        namespace: &'n Namespace<'m>,
        counting: &Counting<'_>,
    ) -> Result<Option<Self>, ApiError> {
        if counting.sync != SyncMode::Synchronous {
            return Ok(None);
        }
        Ok(match call {
            // What its store does not count, this node may have.
            ApiCall::Key(call) if call.increment.is_none() && !counting.has(call.algorithm) => None,
            ApiCall::Key(call) => Some(StoreCall::Hits(StoreHits::new(call, namespace, counting)?)),
            ApiCall::Reset(call) => {
                Some(StoreCall::Reset(StoreReset::new(call, namespace, counting)?))
            }
            _ => None,
        })
    }

    /// Whether the namespace is to be synced before the store is asked: a node that enters an epoch with a sync voids
    /// hits below zero, so that it has to be in the present one when a reset makes some.
    pub fn begins_with_sync(&self) -> bool {
        match self {
            StoreCall::Hits(_) => false,
            StoreCall::Reset(reset) => reset.needs_sync(),
        }
    }

    /// The number of the decider among those of the namespace, and what it is asked.
    pub fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        match self {
            StoreCall::Hits(hits) => hits.question(store),
            StoreCall::Reset(reset) => reset.question(store),
        }
    }

    /// Returns the answer that follows from the store's answer.
    ///
    /// # Errors
    ///
    /// None that is known.
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

    /// Returns the answer without the store, as `on_error` says, and the question by which the
    /// decider of this number is to charge later the hits that were counted here and that no sync
    /// pushes.
    ///
    /// # Errors
    ///
    /// 503 for what is denied, and for a key that may not be zero.
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

    /// Returns the questions to the deciders of these numbers when the namespace was synced; no
    /// answer is waited for.
    pub fn repairs(&self, store: Deciders) -> Vec<(usize, Question)> {
        match self {
            StoreCall::Hits(_) => Vec::new(),
            StoreCall::Reset(reset) => reset.repairs(store),
        }
    }

    /// Returns the answer when the namespace was synced.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn synced(&mut self, clock: &impl Clock) -> Result<String, ApiError> {
        match self {
            StoreCall::Hits(StoreHits { call, size, namespace, .. }) => {
                key::read(call, namespace, *size, clock)
            }
            StoreCall::Reset(reset) => Ok(reset.done()),
        }
    }

    /// Counts in the namespace that the call waited so long for the store.
    pub fn count_wait(&self, time: Duration) {
        match self {
            StoreCall::Hits(hits) => hits.limit.bound.count_wait(time),
            StoreCall::Reset(reset) => reset.count_wait(time),
        }
    }
}

/// A 503, since the store has not answered, for which reason this is so.
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

    /// Calls `callback` with what the limit is asked, of `store` if there is one.
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
        })
    }

    fn question(&self, store: Deciders) -> Option<(usize, Question)> {
        self.with_check(Some(store), |check| {
            let asked = questions(&[check], self.limit.is_unlimited).pop();
            asked.map(|asked: StoreQuestion| (asked.decider, asked.question))
        })
    }

    fn answered(
        &self,
        store: Deciders,
        answer: &Answer,
        clock: &impl Clock,
    ) -> Result<String, ApiError> {
        let (reading, decided) = self.with_check(Some(store), |check| {
            let (checks, mut answers) = ([check], [None]);
            for question in questions(&checks, self.limit.is_unlimited) {
                question.note(answer, &checks, &mut answers, clock);
            }
            let mut evaluation = Evaluation::new(Vec::new(), self.limit.is_unlimited);
            conclude(&mut evaluation, &checks, &answers, clock);
            match self.limit.is_unlimited {
                true => (said(&evaluation.end(clock)).0, None),
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
        // What has no limit is counted here, unless it is refused.
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
            said(&charges)
        });
        let decided = (!self.limit.is_unlimited).then(|| match on_error {
            OnError::Allow => decided.admitting(),
            OnError::Local | OnError::Deny => decided,
        });
        let StoreHits { call, namespace, size, .. } = self;
        key::answer(call, namespace, *size, &reading, decided, clock)
    }
}
