//! The system's clock that all processes of the machine share, and its random numbers. The standard
//! library has neither. A file of its own, as a boundary to the system.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;

/// Returns the time since the machine started. It cannot be set, and is the same in all processes.
pub fn uptime() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is valid for writes; if the call fails, the zeroed value is valid.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
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

/// Returns a number that identifies this start of the machine; zero if the system does not provide
/// it.
pub(crate) fn boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|it| it.to_digit(16));
    let number = digits.fold(0_u128, |number, digit| number << 4 | u128::from(digit));
    [(number >> 64) as u64, number as u64]
}
