//! A table and its model, to which the same operations are applied.

use std::collections::HashMap;

use super::naive::{History, Total, is_within};
use super::ops::{Op, SteppedClock};
use super::{MEMORY, NAMESPACES, PERIOD, T};
use crate::policy::algorithm::{Algorithm, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::*;

struct Held<'m> {
    receipt: Receipt<'m>,
    counter: (usize, usize),
    key: u32,
    window: u64,
    birth: usize,
    occupancy: u32,
}

/// A table and its model.
pub(crate) struct World<'m> {
    pub(crate) table: &'m CounterTable<'m>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) clock: SteppedClock,
    pub(crate) latest: u64,
    /// Counter of the last addition.
    pub(crate) last: ((usize, usize), u32),
    pub(crate) model: HashMap<((usize, usize), u32), History>,
    receipts: Vec<Held<'m>>,
    pub(crate) births: usize,
    pub(crate) insertions: u64,
}

impl<'m> World<'m> {
    pub(crate) fn new(table: &'m CounterTable<'m>, sizes: Vec<u64>) -> Self {
        World {
            table,
            sizes,
            clock: SteppedClock::at(T),
            latest: T,
            last: ((0, 0), 0),
            model: HashMap::new(),
            receipts: Vec::new(),
            births: 0,
            insertions: 0,
        }
    }

    pub(crate) fn run(&mut self, op: &Op) {
        let now = self.clock.real.get();
        self.clock.looks.set(0);
        match *op {
            Op::Add { counter, from, count, cost, within } => {
                for key in from..from + count {
                    self.clock.looks.set(0);
                    self.add(self.known(counter), key, cost, within);
                }
            }
            Op::Again { cost } => {
                let (counter, key) = self.last;
                self.add(counter, key, cost, None);
            }
            Op::Read { counter, key } => self.read(self.known(counter), key),
            Op::GiveBack(index) => {
                if !self.receipts.is_empty() {
                    let held = self.receipts.swap_remove(index % self.receipts.len());
                    self.refund(&held);
                }
            }
            Op::Forward(step) => self.set(step.after(now, &self.sizes)),
            Op::Back(step) => self.set(step.before(now, &self.sizes)),
            Op::Stall(step) => {
                self.set(now);
                // Not until stamps recur.
                let longest = PERIOD / 2 * self.sizes.iter().min().unwrap();
                let seen = step.before(now, &self.sizes);
                self.clock.seen.set(seen.max(now.saturating_sub(longest)));
            }
        }
    }

    fn set(&mut self, millis: u64) {
        self.clock.set(millis);
        self.latest = self.latest.max(millis);
        if millis + MEMORY < self.latest {
            let totals = self.model.values_mut().flat_map(|key| key.totals.values_mut());
            totals.for_each(|total| total.is_open = true);
        }
    }

    fn known(&self, (namespace, size): (usize, usize)) -> (usize, usize) {
        (namespace, size % self.sizes.len())
    }

    fn counter(&self, (namespace, size): (usize, usize)) -> Counter {
        let name = NAMESPACES[namespace].as_bytes();
        let namespace = self.table.namespace(name).unwrap();
        let size = WindowSize::from_millis(self.sizes[size]).unwrap();
        self.table.counter(namespace, name, size)
    }

    /// Returns the model's history of a key; empty if the table has no slot for it any more.
    fn history(&mut self, counter: (usize, usize), key: u32) -> (Counter, &mut History) {
        let bytes = key.to_le_bytes();
        let (of, hashed) = (self.counter(counter), self.table.key(&bytes));
        let history = self.model.entry((counter, key)).or_default();
        if !self.table.has(&of, hashed) {
            history.totals.clear();
        }
        (of, history)
    }

