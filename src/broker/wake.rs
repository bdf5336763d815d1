//! Wake-ups between threads and processes: an eventfd, by which one wakes another; those of all workers;
//! a queue to an event loop; and a timer below tokio's resolution of a millisecond.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

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

/// One eventfd for each worker, by which others wake its thread for early pushes. The workers inherit them from the
/// master.
#[derive(Debug)]
pub struct Bells(Vec<EventFd>);

impl Bells {
    /// Creates the eventfds of `workers` workers.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new(workers: usize) -> io::Result<Bells> {
        let bells = (0..workers).map(|_| EventFd::new());
        bells.collect::<io::Result<_>>().map(Bells)
    }

    /// Returns the eventfd of a worker; `None` if there is no such worker.
    pub fn of(&self, worker: usize) -> Option<&EventFd> {
        self.0.get(worker)
    }

    /// Wakes the thread of a worker, if there is such a worker.
    pub fn ring(&self, worker: u16) {
        if let Some(bell) = self.of(worker.into()) {
            bell.wake();
        }
    }
}

/// A queue from a background thread to its process's event loop, which an eventfd wakes. The writer may wait for the
/// reader; the event loop, which reads, never waits.
#[derive(Debug)]
pub struct EventLoopQueue<T> {
    items: Arc<Mutex<Vec<T>>>,
    eventfd: EventFd,
}

/// Clones refer to the same queue.
impl<T> Clone for EventLoopQueue<T> {
    fn clone(&self) -> Self {
        EventLoopQueue { items: self.items.clone(), eventfd: self.eventfd.clone() }
    }
}

impl<T> EventLoopQueue<T> {
    /// Creates an empty queue, whose reader `eventfd` wakes.
    pub fn new(eventfd: EventFd) -> EventLoopQueue<T> {
        EventLoopQueue { items: Arc::default(), eventfd }
    }

    /// Adds values, and wakes the reader.
    pub fn push(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(more);
        drop(items);
        // After the lock is released, and always: a reader that found it held is woken to try
        // again.
        self.eventfd.wake();
    }

    /// Takes all values, without waiting. If the lock is held, wakes the event loop again.
    pub fn take(&self) -> Vec<T> {
        match self.items.try_lock() {
            Ok(mut items) => core::mem::take(&mut *items),
            Err(TryLockError::Poisoned(items)) => core::mem::take(&mut *items.into_inner()),
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }
}

/// A timerfd for one task.
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
