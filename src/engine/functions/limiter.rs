//! A limit for the library's callers, which ask it repeatedly, as requests do `ratelimit`.

use super::arguments::{self, ArgumentError};
use super::committed::{Committed, TellDecider};
use crate::engine::namespace::Namespace;
use crate::engine::request::bound_limit::BoundLimit;
use crate::engine::request::charge::{Charge, Charges, Refund};
use crate::engine::request::evaluation::Evaluation;
use crate::engine::request::pending::PendingDecision;
use crate::engine::request::synchronous::{Deciders, LimitCheck, StoreQuestion, questions};
use crate::policy::algorithm::{Algorithm, StoredKind, Weight};
use crate::policy::hits::Hits;
use crate::policy::key::counted_name;
use crate::policy::limit::{Limit, Verdict};
use crate::policy::namespace::OnError;
use crate::policy::window::{Clock, WindowSize};
use crate::store::contract::decision::{Answer, Question};
use crate::table::{Key, Outcome};

/// A limit in a namespace.
///
/// Keys must be valid for [`arguments::key`](super::arguments::key).
#[derive(Debug)]
pub struct Limiter<'m> {
    bound: BoundLimit<'m>,
    hits: Hits,
    /// Whether refused hits are counted, too.
    counts_rejected: bool,
}

/// The decision of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Whether the limit admits the hits.
    pub is_admitted: bool,
    /// The rate after the decision, including the hits if they are admitted.
    pub rate: Hits,
    /// The remaining hits after the decision.
    pub remaining: Hits,
    /// Milliseconds until the admitted hits are within the rate.
    pub delay: u64,
    /// Milliseconds until the same number of hits would be admitted if no others come; `None` if
    /// never.
    pub retry_after: Option<u64>,
}

/// Hits of a key, as an argument of a limiter.
#[derive(Clone, Copy, Debug)]
pub struct AskedHits<'k> {
    /// The key.
    pub key: &'k [u8],
    /// Number of hits, above zero except in a limiter without a limit.
    pub cost: Hits,
    /// Whether admitted hits are counted.
    pub commit: bool,
    /// The weight of the previous window in the returned rate, in a limiter without a limit.
    pub weight: Weight,
}

impl<'k> AskedHits<'k> {
    /// Checks the arguments of `incoming`.
    ///
    /// # Errors
    ///
    /// The key is empty, or `cost` is not a number of at least 0.001.
    #[inline]
    pub fn new(key: &'k [u8], cost: f64, commit: bool) -> Result<Self, ArgumentError> {
        Ok(AskedHits {
            key: arguments::key(key)?,
            cost: arguments::some_hits("cost", cost)?,
            commit,
            weight: Weight::default(),
        })
    }
}

impl<'m> Limiter<'m> {
    /// Creates a limiter in `namespace` that admits `hits`, or hits at this rate.
    pub fn new(namespace: &Namespace<'m>, limit: Limit, hits: Hits) -> Self {
        // A reset does not reach requests that are under way.
        if !limit.algorithm.is_of_concurrency() {
            namespace.record_counted(limit.algorithm, limit.size, hits);
        }
        Limiter { bound: BoundLimit::new(limit, namespace, []), hits, counts_rejected: false }
    }

    /// Creates a limiter without a limit that counts in windows of this size, for `increment`. A
    /// store is asked for sliding windows, and returns the hits of both windows.
    pub fn unlimited(namespace: &Namespace<'m>, size: WindowSize) -> Self {
        let limit = Limit::in_windows(namespace.name(), size, Algorithm::Sliding);
        Limiter { counts_rejected: true, ..Limiter::new(namespace, limit, Hits::MAX) }
    }

    /// Returns whether this limits how many requests are under way.
    #[inline]
    pub fn is_of_concurrency(&self) -> bool {
        self.bound.limit.algorithm.is_of_concurrency()
    }

    /// Releases a request of `key` that this process holds, which ends. Returns `false` if it holds none.
    pub fn leaving(&self, key: &[u8], clock: &impl Clock) -> bool {
        let name = counted_name(key, None);
        self.bound.release_key(self.bound.table().key(&name), self.hits, clock)
    }

    /// Returns whether `other` decides about the same counters in the same way.
    pub fn is_same(&self, other: &Limiter<'_>) -> bool {
        self.hits == other.hits
            && self.counts_rejected == other.counts_rejected
            && self.bound.limit == other.bound.limit
            && self.bound.namespace() == other.bound.namespace()
    }

