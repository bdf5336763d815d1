//! Finds sequences of operations that nobody thought of: the table against a naive model of it,
//! under a simulated clock. One caller at a time; the same sequences at every run.

use std::cell::Cell as StdCell;
use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use proptest::test_runner::RngSeed;

use super::{BoundLimit, Evaluation, Namespace};
use crate::policy::algorithm::{Algorithm, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::limit::Limit;
use crate::policy::window::{Clock, UnixMillis, WindowPosition, WindowSize};
use crate::table::testing::SharedTable;
use crate::table::*;

const T: u64 = 1_700_000_000_000;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
const SIZES: [u64; 5] = [1, 7, 1000, 60_000, 366 * DAY];
const NAMESPACES: [&str; 2] = ["default", "other"];

/// Windows after which a column's stamps repeat.
const PERIOD: u64 = 1 << 17;
/// A counter's last use is known modulo twice as much: after a longer jump it may look unused when
/// it is not, or the other way round.
const MEMORY: u64 = 390 * DAY;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(3),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn the_table_counts_as_the_model_does(sizes in sizes(), ops in ops(3, 1, 200)) {
        let shared = SharedTable::new(1 << 18);
        let mut world = World::new(&shared.table, sizes);
        for op in &ops {
            world.run(op);
            assert_eq!(shared.table.zone_stats(), ZoneStats::default(), "nothing is evicted");
        }
    }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn what_a_full_table_has_not_evicted_it_counts_as_the_model_does(
        sizes in sizes(),
        ops in ops(1000, 200, 40),
    ) {
        let shared = SharedTable::new(7 * 4096);
        let mut world = World::new(&shared.table, sizes);
        for op in &ops {
            world.run(op);
            world.check_evictions();
        }
    }

    #[test]
    fn eviction_loses_hits_but_adds_none(
        size in prop::sample::select(&SIZES[..]),
        rounds in prop::collection::vec((0..2000_u32, 1..400_u32, 1..5000_i64, 0..3_u64), 1..12),
    ) {
        let shared = SharedTable::new(7 * 4096);
        let table = &shared.table;
        let size = WindowSize::from_millis(size).unwrap();
        let counter = table.counter(table.namespace(b"default").unwrap(), b"default", size);
        let clock = SteppedClock::at(T);
        // All that was ever counted.
        let mut counted = HashMap::<(u32, u64), i64>::new();

        for (from, count, cost, windows) in rounds {
            clock.set(clock.real.get() + windows * size.millis() / 2);
            let window = size.at(clock.now()).number;
            for key in from..from + count {
                let bytes = key.to_le_bytes();
                let hashed = table.key(&bytes);
                let value = Hits::from_thousandths(cost);
                let added = table.add(&counter, hashed, &clock, value, Admission::Unconditional);
                let current = counted.entry((key, window)).or_default();
                *current += cost;
                assert!(added.receipt.is_some(), "no key is refused");
                let counts = added.reading.windows();
                assert!(counts.current >= value && counts.window == window);
                assert!(counts.current.thousandths() <= *current);
            }
            let at_most = |key, window| counted.get(&(key, window)).copied().unwrap_or_default();
            for key in (0..2400).step_by(7) {
                let reading = table.read(&counter, table.key(&u32::to_le_bytes(key)), &clock);
                let counts = reading.windows();
                assert!(counts.current.thousandths() <= at_most(key, window));
                assert!(counts.previous.thousandths() <= at_most(key, window - 1));
            }
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn an_attempt_is_admitted_by_all_limits_and_charged_to_all_or_none(
        limits in prop::collection::vec(limit(), 1..5),
        requests in prop::collection::vec((0..2_u32, 0..6000_i64, step()), 1..100),
        counts_rejected in any::<bool>(),
    ) {
        let shared = SharedTable::new(1 << 18);
        let namespace = Namespace::new("default", &shared.table).unwrap();
        let mut bound = Vec::<(BoundLimit<'_>, Hits)>::new();
        for (hits, limit) in limits {
            let earlier = bound.iter().map(|(limit, _)| limit);
            let limit = BoundLimit::new(limit, &namespace, earlier);
            bound.push((limit, hits));
        }
        let clock = SteppedClock::at(T);
        let mut model = HashMap::<(u32, u64, u64), i64>::new();

        for (key, cost, step) in requests {
            clock.set(step.after(clock.real.get(), &SIZES));
            let bytes = key.to_le_bytes();
            let hashed = shared.table.key(&bytes);
            let read = |limit: &Limit| {
                let counter = namespace.counter(limit.size);
                shared.table.read(&counter, hashed, &clock)
            };
            let expected = |model: &HashMap<(u32, u64, u64), i64>, limit: &Limit| {
                let WindowPosition { number, elapsed } = limit.size.at(clock.now());
                let hits = |number| {
                    let hits = model.get(&(key, limit.size.millis(), number));
                    Hits::from_thousandths(hits.copied().unwrap_or_default())
                };
                WindowCounts {
                    window: number,
                    current: hits(number),
                    previous: hits(number - 1),
                    elapsed,
                }
            };
            let admits = |(bound, hits): &(BoundLimit<'_>, Hits)| {
                let counts = expected(&model, &bound.limit);
                is_within(bound.limit.size, &counts, *hits, bound.limit.algorithm, cost)
            };
            let verdicts: Vec<bool> = bound.iter().map(admits).collect();

            let mut evaluation = Evaluation::new(Vec::new(), counts_rejected);
            for (limit, hits) in &bound {
                evaluation.charge(limit, *hits, &hashed, Hits::from_thousandths(cost), &clock);
            }
            let (outcome, charges) = evaluation.finish(Outcome::Rejected);

            let admitted = verdicts.iter().all(|&verdict| verdict);
            assert_eq!(outcome == Outcome::Passed, admitted);
            if admitted || counts_rejected {
                let mut sizes: Vec<_> = bound.iter().map(|(bound, _)| bound.limit.size).collect();
                sizes.sort();
                sizes.dedup();
                for size in sizes {
                    let window = (key, size.millis(), size.at(clock.now()).number);
                    *model.entry(window).or_default() += cost;
                }
            }
            assert_eq!(charges.len(), bound.len());
            for (((bound, _), verdict), charge) in bound.iter().zip(verdicts).zip(&charges) {
                let counts = expected(&model, &bound.limit);
                assert_eq!(read(&bound.limit).windows(), counts);
                let charge = charge.verdict();
                assert_eq!((charge.admitted, charge.reading.windows()), (verdict, counts));
            }
        }
    }
}

/// A worker's clock: what it remembers, and what it would see.
struct SteppedClock {
    seen: StdCell<u64>,
    real: StdCell<u64>,
    looks: StdCell<u32>,
}

impl SteppedClock {
    fn at(millis: u64) -> SteppedClock {
        SteppedClock {
            seen: StdCell::new(millis),
            real: StdCell::new(millis),
            looks: StdCell::new(0),
        }
    }

    fn set(&self, millis: u64) {
        self.seen.set(millis);
        self.real.set(millis);
        self.looks.set(0);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.seen.get())
    }

    fn fresh(&self) -> UnixMillis {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        assert!(
            looks < 10_000,
            "an operation does not end while time stands still"
        );
        self.seen.set(self.real.get());
        self.now()
    }
}

/// What is done to the table, or to time. Indices count modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    /// Adds the same to `count` keys from `from` on.
    Add {
        counter: (usize, usize),
        from: u32,
        count: u32,
        cost: i64,
        within: Option<(i64, Algorithm)>,
    },
    /// Adds to the key that was added to last.
    Again {
        cost: i64,
    },
    Read {
        counter: (usize, usize),
        key: u32,
    },
    /// Gives one of the receipts back.
    GiveBack(Index),
    Forward(Step),
    Back(Step),
    /// The worker does not look at the clock for so long.
    Stall(Step),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Millis(u64),
    /// To the end of the window, or so many milliseconds past it (before, if negative).
    ToEnd(usize, i64),
    Windows(usize, u64),
    /// By so many windows, then to so many milliseconds before the end of that.
    Late(usize, u64, u64),
    /// Until the stamps repeat, or so many windows longer.
    Period(usize, i64),
}

impl Step {
    fn after(self, now: u64, sizes: &[u64]) -> u64 {
        let size = |index: usize| sizes[index % sizes.len()];
        match self {
            Step::Millis(millis) => now + millis,
            Step::ToEnd(index, offset) => {
                let end = (now / size(index) + 1) * size(index);
                end.saturating_add_signed(offset).max(now)
            }
            Step::Late(index, count, left) => {
                let end = (now / size(index) + 1 + count) * size(index);
                (end - left.min(size(index))).max(now)
            }
            Step::Windows(index, count) => now + size(index).min(DAY) * count,
            Step::Period(index, windows) => {
                now + size(index).min(60_000) * PERIOD.saturating_add_signed(windows)
            }
        }
    }

    /// The same way back.
    fn before(self, now: u64, sizes: &[u64]) -> u64 {
        let way = match self {
            Step::ToEnd(index, offset) => {
                let size = sizes[index % sizes.len()];
                (now % size).saturating_add_signed(-offset)
            }
            Step::Late(index, count, left) => {
                let size = sizes[index % sizes.len()];
                now % size + (count - 1) * size + left.min(size)
            }
            step => step.after(now, sizes) - now,
        };
        now.saturating_sub(way).max(T / 2)
    }
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    subsequence(SIZES.to_vec(), 1..=3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_u64).prop_map(Step::Millis),
        4 => (0..3_usize, -2..=2_i64).prop_map(|(size, offset)| Step::ToEnd(size, offset)),
        3 => (0..3_usize, 1..4_u64, prop_oneof![1..130_u64, 1..1200_u64])
            .prop_map(|(size, count, left)| Step::Late(size, count, left)),
        2 => (0..3000_u64).prop_map(Step::Millis),
        4 => (0..3_usize, 1..6_u64).prop_map(|(size, count)| Step::Windows(size, count)),
        1 => (1..50_u64).prop_map(|hours| Step::Millis(hours * HOUR)),
    ]
}

