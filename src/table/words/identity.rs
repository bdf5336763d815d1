//! The identity under which hits count together: a 128-bit keyed hash of namespace, window or rate,
//! and key.
//!
//! The hash is AES-128 in CBC-MAC mode, over blocks of which the first begins with the length. This
//! is a pseudo-random function of the bytes: without the secret, a client can find neither keys
//! that collide nor keys of one bucket. A key of up to 14 bytes, such as an IPv4 address, is one
//! block: with the AES instructions of current processors, that takes a quarter of the time of
//! SipHash-1-3 with 128 bits. (Without these instructions, the `aes` crate computes it in
//! software.)

use core::fmt;

use aes::cipher::{Array, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128Enc, Block};

/// The secret keys of a table's hash. Without them, a client cannot make two keys collide.
#[derive(Clone)]
pub(crate) struct Hasher {
    keys: Aes128Enc,
    masks: Aes128Enc,
}

/// A hashed key. One hash serves all limits with this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) [u64; 2]);

/// A mask that distinguishes the counters of one namespace, window kind and size (or rate) from all
/// others: XORed with the hash of a key, it is the identity. Both are pseudo-random with different
/// secrets, so two different pairs collide with a probability of 2^-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) [u64; 2]);

/// The identity of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub(crate) [u64; 2]);

impl Hasher {
    pub(crate) fn new(secret: [u64; 2]) -> Hasher {
        let cipher = |secret: [u64; 2]| Aes128Enc::new(&Array(bytes_of(secret)));
        Hasher { keys: cipher(secret), masks: cipher(secret.map(|half| !half)) }
    }

    #[inline]
    pub(crate) fn hash_key(&self, key: &[u8]) -> KeyHash {
        let mut block = first_block(key);
        self.keys.encrypt_block(&mut block);
        if key.len() > FIRST {
            encrypt_rest(&self.keys, &mut block, key);
        }
        KeyHash(halves(&block))
    }

    /// Returns the mask for the counters of `namespace` with this kind and
    /// [measure](crate::policy::algorithm::StoredKind::measure).
    pub(crate) fn mask(&self, namespace: &[u8], kind: u8, measure: u64) -> Mask {
        let mut text = vec![kind];
        text.extend_from_slice(&measure.to_le_bytes());
        text.extend_from_slice(namespace);
        let mut block = first_block(&text);
        self.masks.encrypt_block(&mut block);
        encrypt_rest(&self.masks, &mut block, &text);
        Mask(halves(&block))
    }
}

impl Mask {
    #[inline]
    pub(crate) fn identity(self, key: KeyHash) -> Identity {
        let ([m1, m2], [k1, k2]) = (self.0, key.0);
        Identity([m1 ^ k1, m2 ^ k2])
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// Bytes of a key that fit into the first block together with the length.
const FIRST: usize = 14;

/// Returns the first block: the length in the low 16 bits, which are enough since texts have at
/// most 65,535 bytes, and the beginning of the text. No text's blocks are a prefix of another
/// one's.
#[inline]
fn first_block(text: &[u8]) -> Block {
    let beginning = text.get(..FIRST).unwrap_or(text);
    block_of(pad(beginning) << 16 | text.len() as u128 & 0xffff)
}

/// Converts 16 bytes, lowest first, to a block.
///
/// The cipher loads the block as one word of 16 bytes. Stored as two words of 8, as the compiler
/// does with an integer, the block could not be forwarded from the store buffer: the load would
/// wait until all earlier stores are in the cache, some of which may wait for memory.
#[inline]
fn block_of(bits: u128) -> Block {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__m128i, _mm_set_epi64x};
        // SAFETY: x86-64 has SSE2; any 16 bytes are a valid value of both types.
        Array(unsafe {
            let word = _mm_set_epi64x((bits >> 64) as i64, bits as i64);
            core::mem::transmute::<__m128i, [u8; 16]>(word)
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    Array(bits.to_le_bytes())
}

/// Encrypts the rest of the text after the first block.
#[cold]
fn encrypt_rest(cipher: &Aes128Enc, block: &mut Block, text: &[u8]) {
    for chunk in text.get(FIRST..).unwrap_or_default().chunks(16) {
        *block = block_of(u128::from_le_bytes(block.0) ^ pad(chunk));
        cipher.encrypt_block(block);
    }
}

#[inline]
fn halves(block: &Block) -> [u64; 2] {
    let state = u128::from_le_bytes(block.0);
    [state as u64, (state >> 64) as u64]
}

/// Pads up to 16 bytes to a number. Together with their length, no two texts have the same number.
#[inline]
fn pad(bytes: &[u8]) -> u128 {
    let shift = |bytes_read: usize| (bytes_read.wrapping_sub(bytes.len()) as u32).wrapping_mul(8);
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // Two overlapping words; the bytes of the first one are shifted out of the second.
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        u128::from(first) | u128::from(last.unbounded_shr(shift(16))) << 64
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u128::from(u64::from(first) | u64::from(last.unbounded_shr(shift(8))) << 32)
    } else {
        match *bytes {
            [one, two, three] => u32::from_le_bytes([one, two, three, 0]).into(),
            [one, two] => u32::from_le_bytes([one, two, 0, 0]).into(),
            [one] => one.into(),
            _ => 0,
        }
    }
}

fn bytes_of([low, high]: [u64; 2]) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_matters() {
        let of = |secret, namespace: &str, size, key: &str| {
            let hasher = Hasher::new(secret);
            hasher.mask(namespace.as_bytes(), 0, size).identity(hasher.hash_key(key.as_bytes()))
        };
        let one = of([1, 2], "a", 1000, "k");
        assert_eq!(one, of([1, 2], "a", 1000, "k"));
        assert_ne!(one, of([1, 2], "b", 1000, "k"));
        assert_ne!(one, of([1, 2], "a", 1001, "k"));
        assert_ne!(one, of([1, 2], "a", 1000, "l"));
        assert_ne!(one, of([1, 3], "a", 1000, "k"));
    }

    #[test]
    fn every_byte_and_the_length_matter() {
        let hasher = Hasher::new([1, 2]);
        let mut seen = std::collections::HashSet::new();
        for len in 0..=100 {
            assert!(seen.insert(hasher.hash_key(&vec![0; len]).0), "{len}");
            for position in 0..len {
                let mut key = vec![0; len];
                key[position] = 1;
                assert!(seen.insert(hasher.hash_key(&key).0), "{len} {position}");
            }
        }
        assert_ne!(hasher.hash_key(&[0; 65_535]), hasher.hash_key(&[0; 65_534]));
    }
}
