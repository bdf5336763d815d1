//! The names of keys in a sketch. A name that is too long for an entry is stored as a digest.
//!
//! ```text
//! length, 0 to 39; up to 39 bytes of the name
//! 255; the 32 bytes of a digest
//! ```

use crate::policy::key::{digest_in, digest_of, name_of_digest};

/// A name in an entry, or its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SketchName([u8; SketchName::LEN]);

impl SketchName {
    pub(super) const WORDS: usize = 5;
    const LEN: usize = 8 * Self::WORDS;
    const DIGEST: u8 = u8::MAX;

    /// Creates the entry's form of a counted name. A name that is a digest already is stored as
    /// one.
    pub(super) fn of(name: &[u8]) -> SketchName {
        let mut bytes = [0; Self::LEN];
        let digest;
        let (first, rest) = match u8::try_from(name.len()) {
            Ok(len) if name.len() < Self::LEN => (len, name),
            _ => {
                digest = digest_in(name).unwrap_or_else(|| digest_of(name));
                (Self::DIGEST, &digest[..])
            }
        };
        let values = core::iter::once(&first).chain(rest);
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = *value;
        }
        SketchName(bytes)
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.0.chunks(8);
        words.map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    pub(super) fn from_words(words: [u64; Self::WORDS]) -> SketchName {
        let mut bytes = [0; Self::LEN];
        let values = words.into_iter().flat_map(u64::to_le_bytes);
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = value;
        }
        SketchName(bytes)
    }

    /// Returns the name.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let [first, rest @ ..] = &self.0;
        match (*first, rest.first_chunk()) {
            (Self::DIGEST, Some(digest)) => name_of_digest(digest),
            (len, _) => rest.iter().take(len.into()).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::key::counted_name;

    #[test]
    fn a_name_is_kept_or_its_digest() {
        let long = counted_name(&[b'x'; 201], None).into_owned();
        for (name, kept) in [
            (&b"203.0.113.9"[..], &b"203.0.113.9"[..]),
            (&[0xff; 39], &[0xff; 39]),
            (b"", b""),
            (&long, &long),
            (b"sha256:login:k", b"sha256:login:k"),
        ] {
            let words: Vec<_> = SketchName::of(name).words().collect();
            let read = SketchName::from_words(words.try_into().unwrap());
            assert_eq!(read.to_bytes(), kept);
        }
        let digested = SketchName::of(&[b'x'; 40]).to_bytes();
        assert!(digested.starts_with(b"sha256:") && digested.len() == 71);
        assert_ne!(SketchName::of(&[b'x'; 41]).to_bytes(), digested);
    }
}