fn long_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize, -1..=1_i64).prop_map(|(size, offset)| Step::Period(size, offset)),
        1 => (1..4_u64, 0..100_u64).prop_map(|(years, rest)| Step::Millis(years * YEAR + rest)),
    ]
}

fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 1..5000_i64,
        2 => Just(1),
        2 => 1..1_000_000_000_i64,
        1 => Hits::MAX.thousandths() / 2..=Hits::MAX.thousandths(),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(&Algorithm::ALL[..])
}

fn limit() -> impl Strategy<Value = (Hits, Limit)> {
    let size = prop::sample::select(&SIZES[..]);
    (1..30_000_i64, size, algorithm()).prop_map(|(hits, size, algorithm)| {
        let limit = Limit {
            name: "".into(),
            size: WindowSize::from_millis(size).unwrap(),
            algorithm,
        };
        (Hits::from_thousandths(hits), limit)
    })
}

/// Up to `len` operations on `keys` keys, up to `burst` of which are added in a row.
fn ops(keys: u32, burst: u32, len: usize) -> impl Strategy<Value = Vec<Op>> {
    let counter = || (0..NAMESPACES.len(), 0..3_usize);
    let limit = prop_oneof![1..20_000_i64, cost()];
    let within = proptest::option::of((limit, algorithm()));
    let add = (counter(), 0..keys, 1..=burst, cost(), within);
    let op = prop_oneof![
        4 => add.prop_map(|(counter, from, count, cost, within)| {
            Op::Add { counter, from, count, cost, within }
        }),
        8 => cost().prop_map(|cost| Op::Again { cost }),
        3 => (counter(), 0..keys).prop_map(|(counter, key)| Op::Read { counter, key }),
        3 => any::<Index>().prop_map(Op::GiveBack),
        4 => step().prop_map(Op::Forward),
        1 => long_step().prop_map(Op::Forward),
        2 => step().prop_map(Op::Back),
        1 => step().prop_map(Op::Stall),
    ];
    prop::collection::vec(op, 1..len)
}

