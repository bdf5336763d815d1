//! The log of changes for other nodes: the names of each batch's counters, without their counts.

use std::collections::BTreeMap;

use crate::policy::window::WindowSize;

/// A counter of a batch, by its window and its key.
pub(super) type Changed<'a> = (WindowSize, u64, &'a [u8]);

/// Encodes the counters of a batch, each once. Returns the bytes, and the number of counters. A
/// repetition of a batch may lack counters that were evicted meanwhile, but it has its own row
/// under another number.
pub(super) fn to_bytes<'a>(changed: impl IntoIterator<Item = Changed<'a>>) -> (Vec<u8>, i32) {
    let mut windows: BTreeMap<(WindowSize, u64), Vec<&[u8]>> = BTreeMap::new();
    for (size, window, key) in changed {
        windows.entry((size, window)).or_default().push(key);
    }
    let (mut bytes, mut counters) = (Vec::new(), 0_usize);
    for ((size, window), mut keys) in windows {
        keys.sort_unstable();
        keys.dedup();
        counters = counters.saturating_add(keys.len());
        bytes.extend(size.bits().to_be_bytes());
        bytes.extend(window.to_be_bytes());
        bytes.extend(u32::try_from(keys.len()).unwrap_or(u32::MAX).to_be_bytes());
        for key in keys {
            bytes.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend(key);
        }
    }
    (bytes, i32::try_from(counters).unwrap_or(i32::MAX))
}

/// Decodes the bytes of [`to_bytes`]; `None` for other bytes.
pub(super) fn from_bytes(mut bytes: &[u8]) -> Option<Vec<Changed<'_>>> {
    let mut counters = Vec::new();
    while !bytes.is_empty() {
        let bits = u64::from_be_bytes(take(&mut bytes)?);
        let size = WindowSize::from_bits(bits);
        if size.is_none() && !WindowSize::is_of_unknown_zone(bits) {
            return None;
        }
        let window = u64::from_be_bytes(take(&mut bytes)?);
        for _ in 0..u32::from_be_bytes(take(&mut bytes)?) {
            let length = u16::from_be_bytes(take(&mut bytes)?);
            let (key, rest) = bytes.split_at_checked(length.into())?;
            bytes = rest;
            counters.extend(size.map(|size| (size, window, key)));
        }
    }
    Some(counters)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::conformance::{HOUR, MINUTE};

    #[test]
    fn the_counters_of_a_batch_are_read_again() {
        let long = "x".repeat(65_535);
        let changed = [
            (MINUTE, 7, &b"b"[..]),
            (HOUR, 7, b"c"),
            (MINUTE, 7, long.as_bytes()),
            (MINUTE, 7, b"a"),
            (MINUTE, 7, b"b"),
        ];
        let (bytes, counters) = to_bytes(changed);
        let expected = [
            (MINUTE, 7, &b"a"[..]),
            (MINUTE, 7, b"b"),
            (MINUTE, 7, long.as_bytes()),
            (HOUR, 7, b"c"),
        ];
        assert_eq!((from_bytes(&bytes).unwrap(), counters), (expected.to_vec(), 4));
        assert_eq!(to_bytes([]), (Vec::new(), 0));
        assert_eq!(from_bytes(&[]), Some(Vec::new()));
        // A time zone of a newer database.
        let (mut other, _) = to_bytes([(MINUTE, 7, &b"a"[..]), (HOUR, 7, b"b")]);
        other[..8].copy_from_slice(&(0xf_u64 << 31 | 1).to_be_bytes());
        assert_eq!(from_bytes(&other), Some(vec![(HOUR, 7, &b"b"[..])]));
        other[..8].copy_from_slice(&(1_u64 << 35).to_be_bytes());
        assert_eq!(from_bytes(&other), None);
        for length in [1, 19, bytes.len() - 1] {
            assert_eq!(from_bytes(&bytes[..length]), None);
        }
    }
}
