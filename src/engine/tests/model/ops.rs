//! Operations, a clock that jumps, and their random generation.

use std::cell::Cell as StdCell;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::{DAY, HOUR, NAMESPACES, PERIOD, SIZES, T, YEAR};
use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::{Clock, UnixMillis, WindowSize};

/// A worker's clock: the time that it remembers, and the real one.
pub(super) struct SteppedClock {
    pub(super) seen: StdCell<u64>,
    pub(super) real: StdCell<u64>,
    pub(super) looks: StdCell<u32>,
}

impl SteppedClock {
    pub(super) fn at(millis: u64) -> SteppedClock {
        SteppedClock {
            seen: StdCell::new(millis),
            real: StdCell::new(millis),
            looks: StdCell::new(0),
        }
    }

    pub(super) fn set(&self, millis: u64) {
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
        assert!(looks < 10_000, "an operation does not end while time stands still");
        self.seen.set(self.real.get());
        self.now()
    }
}

/// An operation on the table, or on the time. Indexes count modulo the number of elements.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Adds the same to `count` keys, starting with `from`.
    Add {
        counter: (usize, usize),
        from: u32,
        count: u32,
        cost: i64,
        within: Option<(i64, Algorithm)>,
    },
    /// Adds to the key of the last addition.
    Again {
        cost: i64,
    },
    Read {
        counter: (usize, usize),
        key: u32,
    },
    /// Refunds one of the receipts.
    GiveBack(Index),
    Forward(Step),
    Back(Step),
    /// The worker does not read the clock for this time.
    Stall(Step),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Millis(u64),
    /// To the end of the window, or this number of milliseconds past it (before it, if negative).
    ToEnd(usize, i64),
    Windows(usize, u64),
    /// By this number of windows, and then to this number of milliseconds before the end of that
    /// window.
    Deferred(usize, u64, u64),
    /// Until the stamps recur, or this number of windows longer.
    Period(usize, i64),
}

impl Step {
    pub(super) fn after(self, now: u64, sizes: &[u64]) -> u64 {
        let size = |index: usize| sizes[index % sizes.len()];
        match self {
            Step::Millis(millis) => now + millis,
            Step::ToEnd(index, offset) => {
                let end = (now / size(index) + 1) * size(index);
                end.saturating_add_signed(offset).max(now)
            }
            Step::Deferred(index, count, left) => {
                let end = (now / size(index) + 1 + count) * size(index);
                (end - left.min(size(index))).max(now)
            }
            Step::Windows(index, count) => now + size(index).min(DAY) * count,
            Step::Period(index, windows) => {
                now + size(index).min(60_000) * PERIOD.saturating_add_signed(windows)
            }
        }
    }

    /// Returns the time before the step.
    pub(super) fn before(self, now: u64, sizes: &[u64]) -> u64 {
        let way = match self {
            Step::ToEnd(index, offset) => {
                let size = sizes[index % sizes.len()];
                (now % size).saturating_add_signed(-offset)
            }
            Step::Deferred(index, count, left) => {
                let size = sizes[index % sizes.len()];
                now % size + (count - 1) * size + left.min(size)
            }
            step => step.after(now, sizes) - now,
        };
        now.saturating_sub(way).max(T / 2)
    }
}

pub(super) fn sizes() -> impl Strategy<Value = Vec<u64>> {
    subsequence(SIZES.to_vec(), 1..=3)
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_u64).prop_map(Step::Millis),
        4 => (0..3_usize, -2..=2_i64).prop_map(|(size, offset)| Step::ToEnd(size, offset)),
        3 => (0..3_usize, 1..4_u64, prop_oneof![1..130_u64, 1..1200_u64])
            .prop_map(|(size, count, left)| Step::Deferred(size, count, left)),
        2 => (0..3000_u64).prop_map(Step::Millis),
        4 => (0..3_usize, 1..6_u64).prop_map(|(size, count)| Step::Windows(size, count)),
        1 => (1..50_u64).prop_map(|hours| Step::Millis(hours * HOUR)),
    ]
}

pub(super) fn long_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize, -1..=1_i64).prop_map(|(size, offset)| Step::Period(size, offset)),
        1 => (1..4_u64, 0..100_u64).prop_map(|(years, rest)| Step::Millis(years * YEAR + rest)),
    ]
}

pub(super) fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 1..5000_i64,
        2 => Just(1),
        2 => 1..1_000_000_000_i64,
        1 => Hits::MAX.thousandths() / 2..=Hits::MAX.thousandths(),
    ]
}

/// Generates an algorithm with windows; `table::tests::level` tests the others.
pub(super) fn algorithm() -> impl Strategy<Value = Algorithm> {
    let all = Algorithm::ALL.into_iter();
    let of_windows = all.filter(|it| it.kind() == StoredKind::Windows);
    proptest::sample::select(of_windows.collect::<Vec<_>>())
}

pub(super) fn limit() -> impl Strategy<Value = (Hits, Limit)> {
    let size = prop::sample::select(&SIZES[..]);
    (1..30_000_i64, size, algorithm()).prop_map(|(hits, size, algorithm)| {
        let limit = Limit {
            name: "".into(),
            size: WindowSize::from_millis(size).unwrap(),
            algorithm,
            burst: Burst::default(),
        };
        (Hits::from_thousandths(hits), limit)
    })
}

/// Generates up to `len` operations on `keys` keys, of which up to `burst` are added in a row.
pub(super) fn ops(keys: u32, burst: u32, len: usize) -> impl Strategy<Value = Vec<Op>> {
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
