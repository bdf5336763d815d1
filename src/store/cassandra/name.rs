//! The place of a counter in the table: its partition, and its name in it.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::contract::strategy::Shard;

/// A partition of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Partition {
    /// Size of the window.
    pub(super) size: WindowSize,
    /// Number of the window.
    pub(super) window: u64,
    /// Part of the keys.
    pub(super) part: u16,
}

impl Partition {
    /// Number of parts of a window's keys, so that several nodes of a ring store them. All nodes
    /// must agree on it, so it can never change.
    pub(super) const PARTS: u16 = 4;

    pub(super) fn of(key: &[u8], size: WindowSize, window: u64) -> Partition {
        Partition { size, window, part: Shard::number_of(key, Self::PARTS) }
    }

    /// Returns all partitions of a window of this size and number.
    pub(super) fn all_of(
        (size, window): (WindowSize, u64),
    ) -> impl Iterator<Item = Partition> + Clone {
        (0..Self::PARTS).map(move |part| Partition { size, window, part })
    }

    /// Returns the end of the window.
    pub(super) fn end(self) -> UnixMillis {
        self.size.end_of(self.window)
    }

    /// Returns the values for a statement: the size, the number and the part.
    pub(super) fn values(self) -> (i64, i64, i32) {
        let Partition { size, window, part } = self;
        (size.bits().cast_signed(), window.cast_signed(), i32::from(part))
    }
}

/// The name of a counter in its partition.
///
/// Clustering columns are limited to 65,535 bytes together, which a long key would exceed alone. So
/// the name of a long key is its beginning and its digest, and the rest of the key is in another
/// column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    /// The key; or the beginning and the SHA-256 of a long key, which is longer than the longest
    /// whole key.
    pub(super) name: Cow<'a, [u8]>,
    /// The rest of a long key.
    pub(super) rest: Option<&'a [u8]>,
}

/// Longest key that is a name itself, in bytes.
const LONGEST: usize = 1024;

impl<'a> Name<'a> {
    pub(super) fn of(key: &'a [u8]) -> Name<'a> {
        match key.split_at_checked(LONGEST) {
            Some((beginning, rest)) if !rest.is_empty() => {
                Name { name: [beginning, &Sha256::digest(key)].concat().into(), rest: Some(rest) }
            }
            _ => Name { name: key.into(), rest: None },
        }
    }

    /// Returns the key of a name.
    pub(super) fn key(name: &[u8], rest: Option<&[u8]>) -> Vec<u8> {
        let beginning = name.get(..LONGEST).unwrap_or(name);
        match rest {
            Some(rest) => [beginning, rest].concat(),
            None => name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_its_name() {
        let mut names = Vec::new();
        for length in [1, 200, 1023, 1024, 1025, 1056, 65_535] {
            for last in [b'a', b'b'] {
                let mut key = vec![b'x'; length];
                key[length - 1] = last;
                let Name { name, rest } = Name::of(&key);
                assert_eq!(Name::key(&name, rest), key);
                assert!(name.len() <= LONGEST + 32);
                names.push(name.into_owned());
            }
        }
        // A key that looks like the name of another key.
        let key = names.last().unwrap().clone();
        names.push(Name::of(&key).name.into_owned());
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
