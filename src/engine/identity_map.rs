//! Maps keyed by counters' identities, which are hashes already. A file of its own, beside the book that uses it.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use crate::table::Identity;

/// A map by identity. Clients cannot choose identities.
pub(super) type IdentityMap<T> = HashMap<Identity, T, BuildHasherDefault<Mixer>>;

/// Uses the identity's words as the hash.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (place, byte) in word.iter_mut().zip(chunk) {
                *place = *byte;
            }
            self.0 = self.0.rotate_left(5) ^ u64::from_ne_bytes(word);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
