//! The names of a zone's namespaces.

use super::atomic::Ordering::{Acquire, Relaxed, Release};
use super::layout::DirectoryEntry;
use crate::policy::namespace::MAX_NAME_LEN;

impl DirectoryEntry {
    /// Whether the entry has the name, or was free and now has it.
    pub(super) fn is_or_becomes(&self, name: &[u8]) -> bool {
        /// The length of an entry whose name is being written.
        const BUSY: u64 = u64::MAX;

        let name = name.get(..MAX_NAME_LEN).unwrap_or(name);
        let words = self
            .name
            .iter()
            .zip(name.chunks(8).map(word_of).chain(core::iter::repeat(0)));
        // Acquire: pairs with the release below.
        match self.len.compare_exchange(0, BUSY, Acquire, Acquire) {
            Ok(_) => {
                words.for_each(|(word, value)| word.store(value, Relaxed));
                self.len.store(name.len() as u64, Release);
                true
            }
            Err(len) => {
                len == name.len() as u64
                    && words
                        .into_iter()
                        .all(|(word, value)| word.load(Relaxed) == value)
            }
        }
    }
}

/// Up to eight bytes as a number.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}
