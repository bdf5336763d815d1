//! A table with its memory, outside of nginx: on the heap, or in a file that processes share.
//!
//! A file begins with a page that identifies it:
//!
//! ```text
//! magic, version, length    written first: an empty file becomes one of these
//! boot                      the start of the machine since which the table exists
//! ready                     whether the table is complete
//! ```
//!
//! The table follows. It is valid until the machine restarts, and is then created again: after a
//! crash, the written parts may be of different moments, and leases use a clock that restarts. A
//! process that ends in any way leaves the table intact.
//!
//! There are two locks, which the kernel releases if their process ends ([`FileLock`]). The process
//! that changes the layout, to create the table or to give a namespace its entry, holds one; all
//! users hold the other. Counting takes no lock.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::counter_table::CounterTable;
use super::layout::LayoutError;
use crate::table::words::fail::fail_point;
use crate::table::words::mapping::{FileLock, Mapping, memory_file, reserve, seal_length};
use crate::table::words::system::{boot, random};

/// A table and its memory.
#[derive(Debug)]
pub struct TableMemory {
    /// Borrows the mapping, and is dropped before it.
    table: CounterTable<'static>,
    #[expect(dead_code, reason = "the table is in it")]
    mapping: Mapping,
    file: Option<File>,
}

/// The reason why there is no table.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system has no memory, or denies access to the file.
    System(io::Error),
    /// The memory is too small for a table.
    TooSmall,
    /// The file is not a regular file.
    NotAFile,
    /// The file has other content.
    NotATable,
    /// The table has another version.
    OtherVersion,
    /// The table has another size, in bytes.
    OtherSize(u64),
}

/// Size of the first page, of which only some words are used.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / size_of::<AtomicU64>();
const MAGIC: u64 = u64::from_be_bytes(*b"rl-table");
/// Version of the first page.
const VERSION: u64 = 1;

/// A word of the first page after magic, version and length.
#[derive(Clone, Copy)]
enum Word {
    Boot = 3,
    BootToo = 4,
    IsReady = 5,
}

/// Held while this process changes the layout. Closing any descriptor of a file releases the
/// process's lock on it, so this mutex also covers that.
static SETUPS: Mutex<()> = Mutex::new(());

