//! The decision on one request (or another user's hit) under several limits.

use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Verdict};
use crate::policy::window::{Clock, Counts};
use crate::table::{Admission, Counted, Counter, CounterTable, Identity, Key, Receipt};

/// What a limit said, and what it was charged.
#[derive(Debug)]
pub struct Charge<'c, 'm> {
    /// What the limit said.
    pub verdict: Verdict<'c>,
    table: &'m CounterTable<'m>,
    identity: Identity,
    receipt: Option<Receipt<'m>>,
}

/// Where an [`Attempt`] keeps its charges: a `Vec`, or memory that is cheaper to have.
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

/// A request on its way through its limits: all must admit it, and if one does not, none is
/// charged.
#[derive(Debug)]
pub struct Attempt<L> {
    charges: L,
    is_first: bool,
    is_refused: bool,
}

impl<'c, 'm: 'c, L: Charges<'c, 'm>> Attempt<L> {
    /// A request that no limit has seen yet; what they say is kept in `charges`, which is empty.
    #[inline]
    pub fn new(charges: L) -> Self {
        Attempt {
            charges,
            is_first: true,
            is_refused: false,
        }
    }

    /// Asks `limit` to admit `cost` hits of `key`, and charges them if it does, unless a limit
    /// refused before. A counter that several limits share is charged once.
    #[inline]
    pub fn charge(
        &mut self,
        table: &'m CounterTable<'m>,
        counter: &Counter,
        limit: &'c Limit,
        key: Key<'_>,
        cost: Hits,
        clock: &impl Clock,
    ) {
        let identity = counter.identity(key);
        let is_charged = !self.is_first && self.is_charged(identity);
        self.is_first = false;

        let counted = if is_charged || self.is_refused || cost == Hits::ZERO {
            ask(table, counter, limit, key, cost, is_charged, clock)
        } else {
            let admission = Admission::Within(limit.hits, limit.window_type);
            table.add(counter, key, clock, cost, admission)
        };
        let Counted {
            counts,
            admitted,
            receipt,
        } = counted;
        self.is_refused |= !admitted;
        let verdict = Verdict {
            limit,
            counts,
            cost,
            admitted,
        };
        self.charges.push(Charge {
            verdict,
            table,
            identity,
            receipt,
        });
    }

    /// Whether an earlier limit has the same counter, and charged it.
    #[cold]
    fn is_charged(&mut self, identity: Identity) -> bool {
        let mut earlier = self.charges.as_mut_slice().iter();
        earlier.any(|charge| charge.identity == identity && charge.receipt.is_some())
    }

    /// Ends the attempt: gives back what was charged if a limit refused, and orders what the
    /// limits said, the tightest first. Returns whether the request is admitted, and the charges.
    #[inline]
    pub fn finish(mut self) -> (bool, L) {
        let charges = self.charges.as_mut_slice();
        if self.is_refused {
            give_back(charges);
        }
        if charges.len() > 1 {
            charges.sort_by(|one, two| one.verdict.tightness(&two.verdict));
        }
        (!self.is_refused, self.charges)
    }
}

/// Asks `limit` whether it admits `cost` hits, without charging them, or when they have been charged.
#[cold]
fn ask<'m>(
    table: &'m CounterTable<'m>,
    counter: &Counter,
    limit: &Limit,
    key: Key<'_>,
    cost: Hits,
    is_charged: bool,
    clock: &impl Clock,
) -> Counted<'m> {
    let counts = table.read(counter, key, clock);
    let included = if is_charged { cost } else { Hits::ZERO };
    let before = Counts {
        current: counts.current.minus(included),
        ..counts
    };
    let admitted = limit
        .window_type
        .admits(limit.size, &before, limit.hits, cost);
    Counted {
        counts,
        admitted,
        receipt: None,
    }
}

