//! Keys and counted names: the bytes by which a request is counted, and the name that identifies its counter.
//!
//! A name has at most [`MAX_NAME_LEN`] bytes, which bounds the cost of a key in memory and in stores, whatever clients
//! send. Keys that begin with [`PREFIX`] are always digested, so no client can pass off a key as one of the other
//! kinds of name:
//!
//! | name | for |
//! |---|---|
//! | the key | a key of up to [`MAX_PLAIN_LEN`] bytes that does not begin with `sha256:` |
//! | `sha256:` and 64 hexadecimal digits | any other key: the digest of all its bytes |
//! | `sha256:`, a counter's name, `:`, and one of the above | a key in a counter of that name |
//! | `sha256:~`, a counter's name or nothing, `:`, and one of the first two | the number of requests that are under way, for other nodes |
//! | `sha256:!`, eight hexadecimal digits, `:`, and one of the above | the ban of a key by the rules with this number |
//!
//! Neither a counter's name nor a digest contains a colon, so the second colon distinguishes the last kinds.

use core::fmt::{self, Write as _};
use std::borrow::Cow;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use super::printable::Quoted;

/// The maximum length of a key that is its own name.
pub const MAX_PLAIN_LEN: usize = 200;
/// The maximum length of a counter's name, the value of `counter=`.
pub const MAX_COUNTER_LEN: usize = 64;
/// The maximum length of a counted name.
pub const MAX_NAME_LEN: usize =
    PREFIX.len() + BAN_LEN + PREFIX.len() + MAX_COUNTER_LEN + 1 + MAX_PLAIN_LEN;

/// The length of a ban's own part of a name.
const BAN_LEN: usize = 10;

/// The prefix of names that are not plain keys.
const PREFIX: &str = "sha256:";
/// The beginning of the names of counters in which nodes tell each other a number. No rule can name one.
const TOLD: &str = "~";

/// Returns whether hits of `key` are counted; those of an empty key are not.
pub const fn is_accounted(key: &[u8]) -> bool {
    !key.is_empty()
}

/// Whether hits of `key` are counted under the key itself, as for nearly all keys.
#[inline]
pub fn is_plain(key: &[u8]) -> bool {
    // One comparison checks both bounds.
    key.len().wrapping_sub(1) < MAX_PLAIN_LEN && !key.starts_with(PREFIX.as_bytes())
}

/// Returns the name under which hits of `key` are counted in the counter with this name; `None` is the shared one, also
/// called `counter=default`. The table, the choice of a shard, and the stores all use this name.
///
/// A counter's name matches `[A-Za-z0-9_.-]{1,64}`.
pub fn counted_name<'k>(key: &'k [u8], counter: Option<&str>) -> Cow<'k, [u8]> {
    let name = match is_plain(key) {
        true => Cow::Borrowed(key),
        false => Cow::Owned(digest(key)),
    };
    match counter {
        None => name,
        Some(counter) => [PREFIX.as_bytes(), counter.as_bytes(), b":", &name].concat().into(),
    }
}

/// Returns the name of the counter in which nodes tell each other how many requests of a counted `name` are under way.
pub fn told_name(name: &[u8]) -> Vec<u8> {
    let (key, counter) = key_and_counter(name);
    [PREFIX.as_bytes(), TOLD.as_bytes(), counter.unwrap_or_default(), b":", key].concat()
}

/// A name in memory of the caller, unless it is long.
pub type ShortName = SmallVec<[u8; 64]>;

/// The names of the bans by the rules with a number.
#[derive(Clone, Copy, Debug)]
pub struct BanNames([u8; PREFIX.len() + BAN_LEN]);

impl BanNames {
    /// Returns the names of the bans by the rules with this number.
    pub fn of(rules: u32) -> BanNames {
        let mut start = [b':'; PREFIX.len() + BAN_LEN];
        let text = format!("{PREFIX}!{rules:08x}");
        start.iter_mut().zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
        BanNames(start)
    }

    /// Returns the name of the ban of the key with this counted name.
    #[inline]
    pub fn name(&self, counted: &[u8]) -> ShortName {
        let mut name = ShortName::from_slice(&self.0);
        name.extend_from_slice(counted);
        name
    }
}

/// Splits the name of a ban into the number of the rules and the counted name of the key; `None` for other names.
pub fn banned_by(name: &[u8]) -> Option<(u32, &[u8])> {
    let rest = name.strip_prefix(PREFIX.as_bytes())?.strip_prefix(b"!")?;
    let (number, counted) = rest.split_at_checked(8)?;
    let number = u32::from_str_radix(core::str::from_utf8(number).ok()?, 16).ok()?;
    Some((number, counted.strip_prefix(b":")?))
}

/// A key for a log line between quotes: its first 100 bytes. Quotes, backslashes, and all bytes that are not printable
/// ASCII are written as `\xHH`, so a key cannot end the quotes, and different bytes look different.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'k>(pub &'k [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.get(..100).unwrap_or(self.0);
        Quoted(start).fmt(f)
    }
}

fn digest(key: &[u8]) -> Vec<u8> {
    name_of_digest(&digest_of(key))
}

