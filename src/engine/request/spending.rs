//! Decides on requests from this node's reserve: the datastore has charged the hits before, so it
//! is not asked.
//!
//! If a request has several limits that a datastore decides, the reserves must cover all of them.
//! The caller must ensure that the limits have separate counters: with a shared one, a hit would be
//! spent twice.

use super::bound_limit::BoundLimit;
use super::charge::Charge;
use super::deferred::DeferredCharge;
use super::synchronous::{Answered, LimitCheck};
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis};
use crate::store::contract::decision::{Certainty, Few};
use crate::table::{AskedHit, CounterTable, Key, Receipt, Reserve, Spent};

/// The result of spending from reserves, in place of a datastore's answer.
#[derive(Debug)]
pub struct Spending<'m> {
    /// The answer to each check that a datastore would have decided.
    pub answered: Few<Option<Answered>>,
    /// The reserves from which hits were spent.
    pub spent: Few<SpentReserve<'m>>,
}

/// The hits spent from one reserve.
#[derive(Debug)]
pub struct SpentReserve<'m> {
    pub(super) table: &'m CounterTable<'m>,
    pub(super) reserve: Reserve,
    /// Index of the check.
    pub(super) check: usize,
    pub(crate) spent: Spent<'m>,
}

/// The store's clock, at one moment.
#[derive(Clone, Copy)]
pub(super) struct At(pub(super) UnixMillis);

impl Clock for At {
    fn now(&self) -> UnixMillis {
        self.0
    }

    fn fresh(&self) -> UnixMillis {
        self.0
    }
}

/// Spends the hits of all checks that a datastore decides. `None`, without spending, if the
/// reserves do not cover all of them. `time_of` returns the time of a decider's store.
pub fn spend<'m>(
    checks: &[LimitCheck<'_, 'm>],
    time_of: impl Fn(usize) -> Option<UnixMillis>,
) -> Option<Spending<'m>> {
    let mut spending = Spending { answered: Few::with_capacity(checks.len()), spent: Few::new() };
    for (index, check) in checks.iter().enumerate() {
        let decider = check.decider().filter(|_| !check.bound.is_of_bans());
        let Some(decider) = decider else {
            spending.answered.push(None);
            continue;
        };
        let spent = time_of(decider).and_then(|now| {
            let spent = spend_of(check.bound, *check.key, check.hits, check.cost, now)?;
            Some((spent, now))
        });
        let Some((spent, now)) = spent else {
            spending.put_back();
            return None;
        };
        let answered = answered(check, spent.spent.left, now);
        spending.answered.push(Some(answered));
        spending.spent.push(SpentReserve { check: index, ..spent });
    }
    Some(spending)
}

fn spend_of<'m>(
    bound: &BoundLimit<'m>,
    key: Key<'_>,
    limit: Hits,
    cost: Hits,
    now: UnixMillis,
) -> Option<SpentReserve<'m>> {
    let reserve = bound.reserve(key, limit)?;
    let spent = bound.table().spend(&reserve, cost, now)?;
    Some(SpentReserve { table: bound.table(), reserve, check: 0, spent })
}

/// Spends up to this number of hits from a reserve; `None` if there are none.
fn spend_at_most<'m>(
    bound: &BoundLimit<'m>,
    key: Key<'_>,
    limit: Hits,
    hits: Hits,
    now: UnixMillis,
) -> Option<SpentReserve<'m>> {
    loop {
        let there = spend_of(bound, key, limit, Hits::ZERO, now)?;
        let part = there.spent.left.min(hits);
        // If this fails, another process has spent some of them.
        if let Some(spent) = spend_of(bound, key, limit, part, now) {
            return Some(spent);
        }
    }
}

/// Returns the answer to a check: from the store's last count of the other nodes' hits, and this
/// node's spent ones.
fn answered(check: &LimitCheck<'_, '_>, left: Hits, now: UnixMillis) -> Answered {
    let LimitCheck { bound, hits: limit, key, cost, .. } = *check;
    let (counter, _) = bound.at(limit);
    let asked = AskedHit { limit, cost };
    let reading = bound.table.read_for(&counter, *key, asked, &At(now));
    Answered {
        admitted: true,
        reading: reading.minus(left),
        charged: cost,
        certainty: Certainty::Settled,
    }
}

impl LimitCheck<'_, '_> {
    /// Returns the hits left in reserve after `reading` of the store.
    pub(super) fn left(&self, reading: &Reading) -> Hits {
        let Some(reserve) = self.bound.reserve(*self.key, self.hits) else {
            return Hits::ZERO;
        };
        let counts = reading.windows();
        let time = counts.moment(reserve.size());
        let reserved = self.bound.table.reserved(&reserve, counts.window, time);
        reserved.left()
    }
}

impl Spending<'_> {
    /// Puts the spent hits back, since another limit has refused the request.
    pub fn put_back(self) {
        self.spent.into_iter().for_each(SpentReserve::put_back);
    }
}

impl SpentReserve<'_> {
    /// Returns the spent hits.
    fn value(&self) -> Hits {
        let receipt = self.spent.receipt.as_ref();
        receipt.map_or(Hits::ZERO, Receipt::value)
    }

    /// Puts the spent hits back.
    pub fn put_back(self) {
        if let Some(receipt) = &self.spent.receipt {
            // In a window that has ended, they do not count any more.
            self.table.put_back(&self.reserve, receipt);
        }
    }
}

impl<'m> DeferredCharge<'_, '_, 'm> {
    /// Spends the hits from reserves, and leaves the rest in the question. Spends everything in
    /// reserve even if that does not suffice: hits that stay in reserve would admit the next
    /// request, although the charge in this question may exceed the limit. `time_of` is as in
    /// [`spend`].
    pub fn spend(
        &mut self,
        time_of: impl Fn(usize) -> Option<UnixMillis>,
    ) -> Few<SpentReserve<'m>> {
        let mut all = Few::new();
        let Some(now) = time_of(self.decider) else {
            return all;
        };
        for (charge, hits, counter) in self.each() {
            let Charge { bound, key, hits: limit, .. } = charge;
            if let Some(spent) = spend_at_most(bound, **key, *limit, hits, now) {
                counter.cost = counter.cost.minus(spent.value());
                all.push(spent);
            }
        }
        let counters = &mut self.question.counters;
        counters.retain(|it| it.cost > Hits::ZERO);
        all
    }

    /// Returns whether all hits were in reserve, so that the store is not asked.
    pub fn is_spent(&self) -> bool {
        self.question.counters.is_empty()
    }
}
