//! What a sync has of the system: clocks, random numbers, the number of this process.

use core::mem::MaybeUninit;
use core::num::NonZeroU64;
use core::time::Duration;

use super::super::random::random;
use super::super::time::unix_now;
use crate::engine::Surroundings;
use crate::policy::window::{Clock, UnixMillis};

/// The clocks and the random numbers of the system.
pub(super) struct System;

impl Clock for System {
    fn now(&self) -> UnixMillis {
        unix_now()
    }

    fn fresh(&self) -> UnixMillis {
        self.now()
    }
}

impl Surroundings for System {
    fn uptime(&self) -> Duration {
        let mut time = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the time is valid for writes, and zero is a valid one should the call fail.
        let time = unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
            time.assume_init()
        };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    fn random(&self) -> NonZeroU64 {
        let [bits, _] = random().unwrap_or_default();
        NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN)
    }
}
