//! The decision on one request (or another user's hit) under several limits.

use core::ptr;
use core::time::Duration;
use std::sync::Arc;

use super::ratelimiting::Namespace;
use crate::policy::algorithm::Reading;
use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Verdict};
use crate::policy::namespace::OnError;
use crate::policy::window::{Clock, WindowSize};
use crate::table::{
    Admission, Counted, Counter, CounterTable, Identity, Invalid, Key, NameKind, Named, Outcome,
    Receipt,
};

/// A limit with its counters.
#[derive(Debug)]
pub struct BoundLimit<'m> {
    /// The limit.
    pub limit: Limit,
    namespace: Arc<str>,
    table: &'m CounterTable<'m>,
    counter: Counter,
    /// How often it rejected; `None`: that is counted with others.
    rejections: Option<Named<'m>>,
    /// Whether a request may be asked for an earlier limit that has the same counter.
    may_share: bool,
}

impl<'m> BoundLimit<'m> {
    /// `limit`, counted in `namespace`, as requests meet it after the limits `earlier`.
    pub fn new<'a>(
        limit: Limit,
        namespace: &Namespace<'m>,
        earlier: impl IntoIterator<Item = &'a BoundLimit<'m>>,
    ) -> Self
    where
        'm: 'a,
    {
        let (table, counter) = (namespace.table(), namespace.counter(limit.size));
        let may_share = earlier
            .into_iter()
            .any(|other| ptr::eq(other.table, table) && other.counter.is_same(&counter));
        let policy = [&**namespace.name(), &*limit.name];
        BoundLimit {
            rejections: table.named(NameKind::Policy, policy),
            limit,
            namespace: namespace.name().clone(),
            table,
            counter,
            may_share,
        }
    }

    /// The name of the namespace that is counted in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same, to be kept.
    pub(super) fn shared_namespace(&self) -> Arc<str> {
        self.namespace.clone()
    }

    /// What tells the counter of a key from all others.
    pub(super) fn identity(&self, key: Key<'_>) -> Identity {
        self.counter.identity(key)
    }

    /// Notes what the store has counted of a key.
    pub(super) fn note_store(&self, key: Key<'_>, reading: &Reading, clock: &impl Clock) {
        let counts = reading.windows();
        let before = counts.window.wrapping_sub(1);
        for (window, total) in [(before, counts.previous), (counts.window, counts.current)] {
            note_total(self.table, &self.counter, key, window, total, clock);
        }
    }

    /// Counts hits as this node's, when it is certain that they are not given back.
    pub(super) fn count_hits(&self, hits: Hits) {
        self.table.count_hits(&self.counter, hits);
    }

    /// Counts a request that `on_error` decided on, in the namespace.
    pub fn count_fallback(&self, on_error: OnError) {
        self.table.count_fallback(&self.counter, on_error);
    }

    /// Counts a value that was wrong at run time, in the namespace.
    pub fn count_invalid(&self, what: Invalid) {
        self.table.count_invalid(&self.counter, what);
    }

    /// Counts, in the namespace, a request that waited so long for a store.
    pub fn count_wait(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.table.count_wait(&self.counter, micros);
    }

    /// Counts a request that this limit rejected: of those that did, the tightest.
    pub fn count_rejection(&self) {
        match &self.rejections {
            Some(rejections) => rejections.count(),
            None => self.table.count_rejected(&self.counter),
        }
    }

    #[inline]
    fn has_namespace_of(&self, other: &BoundLimit<'_>) -> bool {
        ptr::addr_eq(self.table, other.table)
            && self.counter.namespace() == other.counter.namespace()
    }

    /// The table that counts: keys are hashed for it.
    #[inline]
    pub fn table(&self) -> &'m CounterTable<'m> {
        self.table
    }
}

/// What a limit said, and what it was charged.
#[derive(Debug)]
pub struct Charge<'c, 'm> {
    bound: &'c BoundLimit<'m>,
    key: &'c Key<'c>,
    hits: Hits,
    cost: Hits,
    counted: Counted<'m>,
}

impl<'c, 'm> Charge<'c, 'm> {
    /// What the limit said.
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

