//! Decides on a request, or on other callers' hits, under several limits.

use super::bound_limit::{BoundLimit, ChargePath};
use super::charge::{Charge, Charges};
use crate::policy::algorithm::{Algorithm, LevelKind, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Verdict};
use crate::policy::window::{Clock, WindowSize};
use crate::table::{Admission, AskedHit, Counted, Counter, Key, Outcome, Receipt};

/// The evaluation of a request under its limits, all of which must admit it.
#[derive(Debug)]
pub struct Evaluation<L> {
    charges: L,
    counts_rejected: bool,
    is_refused: bool,
    /// Whether a rule that is tried alone has refused.
    has_refused_trial: bool,
    /// The number of the rule that is being tried alone, and the index of its first charge.
    trial: Option<(usize, usize)>,
}

impl<'c, 'm: 'c, L: Charges<'c, 'm>> Evaluation<L> {
    /// Starts an evaluation. `charges` must be empty; the limits' charges are stored in it.
    ///
    /// A refused request is charged under no limit, or under all of them if `counts_rejected`.
    #[inline]
    pub fn new(charges: L, counts_rejected: bool) -> Self {
        Evaluation {
            charges,
            counts_rejected,
            is_refused: false,
            has_refused_trial: false,
            trial: None,
        }
    }

    /// Asks a limit of `hits` hits, or of a rate, to admit `cost` hits of `key`. Charges them if
    /// the limit admits them and no limit has refused before. A cost of zero only asks. A counter
    /// that several limits share is charged once, by the first limit that charges it.
    // Each path is a function of its own, so that its code can use all registers.
    #[inline]
    pub fn charge(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        if self.is_refused | self.counts_rejected || cost <= Hits::ZERO {
            return self.charge_otherwise(bound, hits, key, cost, clock);
        }
        match bound.path {
            ChargePath::Windows => self.charge_windows(bound, hits, key, cost, clock),
            ChargePath::Elastic => self.charge_elastic(bound, hits, key, cost, clock),
            ChargePath::Bucket => self.charge_bucket(bound, hits, key, cost, clock),
            ChargePath::Log => self.charge_log(bound, hits, key, cost, clock),
            ChargePath::Holds => self.charge_hold(bound, hits, key, cost, clock),
            ChargePath::Calendar => self.charge_calendar(bound, hits, key, cost, clock),
            ChargePath::VariableRate | ChargePath::Shared => {
                self.charge_otherwise(bound, hits, key, cost, clock);
            }
        }
    }

    #[inline(never)]
    fn charge_windows(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        let algorithm = bound.limit.algorithm;
        let (within, position) = ((hits, algorithm), WindowSize::at_multiple);
        match table.add_at_home(counter, key, clock, cost, within, position) {
            Some(counted) => self.push(bound, hits, key, cost, counted),
            None => self.charge_elsewhere(bound, hits, key, cost, clock),
        }
    }

    #[inline(never)]
    fn charge_calendar(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        let within = (hits, Algorithm::Fixed);
        match table.add_at_home(counter, key, clock, cost, within, WindowSize::at) {
            Some(counted) => self.push(bound, hits, key, cost, counted),
            None => self.charge_elsewhere(bound, hits, key, cost, clock),
        }
    }

    #[inline(never)]
    fn charge_elastic(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        let (kind, within) = (LevelKind::Elastic, (hits, Algorithm::Elastic));
        match table.add_to_level_at_home(counter, kind, key, clock, cost, within) {
            Some(counted) => self.push(bound, hits, key, cost, counted),
            None => self.charge_otherwise(bound, hits, key, cost, clock),
        }
    }

    #[inline(never)]
    fn charge_bucket(
        &mut self,
        bound: &'c BoundLimit<'m>,
        rate: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        let (kind, most) = (LevelKind::Bucket(rate), bound.limit.burst.most(rate));
        let within = (most, Algorithm::Bucket);
        match table.add_to_level_at_home(counter, kind, key, clock, cost, within) {
            Some(counted) => self.push(bound, most, key, cost, counted),
            None => self.charge_otherwise(bound, rate, key, cost, clock),
        }
    }

    #[inline(never)]
    fn charge_log(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        match table.add_to_log_at_home(counter, key, clock, cost, hits) {
            Some(counted) => self.push(bound, hits, key, cost, counted),
            None => self.charge_otherwise(bound, hits, key, cost, clock),
        }
    }

    /// Holds the request until it ends.
    #[inline(never)]
    fn charge_hold(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let BoundLimit { table, counter, .. } = bound;
        match table.hold_at_home(counter, key, clock, hits) {
            Some(counted) => self.push(bound, hits, key, cost, counted),
            None => self.charge_elsewhere(bound, hits, key, cost, clock),
        }
    }

    /// Charges a counter that is new, or not in the most frequent case: see [`Evaluation::charge`].
    // Not inlined, so that the frequent case keeps its values in registers.
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

    /// Charges in all cases: see [`Evaluation::charge`].
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
        let BoundLimit { limit, table, .. } = bound;
        let (counter, most) = bound.at(hits);
        // Requests that are under way on other nodes leave the rest to this one.
        let others = bound.held_by_others(*key, clock);
        let hits = most.minus(others);
        let (counter, within) = (&counter, (hits, limit.algorithm));
        // A rejected request is not under way.
        let counts_rejected = self.counts_rejected && counter.kind() != StoredKind::Holds;
        // Hits that this request was charged in the counter before.
        let mut earlier = self.charges.as_mut_slice().iter();
        let charged = earlier.find_map(|charge| {
            let receipt = charge.counted.receipt.as_ref()?;
            let is_shared = charge.has_counter_of(counter, *key);
            is_shared.then_some(receipt.value())
        });

        let asks = charged.is_some() || cost == Hits::ZERO;
        let mut counted = if asks || (self.is_refused && !counts_rejected) {
            let asked = AskedHit { limit: hits, cost };
            let mut reading = match asks {
                true => table.read_for(counter, *key, asked, clock),
                false => table.refuse(counter, *key, asked, clock),
            };
            let included = charged.unwrap_or(Hits::ZERO);
            let admitted = admits(limit, hits, reading, included, cost)
                && !table.refuses_alone(counter, *key, within, (included, cost), clock);
            if included > Hits::ZERO {
                table.look_at_further_limit(counter, *key, within, &reading, clock);
            }
            if !admitted && included > Hits::ZERO && !counts_rejected {
                // They are refunded if this limit refuses, so the wait is computed without them.
                let limit = hits.plus_value(included);
                reading = table.read_for(counter, *key, AskedHit { limit, cost }, clock);
            }
            Counted { reading, admitted, receipt: None }
        } else if counts_rejected {
            let counted = table.add(counter, *key, clock, cost, Admission::Filling(hits));
            // A bucket may be charged less, since it is only filled to its limit.
            let receipt = counted.receipt.as_ref();
            let included = receipt.map_or(cost, Receipt::value);
            Counted {
                admitted: admits(limit, hits, counted.reading, included, cost)
                    && !table.refuses_alone(counter, *key, within, (cost, cost), clock),
                ..counted
            }
        } else {
            let admission = Admission::Within(hits, limit.algorithm);
            table.add(counter, *key, clock, cost, admission)
        };
        if let Some(receipt) = counted.receipt.as_ref().filter(|_| bound.path == ChargePath::Shared)
        {
            // Verdicts are after the whole request, so those of earlier limits with this counter
            // are updated.
            let earlier = self.charges.as_mut_slice().iter_mut();
            for charge in earlier.filter(|charge| charge.has_counter_of(counter, *key)) {
                charge.counted.reading = match counter.kind() {
                    // The time of the wait is different then.
                    StoredKind::Log => {
                        let (limit, cost) = (charge.hits, charge.cost);
                        table.read_for(counter, *key, AskedHit { limit, cost }, clock)
                    }
                    StoredKind::Windows | StoredKind::Level(_) | StoredKind::Holds => {
                        charge.counted.reading.plus(receipt.value())
                    }
                };
            }
        }
        if let Some(receipt) = &counted.receipt {
            bound.tell_hold(*key, receipt, most, clock);
        }
        counted.reading = counted.reading.plus(others);
        self.push(bound, most, key, cost, counted);
    }

    /// Begins the limits of a rule: `trial` is the number of one that is tried alone. If that rule
    /// refuses, its own charges are refunded when the next rule begins, and nothing else changes.
    pub fn enter(&mut self, trial: Option<usize>) {
        let current = self.trial.map(|(rule, _)| rule);
        if current == trial {
            return;
        }
        if let Some((_, first)) = self.trial.take()
            && self.is_refused
        {
            self.is_refused = false;
            self.has_refused_trial = true;
            self.refund_from(first);
        }
        // After a refusal, limits are only asked, tried or not.
        let first = self.charges.as_mut_slice().len();
        self.trial = trial.filter(|_| !self.is_refused).map(|rule| (rule, first));
    }

    /// Adds a store's answer for a limit of `hits` hits and, in the counter, `most`. The store has
    /// charged the request unless a limit refused.
    pub fn note(
        &mut self,
        bound: &'c BoundLimit<'m>,
        most: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        reading: Reading,
        admitted: bool,
    ) {
        let counted = Counted { reading, admitted, receipt: None };
        self.push(bound, most, key, cost, counted);
    }

    /// Refuses a request if its key is banned: as this node knows, or by a store's `answer`. The request
    /// is then charged under no limit, unless `is_tried` says that the rule is tried alone. Returns
    /// whether the key is banned.
    pub fn check_ban(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        answer: Option<Reading>,
        is_tried: bool,
        clock: &impl Clock,
    ) -> bool {
        let Limit { size, algorithm, .. } = bound.limit;
        let known = bound.verdict(hits, *key, Hits::ZERO, clock).reading;
        let mut readings = [Some(known), answer].into_iter().flatten();
        let ban = readings.find(|it| !algorithm.admits(size, it, hits, Hits::ZERO));
        if let Some(reading) = ban {
            self.counts_rejected &= is_tried;
            self.note(bound, hits, key, Hits::ZERO, reading, false);
        }
        ban.is_some()
    }

    /// Corrects the verdicts of limits with a counter after a store's charge of `hits` in it, which they
    /// contain, was refunded.
    pub(super) fn note_refund(&mut self, counter: &Counter, key: Key<'_>, hits: Hits) {
        correct(self.charges.as_mut_slice(), counter, key, hits);
    }

    /// Asks a limit with this node's counters, and charges nothing.
    pub fn ask(
        &mut self,
        bound: &'c BoundLimit<'m>,
        hits: Hits,
        key: &'c Key<'c>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let Verdict { hits, reading, admitted, .. } =
            bound.verdict_in(bound.at(hits), *key, cost, clock);
        self.note(bound, hits, key, cost, reading, admitted);
    }

    /// Returns whether a limit has refused.
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
        self.charges.push(Charge { bound, key, hits, cost, counted });
    }

    /// Returns whether the charges stay.
    pub fn is_charged(&self) -> bool {
        !self.is_refused || self.counts_rejected
    }

    /// Ends the evaluation: refunds the charges if a limit refused, and counts the charged hits and
    /// the outcome in each namespace of a limit. Returns the outcome, which is `refusal` for a
    /// refused request, and the charges in the order of the limits.
    // Always inlined: as a call, it takes twice as long.
    #[inline(always)]
    pub fn finish(mut self, refusal: Outcome, clock: &impl Clock) -> (Outcome, L) {
        let outcome = if self.is_refused { self.refuse(refusal, clock) } else { Outcome::Passed };
        self.count(outcome, Charge::charged)
    }

    /// Ends the evaluation like `finish`, if rules may have been tried alone, or costs be estimates.
    /// If only rules that were tried refused the request, it passes as in a dry run.
    #[cold]
    pub fn finish_rare(mut self, refusal: Outcome, clock: &impl Clock) -> (Outcome, L) {
        self.enter(None);
        let outcome = if self.is_refused {
            self.refuse(refusal, clock)
        } else if self.has_refused_trial {
            count_rejected_keys(self.charges.as_mut_slice(), clock);
            Outcome::RejectedDryRun
        } else {
            Outcome::Passed
        };
        self.count(outcome, Charge::settled)
    }

    /// Counts the outcome, and the hits that `hits_of` returns, in each namespace of a limit.
    #[inline(always)]
    fn count(
        mut self,
        outcome: Outcome,
        hits_of: impl Fn(&Charge<'c, 'm>) -> Hits,
    ) -> (Outcome, L) {
        if let [first, others @ ..] = self.charges.as_mut_slice() {
            let BoundLimit { table, counter, .. } = first.bound;
            // Most requests have limits in only one namespace.
            let (mut hits, mut is_alone) = (hits_of(first), true);
            for other in others {
                match other.bound.has_namespace_of(first.bound) {
                    true => hits = hits.plus_value(hits_of(other)),
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

    /// Ends the evaluation like `finish`, but counts no outcome, since the limits do not determine
    /// it.
    pub fn end(mut self, clock: &impl Clock) -> L {
        if self.is_refused {
            self.refuse(Outcome::Rejected, clock);
        }
        count_hits(self.charges.as_mut_slice());
        self.charges
    }

    /// Ends the evaluation of a request that fails for another reason, and refunds all of its charges.
    #[cold]
    pub fn abandon(mut self) {
        refund_from(0, self.charges.as_mut_slice(), |_| true);
    }

    #[cold]
    fn refuse(&mut self, refusal: Outcome, clock: &impl Clock) -> Outcome {
        count_rejected_keys(self.charges.as_mut_slice(), clock);
        self.refund_from(0);
        refusal
    }

    /// Refunds the charges from number `first` on of a refused request: all of them, or only the holds if rejected
    /// requests count.
    fn refund_from(&mut self, first: usize) {
        let counts_rejected = self.counts_rejected;
        let is_refunded = |charge: &Charge<'_, '_>| {
            !counts_rejected || charge.bound.counter.kind() == StoredKind::Holds
        };
        refund_from(first, self.charges.as_mut_slice(), is_refunded);
    }
}

impl BoundLimit<'_> {
    /// Returns the verdict of the limit, of `told` hits or of this rate, on a hit of `key`. Changes nothing.
    pub fn verdict(&self, told: Hits, key: Key<'_>, cost: Hits, clock: &impl Clock) -> Verdict<'_> {
        self.verdict_in((self.counter_at(told), self.limit.most(told)), key, cost, clock)
    }

    /// Returns the verdict by a counter and its limit, as [`BoundLimit::at`] returns them.
    fn verdict_in(
        &self,
        (counter, hits): (Counter, Hits),
        key: Key<'_>,
        cost: Hits,
        clock: &impl Clock,
    ) -> Verdict<'_> {
        let reading = self.table.read_for(&counter, key, AskedHit { limit: hits, cost }, clock);
        let reading = reading.plus(self.held_by_others(key, clock));
        let admitted = admits(&self.limit, hits, reading, Hits::ZERO, cost);
        Verdict { limit: &self.limit, hits, reading, cost, admitted }
    }
}

/// Counts the keys that limits refused, each once per namespace.
fn count_rejected_keys(charges: &[Charge<'_, '_>], clock: &impl Clock) {
    // A banned key was counted until its ban began.
    let refused = || {
        let refused = charges.iter().filter(|charge| !charge.counted.admitted);
        refused.filter(|charge| !charge.bound.is_of_bans())
    };
    for (index, Charge { bound, key, .. }) in refused().enumerate() {
        let mut earlier = refused().take(index);
        if !earlier.any(|it| it.key == *key && it.bound.has_namespace_of(bound)) {
            let BoundLimit { table, counter, .. } = bound;
            table.count_rejected_key(counter, **key, clock.now());
        }
    }
}

/// Counts the charged hits that are final.
#[inline]
fn count_hits(charges: &[Charge<'_, '_>]) {
    for charge in charges {
        charge.bound.count_hits(charge.settled());
    }
}

/// Counts the outcome and the charged hits in every namespace of `charges` except the first one's.
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
            table.count_hits(counter, charge.settled());
        } else {
            table.count_decided(counter, outcome, charge.settled());
        }
    }
}

