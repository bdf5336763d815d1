//! The system's clocks and random numbers. A file of its own, as the boundary to the system.

use core::num::NonZeroU64;
use core::time::Duration;

use super::sync::shard_sync::Env;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::words::system::{random_number, unix_millis, uptime};

/// The machine's clocks and random numbers, and this process.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Clock for Machine {
    fn now(&self) -> UnixMillis {
        UnixMillis(unix_millis())
    }

    fn fresh(&self) -> UnixMillis {
        self.now()
    }
}

impl Env for Machine {
    fn uptime(&self) -> Duration {
        uptime()
    }

    fn random(&self) -> NonZeroU64 {
        random_number()
    }

    fn process(&self) -> u32 {
        std::process::id()
    }
}