    /// The key that was counted by.
    pub fn key(&self) -> Key<'c> {
        *self.key
    }

    /// What was charged if it was admitted.
    pub(super) fn cost(&self) -> Hits {
        self.cost
    }

    /// What tells the counter from all others.
    pub(super) fn identity(&self) -> Identity {
        self.bound.counter.identity(*self.key)
    }

    /// What the counter was charged here, unless it was given back.
    #[inline]
    fn charged(&self) -> Hits {
        let receipt = self.counted.receipt.as_ref();
        receipt.map_or(Hits::ZERO, Receipt::value)
    }

    fn has_counter_of(&self, other: &BoundLimit<'_>, key: Key<'_>) -> bool {
        self.bound.counter.is_same(&other.counter) && self.identity() == other.counter.identity(key)
    }
}

/// Where an [`Evaluation`] keeps its charges: a `Vec`, or memory that is cheaper to have.
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

/// The evaluation of a request under its limits: all must admit it.
#[derive(Debug)]
pub struct Evaluation<L> {
    charges: L,
    counts_rejected: bool,
    is_refused: bool,
}

impl<'c, 'm: 'c, L: Charges<'c, 'm>> Evaluation<L> {
    /// A request that no limit has seen yet; what they say is kept in `charges`, which is empty.
    ///
    /// A request that a limit refuses is charged to none of them, or to all if `counts_rejected`.
    #[inline]
    pub fn new(charges: L, counts_rejected: bool) -> Self {
        Evaluation {
            charges,
            counts_rejected,
            is_refused: false,
        }
    }

    /// Asks a limit of so many `hits` to admit `cost` hits of `key`, and charges them if it does,
    /// unless a limit refused before. A cost of zero asks without charging. A counter that several
    /// limits share is charged once, by the first that charges it.
    // A function of its own, so that the counting in it has all registers.
    #[inline(never)]
    pub fn charge(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let is_special = bound.may_share | self.is_refused | self.counts_rejected;
        if !is_special && cost > Hits::ZERO {
            let BoundLimit { table, counter, .. } = bound;
            let algorithm = bound.limit.algorithm;
            match table.add_at_home(counter, key, clock, cost, hits, algorithm) {
                Some(counted) => self.push(bound, hits, key, cost, counted),
                None => self.charge_elsewhere(bound, hits, key, cost, clock),
            }
        } else {
            self.charge_otherwise(bound, hits, key, cost, clock);
        }
    }

    /// [`Evaluation::charge`] of a counter that is new, or not as most are.
    // Not inlined: then what most are charged is in registers until it is kept.
    #[cold]
    #[inline(never)]
    fn charge_elsewhere(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        let admission = Admission::Within(hits, bound.limit.algorithm);
        let counted = table.add_anywhere(counter, *key, clock, cost, admission);
        self.push(bound, hits, key, cost, counted);
    }

    /// [`Evaluation::charge`] where more than the common case is possible.
    #[cold]
    #[inline(never)]
    fn charge_otherwise(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit {
            limit,
            table,
            counter,
            may_share,
            ..
        } = bound;
        // What this request has been charged there already.
        let mut earlier = self.charges.as_mut_slice().iter();
        let charged = earlier.find_map(|charge| {
            let receipt = charge.counted.receipt.as_ref()?;
            let is_shared = charge.has_counter_of(bound, *key);
            is_shared.then_some(receipt.value())
        });

        let asks = charged.is_some() || cost == Hits::ZERO;
        let counted = if asks || (self.is_refused && !self.counts_rejected) {
            let reading = table.read(counter, *key, clock);
            let included = charged.unwrap_or(Hits::ZERO);
            Counted {
                reading,
                admitted: admits(limit, hits, reading, included, cost),
                receipt: None,
            }
        } else if self.counts_rejected {
            let counted = table.add(counter, *key, clock, cost, Admission::Unconditional);
            Counted {
                admitted: admits(limit, hits, counted.reading, cost, cost),
                ..counted
            }
        } else {
            let admission = Admission::Within(hits, limit.algorithm);
            table.add(counter, *key, clock, cost, admission)
        };
        if let Some(receipt) = counted.receipt.as_ref().filter(|_| *may_share) {
            // What limits say is of after the request: those that asked before, too.
            let earlier = self.charges.as_mut_slice().iter_mut();
            for charge in earlier.filter(|charge| charge.has_counter_of(bound, *key)) {
                charge.counted.reading = charge.counted.reading.plus(receipt.value());
            }
        }
        self.push(bound, hits, key, cost, counted);
    }

    /// Notes what a store said about a limit, which it has charged unless a limit refused.
    pub fn note(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        reading: Reading,
        admitted: bool,
    ) {
        let counted = Counted {
            reading,
            admitted,
            receipt: None,
        };
        self.push(bound, hits, key, cost, counted);
    }

    /// Asks a limit by what this node knows, and charges nothing.
    pub fn ask(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let reading = bound.table.read(&bound.counter, *key, clock);
        let admitted = admits(&bound.limit, hits, reading, Hits::ZERO, cost);
        self.note(bound, hits, key, cost, reading, admitted);
    }

    /// Whether a limit has refused.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    #[inline(always)]
    fn push(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        counted: Counted<'m>,
    ) {
        self.is_refused |= !counted.admitted;
        self.charges.push(Charge {
            bound,
            key,
            hits,
            cost,
            counted,
        });
    }

    /// Whether what was charged stays so.
    pub(super) fn is_charged(&self) -> bool {
        !self.is_refused || self.counts_rejected
    }

    /// Ends the evaluation: gives back what was charged if a limit refused, and counts the hits that were
    /// not, and the outcome in every namespace that had a say. Returns it (a refusal is `refusal`), and
    /// what the limits said, in the order in which they were asked.
    // Always inline: as a call, it takes twice as long.
    #[inline(always)]
    pub fn finish(mut self, refusal: Outcome) -> (Outcome, L) {
        let outcome = if self.is_refused {
            self.refuse(refusal)
        } else {
            Outcome::Passed
        };
        if let [first, others @ ..] = self.charges.as_mut_slice() {
            let BoundLimit { table, counter, .. } = first.bound;
            // Most requests are counted in one namespace.
            let (mut hits, mut is_alone) = (first.charged(), true);
            for other in others {
                match other.bound.has_namespace_of(first.bound) {
                    true => hits = hits.plus_value(other.charged()),
                    false => is_alone = false,
                }
            }
            table.count_decided(counter, outcome, hits);
            if !is_alone {
                count_in_others(self.charges.as_mut_slice(), outcome);
            }
        }
        (outcome, self.charges)
    }

    /// Ends the evaluation likewise, but counts no outcome: it is another one than what the limits said.
    pub fn end(mut self) -> L {
        if self.is_refused {
            self.refuse(Outcome::Rejected);
        }
        count_hits(self.charges.as_mut_slice());
        self.charges
    }

    #[cold]
    fn refuse(&mut self, refusal: Outcome) -> Outcome {
        if !self.counts_rejected {
            give_back(self.charges.as_mut_slice());
        }
        refusal
    }
}

