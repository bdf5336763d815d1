//! The system's clocks that all processes of the machine share, its random numbers, and its processes. The standard
//! library has none of them. A file of its own, as a boundary to the system.

use core::mem::MaybeUninit;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Once;

/// Returns the time since the machine started. It cannot be set, and is the same in all processes.
pub fn uptime() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the milliseconds since 1970, as far as the machine knows them.
pub fn unix_millis() -> u64 {
    u64::try_from(read(libc::CLOCK_REALTIME).as_millis()).unwrap_or(u64::MAX)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is valid for writes; if the call fails, the zeroed value is valid.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns 128 unpredictable bits.
///
/// # Errors
///
/// The system has none available.
pub fn random() -> io::Result<[u64; 2]> {
    let mut words = [0_u64; 2];
    // SAFETY: the buffer has the passed length.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), size_of_val(&words), 0) };
    match usize::try_from(got) {
        Ok(got) if got == size_of_val(&words) => Ok(words),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a number that no other process or machine returns, also one that was copied from this one.
pub(crate) fn random_number() -> NonZeroU64 {
    let number = match random() {
        Ok([number, _]) => number,
        Err(_) => RandomState::new().hash_one(()),
    };
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// Returns a number that identifies this start of the machine; zero if the system does not provide
/// it.
pub(crate) fn boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|it| it.to_digit(16));
    let number = digits.fold(0_u128, |number, digit| number << 4 | u128::from(digit));
    [(number >> 64) as u64, number as u64]
}

/// Returns the number of times that a process was forked on the way to this one, since the first call.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Relaxed)
}

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// A process: its id, and its start time in the kernel's ticks since the start of the machine, in one word. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(u64);

/// Bits of the start time.
const START_BITS: u32 = 42;
const START_MASK: u64 = (1 << START_BITS) - 1;

impl ProcessId {
    /// Returns the calling process. From now on, [`forks`] differs in its children.
    pub(crate) fn current() -> Option<ProcessId> {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(|| {
            // Miri has no fork.
            if !cfg!(miri) {
                // SAFETY: the function is async-signal-safe and lives as long as this library, which is never unloaded.
                let _ = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            }
        });
        let id = std::process::id();
        // Without /proc, the start time is unknown, and so is not compared.
        let start = statistics(id).map_or(0, |(_, start)| start);
        (id != 0).then_some(ProcessId(u64::from(id) << START_BITS | start & START_MASK))
    }

    pub(crate) fn from_bits(bits: u64) -> ProcessId {
        ProcessId(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the process has certainly ended. Only an `exact` answer distinguishes it from a later process with
    /// its id, and from one that its parent has not waited for; it takes some ten microseconds.
    pub(crate) fn has_ended(self, exact: bool) -> bool {
        let id = u32::try_from(self.0 >> START_BITS).unwrap_or(0);
        // Miri has no signals, and one process.
        if cfg!(miri) {
            return id != std::process::id();
        }
        let Ok(pid) = libc::pid_t::try_from(id) else { return true };
        // SAFETY: signal 0 is not sent, only checked.
        let is_missing = unsafe { libc::kill(pid, 0) } != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        if is_missing || !exact {
            return is_missing;
        }
        let started = self.0 & START_MASK;
        statistics(id).is_some_and(|(state, start)| {
            matches!(state, "Z" | "X") || (started != 0 && start & START_MASK != started)
        })
    }
}

/// Returns the state and the start time of a process; `None` if they are unknown.
fn statistics(id: u32) -> Option<(&'static str, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before may have spaces and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = match fields.next()? {
        "Z" => "Z",
        "X" => "X",
        _ => "",
    };
    Some((state, fields.nth(18)?.parse().ok()?))
}
