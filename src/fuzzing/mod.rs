//! Fuzz targets: each has a function `run`, which takes an input, and panics if something does not hold.
//!
//! Only `fuzz/` compiles them, with `--cfg fuzzing`; `scripts/fuzz.sh` runs them.
//!
//! - [`conf`]: configurations; [`key`]: keys, costs and times; [`api`]: calls of the API
//! - [`stores`]: answers of hostile servers
//! - [`zone`]: a damaged zone; [`messages`]: a damaged queue of the broker; [`operations`]: hits in a table

pub mod api;
pub mod conf;
pub mod key;
pub mod messages;
pub mod operations;
pub mod stores;
pub mod zone;

use core::net::Ipv4Addr;

/// The address of the targets' servers: no target connects to another one.
pub const HOST: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);

/// The time of all targets at first.
const T: u64 = 1_700_000_040_000;
