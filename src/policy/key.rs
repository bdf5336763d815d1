//! Keys: what hits are counted by. Any bytes, up to a length.

/// The longest key in bytes.
pub const MAX_KEY_LEN: usize = 65_535;

/// Whether hits of `key` are accounted: an empty key is not, nor is one above [`MAX_KEY_LEN`].
pub const fn is_accounted(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_LEN
}
