//! Memory that the workers of a configuration share so that the broker asks the stores for all of
//! them: rings of questions and answers, and the broker's lock. The master maps it before it starts
//! the workers.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};

use super::breaker::Breaker;
use super::doorbell::Doorbell;
use super::message::messages;
use super::ring::{CACHE_LINE, Ring};
use super::store_clock::StoreClock;
use super::tenure::Tenure;
use crate::broker::wake::eventfd::{EventFd, opened};

/// Made before the workers, and used by them alike.
#[derive(Debug)]
pub struct SharedQueues {
    memory: NonNull<[AtomicU64]>,
    /// The memory's, and the lock.
    file: File,
    /// Wakes the broker, when so much was asked as it waits for.
    bell: EventFd,
    /// Eventfds that wake the workers' event loops.
    eventfds: Vec<EventFd>,
    deciders: usize,
}

// SAFETY: the memory consists of atomics.
unsafe impl Send for SharedQueues {}
// SAFETY: as above.
unsafe impl Sync for SharedQueues {}

/// The state of a decider that all workers share.
#[derive(Clone, Copy, Debug)]
pub struct DeciderState<'q> {
    /// Whether requests ask it.
    pub breaker: Breaker<'q>,
    /// Doorbell that wakes the broker for it.
    pub doorbell: Doorbell<'q>,
    /// Clock of its store.
    pub clock: StoreClock<'q>,
}

/// Between a worker and the broker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerQueues<'q> {
    /// The worker's questions.
    pub questions: Ring<'q>,
    /// Eventfd that wakes the worker's event loop.
    pub eventfd: &'q EventFd,
}

/// Words of a decider's state: the breaker and the clock, which all workers look at, and the doorbell, which
/// changes all the time.
const DECIDER: usize = 2 * CACHE_LINE;
/// Words of a worker's questions, and as many of the answers of each process that serves, or did: 256 KB each, for some
/// thousand requests. Of these, the system has none before they are used.
pub(crate) const CAPACITY: usize = 1 << 15;
const RING: usize = Ring::size(CAPACITY);
/// Words of the tenure, before all else.
const TENURE: usize = CACHE_LINE;

impl SharedQueues {
    /// New memory for so many workers, and so many deciders.
    ///
    /// # Errors
    ///
    /// If the system has no memory or descriptors left.
    pub fn new(workers: usize, deciders: usize) -> io::Result<SharedQueues> {
        let eventfds = (0..workers).map(|_| EventFd::new());
        SharedQueues::waking(eventfds.collect::<io::Result<_>>()?, deciders)
    }

    /// New memory for the workers that these wake, and so many deciders.
    ///
    /// # Errors
    ///
    /// As of [`SharedQueues::new`].
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
        // SAFETY: new memory, of a file of this size.
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
        // SAFETY: mapped as long as this lives, all zero at first, and used as atomics only.
        unsafe { self.memory.as_ref() }
    }

    /// Returns the broker's tenure.
    pub fn tenure(&self) -> Option<Tenure<'_>> {
        self.words().first().map(Tenure::over)
    }

    /// The state of a decider; `None` if there is none of this number.
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

    /// The queues of a worker; `None` if there is none of this number.
    pub fn of_worker(&self, worker: usize) -> Option<WorkerQueues<'_>> {
        Some(WorkerQueues { questions: self.ring(worker)?, eventfd: self.eventfds.get(worker)? })
    }

    /// The queue of what a worker is answered by the process of a worker that serves, `by`, which alone writes to
    /// it.
    pub fn answers(&self, worker: usize, by: usize) -> Option<Ring<'_>> {
        let workers = self.eventfds.len();
        let ring = worker.checked_add(1)?.checked_mul(workers)?.checked_add(by)?;
        self.ring(ring).filter(|_| by < workers)
    }

    /// The queues of what a worker is answered, by whatever process.
    pub fn all_answers(&self, worker: usize) -> impl Iterator<Item = Ring<'_>> {
        (0..self.eventfds.len()).filter_map(move |by| self.answers(worker, by))
    }

    fn ring(&self, number: usize) -> Option<Ring<'_>> {
        let start = self.deciders.checked_mul(DECIDER)?.checked_add(TENURE)?;
        let start = number.checked_mul(RING)?.checked_add(start)?;
        Ring::over(self.words().get(start..)?.get(..RING)?)
    }

    /// Returns the queues of all workers, in their order.
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

    /// Waits until this process has the lock, however long that takes: until the process that has it unlocks it, or
    /// ends.
    ///
    /// # Errors
    ///
    /// If the system has too many locks.
    pub fn lock(&self) -> io::Result<()> {
        // A lock of the process: the kernel takes it back from one that is killed.
        set_lock(self.file.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK)
    }

    /// Leaves the lock to another process.
    pub fn unlock(&self) {
        // It has no reason to fail.
        let _ = set_lock(self.file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK);
    }
}

impl Drop for SharedQueues {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and what borrows it has ended.
        unsafe {
            let bytes = self.memory.len().saturating_mul(size_of::<AtomicU64>());
            libc::munmap(self.memory.as_ptr().cast(), bytes);
        }
    }
}

/// Writes messages from the front of `outbox`, as many as have room, and takes them out of it.
pub(crate) fn write_messages(ring: &Ring<'_>, outbox: &mut Vec<u64>) {
    // Mostly at once.
    if ring.write(outbox) {
        return outbox.clear();
    }
    let written = messages(outbox).take_while(|message| ring.write(message));
    let words: usize = written.map(<[u64]>::len).sum();
    outbox.drain(..words);
}

fn set_lock(fd: RawFd, how: libc::c_int, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero is a valid lock: of all of the file.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the lock is valid while it is read.
    match unsafe { libc::fcntl(fd, how, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
