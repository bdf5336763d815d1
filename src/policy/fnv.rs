//! The hash FNV-1a, for values that all nodes or all versions must compute alike. Collisions are easy to craft.
//! A file of its own, since the table and the stores need nothing else with it.

/// Computes the 64-bit FNV-1a hash of words. For words below 256, it is the hash of the bytes.
///
/// Source: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub(crate) fn fnv1a(words: impl IntoIterator<Item = u64>) -> u64 {
    let words = words.into_iter();
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_hashes_that_its_authors_publish() {
        for (bytes, hash) in [
            (&b""[..], 0xcbf2_9ce4_8422_2325),
            (b"a", 0xaf63_dc4c_8601_ec8c),
            (b"foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(bytes.iter().copied().map(u64::from)), hash);
        }
    }
}