pub(crate) fn setups() -> MutexGuard<'static, ()> {
    // A panic leaves nothing half-changed.
    SETUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableMemory {
    /// Creates a table in memory of this process.
    ///
    /// # Errors
    ///
    /// [`MemoryError::TooSmall`] below about 20 KiB; [`MemoryError::System`].
    pub fn heap(bytes: usize) -> Result<TableMemory, MemoryError> {
        let mapping = Mapping::heap(bytes.max(1))?;
        let region = mapping.memory();
        // SAFETY: the memory is new, all zero, and lives as long as the table. One value owns both,
        // drops the table first, and lends it only while it owns it.
        let table = unsafe { CounterTable::create(region, region.len(), random()?)? };
        Ok(TableMemory { table, mapping, file: None })
    }

    /// Creates a table in an unnamed file, whose descriptor can be passed to other processes.
    ///
    /// # Errors
    ///
    /// See [`TableMemory::heap`].
    pub fn memory_file(bytes: usize) -> Result<TableMemory, MemoryError> {
        check_room(bytes)?;
        let memory = Self::in_file(memory_file()?, bytes)?;
        if let Some(file) = &memory.file {
            seal_length(file)?;
        }
        Ok(memory)
    }

    /// Opens the table in a file that is open for reading and writing; creates it in an empty file.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]; the file's content is then unchanged.
    pub fn in_file(file: File, bytes: usize) -> Result<TableMemory, MemoryError> {
        Self::set_up_file(file, Some(bytes))
    }

    /// Opens the table in a file that another process has opened. Its size is that of the file.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]; the file's content is then unchanged.
    pub fn in_file_of_another(file: File) -> Result<TableMemory, MemoryError> {
        Self::set_up_file(file, None)
    }

    fn set_up_file(file: File, bytes: Option<usize>) -> Result<TableMemory, MemoryError> {
        let _turn = setups();
        if !file.metadata()?.is_file() {
            return Err(MemoryError::NotAFile);
        }
        FileLock::Setup.of_process(&file)?;
        let opened = Self::open(&file, bytes);
        FileLock::Setup.release(&file);
        let (mapping, table) = opened?;
        Ok(TableMemory { table, mapping, file: Some(file) })
    }

    /// Opens or creates the table in a file, in one process at a time.
    ///
    /// The table borrows the mapping.
    fn open(
        file: &File,
        bytes: Option<usize>,
    ) -> Result<(Mapping, CounterTable<'static>), MemoryError> {
        let bytes_are_told = bytes.is_some();
        let length = file.metadata()?.len();
        let wanted = bytes.map_or(length, |bytes| bytes as u64);
        let bytes = usize::try_from(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if bytes <= PAGE {
            return Err(MemoryError::TooSmall);
        }
        let is_new = length == 0;
        let mapping = match is_new {
            true => make(file, wanted).inspect_err(|_| {
                // Truncated again, so that another size can be tried.
                let _ = file.set_len(0);
            })?,
            false => {
                check(file, length, wanted)?;
                Mapping::of_file(file, bytes)?
            }
        };
        let result = Self::lay_out(&mapping);
        if result.is_err() && is_new {
            let _ = file.set_len(0);
        }
        let table = result?;
        // Processes that share a number count events a little slower.
        table.set_worker(usize::try_from(std::process::id()).unwrap_or_default());
        // Another open file description means that another process still uses the file. A
        // descriptor from another process shares that process's description.
        let is_alone = !is_new && bytes_are_told && FileLock::Presence.try_alone(file)?;
        if is_alone {
            // Entries of namespaces that are not used any more can be reassigned.
            table.begin_configuration(core::iter::empty());
        }
        FileLock::Presence.beside_others(file)?;
        Ok((mapping, table))
    }

    /// Opens the table in a mapped file; creates it if there is none since the machine's start.
    fn lay_out(mapping: &Mapping) -> Result<CounterTable<'static>, MemoryError> {
        let (page, region) = divide(mapping).ok_or(MemoryError::TooSmall)?;
        let [boot, boot_too] = boot();
        let word = |of: Word| page.get(of as usize).ok_or(MemoryError::TooSmall);
        let is_of_this_boot = word(Word::Boot)?.load(Ordering::Relaxed) == boot
            && word(Word::BootToo)?.load(Ordering::Relaxed) == boot_too;
        if is_of_this_boot && word(Word::IsReady)?.load(Ordering::Acquire) == 1 {
            // SAFETY: by the words above, the memory contains a table. The caller keeps the mapping
            // as long as the table. Other processes use it through tables; any other writer can
            // only change the numbers in atomics.
            return Ok(unsafe { CounterTable::open(region, region.len())? });
        }
        word(Word::IsReady)?.store(0, Ordering::Release);
        let secret = random()?;
        // SAFETY: the table is not ready, so only this process uses the memory, under the lock.
        unsafe { region.cast::<u8>().write_bytes(0, region.len()) };
        fail_point!("file.cleared");
        // SAFETY: as above; the memory is all zero.
        let table = unsafe { CounterTable::create(region, region.len(), secret)? };
        fail_point!("file.laid_out");
        word(Word::Boot)?.store(boot, Ordering::Relaxed);
        word(Word::BootToo)?.store(boot_too, Ordering::Relaxed);
        fail_point!("file.dated");
        word(Word::IsReady)?.store(1, Ordering::Release);
        fail_point!("file.ready");
        Ok(table)
    }

    /// Returns the table.
    pub fn table(&self) -> &CounterTable<'_> {
        &self.table
    }

    /// Returns the table's file; `None` on the heap.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Calls `change`, which changes the layout, such as by giving a namespace its entry. No other
    /// process or thread does so at the same time.
    ///
    /// # Errors
    ///
    /// The file cannot be locked.
    pub fn set_up<T>(&self, change: impl FnOnce() -> T) -> io::Result<T> {
        let _turn = setups();
        let Some(file) = &self.file else {
            return Ok(change());
        };
        FileLock::Setup.of_process(file)?;
        let result = change();
        FileLock::Setup.release(file);
        Ok(result)
    }
}

