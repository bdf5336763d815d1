//! A timer for less than tokio's own, which know whole milliseconds: a timerfd.

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
    /// To be called by a task of tokio's.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Timer> {
        // SAFETY: a system call that takes no pointer.
        let fd = unsafe {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)
        };
        let file = opened(fd)?;
        // SAFETY: the descriptor is open, and the same, as long as this has the file.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Timer(file?))
    }

    /// Waits for less than a second.
    ///
    /// # Errors
    ///
    /// If the system refuses that.
    pub(crate) async fn sleep(&self, time: Duration) -> io::Result<()> {
        let mut setting = MaybeUninit::<libc::itimerspec>::zeroed();
        // SAFETY: all-zero is a valid setting: of a timer that is not repeated.
        let setting = unsafe { setting.assume_init_mut() };
        setting.it_value.tv_nsec = time.subsec_nanos().into();
        // SAFETY: the setting is valid while it is read; the old one is not asked for.
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
