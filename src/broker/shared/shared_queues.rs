//! The memory that the workers of a configuration share for the broker: rings of questions and
//! answers, and the broker's lock. The master maps it before it starts the workers.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::fd::RawFd;

use super::breaker::Breaker;
use super::message::messages;
use super::ring::{CACHE_LINE, Doorbell, Ring};
use super::store_clock::StoreClock;
use super::tenure::Tenure;
use crate::broker::wake::{EventFd, opened};

/// The rings and the states of deciders. The workers inherit them from the master.
#[derive(Debug)]
pub struct SharedQueues {
    memory: NonNull<[AtomicU64]>,
    /// The file of the memory and of the lock.
    file: File,
    /// Wakes the broker at the number of questions that it waits for.
    bell: EventFd,
    /// Eventfds that wake the workers' event loops.
    eventfds: Vec<EventFd>,
    deciders: usize,
}

// SAFETY: the memory consists of atomics, which any thread may use.
unsafe impl Send for SharedQueues {}
// SAFETY: as above.
unsafe impl Sync for SharedQueues {}

/// The shared state of a decider.
#[derive(Clone, Copy, Debug)]
pub struct DeciderState<'q> {
    /// Whether requests ask it.
    pub breaker: Breaker<'q>,
    /// Wakes the broker for its questions.
    pub doorbell: Doorbell<'q>,
    /// Its store's clock.
    pub clock: StoreClock<'q>,
}

/// A worker's part of the memory.
#[derive(Clone, Copy, Debug)]
pub struct WorkerQueues<'q> {
    /// The worker's questions.
    pub questions: Ring<'q>,
    /// Eventfd that wakes the worker's event loop.
    pub eventfd: &'q EventFd,
}

/// Words of a decider's state: the breaker and the clock, which all workers read, and, in another
/// cache line, the doorbell, which changes all the time.
const DECIDER: usize = 2 * CACHE_LINE;
/// Words of each ring: one for a worker's questions, and one for the answers of each process that
/// can serve. 256 KB each, for some thousands of requests. The system allocates only used pages.
pub(crate) const CAPACITY: usize = 1 << 15;
const RING: usize = Ring::size(CAPACITY);
/// Words of the tenure, at the start.
const TENURE: usize = CACHE_LINE;

impl SharedQueues {
    /// Creates the memory for this number of workers and deciders.
    ///
    /// # Errors
    ///
    /// The system has no memory or descriptors left.
    pub fn new(workers: usize, deciders: usize) -> io::Result<SharedQueues> {
        let eventfds = (0..workers).map(|_| EventFd::new());
        SharedQueues::waking(eventfds.collect::<io::Result<_>>()?, deciders)
    }

    /// Creates the memory for the workers that these eventfds wake.
    ///
    /// # Errors
    ///
    /// See [`SharedQueues::new`].
    pub fn waking(eventfds: Vec<EventFd>, deciders: usize) -> io::Result<SharedQueues> {
        let workers = eventfds.len();
        let rings = workers.saturating_mul(workers.saturating_add(1));
        let words = deciders
            .saturating_mul(DECIDER)
            .saturating_add(TENURE)
            .saturating_add(rings.saturating_mul(RING));
        let bytes = words.saturating_mul(size_of::<AtomicU64>());
        // SAFETY: the name is a C string.
        let file = opened(unsafe { libc::memfd_create(c"ratelimit".as_ptr(), libc::MFD_CLOEXEC) })?;
        file.set_len(bytes as u64)?;
        let bell = EventFd::new()?;
        // SAFETY: a new mapping of a file of this size.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            libc::mmap(core::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedQueues {
            memory: NonNull::slice_from_raw_parts(start, words),
            file,
            bell,
            eventfds,
            deciders,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is mapped while `self` lives, was zero at first, and is used as
        // atomics only.
        unsafe { self.memory.as_ref() }
    }

    /// Returns the broker's tenure.
    pub fn tenure(&self) -> Option<Tenure<'_>> {
        self.words().first().map(Tenure::over)
    }

    /// Returns the state of a decider; `None` if there is no such decider.
    pub fn decider(&self, decider: usize) -> Option<DeciderState<'_>> {
        let start = decider.checked_mul(DECIDER)?.checked_add(TENURE)?;
        let words = self.words().get(start..)?;
        let (first, second) = words.split_at_checked(CACHE_LINE)?;
        let state = DeciderState {
            breaker: Breaker::over(first.first()?),
            doorbell: Doorbell::over(second.first()?, second.get(1)?),
            clock: StoreClock::over(first.get(1)?),
        };
        (decider < self.deciders).then_some(state)
    }

    /// Returns the rings of a worker; `None` if there is no such worker.
    pub fn of_worker(&self, worker: usize) -> Option<WorkerQueues<'_>> {
        Some(WorkerQueues { questions: self.ring(worker)?, eventfd: self.eventfds.get(worker)? })
    }

    /// Returns the ring with the answers to `worker` that the process of worker `by` writes; only
    /// that process writes to it.
    pub fn answers(&self, worker: usize, by: usize) -> Option<Ring<'_>> {
        let workers = self.eventfds.len();
        let ring = worker.checked_add(1)?.checked_mul(workers)?.checked_add(by)?;
        self.ring(ring).filter(|_| by < workers)
    }

    /// Returns the rings with the answers to a worker from all processes.
    pub fn all_answers(&self, worker: usize) -> impl Iterator<Item = Ring<'_>> {
        (0..self.eventfds.len()).filter_map(move |by| self.answers(worker, by))
    }

    fn ring(&self, number: usize) -> Option<Ring<'_>> {
        let start = self.deciders.checked_mul(DECIDER)?.checked_add(TENURE)?;
        let start = number.checked_mul(RING)?.checked_add(start)?;
        Ring::over(self.words().get(start..)?.get(..RING)?)
    }

    /// Returns the rings of all workers, in order.
    pub fn of_workers(&self) -> impl Iterator<Item = WorkerQueues<'_>> {
        (0..self.eventfds.len()).filter_map(|worker| self.of_worker(worker))
    }

    /// Returns the eventfd that wakes the broker.
    pub fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Returns the number of deciders.
    pub fn deciders(&self) -> usize {
        self.deciders
    }

    /// Waits for the lock, without a time limit. Its holder releases it, or ends.
    ///
    /// # Errors
    ///
    /// The system has too many locks.
    pub fn lock(&self) -> io::Result<()> {
        // The lock belongs to the process, so the kernel releases it if the process is killed.
        set_lock(self.file.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK)
    }

    /// Releases the lock.
    pub fn unlock(&self) {
        // Unlocking does not fail.
        let _ = set_lock(self.file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK);
    }
}

impl Drop for SharedQueues {
    fn drop(&mut self) {
        // SAFETY: `memory` is the mapping, and all borrows of it have ended.
        unsafe {
            let bytes = self.memory.len().saturating_mul(size_of::<AtomicU64>());
            libc::munmap(self.memory.as_ptr().cast(), bytes);
        }
    }
}

/// Writes messages from the front of `outbox` while they fit, and removes them from it.
pub(crate) fn write_messages(ring: &Ring<'_>, outbox: &mut Vec<u64>) {
    // All of them fit in most cases.
    if ring.write(outbox) {
        return outbox.clear();
    }
    let written = messages(outbox).take_while(|message| ring.write(message));
    let words: usize = written.map(<[u64]>::len).sum();
    outbox.drain(..words);
}

fn set_lock(fd: RawFd, how: libc::c_int, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero `flock` is valid, and covers the whole file.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the pointer is valid during the call.
    match unsafe { libc::fcntl(fd, how, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