/// Gives all charges back, and corrects what the limits said accordingly.
#[cold]
fn give_back(charges: &mut [Charge<'_, '_>]) {
    while let Some((table, identity, receipt)) = charges
        .iter_mut()
        .find_map(|charge| Some((charge.table, charge.identity, charge.receipt.take()?)))
    {
        table.give_back(&receipt);
        for charge in charges.iter_mut() {
            if charge.identity == identity {
                let counts = &mut charge.verdict.counts;
                counts.current = counts.current.minus(receipt.value());
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::Namespace;
    use crate::policy::limit::Quota;
    use crate::policy::window::WindowType;
    use crate::table::testing::{SharedTable, TestClock};

    fn limit(quota: &str) -> Limit {
        let Quota { hits, size, .. } = Quota::parse(quota.as_bytes()).unwrap();
        Limit {
            name: quota.into(),
            hits,
            size,
            window_type: WindowType::Sliding,
        }
    }

    /// Requests of the key "k" under `limits`.
    struct Fixture<'m> {
        namespace: Namespace<'m>,
        limits: Vec<Limit>,
        clock: TestClock,
    }

    impl<'m> Fixture<'m> {
        fn new(shared: &'m SharedTable, limits: Vec<Limit>) -> Self {
            let namespace = Namespace::new("foo", &shared.table).unwrap();
            Fixture {
                namespace,
                limits,
                clock: TestClock::at(1_700_000_000_000),
            }
        }

        /// Whether a request is admitted, and the rates afterwards, the tightest first.
        fn attempt(&self, cost: Hits) -> (bool, Vec<(&str, i64)>) {
            let mut attempt = Attempt::new(Vec::new());
            let table = self.namespace.table();
            let key = table.key(b"k");
            for limit in &self.limits {
                let counter = self.namespace.counter(limit.size);
                attempt.charge(table, &counter, limit, key, cost, &self.clock);
            }
            let (admitted, charges) = attempt.finish();
            let rates = charges.iter().map(|charge| {
                let Verdict { limit, .. } = charge.verdict;
                (&*limit.name, charge.verdict.rate().whole())
            });
            (admitted, rates.collect())
        }
    }

    #[test]
    fn all_limits_are_charged_or_none() {
        let shared = SharedTable::new(1 << 20);
        let limits = vec![limit("10/1m"), limit("2/1h"), limit("10/1d")];
        let fixture = Fixture::new(&shared, limits);
        let attempt = || fixture.attempt(Hits::ONE);
        assert_eq!(
            attempt(),
            (true, vec![("2/1h", 1), ("10/1m", 1), ("10/1d", 1)])
        );
        assert_eq!(
            attempt(),
            (true, vec![("2/1h", 2), ("10/1m", 2), ("10/1d", 2)])
        );
        for _ in 0..3 {
            assert_eq!(
                attempt(),
                (false, vec![("2/1h", 2), ("10/1m", 2), ("10/1d", 2)])
            );
        }
    }

    #[test]
    fn a_counter_that_limits_share_is_charged_once() {
        let shared = SharedTable::new(1 << 20);
        let fixed = Limit {
            window_type: WindowType::Fixed,
            name: "fixed".into(),
            ..limit("2/1h")
        };
        let fixture = Fixture::new(&shared, vec![limit("3/1h"), fixed]);
        let attempt = || fixture.attempt(Hits::ONE);
        assert_eq!(attempt(), (true, vec![("fixed", 1), ("3/1h", 1)]));
        assert_eq!(attempt(), (true, vec![("fixed", 2), ("3/1h", 2)]));
        assert_eq!(attempt(), (false, vec![("fixed", 2), ("3/1h", 2)]));
    }

    #[test]
    fn asking_costs_nothing() {
        let shared = SharedTable::new(1 << 20);
        let fixture = Fixture::new(&shared, vec![limit("1/1m")]);
        let is_admitted = |cost| fixture.attempt(cost).0;
        assert!(is_admitted(Hits::ZERO) && is_admitted(Hits::ZERO));
        assert!(is_admitted(Hits::ONE));
        assert!(!is_admitted(Hits::ZERO));
    }
}
