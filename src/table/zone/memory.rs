//! A table together with its memory, outside of nginx: on the heap, or in a file that processes share.
//!
//! A file begins with a page that says what it is:
//!
//! ```text
//! magic, version, length    written first: an empty file becomes one of these
//! boot                      since which start of the machine the table has been there
//! ready                     whether the table is whole
//! ```
//!
//! The table follows. It lasts for as long as the machine runs: after a restart it is begun anew, since
//! what was written of it when the machine stopped may be parts of several moments, and since leases
//! are by a clock that begins again. A process that ends, however it does, leaves it as it is.
//!
//! Two locks, which the kernel takes back from a process that ends ([`FileLock`]): one for the process that
//! divides the memory, be it to lay the table out or to give a namespace its place; and one that all
//! users have. Nothing that counts takes a lock.

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

/// A table, and the memory that it is in.
#[derive(Debug)]
pub struct TableMemory {
    /// It borrows the mapping, and is dropped before it.
    table: CounterTable<'static>,
    #[expect(dead_code, reason = "the table is in it")]
    mapping: Mapping,
    file: Option<File>,
}

/// The reason why there is no table in memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system has no memory, or does not give the file. Holds the cause.
    System(io::Error),
    /// The memory is too small for a table.
    TooSmall,
    /// The file is of another kind than regular ones.
    NotAFile,
    /// The file has something else in it.
    NotATable,
    /// The table in the file was made by another version.
    OtherVersion,
    /// The table in the file has another size. Holds that, in bytes.
    OtherSize(u64),
}

/// The page at the start of a file, which is some words.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / size_of::<AtomicU64>();
const MAGIC: u64 = u64::from_be_bytes(*b"rl-table");
/// Version of the page.
const VERSION: u64 = 1;

/// A word of the page after magic, version and length.
#[derive(Clone, Copy)]
enum Word {
    Boot = 3,
    BootToo = 4,
    IsReady = 5,
}

/// Held while this process changes how memory is divided. A process's lock of a file ends with the first
/// descriptor of it that it closes, so that this is held then, too.
static SETUPS: Mutex<()> = Mutex::new(());

pub(crate) fn setups() -> MutexGuard<'static, ()> {
    // There is nothing in it that could be half done.
    SETUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableMemory {
    /// A new table in memory of this process.
    ///
    /// # Errors
    ///
    /// [`MemoryError::TooSmall`] below some 20 KiB; [`MemoryError::System`].
    pub fn heap(bytes: usize) -> Result<TableMemory, MemoryError> {
        let mapping = Mapping::heap(bytes.max(1))?;
        let region = mapping.memory();
        // SAFETY: the memory is new, all zero, and lives as long as the table that is made of it: both are
        // in one value, which drops the table first. The table is lent for that long only.
        let table = unsafe { CounterTable::create(region, region.len(), random()?)? };
        Ok(TableMemory { table, mapping, file: None })
    }

    /// A new table in a file without a name, whose descriptor can be given to other processes.
    ///
    /// # Errors
    ///
    /// As [`TableMemory::heap`].
    pub fn memory_file(bytes: usize) -> Result<TableMemory, MemoryError> {
        check_room(bytes)?;
        let memory = Self::in_file(memory_file()?, bytes)?;
        if let Some(file) = &memory.file {
            seal_length(file)?;
        }
        Ok(memory)
    }

    /// The table in a file that was opened for reading and writing, which is made if the file is empty.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]; what the file held it still holds.
    pub fn in_file(file: File, bytes: usize) -> Result<TableMemory, MemoryError> {
        Self::set_up_file(file, Some(bytes))
    }

    /// The table in a file that another process has opened, as long as that file is.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]; what the file held it still holds.
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

    /// Opens the table in a file, or makes it. Only one process at a time does.
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
                // As it was, so that another size can be tried.
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
        // Another opening of the file can only be that of a process that has it still.
        // A descriptor that another process gave is of the same opening as its own.
        let is_alone = !is_new && bytes_are_told && FileLock::Presence.try_alone(file)?;
        if is_alone {
            // What namespaces had that are used no more is used again when it is needed.
            table.begin_configuration(core::iter::empty());
        }
        FileLock::Presence.beside_others(file)?;
        Ok((mapping, table))
    }

    /// Opens the table in a file that is mapped, or makes it if there is none of this start of the machine.
    fn lay_out(mapping: &Mapping) -> Result<CounterTable<'static>, MemoryError> {
        let (page, region) = divide(mapping).ok_or(MemoryError::TooSmall)?;
        let [boot, boot_too] = boot();
        let word = |of: Word| page.get(of as usize).ok_or(MemoryError::TooSmall);
        let is_of_this_boot = word(Word::Boot)?.load(Ordering::Relaxed) == boot
            && word(Word::BootToo)?.load(Ordering::Relaxed) == boot_too;
        if is_of_this_boot && word(Word::IsReady)?.load(Ordering::Acquire) == 1 {
            // SAFETY: the memory is a table's, by the words above; it stays mapped while the table lives,
            // which the caller keeps with it. Other processes use it by tables only: what else may write
            // to the file can put nothing in the way of that but other numbers into atomics.
            return Ok(unsafe { CounterTable::open(region, region.len())? });
        }
        word(Word::IsReady)?.store(0, Ordering::Release);
        let secret = random()?;
        // SAFETY: only this process has it, as it is not ready, and only this one sets it up.
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

    /// The table.
    pub fn table(&self) -> &CounterTable<'_> {
        &self.table
    }

    /// The file that the table is in; `None`: it is in no file.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Runs what changes how the table is divided: what gives a namespace its place. No other process, and
    /// no other thread, does so at the same time.
    ///
    /// # Errors
    ///
    /// If the file cannot be locked.
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

/// Makes an empty file one for a table of this length in all.
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

/// Checks that the system has so much memory at all. A file in memory is never refused any: it would take
/// all that there is, and then the system ends processes.
fn check_room(bytes: usize) -> io::Result<()> {
    let mut room: Vec<u8> = Vec::new();
    let reserved = room.try_reserve_exact(bytes);
    // Nothing is written there; but it has to be asked for.
    core::hint::black_box(&mut room);
    reserved.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// Whether a file has a table of this length in it, as far as its first page tells.
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
        // The process that made it was ended in between.
        file.set_len(noted)?;
        reserve(file, noted)?;
    }
    Ok(())
}

/// The words of a mapped file's first page, and the memory of its table.
fn divide(mapping: &Mapping) -> Option<(&[AtomicU64], NonNull<[u8]>)> {
    let memory = mapping.memory();
    let rest = memory.len().checked_sub(PAGE)?;
    // SAFETY: the memory is longer than a page, mapped while it is borrowed, aligned as pages are, and
    // its first page is used as atomics only.
    let page = unsafe { core::slice::from_raw_parts(memory.cast::<AtomicU64>().as_ptr(), WORDS) };
    // SAFETY: within the memory.
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