    /// Returns the limit with its counters.
    pub fn bound(&self) -> &BoundLimit<'m> {
        &self.bound
    }

    /// Decides on hits with this node's counters. Also returns the counted hits.
    pub fn incoming(
        &self,
        asked: AskedHits<'_>,
        clock: &impl Clock,
    ) -> (Incoming, Option<Committed<'m>>) {
        let name = counted_name(asked.key, None);
        let key = self.bound.table().key(&name);
        let mut evaluation = Evaluation::new(OneCharge(None), self.counts_rejected);
        // A request is one, whatever it costs.
        let asked = match self.is_of_concurrency() {
            true => AskedHits { cost: Hits::ONE, ..asked },
            false => asked,
        };
        if asked.commit {
            evaluation.charge(&self.bound, self.hits, &key, asked.cost, clock);
        } else {
            evaluation.ask(&self.bound, self.hits, &key, asked.cost, clock);
        }
        let (incoming, refund) = self.finish(evaluation, asked, clock);
        (incoming, refund.map(Committed::Here))
    }

    /// Creates the question to a store about hits.
    pub fn question(&self, asked: AskedHits<'_>, store: Deciders) -> Option<StoreQuestion> {
        let name = counted_name(asked.key, None);
        let key = self.bound.table().key(&name);
        let check = self.check(asked, &key, store);
        questions(&[check], self.counts_rejected).pop()
    }

    /// Creates the question by which a store later charges hits that were counted without it. `None`
    /// if a sync pushes them.
    fn unsent(&self, asked: AskedHits<'_>, store: Deciders) -> Option<(usize, Question)> {
        if self.bound.limit.algorithm.kind() == StoredKind::Windows {
            return None;
        }
        let question = self.question(asked, store)?;
        Some((question.decider, question.charge()))
    }

    /// Returns the decision from a store's answer to [`Limiter::question`], and the hits that were
    /// counted.
    pub fn answered(
        &self,
        asked: AskedHits<'_>,
        store: Deciders,
        (question, answer): (StoreQuestion, &Answer),
        clock: &impl Clock,
    ) -> (Incoming, Option<Committed<'m>>) {
        let name = counted_name(asked.key, None);
        let key = self.bound.table().key(&name);
        let check = self.check(asked, &key, store);
        let mut decision = PendingDecision::new(&[check], self.counts_rejected);
        decision.answer(answer, &[check], clock);
        let mut evaluation = Evaluation::new(OneCharge(None), self.counts_rejected);
        match decision.answered() {
            [Some(answered)] if !asked.commit => {
                // The store was asked for the hits that can be counted.
                let (limit, hits) = (&self.bound.limit, self.bound.limit.most(self.hits));
                let reading = answered.reading;
                let admits = limit.algorithm.admits(limit.size, &reading, hits, asked.cost);
                evaluation.note(&self.bound, hits, &key, asked.cost, reading, admits);
            }
            _ => decision.conclude(&mut evaluation, &[check], clock),
        }
        let (incoming, _) = self.finish(evaluation, asked, clock);
        let is_charged = asked.commit && incoming.is_admitted;
        let committed = is_charged.then(|| Committed::InStore(Box::new(question)));
        (incoming, committed)
    }

    /// Decides on hits by `on_error`, since the store does not answer. `None` if the hits are
    /// denied. Also returns the hits that were counted here, of which the store is told later.
    pub fn without_store(
        &self,
        asked: AskedHits<'_>,
        on_error: OnError,
        store: (Deciders, &impl TellDecider),
        clock: &impl Clock,
    ) -> Option<(Incoming, Option<Committed<'m>>)> {
        self.bound.count_fallback(on_error);
        let name = counted_name(asked.key, None);
        let key = self.bound.table().key(&name);
        let mut evaluation = Evaluation::new(OneCharge(None), self.counts_rejected);
        match on_error {
            OnError::Deny => return None,
            // Without a limit, the hits always count.
            OnError::Allow if asked.commit && self.counts_rejected => {
                evaluation.charge(&self.bound, self.hits, &key, asked.cost, clock);
            }
            OnError::Local if asked.commit => {
                evaluation.charge(&self.bound, self.hits, &key, asked.cost, clock);
            }
            OnError::Local | OnError::Allow => {
                evaluation.ask(&self.bound, self.hits, &key, asked.cost, clock);
            }
        }
        let (mut incoming, refund) = self.incoming_of(evaluation.end(clock), asked)?;
        incoming.is_admitted |= on_error == OnError::Allow;
        let (deciders, teller) = store;
        let committed = refund.map(|refund| match self.unsent(asked, deciders) {
            Some((decider, charge)) => {
                teller.charge_later(decider, &charge);
                Committed::Unsent(refund, Box::new((decider, charge)))
            }
            None => Committed::Here(refund),
        });
        Some((incoming, committed))
    }

    fn check<'c>(
        &'c self,
        asked: AskedHits<'_>,
        key: &'c Key<'c>,
        store: Deciders,
    ) -> LimitCheck<'c, 'm> {
        LimitCheck {
            bound: &self.bound,
            hits: self.hits,
            key,
            cost: if asked.commit { asked.cost } else { Hits::ZERO },
            store: Some(store),
            trial: None,
        }
    }

    #[inline]
    fn finish<'c>(
        &self,
        evaluation: Evaluation<OneCharge<'c, 'm>>,
        asked: AskedHits<'_>,
        clock: &impl Clock,
    ) -> (Incoming, Option<Refund<'m>>)
    where
        'm: 'c,
    {
        // If no hits are counted, an admission has no charge.
        let charges = match asked.commit || evaluation.is_refused() {
            true => {
                let (outcome, charges) = evaluation.finish(Outcome::Rejected, clock);
                if outcome == Outcome::Rejected {
                    self.bound.count_rejection();
                }
                charges
            }
            false => evaluation.end(clock),
        };
        self.incoming_of(charges, asked).unwrap_or_default()
    }

    /// Returns the decision and the refund of a charge; `None` if nothing was charged.
    #[inline]
    fn incoming_of(
        &self,
        charges: OneCharge<'_, 'm>,
        asked: AskedHits<'_>,
    ) -> Option<(Incoming, Option<Refund<'m>>)> {
        let charge = charges.0?;
        let verdict = charge.verdict();
        let verdict = match verdict.admitted && !asked.commit {
            // The verdict as if the hits were counted.
            true => Verdict { reading: verdict.reading.plus(asked.cost), ..verdict },
            false => verdict,
        };
        let incoming = match self.counts_rejected {
            // There is no limit.
            true => Incoming {
                rate: asked.weight.rate(self.bound.limit.size, &verdict.reading.windows()),
                ..Incoming::default()
            },
            false => Incoming {
                is_admitted: verdict.admitted,
                rate: verdict.rate(),
                remaining: verdict.remaining(),
                delay: if verdict.admitted { verdict.delay() } else { 0 },
                retry_after: verdict.retry_after(),
            },
        };
        Some((incoming, charge.into_refund()))
    }
}