impl Drop for TableMemory {
    fn drop(&mut self) {
        let _turn = setups();
        self.file = None;
    }
}

/// Prepares an empty file for a table, with `length` bytes in total.
fn make(file: &File, length: u64) -> Result<Mapping, MemoryError> {
    let bytes = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let header = [MAGIC, VERSION, length].map(u64::to_ne_bytes);
    file.write_all_at(header.as_flattened(), 0)?;
    fail_point!("file.named");
    file.set_len(length)?;
    fail_point!("file.long");
    reserve(file, length)?;
    fail_point!("file.reserved");
    Ok(Mapping::of_file(file, bytes)?)
}

/// Checks that the system has this much memory. A memory file has no limit of its own: it would use
/// up all memory, and the kernel would kill processes.
fn check_room(bytes: usize) -> io::Result<()> {
    let mut room: Vec<u8> = Vec::new();
    let reserved = room.try_reserve_exact(bytes);
    // Nothing is written there, but the compiler must not remove the allocation.
    core::hint::black_box(&mut room);
    reserved.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// Checks that the file's first page describes a table of this length.
fn check(file: &File, length: u64, wanted: u64) -> Result<(), MemoryError> {
    let mut header = [[0; 8]; 3];
    if file.read_exact_at(header.as_flattened_mut(), 0).is_err() {
        return Err(MemoryError::NotATable);
    }
    let [magic, version, noted] = header.map(u64::from_ne_bytes);
    if magic != MAGIC {
        return Err(MemoryError::NotATable);
    }
    if version != VERSION {
        return Err(MemoryError::OtherVersion);
    }
    if noted != wanted {
        return Err(MemoryError::OtherSize(noted));
    }
    if length != noted {
        // The process that created the file ended in between.
        file.set_len(noted)?;
        reserve(file, noted)?;
    }
    Ok(())
}

/// Returns the words of a mapped file's first page, and the memory of its table.
fn divide(mapping: &Mapping) -> Option<(&[AtomicU64], NonNull<[u8]>)> {
    let memory = mapping.memory();
    let rest = memory.len().checked_sub(PAGE)?;
    // SAFETY: the memory is longer than a page, page-aligned, and mapped while it is borrowed; its
    // first page is used only as atomics.
    let page = unsafe { core::slice::from_raw_parts(memory.cast::<AtomicU64>().as_ptr(), WORDS) };
    // SAFETY: the offset is within the memory.
    let region = unsafe { memory.cast::<u8>().add(PAGE) };
    Some((page, NonNull::slice_from_raw_parts(region, rest)))
}

impl From<io::Error> for MemoryError {
    fn from(error: io::Error) -> Self {
        MemoryError::System(error)
    }
}

impl From<io::ErrorKind> for MemoryError {
    fn from(kind: io::ErrorKind) -> Self {
        MemoryError::System(kind.into())
    }
}

impl From<LayoutError> for MemoryError {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::TooSmall => MemoryError::TooSmall,
            LayoutError::OtherLayout => MemoryError::OtherVersion,
            LayoutError::Misaligned | LayoutError::NotATable => MemoryError::NotATable,
        }
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::System(error) => write!(f, "there is no such memory ({error})"),
            MemoryError::TooSmall => f.write_str("the memory is too small for a table"),
            MemoryError::NotAFile => f.write_str("it is no regular file"),
            MemoryError::NotATable => f.write_str("the file holds something else than a table"),
            MemoryError::OtherVersion => {
                f.write_str("the table in the file is one of another version")
            }
            MemoryError::OtherSize(bytes) => {
                write!(f, "the table in the file has another size ({bytes} bytes)")
            }
        }
    }
}

impl core::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            MemoryError::System(error) => Some(error),
            _ => None,
        }
    }
}