/// Returns the SHA-256 digest of a key or a name.
pub fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns the counted name of a key with this digest.
pub fn name_of_digest(digest: &[u8; 32]) -> Vec<u8> {
    let mut name = String::from(PREFIX);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into_bytes()
}

/// Returns the digest that `name` consists of; `None` for other kinds of names.
pub fn digest_in(name: &[u8]) -> Option<[u8; 32]> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?;
    let mut digest = [0; 32];
    if digits.len() / 2 != digest.len() || digits.len() % 2 != 0 {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = *pair else { return None };
        *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    }
    Some(digest)
}

/// Splits a counted name into the key, as it is shown, and the name of its counter, if it has one.
pub fn key_and_counter(name: &[u8]) -> (&[u8], Option<&[u8]>) {
    let rest = name.strip_prefix(PREFIX.as_bytes());
    let parts = rest.and_then(|rest| {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        rest.split_at_checked(colon)
    });
    match parts {
        Some((counter, [_, key @ ..])) => (key, Some(counter)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests from `printf abc | sha256sum`.
    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const OF_201_X: &str = "84a0678c90937f5dcf9994d5866668da6b995109c8ad845410559b48a4ecafed";

    #[test]
    fn a_ban_has_a_name_of_its_own() {
        for key in [&b"k"[..], b"sha256:c:k", &[0xff; 200]] {
            let name = BanNames::of(0x12ab).name(key);
            assert_eq!(banned_by(&name), Some((0x12ab, key)));
            assert!(!is_plain(&name));
        }
        for name in
            [&b"k"[..], b"sha256:!", b"sha256:!0000000:k", b"sha256:!0000000g:k", b"sha256:c:k"]
        {
            assert_eq!(banned_by(name), None);
        }
    }

    #[test]
    fn a_short_key_is_its_own_name() {
        for key in [&b"k"[..], &[0; 200], &[0xff; 200], b"sha256", b"SHA256:", b" sha256:"] {
            let name = counted_name(key, None);
            assert!(matches!(name, Cow::Borrowed(name) if name == key));
            assert!(is_plain(key));
        }
    }

    #[test]
    fn a_long_key_is_named_by_its_digest() {
        let name = counted_name(&[b'x'; 201], None);
        assert_eq!(name, format!("sha256:{OF_201_X}").as_bytes());
        // All bytes affect the digest.
        for len in [65_535, 65_536, 1 << 20] {
            let mut other = vec![b'x'; len];
            let name = counted_name(&other, None).into_owned();
            other[len - 1] = b'y';
            assert_ne!(*counted_name(&other, None), name);
            assert_eq!(name.len(), 71);
        }
    }

    #[test]
    fn no_key_passes_for_another() {
        let digested = counted_name(&[b'x'; 201], None).into_owned();
        let counted = counted_name(b"abc", Some("a")).into_owned();
        let mut seen = std::collections::HashSet::new();
        for key in [&[b'x'; 201][..], &digested, &counted, b"abc", b"sha256:", b"a:abc"] {
            for counter in [None, Some("a"), Some("b"), Some(OF_ABC)] {
                let name = counted_name(key, counter).into_owned();
                assert!(name.len() <= MAX_NAME_LEN);
                assert!(seen.insert(name), "{key:?} {counter:?}");
            }
        }
    }

    #[test]
    fn a_counter_stands_before_the_name() {
        assert_eq!(&*counted_name(b"abc", Some("b-1")), b"sha256:b-1:abc");
        assert_eq!(told_name(b"abc"), b"sha256:~:abc");
        assert_eq!(told_name(&counted_name(b"abc", Some("b-1"))), b"sha256:~b-1:abc");
        let digested = counted_name(&[b'x'; 201], None).into_owned();
        assert_eq!(told_name(&digested), [b"sha256:~:", &*digested].concat());
        let longest = counted_name(&[b'x'; 200], Some(OF_ABC)).into_owned();
        assert!(told_name(&longest).len() < MAX_NAME_LEN);
        assert_eq!(BanNames::of(0).name(&longest).len(), MAX_NAME_LEN);
    }

    #[test]
    fn a_key_in_a_log_line_forges_nothing() {
        for (key, shown) in [
            (&b"203.0.113.9"[..], "203.0.113.9"),
            (b"a\", limit 9\n2026/11/22 [error]", r"a\x22, limit 9\x0a2026/11/22 [error]"),
            (b"\x00\x1b[31m\x7f\xc3\xa4\\x0a", r"\x00\x1b[31m\x7f\xc3\xa4\x5cx0a"),
        ] {
            assert_eq!(Shown(key).to_string(), shown);
        }
        assert_eq!(Shown(&[b'k'; 65_535]).to_string(), "k".repeat(100));
        assert_eq!(Shown(&[0; 101]).to_string(), r"\x00".repeat(100));
    }

    #[test]
    fn an_empty_key_is_not_accounted() {
        assert!(!is_accounted(b"") && !is_plain(b""));
        assert!(is_accounted(&[0; 65_536]) && !is_plain(&[0; 65_536]));
    }
}
