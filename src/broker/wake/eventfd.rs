//! An eventfd, by which one thread or process wakes another.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An eventfd, which any number of threads and processes may signal.
#[derive(Clone, Debug)]
pub struct EventFd(Arc<File>);

impl EventFd {
    /// One of its own.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: a system call that takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(EventFd(Arc::new(opened(fd)?)))
    }

    /// Wakes the thread that waits for it.
    pub fn wake(&self) {
        // It only fails if it was used 2^64 - 2 times since it was last noticed.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes the next use be noticed: to be called before it is looked for what there is to do.
    pub fn clear(&self) {
        // If it was not used since, there is nothing to read.
        let _ = (&*self.0).read(&mut [0; 8]);
    }

    /// Returns the eventfd for a task of tokio's to wait for: it wakes once for all signals since
    /// the last wait.
    ///
    /// # Errors
    ///
    /// If tokio does not take it.
    pub fn listen(&self) -> io::Result<AsyncFd<EventFd>> {
        // SAFETY: the descriptor is open, and the same, as long as the clone has the file.
        unsafe { AsyncFd::register_with_interest(self.clone(), Interest::READABLE) }
            .map_err(Into::into)
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The file of a descriptor that a system call returned.
pub(crate) fn opened(fd: RawFd) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nothing else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
