//! Hits that a limiter has counted for a caller, who may give them back. A file of its own, since
//! callers keep these hits after the limiter has decided, and refund them by a store of their own
//! kind.

use crate::engine::request::bound_limit::BoundLimit;
use crate::engine::request::charge::Refund;
use crate::engine::request::synchronous::StoreQuestion;
use crate::policy::key::counted_name;
use crate::store::contract::decision::Question;

/// Messages to the deciders of a store that are not answered.
pub trait TellDecider {
    /// Makes a decider charge or refund hits. Returns whether it will be told.
    fn tell(&self, decider: usize, question: &Question) -> bool;
    /// Makes a decider charge or refund hits that were counted without it, once it answers again.
    fn charge_later(&self, decider: usize, charge: &Question);
}

/// Hits that were counted and can be refunded. The variants for stores are boxed, since most
/// decisions are made in memory and this value is copied.
#[derive(Debug)]
pub enum Committed<'m> {
    /// Hits in this node's memory.
    Here(Refund<'m>),
    /// Hits in the memory, and the charge by which this decider will be told of them.
    Unsent(Refund<'m>, Box<(usize, Question)>),
    /// Hits that a store charged for this question.
    InStore(Box<StoreQuestion>),
}

impl Committed<'_> {
    /// Returns whether these are hits of `key`, under a limit with the same counters.
    pub fn is_of(&self, bound: &BoundLimit<'_>, key: &[u8]) -> bool {
        match self {
            Committed::Here(refund) | Committed::Unsent(refund, _) => refund.is_of(bound, key),
            Committed::InStore(asked) => {
                let name = counted_name(key, None);
                asked.question.counters.iter().any(|it| *it.key == *name)
            }
        }
    }

    /// Refunds the hits. Returns whether they were refunded, or the store was told to.
    pub fn give_back(self, store: Option<&impl TellDecider>) -> bool {
        match self {
            Committed::Here(refund) => refund.refund(),
            Committed::Unsent(refund, unsent) => {
                let is_refunded = refund.refund();
                if let Some(store) = store.filter(|_| is_refunded) {
                    let (decider, charge) = &*unsent;
                    store.charge_later(*decider, &charge.refund());
                }
                is_refunded
            }
            Committed::InStore(asked) => {
                store.is_some_and(|store| store.tell(asked.decider, &asked.refund()))
            }
        }
    }
}
