//! The system's clocks and random numbers. A file of its own, as the boundary to the system.

use core::num::NonZeroU64;
use core::time::Duration;
use std::hash::{BuildHasher as _, RandomState};

use super::sync::shard_sync::Env;
use crate::policy::window::{Clock, UnixMillis};
use crate::table::words::system::{random, unix_millis, uptime};

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
        let bits = match random() {
            Ok([bits, _]) => bits,
            // The number only has to differ from other nodes' numbers.
            Err(_) => RandomState::new().hash_one(()),
        };
        NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN)
    }

    fn process(&self) -> u32 {
        std::process::id()
    }
}
