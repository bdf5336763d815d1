//! Memory for a table outside of nginx: on the heap of this process, or in a file that processes
//! share.

use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};

/// Memory that is valid for reads and writes until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<[u8]>,
}

// SAFETY: it is plain memory, which no thread owns.
unsafe impl Send for Mapping {}
// SAFETY: as above; code that creates references from the pointer justifies that.
unsafe impl Sync for Mapping {}

/// A lock on the first bytes of a shared file. The content of these bytes does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLock {
    /// Held briefly by the one process that changes the layout of the file.
    Setup,
    /// Held by each user of the file for as long as it uses it.
    Presence,
}

impl Mapping {
    /// Maps zeroed memory for this process, aligned to a page.
    pub(crate) fn heap(bytes: usize) -> io::Result<Mapping> {
        let mapping = Mapping::of(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, bytes)?;
        // Keys are spread over all the memory, so with small pages nearly each request would also
        // miss the TLB. Where huge pages are not available, small ones work. Miri has no pages.
        if !cfg!(miri) {
            let start = mapping.memory.as_ptr().cast();
            // SAFETY: the range is mapped, and the advice does not change its content.
            let _ = unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// Maps the first `bytes` bytes of a file, which has at least that many.
    pub(crate) fn of_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::of(libc::MAP_SHARED, file.as_raw_fd(), bytes)
    }

    fn of(flags: libc::c_int, file: RawFd, bytes: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = NonNull::slice_from_raw_parts(start, bytes);
        Ok(Mapping { memory })
    }

    /// Returns the memory.
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of the mapping, and all references to it are gone.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast(), self.memory.len());
        }
    }
}

/// Creates an unnamed file in memory, whose length can be sealed.
pub(crate) fn memory_file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; the descriptor is new, so nothing else owns it.
    unsafe {
        match libc::memfd_create(c"ratelimit".as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

/// Seals the length of a file from [`memory_file`], so that no process can truncate mapped memory.
pub(crate) fn seal_length(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the system call takes no pointer.
    result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

/// Allocates the file's blocks, if the file system supports that. Otherwise, access to mapped
/// memory may fail later.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the system call takes no pointer.
    match result(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) }) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}

impl FileLock {
    /// Locks the bytes for this process, and waits for that as long as needed. The lock ends with
    /// the process.
    pub(crate) fn of_process(self, file: &File) -> io::Result<()> {
        set(file.as_raw_fd(), libc::F_SETLKW, libc::F_WRLCK, self)
    }

    /// Releases the process's lock.
    pub(crate) fn release(self, file: &File) {
        // Unlocking does not fail, and the lock ends with the process anyway.
        let _ = set(file.as_raw_fd(), libc::F_SETLK, libc::F_UNLCK, self);
    }

    /// Locks the bytes for this open file alone, unless another one has them locked. Returns
    /// whether it did.
    pub(crate) fn try_alone(self, file: &File) -> io::Result<bool> {
        match set(file.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, self) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Locks the bytes for this open file, shared with others.
    pub(crate) fn beside_others(self, file: &File) -> io::Result<()> {
        set(file.as_raw_fd(), libc::F_OFD_SETLKW, libc::F_RDLCK, self)
    }
}

fn set(fd: RawFd, how: libc::c_int, kind: libc::c_int, of: FileLock) -> io::Result<()> {
    // SAFETY: an all-zero `flock` is valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = match of {
        FileLock::Setup => 0,
        FileLock::Presence => 1,
    };
    lock.l_len = 1;
    loop {
        // SAFETY: the pointer is valid during the call.
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