/// The decision without a counter, in which no hits were counted.
impl Default for Incoming {
    fn default() -> Self {
        Incoming {
            is_admitted: true,
            rate: Hits::ZERO,
            remaining: Hits::ZERO,
            delay: 0,
            retry_after: Some(0),
        }
    }
}

/// Stores the charge of the limiter's only limit.
struct OneCharge<'c, 'm>(Option<Charge<'c, 'm>>);

impl<'c, 'm> Charges<'c, 'm> for OneCharge<'c, 'm> {
    #[inline]
    fn push(&mut self, charge: Charge<'c, 'm>) {
        self.0 = Some(charge);
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Charge<'c, 'm>] {
        self.0.as_mut_slice()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::policy::limit::Burst;
    use crate::testing::table::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    struct NoStore;

    impl TellDecider for NoStore {
        fn tell(&self, _: usize, _: &Question) -> bool {
            unreachable!("there is no store")
        }

        fn charge_later(&self, _: usize, _: &Question) {}
    }

    fn limit(size: u64, algorithm: Algorithm, burst: Burst) -> Limit {
        Limit {
            name: "foo-1m".into(),
            size: WindowSize::from_millis(size).unwrap(),
            algorithm,
            burst,
            of_rule: None,
        }
    }

    fn asked(commit: bool) -> AskedHits<'static> {
        AskedHits { key: b"k", cost: Hits::ONE, commit, weight: Weight::default() }
    }

    #[test]
    fn admitted_hits_count_if_they_are_committed() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        for algorithm in [Algorithm::Sliding, Algorithm::Elastic] {
            let limit = limit(MINUTE, algorithm, Burst::default());
            let limiter = Limiter::new(&namespace, limit, hits(2));
            let ask = |commit| {
                let (incoming, refund) = limiter.incoming(asked(commit), &clock);
                let Incoming { is_admitted, remaining, .. } = incoming;
                (is_admitted, remaining.whole(), refund)
            };
            assert!(matches!(ask(false), (true, 1, None)));
            assert!(matches!(ask(true), (true, 1, Some(_))));
            let (_, _, refund) = ask(true);
            assert!(matches!(ask(false), (false, 0, None)));
            assert!(matches!(ask(true), (false, 0, None)));
            let refund = refund.unwrap();
            assert!(refund.is_of(&limiter.bound, b"k") && !refund.is_of(&limiter.bound, b"l"));
            assert!(refund.give_back(None::<&NoStore>));
            assert!(matches!(ask(true), (true, 0, Some(_))));
        }
    }

    #[test]
    fn a_limit_by_a_rate_returns_the_delay() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let burst = Burst { hits: hits(2), delay: Some(Hits::ZERO), rate: Some(hits(10)) };
        let limit = limit(1000, Algorithm::Bucket, burst);
        let limiter = Limiter::new(&namespace, limit, hits(10));
        let ask = |commit| limiter.incoming(asked(commit), &clock).0;
        let delays = [ask(true), ask(true), ask(false), ask(true)].map(|it| it.delay);
        assert_eq!(delays, [0, 100, 200, 200]);
        let refused = ask(true);
        assert!(!refused.is_admitted && refused.delay == 0);
        assert_eq!(refused.retry_after, Some(100));
        clock.set(28_000_000 * MINUTE + 100);
        assert!(ask(true).is_admitted);
    }

    #[test]
    fn a_limiter_without_a_limit_always_counts() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let counter = Limiter::unlimited(&namespace, WindowSize::from_millis(MINUTE).unwrap());
        let count = |cost| {
            let asked = AskedHits { cost, ..asked(true) };
            counter.incoming(asked, &clock).0.rate
        };
        assert_eq!(count(Hits::MAX.minus(hits(5))), Hits::MAX.minus(hits(5)));
        assert_eq!(count(hits(10)), Hits::MAX);
        assert_eq!(count(Hits::ZERO), Hits::MAX);
    }
}
