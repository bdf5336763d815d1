//! The directory of a zone: the namespaces and their entries.

use super::counter_table::CounterTable;
use super::layout::DirectoryEntry;
use crate::policy::namespace::MAX_NAME_LEN;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::table::words::fail::fail_point;
use crate::table::words::meta::NamespaceIndex;

impl DirectoryEntry {
    fn has_name(&self, name: &[u8]) -> bool {
        // Acquire: pairs with the release of `set_name`.
        self.len.load(Acquire) == name.len() as u64 && self.name.iter().map(load).eq(words_of(name))
    }

    pub(crate) fn set_name(&self, name: &[u8]) {
        for (word, value) in self.name.iter().zip(words_of(name)) {
            word.store(value, Relaxed);
        }
        self.len.store(name.len() as u64, Release);
        fail_point!("namespace.named");
    }

    /// Returns the name, unless it is being written.
    fn name(&self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.len.load(Acquire)).ok()?;
        let bytes = self.name.iter().map(load).flat_map(u64::to_le_bytes);
        (len <= MAX_NAME_LEN).then(|| bytes.take(len).collect())
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Relaxed)
}

fn words_of(name: &[u8]) -> impl Iterator<Item = u64> {
    let words = name.chunks(8).map(word_of).chain(core::iter::repeat(0));
    words.take(MAX_NAME_LEN / 8)
}

pub(crate) fn cut(name: &[u8]) -> &[u8] {
    name.get(..MAX_NAME_LEN).unwrap_or(name)
}

impl<'m> CounterTable<'m> {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (NamespaceIndex, &'m DirectoryEntry)> {
        let entries: &'m [DirectoryEntry] = self.parts.directory;
        (0..).map(NamespaceIndex).zip(entries)
    }

    pub(crate) fn entry_named(&self, name: &[u8]) -> Option<(NamespaceIndex, &'m DirectoryEntry)> {
        self.entries().find(|(_, entry)| entry.has_name(name))
    }

    /// Returns the name of a namespace whose entry belonged to another one before, of which
    /// counters may be left; `None` for other entries.
    pub(crate) fn name_to_check(&self, index: NamespaceIndex) -> Option<Vec<u8>> {
        let entry = self.entry(index)?;
        (entry.is_reused.load(Relaxed) != 0).then(|| entry.name())?
    }
}

/// Converts up to eight bytes to a number.
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