/// Whether a limit admits `cost`: the definition, in numbers that cannot overflow.
fn is_within(
    size: WindowSize,
    counts: &WindowCounts,
    limit: Hits,
    algorithm: Algorithm,
    cost: i64,
) -> bool {
    let size = i128::from(size.millis());
    let thousandths = |hits: Hits| i128::from(hits.thousandths());
    let weighed = match algorithm {
        Algorithm::Sliding => thousandths(counts.previous) * (size - i128::from(counts.elapsed)),
        Algorithm::Fixed => 0,
        Algorithm::Elastic => unreachable!("its counters are no windows"),
    };
    let rate = (thousandths(counts.current) + i128::from(cost)) * size + weighed;
    let limit = thousandths(limit) * size;
    rate < limit || cost > 0 && rate == limit
}

/// What a key counted in a window, as the model has it.
#[derive(Clone, Copy)]
struct Total {
    thousandths: i64,
    /// Tells it from an earlier total of the same window, which was forgotten.
    birth: usize,
    /// Hits beyond the largest number were dropped: what is given back now is anybody's guess.
    is_saturated: bool,
    /// It had ended, or lay in the future (the clock had been set back), when the counter went on.
    /// Should its time come again, it is left open whether it was forgotten.
    is_open: bool,
    /// Its last hit came before its time, by a clock set back: it may be forgotten a little
    /// before the end of the next window.
    is_early: bool,
}

