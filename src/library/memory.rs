//! The memory that namespaces count in: the specification's `dict`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::table::{MemoryError, TableMemory};

/// Memory that namespaces count in. Clones are the same memory, which is given back with the last user.
///
/// Namespaces of the same name in the same memory have the same counters, whatever process, thread or
/// instance defines them. A megabyte has room for some 11,900 keys; a full one refuses none, and evicts
/// what matters least.
///
/// ```
/// use ngx_http_rate_limiting_module::library::Memory;
///
/// let mine = Memory::heap(1 << 20)?;
/// let path = std::env::temp_dir().join(format!("memory-{}", std::process::id()));
/// let ours = Memory::file(&path, 1 << 20)?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<TableMemory>);

impl Memory {
    /// Allocates `bytes` bytes for this process.
    ///
    /// # Errors
    ///
    /// [`MemoryError::TooSmall`] below some 20 KiB; [`MemoryError::System`] if they cannot be allocated.
    pub fn heap(bytes: usize) -> Result<Memory, MemoryError> {
        Ok(Memory::of(TableMemory::heap(bytes)?))
    }

    /// Opens the memory in a file of `bytes` bytes, which all processes that open it share. A file that is
    /// missing or empty is created, readable by this user alone.
    ///
    /// Counts are there for as long as the machine runs, whatever becomes of the processes; after a
    /// restart, they begin anew. The directory should be one that only those can write who may, on a
    /// file system of this machine, such as `/run` or `/dev/shm`: who makes a file shorter that is in
    /// use ends the processes that use it.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]: the file cannot be opened, or has no such room; it holds something else, or a
    /// table of another version or size. Then it is left as it was.
    pub fn file(path: impl AsRef<Path>, bytes: usize) -> Result<Memory, MemoryError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        Ok(Memory::of(TableMemory::in_file(file, bytes)?))
    }

    /// Creates an unnamed file of `bytes` bytes (a memfd), shared with the processes that are given
    /// [`Memory::fd`]. Nobody can change its length.
    ///
    /// # Errors
    ///
    /// As [`Memory::heap`].
    pub fn memfd(bytes: usize) -> Result<Memory, MemoryError> {
        Ok(Memory::of(TableMemory::memory_file(bytes)?))
    }

    /// The memory in a file that another process has opened as a [`Memory`], and has given this process
    /// a descriptor of.
    ///
    /// ```
    /// use ngx_http_rate_limiting_module::library::Memory;
    ///
    /// let one = Memory::memfd(1 << 20)?;
    /// let fd = one.fd().ok_or("no descriptor")?.try_clone_to_owned()?;
    /// let other = Memory::from_fd(fd)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MemoryError`]: it is no such file.
    pub fn from_fd(fd: OwnedFd) -> Result<Memory, MemoryError> {
        let memory = TableMemory::in_file_of_another(File::from(fd))?;
        Ok(Memory::of(memory))
    }

    /// The descriptor of the file that the memory is in; `None`: it is on the heap.
    ///
    /// It is closed when another program is executed, unless that is given a copy.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.file().map(File::as_fd)
    }

    fn of(memory: TableMemory) -> Memory {
        Memory(Arc::new(memory))
    }

    pub(super) fn table(&self) -> &Arc<TableMemory> {
        &self.0
    }
}
