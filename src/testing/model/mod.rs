//! Sequences of operations on a table and on a naive model of it, with a simulated clock and one caller at a time.
//! Tests choose them at random, and a fuzz target by its inputs.

mod naive;
mod ops;
mod world;

pub(crate) use naive::is_within;
pub(crate) use ops::{Op, Step, SteppedClock};
pub(crate) use world::World;

pub(crate) const T: u64 = 1_700_000_000_000;
pub(crate) const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;
pub(crate) const SIZES: [u64; 5] = [1, 7, 1000, 60_000, 366 * DAY];
pub(crate) const NAMESPACES: [&str; 2] = ["default", "other"];

/// Number of windows after which a column's stamps recur.
const PERIOD: u64 = 1 << 17;
/// A counter's last use is known modulo twice this time. After a longer jump, the counter may look
/// unused although it is not, or the other way round.
const MEMORY: u64 = 390 * DAY;
