//! Fuzz targets: each has a function `run`, which takes an input, and panics if something does not hold.
//!
//! Only `fuzz/` compiles them, with `--cfg fuzzing`; `scripts/fuzz.sh` runs them.
//!
//! - [`zone`]: a damaged zone; [`api`]: calls of the API

pub mod api;
pub mod zone;

use core::net::Ipv4Addr;

/// The address of the targets' servers: no target connects to another one.
pub const HOST: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);

/// The time of all targets at first.
const T: u64 = 1_700_000_040_000;