/// Counts what was charged for good.
#[inline]
fn count_hits(charges: &[Charge<'_, '_>]) {
    for charge in charges {
        charge.bound.count_hits(charge.charged());
    }
}

/// Counts the outcome, and what was charged for good, in every namespace of `charges` but that of the
/// first.
#[cold]
fn count_in_others(charges: &[Charge<'_, '_>], outcome: Outcome) {
    let Some(first) = charges.first() else { return };
    for (index, charge) in charges.iter().enumerate() {
        let BoundLimit { table, counter, .. } = charge.bound;
        if charge.bound.has_namespace_of(first.bound) {
            continue;
        }
        let mut earlier = charges.iter().take(index);
        if earlier.any(|it| it.bound.has_namespace_of(charge.bound)) {
            table.count_hits(counter, charge.charged());
        } else {
            table.count_decided(counter, outcome, charge.charged());
        }
    }
}

/// Whether a limit admits `cost` hits beside those that are in `reading` but for `included`.
fn admits(limit: &Limit, hits: Hits, reading: Reading, included: Hits, cost: Hits) -> bool {
    let before = reading.minus(included);
    limit.algorithm.admits(limit.size, &before, hits, cost)
}

/// Notes in the table what a store has counted of a key in a window, and with it what of that is not
/// this node's own. Returns whether it could be noted: what others count in a window that is still to
/// come here has no place yet.
pub(super) fn note_total(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    window: u64,
    total: Hits,
    clock: &impl Clock,
) -> bool {
    let (size, now) = (counter.size(), clock.now());
    let at = size.at(now);
    if window.saturating_add(1) < at.number {
        return true;
    }
    if window > at.number && !is_near(size, at.elapsed) {
        return false;
    }
    // A full zone has no place for what only others count.
    if let Some(counter) = table.make_room_for(counter, key, clock) {
        let ours = table.pushed_of(counter, window);
        table.set_remote(counter, window, total.minus(ours), now);
    }
    true
}

