//! Random operations.

use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::limit::{Burst, Limit};
use crate::policy::window::WindowSize;
use crate::testing::model::{HOUR, NAMESPACES, Op, SIZES, Step, YEAR};

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
            of_rule: None,
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
        3 => any::<usize>().prop_map(Op::GiveBack),
        4 => step().prop_map(Op::Forward),
        1 => long_step().prop_map(Op::Forward),
        2 => step().prop_map(Op::Back),
        1 => step().prop_map(Op::Stall),
    ];
    prop::collection::vec(op, 1..len)
}
