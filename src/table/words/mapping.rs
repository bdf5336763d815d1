//! Memory for a table outside of nginx: of this process alone, or a file's, which processes share.

use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};

/// Memory that is valid for reads and writes until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<[u8]>,
}

// SAFETY: it is memory alone, and no thread owns it.
unsafe impl Send for Mapping {}
// SAFETY: as above; the code that makes a reference of the pointer says why that is valid.
unsafe impl Sync for Mapping {}

/// A lock on the first bytes of a file that processes share. Nothing reads these bytes for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLock {
    /// Held for a moment, by the one process that changes how the file is divided.
    Setup,
    /// Held by all that use the file, for as long as they do.
    Presence,
}

impl Mapping {
    /// Maps memory of this process, all zero, which begins at a page.
    pub(crate) fn heap(bytes: usize) -> io::Result<Mapping> {
        let mapping = Mapping::of(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, bytes)?;
        // A key is anywhere in it: with small pages, nearly each request would miss the TLB, too. Where there are no
        // huge pages, small ones do.
        // SAFETY: the range is mapped, and the advice leaves its content.
        let _ =
            unsafe { libc::madvise(mapping.memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(mapping)
    }

    /// Maps the first `bytes` of a file, which has as many.
    pub(crate) fn of_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::of(libc::MAP_SHARED, file.as_raw_fd(), bytes)
    }

    fn of(flags: libc::c_int, file: RawFd, bytes: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place that the system chooses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = NonNull::slice_from_raw_parts(start, bytes);
        Ok(Mapping { memory })
    }

    /// The memory.
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and all references of it were dropped.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast(), self.memory.len());
        }
    }
}

/// A file without a name, which is in memory, and can be made not to change its length.
pub(crate) fn memory_file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the descriptor is new, so that nothing else has it.
    unsafe {
        match libc::memfd_create(c"ratelimit".as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Has a file of [`memory_file`] keep its length for good: no process can take mapped memory away.
pub(crate) fn seal_length(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a system call that takes no pointer.
    result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

/// Has the file system set room for a file aside, where it can: otherwise memory that is mapped may turn
/// out not to be there.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: a system call that takes no pointer.
    match result(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) }) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}

impl FileLock {
    /// Locks it for this process alone, however long that takes. Ends with the process.
    pub(crate) fn of_process(self, file: &File) -> io::Result<()> {
        set(file.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, self)
    }

    /// Gives the process's lock back.
    pub(crate) fn release(self, file: &File) {
        // It has no reason to fail; and it ends with the process.
        let _ = set(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, self);
    }

    /// Locks it for this opening of the file alone, unless another one has it; returns whether it did.
    pub(crate) fn try_alone(self, file: &File) -> io::Result<bool> {
        match set(file.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, self) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Locks it for this opening of the file beside others, or lets others in.
    pub(crate) fn beside_others(self, file: &File) -> io::Result<()> {
        set(file.as_raw_fd(), libc::F_OFD_SETLKW, libc::F_RDLCK, self)
    }
}

fn set(fd: RawFd, how: libc::c_int, kind: libc::c_int, of: FileLock) -> io::Result<()> {
    // SAFETY: all-zero is a valid lock.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = match of {
        FileLock::Setup => 0,
        FileLock::Presence => 1,
    };
    lock.l_len = 1;
    loop {
        // SAFETY: the lock is valid while it is read.
        match result(unsafe { libc::fcntl(fd, how, &raw const lock) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn result(returned: libc::c_int) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