/// Whether the next window is so near that it is counted in: another clock is a little ahead.
fn is_near(size: WindowSize, elapsed: u64) -> bool {
    size.millis().saturating_sub(elapsed) <= (size.millis() / 10).min(1000)
}

/// Gives all charges back, and corrects what the limits said accordingly.
#[cold]
fn give_back(charges: &mut [Charge<'_, '_>]) {
    while let Some((bound, key, receipt)) = charges
        .iter_mut()
        .find_map(|charge| Some((charge.bound, *charge.key, charge.counted.receipt.take()?)))
    {
        bound.table.give_back(&bound.counter, &receipt);
        for charge in charges.iter_mut() {
            if charge.has_counter_of(bound, key) {
                charge.counted.reading = charge.counted.reading.minus(receipt.value());
            }
        }
    }
}

/// Counts hits that are known only after the decision: for every limit that was asked, those that
/// `value_of` says. A counter that several limits share is charged once, counting what the
/// [`Evaluation`] charged.
pub fn charge_late<'m>(
    charges: &[Charge<'_, 'm>],
    mut value_of: impl FnMut(&BoundLimit<'m>) -> Hits,
    clock: &impl Clock,
) {
    let at_once = charges
        .iter()
        .filter(|charge| charge.counted.receipt.is_some());
    let mut charged: Vec<Identity> = at_once.map(Charge::identity).collect();
    for charge in charges {
        let (identity, value) = (charge.identity(), value_of(charge.bound));
        if value > Hits::ZERO && !charged.contains(&identity) {
            let BoundLimit { table, counter, .. } = charge.bound;
            table.add(counter, *charge.key, clock, value, Admission::Unconditional);
            table.count_hits(counter, value);
            charged.push(identity);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::Namespace;
    use crate::policy::algorithm::Algorithm;
    use crate::policy::limit::{Quota, QuotaHits};
    use crate::table::testing::{SharedTable, TestClock};

    /// Requests of the key "k" under limits.
    struct Fixture<'m> {
        namespace: Namespace<'m>,
        limits: Vec<(BoundLimit<'m>, Hits)>,
        key: Key<'m>,
        clock: TestClock,
        counts_rejected: bool,
    }

    impl<'m> Fixture<'m> {
        fn new(shared: &'m SharedTable, limits: &[(&str, Algorithm)]) -> Self {
            let mut fixture = Fixture {
                namespace: Namespace::new("foo", &shared.table).unwrap(),
                limits: Vec::new(),
                key: shared.table.key(b"k"),
                clock: TestClock::at(1_700_000_000_000),
                counts_rejected: false,
            };
            for &(quota, algorithm) in limits {
                let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
                let QuotaHits::Constant(hits) = hits else {
                    panic!("{quota} is variable");
                };
                let limit = Limit {
                    name: quota.into(),
                    size,
                    algorithm,
                };
                let earlier = fixture.limits.iter().map(|(bound, _)| bound);
                let bound = BoundLimit::new(limit, &fixture.namespace, earlier);
                fixture.limits.push((bound, hits));
            }
            fixture
        }

        fn charges(&self, cost: i64) -> (bool, Vec<Charge<'_, 'm>>) {
            let mut evaluation = Evaluation::new(Vec::new(), self.counts_rejected);
            for (bound, hits) in &self.limits {
                evaluation.charge(bound, *hits, &self.key, hits_of(cost), &self.clock);
            }
            let (outcome, charges) = evaluation.finish(Outcome::Rejected);
            (outcome == Outcome::Passed, charges)
        }

        /// Whether a request is admitted, and the rates afterwards.
        fn evaluate(&self, cost: i64) -> (bool, Vec<i64>) {
            let (admitted, charges) = self.charges(cost);
            let rates = charges.iter().map(|charge| charge.verdict().rate().whole());
            (admitted, rates.collect())
        }
    }

    fn hits_of(whole: i64) -> Hits {
        Hits::from_thousandths(whole * 1000)
    }

    use Algorithm::{Fixed, Sliding};

    #[test]
    fn all_limits_are_charged_or_none() {
        let shared = SharedTable::new(1 << 20);
        let limits = [("10/1m", Sliding), ("2/1h", Sliding), ("10/1d", Sliding)];
        let fixture = Fixture::new(&shared, &limits);
        assert_eq!(fixture.evaluate(1), (true, vec![1, 1, 1]));
        assert_eq!(fixture.evaluate(1), (true, vec![2, 2, 2]));
        for _ in 0..3 {
            assert_eq!(fixture.evaluate(1), (false, vec![2, 2, 2]));
        }
    }

    #[test]
    fn a_counter_that_limits_share_is_charged_once() {
        let shared = SharedTable::new(1 << 20);
        let fixture = Fixture::new(&shared, &[("3/1h", Sliding), ("2/1h", Fixed)]);
        assert_eq!(fixture.evaluate(1), (true, vec![1, 1]));
        assert_eq!(fixture.evaluate(1), (true, vec![2, 2]));
        assert_eq!(fixture.evaluate(1), (false, vec![2, 2]));
    }

    #[test]
    fn asking_costs_nothing() {
        let shared = SharedTable::new(1 << 20);
        let fixture = Fixture::new(&shared, &[("1/1m", Sliding)]);
        let is_admitted = |cost| fixture.evaluate(cost).0;
        assert!(is_admitted(0) && is_admitted(0));
        assert!(is_admitted(1));
        assert!(!is_admitted(0));
    }

    #[test]
    fn a_limit_that_only_asked_tells_the_rate_after_the_request() {
        let shared = SharedTable::new(1 << 20);
        let fixture = Fixture::new(&shared, &[("5/1h", Fixed), ("9/1h", Fixed)]);
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for ((bound, hits), cost) in fixture.limits.iter().zip([0, 2]) {
            evaluation.charge(bound, *hits, &fixture.key, hits_of(cost), &fixture.clock);
        }
        let (_, charges) = evaluation.finish(Outcome::Rejected);
        let rates = charges.iter().map(|charge| charge.verdict().rate().whole());
        assert_eq!(rates.collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn rejected_hits_count_in_every_limit_if_they_are_to() {
        let shared = SharedTable::new(1 << 20);
        let limits = [("10/1m", Fixed), ("2/1h", Fixed), ("2/1h", Sliding)];
        let mut fixture = Fixture::new(&shared, &limits);
        fixture.counts_rejected = true;
        assert_eq!(fixture.evaluate(1), (true, vec![1, 1, 1]));
        assert_eq!(fixture.evaluate(2), (false, vec![3, 3, 3]));
        assert_eq!(fixture.evaluate(1), (false, vec![4, 4, 4]));
    }

    #[test]
    fn late_hits_are_charged_once_to_a_shared_counter() {
        let shared = SharedTable::new(1 << 20);
        let limits = [("9/1m", Fixed), ("9/1h", Fixed), ("9/1h", Sliding)];
        let fixture = Fixture::new(&shared, &limits);
        let (_, charges) = fixture.charges(0);
        charge_late(&charges, |_| hits_of(5), &fixture.clock);
        assert_eq!(fixture.evaluate(0), (true, vec![5, 5, 5]));

        let (_, charges) = fixture.charges(1);
        charge_late(&charges, |_| hits_of(5), &fixture.clock);
        assert_eq!(
            fixture.evaluate(0),
            (true, vec![6, 6, 6]),
            "charged at once"
        );
    }

    #[test]
    fn hits_that_are_given_back_were_never_counted() {
        let shared = SharedTable::new(1 << 20);
        let mut fixture = Fixture::new(&shared, &[("9/1m", Fixed), ("2/1h", Fixed)]);
        let hits = || shared.table.namespace_stats(fixture.namespace.index()).hits;
        let mut evaluation = Evaluation::new(Vec::new(), false);
        for (bound, limit) in &fixture.limits {
            evaluation.charge(bound, *limit, &fixture.key, hits_of(2), &fixture.clock);
        }
        assert_eq!(hits(), 0, "not decided yet");
        evaluation.finish(Outcome::Rejected);
        assert_eq!(hits(), 4_000, "by each counter");
        assert!(!fixture.evaluate(1).0);
        assert_eq!(hits(), 4_000);
        fixture.counts_rejected = true;
        assert!(!fixture.evaluate(1).0);
        let stats = shared.table.namespace_stats(fixture.namespace.index());
        assert_eq!(stats.hits, 6_000);
    }

    #[test]
    fn an_outcome_counts_once_in_a_namespace() {
        let shared = SharedTable::new(1 << 20);
        let fixture = Fixture::new(&shared, &[("2/1m", Fixed), ("9/1h", Fixed)]);
        for _ in 0..3 {
            fixture.evaluate(1);
        }
        let stats = shared.table.namespace_stats(fixture.namespace.index());
        assert_eq!((stats.passed, stats.rejected), (2, 1));
    }
}
