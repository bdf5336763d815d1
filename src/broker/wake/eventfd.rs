//! An eventfd, by which a thread or process wakes another.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An eventfd, which any thread or process can signal.
#[derive(Clone, Debug)]
pub struct EventFd(Arc<File>);

impl EventFd {
    /// Creates an eventfd.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: the system call takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(EventFd(Arc::new(opened(fd)?)))
    }

    /// Wakes the thread that waits.
    pub fn wake(&self) {
        // Fails only after 2^64 - 2 signals without a read.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    /// Resets the eventfd, so that the next signal wakes again. To be called before the work is
    /// checked.
    pub fn clear(&self) {
        // Without a signal, there is nothing to read.
        let _ = (&*self.0).read(&mut [0; 8]);
    }

    /// Registers the eventfd with tokio. It is readable once for all signals since the last wait.
    ///
    /// # Errors
    ///
    /// tokio cannot register it.
    pub fn listen(&self) -> io::Result<AsyncFd<EventFd>> {
        // SAFETY: the clone keeps the descriptor open and unchanged.
        unsafe { AsyncFd::register_with_interest(self.clone(), Interest::READABLE) }
            .map_err(Into::into)
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns the file of a descriptor that a system call returned.
pub(crate) fn opened(fd: RawFd) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, so nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
