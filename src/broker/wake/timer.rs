//! A timer for times below tokio's resolution of a millisecond: a timerfd.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::eventfd::opened;

/// A timer for one task.
#[derive(Debug)]
pub(crate) struct Timer(AsyncFd<File>);

impl Timer {
    /// Creates a timer. To be called in a tokio task.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub(crate) fn new() -> io::Result<Timer> {
        // SAFETY: the system call takes no pointer.
        let fd = unsafe {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)
        };
        let file = opened(fd)?;
        // SAFETY: the `AsyncFd` owns the file, which keeps the descriptor open and unchanged.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Timer(file?))
    }

    /// Waits for `time`, which must be less than a second.
    ///
    /// # Errors
    ///
    /// The system cannot set the timer.
    pub(crate) async fn sleep(&self, time: Duration) -> io::Result<()> {
        let mut setting = MaybeUninit::<libc::itimerspec>::zeroed();
        // SAFETY: an all-zero setting is valid: a timer that does not repeat.
        let setting = unsafe { setting.assume_init_mut() };
        setting.it_value.tv_nsec = time.subsec_nanos().into();
        // SAFETY: the pointer is valid during the call; the old setting is not requested.
        let is_set = unsafe {
            let fd = self.0.as_raw_fd();
            libc::timerfd_settime(fd, 0, &raw const *setting, core::ptr::null_mut())
        };
        if is_set != 0 {
            return Err(io::Error::last_os_error());
        }
        let read = |mut file: &File| file.read_exact(&mut [0; 8]);
        self.0.async_io(Interest::READABLE, read).await
    }
}
