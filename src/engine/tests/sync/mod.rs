//! The sync cycle over stores in memory that fail as real ones do: before they applied a batch, or
//! after. Nodes are tables; each call of `sync` may be another worker's.
//!
//! What real stores do is tested in [`crate::store`]; this is about what nodes make of it.
//!
//! - [`memory`]: what stores in memory have in common; [`log`]: one that keeps a log of changes, and adds;
//!   [`rows`]: one that keeps absolute counts alone
//! - [`node`]: nodes, and their workers
//! - the tests: [`cycles`], [`early`], [`losses`], [`clones`], [`shards`], [`liar`], [`snapshots`], [`resets`],
//!   [`subscriber`]; [`totals`] of all at random

mod clones;
mod cycles;
mod early;
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
pub(super) use node::Time;

const T: u64 = 1_700_000_000_000;
const SIZE: u64 = 60_000;
const LIFETIME: u64 = 3000;

fn size() -> WindowSize {
    WindowSize::from_millis(SIZE).unwrap()
}
