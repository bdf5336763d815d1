//! Sequences of operations on a table, which a naive model of it counts, too.
//!
//! The first byte of an input selects the table, one that is full soon or one that never is, and the second one the sizes of
//! windows. Its other bytes select the operations, as the tests in `src/engine/tests/model` do at random.

use arbitrary::{Result, Unstructured};

use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::table::ZoneStats;
use crate::testing::model::{HOUR, NAMESPACES, Op, SIZES, Step, World, YEAR};
use crate::testing::table::SharedTable;

/// Applies the operations to both, which must agree after each.
pub fn run(data: &[u8]) {
    let [kind, sizes, rest @ ..] = data else { return };
    let sizes: Vec<_> = (0..).zip(SIZES).filter(|(bit, _)| sizes >> bit & 1 == 1).collect();
    let sizes: Vec<_> = sizes.into_iter().map(|(_, size)| size).take(3).collect();
    if sizes.is_empty() {
        return;
    }
    let is_small = kind % 2 == 1;
    let (keys, burst, most) = if is_small { (1000, 200, 40) } else { (3, 1, 200) };
    let shared = SharedTable::new(if is_small { 7 * 4096 } else { 1 << 18 });
    let mut world = World::new(&shared.table, sizes);
    let mut choices = Unstructured::new(rest);
    for _ in 0..most {
        if choices.is_empty() {
            break;
        }
        world.run(&op(&mut choices, keys, burst).expect("no end: it goes on with zeros"));
        if is_small {
            world.check_evictions();
        } else {
            assert_eq!(shared.table.zone_stats(), ZoneStats::default(), "nothing is evicted");
        }
    }
}

/// Returns the next operation on one of `keys` keys, or an addition to up to `burst` of them.
fn op(choices: &mut Unstructured<'_>, keys: u32, burst: u32) -> Result<Op> {
    Ok(match choices.int_in_range(0..=7_u8)? {
        0 => Op::Add {
            counter: counter(choices)?,
            from: choices.int_in_range(0..=keys - 1)?,
            count: choices.int_in_range(1..=burst)?,
            cost: cost(choices)?,
            within: match choices.int_in_range(0..=2_u8)? {
                0 => None,
                1 => Some((choices.int_in_range(1..=20_000)?, algorithm(choices)?)),
                _ => Some((cost(choices)?, algorithm(choices)?)),
            },
        },
        1 => Op::Again { cost: cost(choices)? },
        2 => Op::Read { counter: counter(choices)?, key: choices.int_in_range(0..=keys - 1)? },
        3 => Op::GiveBack(choices.int_in_range(0..=255)?),
        4 => Op::Forward(step(choices)?),
        5 => Op::Forward(long_step(choices)?),
        6 => Op::Back(step(choices)?),
        _ => Op::Stall(step(choices)?),
    })
}

/// Returns a namespace and a size of windows.
fn counter(choices: &mut Unstructured<'_>) -> Result<(usize, usize)> {
    Ok((choices.int_in_range(0..=NAMESPACES.len() - 1)?, choices.int_in_range(0..=2)?))
}

fn cost(choices: &mut Unstructured<'_>) -> Result<i64> {
    let largest = Hits::MAX.thousandths();
    match choices.int_in_range(0..=3_u8)? {
        0 => Ok(1),
        1 => choices.int_in_range(1..=5000),
        2 => choices.int_in_range(1..=1_000_000_000),
        _ => choices.int_in_range(largest / 2..=largest),
    }
}

/// Returns an algorithm with windows: the model has no others.
fn algorithm(choices: &mut Unstructured<'_>) -> Result<Algorithm> {
    let all = Algorithm::ALL.into_iter();
    let of_windows: Vec<_> = all.filter(|it| it.kind() == StoredKind::Windows).collect();
    choices.choose(&of_windows).copied()
}

fn step(choices: &mut Unstructured<'_>) -> Result<Step> {
    let size = choices.int_in_range(0..=2)?;
    Ok(match choices.int_in_range(0..=4_u8)? {
        0 => Step::Millis(choices.int_in_range(0..=3000)?),
        1 => Step::ToEnd(size, choices.int_in_range(-2..=2)?),
        2 => Step::Deferred(size, choices.int_in_range(1..=3)?, choices.int_in_range(1..=1200)?),
        3 => Step::Windows(size, choices.int_in_range(1..=5)?),
        _ => Step::Millis(HOUR * choices.int_in_range(1..=50)?),
    })
}

fn long_step(choices: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match choices.int_in_range(0..=1_u8)? {
        0 => Step::Period(choices.int_in_range(0..=2)?, choices.int_in_range(-1..=1)?),
        _ => Step::Millis(YEAR * choices.int_in_range(1..=3)? + choices.int_in_range(0..=100)?),
    })
}