/// What the model has of a key.
#[derive(Default)]
struct History {
    totals: BTreeMap<u64, Total>,
    /// How often the key was inserted.
    occupancy: u32,
}

impl History {
    /// What the hits of a window may read as.
    fn hits(&self, number: u64, as_previous: bool) -> Vec<i64> {
        match self.totals.get(&number) {
            None => vec![0],
            Some(total) if total.is_open || as_previous && total.is_early => {
                vec![total.thousandths, 0]
            }
            Some(total) => vec![total.thousandths],
        }
    }

    /// What the counts may read as: one possibility, unless something is left open. In the last
    /// tenth (or second) of a window, the next one counts if there are hits in it already.
    fn counts(&self, size: WindowSize, now: u64) -> Vec<WindowCounts> {
        let WindowPosition { number, elapsed } = size.at(UnixMillis(now));
        let is_ending = size.millis() - elapsed <= (size.millis() / 10).min(1000);
        let positions = self.hits(number + 1, false).into_iter().map(|next| {
            if next != 0 && is_ending {
                (number + 1, 0)
            } else {
                (number, elapsed)
            }
        });
        let mut all = Vec::new();
        for (window, elapsed) in positions {
            for current in self.hits(window, false) {
                for previous in self.hits(window - 1, true) {
                    all.push(WindowCounts {
                        window,
                        current: Hits::from_thousandths(current),
                        previous: Hits::from_thousandths(previous),
                        elapsed,
                    });
                }
            }
        }
        all
    }

    /// The counts before hits are added. A worker that remembers an old time may add to the
    /// window of that, unless it would wipe out or ignore hits of another one.
    fn counts_to_add_to(&self, size: WindowSize, seen: u64, real: u64) -> Vec<WindowCounts> {
        let mut all = self.counts(size, real);
        if seen == real {
            return all;
        }
        let real = size.at(UnixMillis(real)).number;
        let is_certain = |number: u64| !self.hits(number, false).contains(&0);
        all.extend(self.counts(size, seen).into_iter().filter(|counts| {
            let mut numbers = self.totals.keys().copied();
            let wipes_out = counts.window != real
                && numbers.any(|other| {
                    other > counts.window && other % 2 == counts.window % 2 && is_certain(other)
                });
            !wipes_out && !is_certain(counts.window + 1)
        }));
        all
    }