/// Returns whether a limit admits `cost` hits in addition to those in `reading`, without the
/// `included` ones.
fn admits(limit: &Limit, hits: Hits, reading: Reading, included: Hits, cost: Hits) -> bool {
    let before = reading.minus(included);
    limit.algorithm.admits(limit.size, &before, hits, cost)
}

/// Refunds those charges from number `first` on that `is_refunded` selects, and corrects the verdicts of all.
#[cold]
fn refund_from(
    first: usize,
    charges: &mut [Charge<'_, '_>],
    is_refunded: impl Fn(&Charge<'_, '_>) -> bool,
) {
    while let Some((table, counter, key, receipt)) =
        charges.iter_mut().skip(first).filter(|charge| is_refunded(charge)).find_map(|charge| {
            let receipt = charge.counted.receipt.take()?;
            Some((charge.bound.table, charge.counter(), *charge.key, receipt))
        })
    {
        table.refund(&counter, &receipt);
        correct(charges, &counter, key, receipt.value());
    }
}

/// Takes refunded hits off the verdicts of limits with their counter.
fn correct(charges: &mut [Charge<'_, '_>], counter: &Counter, key: Key<'_>, refunded: Hits) {
    for charge in charges.iter_mut().filter(|charge| charge.has_counter_of(counter, key)) {
        charge.counted.reading = charge.counted.reading.minus(refunded);
    }
}
