//! The sync cycle with stores in memory that fail as real ones do: before they apply a batch, or
//! after. Nodes are tables; each call of `sync` may be another worker's.
//!
//! [`crate::store`] tests real stores; these tests are about the nodes.
//!
//! - [`memory`]: common parts of stores in memory; [`log`]: a store with a log of changes and added
//!   counts; [`rows`]: a store with absolute counts and without a log
//! - [`node`]: nodes, and their workers
//! - the tests: [`cycles`], [`driver`], [`early`], [`holds`], [`losses`], [`clones`], [`shards`], [`liar`], [`snapshots`],
//!   [`resets`], [`subscriber`]; [`totals`] runs all of it at random

mod calendar;
mod clones;
mod cycles;
mod driver;
mod early;
mod holds;
mod liar;
mod log;
mod losses;
mod memory;
mod node;
mod resets;
mod rows;
mod shards;
mod snapshots;
mod subscriber;
mod totals;

use crate::policy::hits::hits;
use crate::policy::window::WindowSize;

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 60_000;
const LIFETIME: u64 = 3000;

fn size() -> WindowSize {
    WindowSize::from_millis(SIZE).unwrap()
}
