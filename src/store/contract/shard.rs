//! The shards of a namespace's counts, and the assignment of keys to them.

use std::sync::Arc;

use crate::policy::fnv::fnv1a;

/// A part of a namespace's counts, which a datastore keeps in one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The name of the namespace.
    pub namespace: Arc<str>,
    /// Less than [`Strategy::shards`](super::strategy::Strategy::shards). It depends only on the
    /// key, so that all counts of a key are in one shard.
    pub number: u16,
}

impl Shard {
    /// Returns the shard of a key, of `shards` ones: its FNV-1a hash, mixed by MurmurHash3's
    /// `fmix64`, modulo their number. All nodes must agree on it, so it can never change.
    ///
    /// `fmix64` is from `MurmurHash3.cpp` in <https://github.com/aappleby/smhasher>. Without it,
    /// similar keys are not spread evenly.
    pub fn number_of(key: &[u8], shards: u16) -> u16 {
        let hash = fnv1a(key.iter().copied().map(u64::from));
        let factors = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];
        let mixed = factors
            .iter()
            .fold(hash, |hash: u64, factor| (hash ^ hash >> 33).wrapping_mul(*factor));
        let number = (mixed ^ mixed >> 33).checked_rem(shards.into());
        // The remainder fits, since it is less than `shards`.
        number.and_then(|it| it.try_into().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_key_never_changes() {
        for (key, of_16, of_3) in [
            (&b""[..], 6, 2),
            (b"a", 11, 2),
            (b"foobar", 11, 1),
            (b"203.0.113.9", 14, 2),
            (&[0xff, 0], 10, 1),
        ] {
            let name = key.escape_ascii();
            assert_eq!(Shard::number_of(key, 16), of_16, "{name}");
            assert_eq!(Shard::number_of(key, 3), of_3, "{name}");
            assert_eq!(Shard::number_of(key, 1), 0);
        }
    }

    #[test]
    fn keys_are_spread_over_all_shards() {
        for format in [|n: u32| format!("{n}"), |n| format!("10.0.{}.{}", n / 256, n % 256)] {
            let mut counts = [0; 16];
            for n in 0..16_000 {
                counts[usize::from(Shard::number_of(format(n).as_bytes(), 16))] += 1;
            }
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        }
    }
}