    fn add(
        &mut self,
        counter: (usize, usize),
        key: u32,
        cost: i64,
        within: Option<(i64, Algorithm)>,
    ) {
        self.last = (counter, key);
        let value = Hits::from_thousandths(cost);
        let (seen, real) = (self.clock.seen.get(), self.clock.real.get());
        let (table, birth) = (self.table, self.births);
        let bytes = key.to_le_bytes();
        let hashed = table.key(&bytes);
        let (of, history) = self.history(counter, key);
        let is_new = !table.has(&of, hashed);
        let admission = within.map_or(Admission::Unconditional, |(limit, algorithm)| {
            Admission::Within(Hits::from_thousandths(limit), algorithm)
        });
        if history.is_ambiguous(of.size(), seen) || history.is_ambiguous(of.size(), real) {
            return;
        }
        let before = history.counts_to_add_to(of.size(), seen, real);
        let expected = before.iter().map(|&before| {
            let admitted = within.is_none_or(|(limit, algorithm)| {
                let limit = Hits::from_thousandths(limit);
                is_within(of.size(), &before, limit, algorithm, cost)
            });
            let value = if admitted { value } else { Hits::ZERO };
            let current = before.current.plus(value);
            (admitted, WindowCounts { current, ..before })
        });
        let expected: Vec<_> = expected.collect();

        let counted = table.add(&of, hashed, &self.clock, value, admission);
        let actual = (counted.receipt.is_some(), counted.reading.windows());
        let Some(choice) = expected.iter().position(|expected| *expected == actual) else {
            panic!("{actual:?} is not one of {expected:?}");
        };
        let before = before[choice].current.thousandths();
        assert!(table.has(&of, hashed), "no key is refused");

        let (_, history) = self.history(counter, key);
        history.occupancy += u32::from(is_new);
        let occupancy = history.occupancy;
        let window = counted.reading.windows().window;
        history.use_in(window, of.size(), real);
        if let Some(receipt) = counted.receipt {
            history.totals.retain(|&number, _| number == window || number % 2 != window % 2);
            let is_ahead = |now| window > of.size().at(UnixMillis(now)).number;
            let former = history.totals.get(&window).copied();
            let former = former.filter(|total| total.thousandths == before);
            let total = Total {
                thousandths: counted.reading.windows().current.thousandths(),
                birth: former.map_or(birth, |total| total.birth),
                is_saturated: former.is_some_and(|total| total.is_saturated)
                    || before + cost > Hits::MAX.thousandths(),
                is_open: false,
                is_early: is_ahead(real) || is_ahead(seen) && former.is_some_and(|f| f.is_early),
            };
            history.totals.insert(window, total);
            let birth = total.birth;
            self.receipts.push(Held { receipt, counter, key, window, birth, occupancy });
        }
        self.births += 1;
        self.insertions += u64::from(is_new);
    }

    fn read(&mut self, counter: (usize, usize), key: u32) {
        let seen = self.clock.seen.get();
        let bytes = key.to_le_bytes();
        let hashed = self.table.key(&bytes);
        let (of, history) = self.history(counter, key);
        if history.is_ambiguous(of.size(), seen) {
            return;
        }
        let expected = history.counts(of.size(), seen);
        let actual = self.table.read(&of, hashed, &self.clock).windows();
        assert!(expected.contains(&actual), "{actual:?} is not one of {expected:?}");
    }

    fn refund(&mut self, held: &Held<'m>) {
        let table = self.table;
        let real = self.clock.real.get();
        let (of, history) = self.history(held.counter, held.key);
        let real = of.size().at(UnixMillis(real)).number;
        let value = held.receipt.value().thousandths();
        let is_here = history.occupancy == held.occupancy;
        // Receipts are stored for the time of a request. If one is stored until its window is
        // dropped and comes again, or its stamp recurs, its value is unspecified. (A dropped window
        // has the stamp of window 0.)
        let has_come_again = |(&number, total): (&u64, &Total)| {
            number % PERIOD == held.window % PERIOD
                && (number != held.window || total.birth != held.birth)
        };
        let looks_empty = held.window % PERIOD < 2;
        if is_here && (looks_empty || history.totals.iter().any(has_come_again)) {
            return;
        }
        let mut total = history.totals.get_mut(&held.window).filter(|_| is_here);
        if total.as_ref().is_some_and(|total| total.is_saturated) {
            return;
        }

        let is_given = table.refund(&of, &held.receipt);
        let given = if is_given { value } else { 0 };

        match &mut total {
            None => assert_eq!(given, 0, "the window or the key is gone"),
            Some(total) => {
                let is_open = total.is_open || held.window + 1 < real;
                assert!(given == value || given == 0 && is_open, "{given} of {value}");
                total.thousandths -= given;
            }
        }
    }

    pub(crate) fn check_evictions(&self) {
        let keys = NAMESPACES.map(|name| {
            let namespace = self.table.namespace(name.as_bytes()).unwrap();
            self.table.namespace_stats(namespace).keys()
        });
        let evicted = self.table.zone_stats();
        assert_eq!(evicted.evicted_unsent, 0);
        assert_eq!(
            evicted.evicted_ended + evicted.evicted_sent + keys.iter().sum::<u64>(),
            self.insertions
        );
    }
}
