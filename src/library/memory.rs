//! The memory that namespaces count in: the specification's `dict`.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use crate::table::{MemoryError, TableMemory};

/// Memory in which namespaces count. Clones refer to the same memory, which is freed with its last
/// user.
///
/// Namespaces of the same name in the same memory share their counters, across processes, threads
/// and instances. A megabyte has room for about 11,900 keys. A full memory accepts new keys, and
/// evicts the least valuable ones.
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
pub struct Memory {
    table: Arc<TableMemory>,
    /// The bell of this process: sends when counters are due.
    bell: watch::Sender<()>,
}

impl Memory {
    /// Allocates `bytes` bytes for this process.
    ///
    /// # Errors
    ///
    /// [`MemoryError::TooSmall`] below about 20 KiB; [`MemoryError::System`] if the allocation
    /// fails.
    pub fn heap(bytes: usize) -> Result<Memory, MemoryError> {
        Ok(Memory::of(TableMemory::heap(bytes)?))
    }

    /// Opens the memory in a file of `bytes` bytes, which all processes that open it share. A
    /// missing or empty file is created, readable only by this user.
    ///
    /// The counts survive the processes, but not a restart of the machine. The directory should be
    /// on a local file system such as `/run` or `/dev/shm`, and writable only for trusted users:
    /// shortening the file kills the processes that use it.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the file cannot be opened or extended, or has other content or a table of
    /// another version or size. The file is then unchanged.
    pub fn file(path: impl AsRef<Path>, bytes: usize) -> Result<Memory, MemoryError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        Ok(Memory::of(TableMemory::in_file(file, bytes)?))
    }

    /// Creates an unnamed file of `bytes` bytes (a memfd), shared with processes that receive
    /// [`Memory::fd`]. Its length is sealed.
    ///
    /// # Errors
    ///
    /// See [`Memory::heap`].
    pub fn memfd(bytes: usize) -> Result<Memory, MemoryError> {
        Ok(Memory::of(TableMemory::memory_file(bytes)?))
    }

    /// Opens the memory in a file by a descriptor from another process that has opened it as a
    /// [`Memory`].
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
    /// [`MemoryError`] if the file contains no such memory.
    pub fn from_fd(fd: OwnedFd) -> Result<Memory, MemoryError> {
        let memory = TableMemory::in_file_of_another(File::from(fd))?;
        Ok(Memory::of(memory))
    }

    /// Returns the descriptor of the memory's file; `None` if the memory is on the heap.
    ///
    /// It is closed on exec. Duplicate it to pass it to another program.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.table.file().map(File::as_fd)
    }

    fn of(memory: TableMemory) -> Memory {
        let (bell, _) = watch::channel(());
        let rings = bell.clone();
        // In each process that counts, the tasks of that process push.
        memory.table().wake_by(0, move |_| rings.send_replace(()));
        Memory { table: Arc::new(memory), bell }
    }

    pub(super) fn table(&self) -> &Arc<TableMemory> {
        &self.table
    }

    /// Returns a receiver of the bell, which is woken when counters are due in some namespace.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }
}
