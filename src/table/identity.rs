//! What makes two hits count together: one 128-bit keyed hash of namespace, window and key.

use core::hash::Hasher as _;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// The secret of a zone: nobody who does not know it can make two keys collide.
#[derive(Clone, Copy)]
pub(super) struct Secret(pub(super) [u64; 2]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// A key, hashed. One hash serves every limit that counts by the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub(super) [u64; 2]);

/// What distinguishes the counters of one namespace, window kind and size from all others:
/// combined with the hash of a key by exclusive or. The key's and the window's hashes
/// are drawn from one pseudo-random function, on inputs that a prefix keeps apart, so that two
/// different pairs meet with a probability of 2^-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask(pub(super) [u64; 2]);

/// The identity of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) [u64; 2]);

impl Secret {
    pub(super) fn hash_key(self, key: &[u8]) -> KeyHash {
        let [k0, k1] = self.0;
        let hash = SipHasher13::new_with_keys(k0, k1).hash(key);
        KeyHash([hash.h1, hash.h2])
    }

    pub(super) fn mask(self, namespace: &[u8], kind: u8, size_millis: u64) -> Mask {
        // Another key of the hash: no input of `hash_key` can equal one of these.
        let [k0, k1] = self.0;
        let mut hasher = SipHasher13::new_with_keys(!k0, k1);
        hasher.write_u8(kind);
        hasher.write_u64(size_millis);
        hasher.write(namespace);
        let hash = hasher.finish128();
        Mask([hash.h1, hash.h2])
    }
}

impl Mask {
    #[inline]
    pub(super) fn identity(self, key: KeyHash) -> Identity {
        let ([m1, m2], [k1, k2]) = (self.0, key.0);
        Identity([m1 ^ k1, m2 ^ k2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_matters() {
        let secret = Secret([1, 2]);
        let of = |secret: Secret, namespace: &str, size, key: &str| {
            secret
                .mask(namespace.as_bytes(), 0, size)
                .identity(secret.hash_key(key.as_bytes()))
        };
        let one = of(secret, "a", 1000, "k");
        assert_eq!(one, of(secret, "a", 1000, "k"));
        assert_ne!(one, of(secret, "b", 1000, "k"));
        assert_ne!(one, of(secret, "a", 1001, "k"));
        assert_ne!(one, of(secret, "a", 1000, "l"));
        assert_ne!(one, of(Secret([1, 3]), "a", 1000, "k"));
    }
}