    /// Whether a window that is not near `now` has the stamp of one that is, and the time of the
    /// last use does not tell them apart: after a jump back, or one by more than a year, that is
    /// a multiple of 2^17 windows. What is counted then is left open.
    fn is_ambiguous(&self, size: WindowSize, now: u64) -> bool {
        let number = size.at(UnixMillis(now)).number;
        self.totals.keys().any(|&other| {
            let is_near = other.abs_diff(number) <= 2;
            let is_alike = (other + 2).wrapping_sub(number) % PERIOD <= 4;
            let is_recent = other < number && now - other * size.millis() < MEMORY;
            is_alike && !is_near && !is_recent
        })
    }

    /// Takes note that the counter was used in `window`. The window after that is forgotten.
    fn use_in(&mut self, window: u64, size: WindowSize, real: u64) {
        let real = size.at(UnixMillis(real)).number;
        self.totals
            .retain(|&number, total| number != window + 1 || total.thousandths == 0);
        for (&number, total) in &mut self.totals {
            total.is_open |= number > window && number > real || number + 1 < window;
        }
    }
}

struct Held<'m> {
    receipt: Receipt<'m>,
    counter: (usize, usize),
    key: u32,
    window: u64,
    birth: usize,
    occupancy: u32,
}

/// A table and its model.
struct World<'m> {
    table: &'m CounterTable<'m>,
    sizes: Vec<u64>,
    clock: SteppedClock,
    latest: u64,
    /// What was added to last.
    last: ((usize, usize), u32),
    model: HashMap<((usize, usize), u32), History>,
    receipts: Vec<Held<'m>>,
    births: usize,
    insertions: u64,
}

impl<'m> World<'m> {
    fn new(table: &'m CounterTable<'m>, sizes: Vec<u64>) -> Self {
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

    fn run(&mut self, op: &Op) {
        let now = self.clock.real.get();
        self.clock.looks.set(0);
        match *op {
            Op::Add {
                counter,
                from,
                count,
                cost,
                within,
            } => {
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
                    let held = self.receipts.swap_remove(index.index(self.receipts.len()));
                    self.give_back(&held);
                }
            }
            Op::Forward(step) => self.set(step.after(now, &self.sizes)),
            Op::Back(step) => self.set(step.before(now, &self.sizes)),
            Op::Stall(step) => {
                self.set(now);
                // Not until stamps come round.
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
            let totals = self
                .model
                .values_mut()
                .flat_map(|key| key.totals.values_mut());
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

    /// The model's history of a key: empty if the table has no place for it (any more).
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
            history
                .totals
                .retain(|&number, _| number == window || number % 2 != window % 2);
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
            self.receipts.push(Held {
                receipt,
                counter,
                key,
                window,
                birth,
                occupancy,
            });
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
        assert!(
            expected.contains(&actual),
            "{actual:?} is not one of {expected:?}"
        );
    }

    fn give_back(&mut self, held: &Held<'m>) {
        let table = self.table;
        let real = self.clock.real.get();
        let (of, history) = self.history(held.counter, held.key);
        let real = of.size().at(UnixMillis(real)).number;
        let value = held.receipt.value().thousandths();
        let is_here = history.occupancy == held.occupancy;
        // Receipts are kept for a request's time. If kept until the window is forgotten and comes
        // again, or until its stamp does, what they are worth is left open. (A forgotten window has
        // the stamp of window 0.)
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

        let is_given = table.give_back(&of, &held.receipt);
        let given = if is_given { value } else { 0 };

        match &mut total {
            None => assert_eq!(given, 0, "the window or the key is gone"),
            Some(total) => {
                let is_open = total.is_open || held.window + 1 < real;
                assert!(
                    given == value || given == 0 && is_open,
                    "{given} of {value}"
                );
                total.thousandths -= given;
            }
        }
    }

    fn check_evictions(&self) {
        let keys = NAMESPACES.map(|name| {
            let namespace = self.table.namespace(name.as_bytes()).unwrap();
            self.table.namespace_stats(namespace).keys
        });
        let evicted = self.table.zone_stats();
        assert_eq!(evicted.evicted_unsent, 0);
        assert_eq!(
            evicted.evicted_ended + evicted.evicted_sent + keys.iter().sum::<u64>(),
            self.insertions
        );
    }
}
