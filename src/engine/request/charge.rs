//! The charge of a request by one limit.

use super::bound_limit::BoundLimit;
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::limit::Verdict;
use crate::table::{Counted, Counter, CounterTable, Identity, Key, Receipt};

/// The charge of a request by one limit, with the limit's decision.
#[derive(Debug)]
pub struct Charge<'c, 'm> {
    pub(super) bound: &'c BoundLimit<'m>,
    pub(super) key: &'c Key<'c>,
    pub(super) hits: Hits,
    pub(super) cost: Hits,
    pub(super) counted: Counted<'m>,
}

impl<'c, 'm> Charge<'c, 'm> {
    /// Returns the limit's verdict.
    pub fn verdict(&self) -> Verdict<'c> {
        Verdict {
            limit: &self.bound.limit,
            hits: self.hits,
            reading: self.counted.reading,
            cost: self.cost,
            admitted: self.counted.admitted,
        }
    }

    /// The limit that was asked.
    #[inline]
    pub fn bound(&self) -> &'c BoundLimit<'m> {
        self.bound
    }

    /// The counter that was asked.
    pub(super) fn counter(&self) -> Counter {
        self.bound.counter_of_reading(&self.counted.reading)
    }

    /// The key that was counted by.
    pub fn key(&self) -> Key<'c> {
        *self.key
    }

    /// Returns the cost that is charged on admission.
    pub(super) fn cost(&self) -> Hits {
        self.cost
    }

    /// The identity of the counter.
    pub(super) fn identity(&self) -> Identity {
        self.counter().identity(*self.key)
    }

    /// Returns the hits that the counter was charged here, unless they were refunded.
    #[inline]
    pub(super) fn charged(&self) -> Hits {
        let receipt = self.counted.receipt.as_ref();
        receipt.map_or(Hits::ZERO, Receipt::value)
    }

    /// Converts the charge to a refund, if something was charged.
    #[inline]
    pub(crate) fn into_refund(self) -> Option<Refund<'m>> {
        let (table, counter, identity) = (self.bound.table, self.counter(), self.identity());
        let receipt = self.counted.receipt?;
        Some(Refund { table, counter, identity, receipt })
    }

    pub(super) fn has_counter_of(&self, other: &Counter, key: Key<'_>) -> bool {
        self.identity() == other.identity(key)
    }
}

/// A charge that can be given back.
#[derive(Debug)]
pub struct Refund<'m> {
    table: &'m CounterTable<'m>,
    counter: Counter,
    identity: Identity,
    receipt: Receipt<'m>,
}

impl Refund<'_> {
    /// Whether it is of this key, under a limit of the same counters.
    pub fn is_of(&self, bound: &BoundLimit<'_>, key: &[u8]) -> bool {
        let name = counted_name(key, None);
        self.identity == bound.counter.identity(bound.table.key(&name))
    }

    /// Returns the charged hits.
    pub fn value(&self) -> Hits {
        self.receipt.value()
    }

    /// Gives it back, unless the window or the counter is gone; returns whether it did.
    pub fn refund(self) -> bool {
        self.table.refund(&self.counter, &self.receipt)
    }
}

/// The container in which an [`Evaluation`](super::evaluation::Evaluation) keeps its charges: a
/// `Vec`, or memory that is cheaper to have.
pub trait Charges<'c, 'm> {
    /// Adds a charge.
    fn push(&mut self, charge: Charge<'c, 'm>);
    /// The charges so far.
    fn as_mut_slice(&mut self) -> &mut [Charge<'c, 'm>];
}

impl<'c, 'm> Charges<'c, 'm> for Vec<Charge<'c, 'm>> {
    fn push(&mut self, charge: Charge<'c, 'm>) {
        self.push(charge);
    }

    fn as_mut_slice(&mut self) -> &mut [Charge<'c, 'm>] {
        self
    }
}
