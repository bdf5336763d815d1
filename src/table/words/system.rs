//! The system's clock that all processes of the machine share, and its random numbers, which the
//! standard library lacks.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;

/// The time since the machine started, which cannot be set, and which all of its processes share.
pub fn uptime() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is valid for writes, and zero is a valid one should the call fail.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// 128 unpredictable bits.
///
/// # Errors
///
/// If the system has none to give.
pub fn random() -> io::Result<[u64; 2]> {
    let mut words = [0_u64; 2];
    // SAFETY: the buffer is as long as is said.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), size_of_val(&words), 0) };
    match usize::try_from(got) {
        Ok(got) if got == size_of_val(&words) => Ok(words),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A number of this start of the machine, that another start does not have; zero if the system does not
/// tell.
pub(crate) fn boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|it| it.to_digit(16));
    let number = digits.fold(0_u128, |number, digit| number << 4 | u128::from(digit));
    [(number >> 64) as u64, number as u64]
}
