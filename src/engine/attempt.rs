//! The decision on one request (or another user's hit) under several limits.

use crate::policy::hits::Hits;
use crate::policy::limit::{Limit, Verdict};
use crate::policy::window::{Clock, Counts};
use crate::table::{Admission, Counter, CounterTable, KeyHash, Receipt};

/// What a limit said, and what it was charged.
#[derive(Debug)]
pub struct Charge<'c, 'm> {
    /// What the limit said.
    pub verdict: Verdict<'c>,
    table: &'m CounterTable<'m>,
    receipt: Option<Receipt<'m>>,
}

/// A request on its way through its limits: all must admit it, and if one does not, none is
/// charged.
#[derive(Debug, Default)]
pub struct Attempt {
    is_refused: bool,
}

impl Attempt {
    /// A request that no limit has seen yet.
    pub fn new() -> Attempt {
        Attempt::default()
    }

    /// Asks `limit` to admit `cost` hits of `key`, and charges them if it does, and if no limit
    /// refused before.
    pub fn charge<'c, 'm>(
        &mut self,
        table: &'m CounterTable<'m>,
        counter: &Counter,
        limit: &'c Limit,
        key: KeyHash,
        cost: Hits,
        clock: &impl Clock,
    ) -> Charge<'c, 'm> {
        let (counts, receipt, admitted) = if self.is_refused || cost == Hits::ZERO {
            let counts = table.read(counter, key, clock);
            let admitted = limit
                .window_type
                .admits(limit.size, &counts, limit.hits, cost);
            (counts, None, admitted)
        } else {
            let admission = Admission::Within(limit.hits, limit.window_type);
            let counted = table.add(counter, key, clock, cost, admission);
            let admitted = counted.receipt.is_some();
            (counted.counts, counted.receipt, admitted)
        };
        self.is_refused |= !admitted;
        Charge {
            verdict: Verdict {
                limit,
                counts,
                cost,
                admitted,
            },
            table,
            receipt,
        }
    }

    /// Ends the attempt with the charges it made: gives them back if a limit refused, and puts
    /// the tightest limit first. Returns whether the request is admitted.
    pub fn finish(self, charges: &mut [Charge<'_, '_>]) -> bool {
        if self.is_refused {
            charges.iter_mut().for_each(Charge::give_back);
        }
        charges.sort_by(|one, two| one.verdict.tightness(&two.verdict));
        !self.is_refused
    }
}

impl Charge<'_, '_> {
    fn give_back(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.table.give_back(&receipt);
            let Verdict {
                counts: Counts { current, .. },
                cost,
                ..
            } = &mut self.verdict;
            *current = current.minus(*cost);
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

    #[test]
    fn all_limits_are_charged_or_none() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let clock = TestClock::at(1_700_000_000_000);
        let limits = [limit("10/1m"), limit("2/1h"), limit("10/1d")];
        let attempt = || {
            let mut attempt = Attempt::new();
            let mut charges: Vec<_> = limits
                .iter()
                .map(|limit| {
                    let (table, counter) = (namespace.table(), namespace.counter(limit.size));
                    attempt.charge(table, &counter, limit, table.hash(b"k"), Hits::ONE, &clock)
                })
                .collect();
            let admitted = attempt.finish(&mut charges);
            let rates: Vec<_> = charges
                .iter()
                .map(|charge| (&*charge.verdict.limit.name, charge.verdict.rate().whole()))
                .collect();
            (admitted, rates)
        };
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
    fn asking_costs_nothing() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let clock = TestClock::at(1_700_000_000_000);
        let limit = limit("1/1m");
        let counter = namespace.counter(limit.size);
        let charge = |cost| {
            let table = namespace.table();
            let mut attempt = Attempt::new();
            attempt.charge(table, &counter, &limit, table.hash(b"k"), cost, &clock);
            attempt.finish(&mut [])
        };
        assert!(charge(Hits::ZERO) && charge(Hits::ZERO));
        assert!(charge(Hits::ONE));
        assert!(!charge(Hits::ZERO));
    }
}
