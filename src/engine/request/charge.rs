//! The charge of a request by one limit.

use super::bound_limit::BoundLimit;
use crate::policy::algorithm::StoredKind;
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::limit::Verdict;
use crate::policy::window::Clock;
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

    /// Returns the limit.
    #[inline]
    pub fn bound(&self) -> &'c BoundLimit<'m> {
        self.bound
    }

    /// Returns the counter.
    pub(super) fn counter(&self) -> Counter {
        self.bound.counter_of_reading(&self.counted.reading)
    }

    /// Returns the key.
    pub fn key(&self) -> Key<'c> {
        *self.key
    }

    /// Returns the cost that is charged if the request is admitted.
    pub(super) fn cost(&self) -> Hits {
        self.cost
    }

    /// Returns the identity of the counter.
    pub(super) fn identity(&self) -> Identity {
        self.counter().identity(*self.key)
    }

    /// Returns the hits that were charged in this node's counter; zero if they were refunded.
    #[inline]
    pub(super) fn charged(&self) -> Hits {
        let receipt = self.counted.receipt.as_ref();
        receipt.map_or(Hits::ZERO, Receipt::value)
    }

    /// Returns the charged hits that are final: those of an estimate are not.
    pub(super) fn settled(&self) -> Hits {
        match self.bound.is_estimated() {
            true => Hits::ZERO,
            false => self.charged(),
        }
    }

    /// Converts the charge to a refund; `None` if nothing was charged.
    #[inline]
    pub(crate) fn into_refund(self) -> Option<Refund<'m>> {
        let (table, counter, identity) = (self.bound.table, self.counter(), self.identity());
        let receipt = self.counted.receipt?;
        Some(Refund { table, counter, identity, receipt })
    }

    /// Releases the request, which ends, if this is a hold. Must be called once.
    #[inline]
    pub fn release(&self, clock: &impl Clock) {
        if self.bound.counter.kind() == StoredKind::Holds
            && let Some(receipt) = &self.counted.receipt
        {
            self.bound.release(receipt, self.hits, clock);
        }
    }

    pub(super) fn has_counter_of(&self, other: &Counter, key: Key<'_>) -> bool {
        self.identity() == other.identity(key)
    }
}

/// A charge that can be refunded.
#[derive(Debug)]
pub struct Refund<'m> {
    table: &'m CounterTable<'m>,
    counter: Counter,
    identity: Identity,
    receipt: Receipt<'m>,
}

impl Refund<'_> {
    /// Returns whether this belongs to `key`, under a limit with the same counters.
    pub fn is_of(&self, bound: &BoundLimit<'_>, key: &[u8]) -> bool {
        let name = counted_name(key, None);
        self.identity == bound.counter.identity(bound.table.key(&name))
    }

    /// Returns the charged hits.
    pub fn value(&self) -> Hits {
        self.receipt.value()
    }

    /// Refunds the hits, unless their window or counter is gone. Returns whether it did.
    pub fn refund(self) -> bool {
        self.table.refund(&self.counter, &self.receipt)
    }
}

/// Storage for the charges of an [`Evaluation`](super::evaluation::Evaluation): a `Vec`, or cheaper
/// memory.
pub trait Charges<'c, 'm> {
    /// Adds a charge.
    fn push(&mut self, charge: Charge<'c, 'm>);
    /// Returns the charges so far.
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
