//! The names of keys and other things in Redis.

use core::fmt;
use core::num::NonZeroU64;

use crate::policy::reserve::{Grants, Witness};
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{Epoch, Position, Shard};

/// The last part of the key of a hash with counts: `<size in ms>:<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WindowName {
    pub(super) size: WindowSize,
    pub(super) number: u64,
}

/// Returns the key of a shard's hash, which is the beginning of all of its keys.
pub(crate) fn shard(prefix: &str, shard: &Shard) -> String {
    // The part in braces is the hash tag, by which a cluster assigns keys to nodes. The prefix is
    // in front of it, so that a user can be limited to keys with the prefix.
    let Shard { namespace, number } = shard;
    format!("{prefix}:{{{namespace}:{number}}}")
}

/// Returns the key of a hash with counts.
pub(super) fn counts(shard: &str, epoch: Epoch, window: WindowName) -> String {
    format!("{shard}:{epoch}:{window}")
}

/// Returns the key of the hash of living nodes.
pub(super) fn living(shard: &str) -> String {
    format!("{shard}:l")
}

/// Returns the key of the stream of changes.
pub(super) fn stream(shard: &str, epoch: Epoch) -> String {
    format!("{shard}:{epoch}:s")
}

/// Returns the key of the stream of news.
pub(super) fn news(shard: &str, epoch: Epoch) -> String {
    format!("{shard}:{epoch}:n")
}

impl WindowName {
    pub(super) fn parse(text: &str) -> Option<WindowName> {
        let (size, number) = text.split_once(':')?;
        Some(WindowName {
            size: WindowSize::from_bits(size.parse().ok()?)?,
            number: number.parse().ok()?,
        })
    }
}

/// Whether this is the name of a window in a time zone that this process does not know.
pub(super) fn is_of_unknown_zone(name: &str) -> bool {
    let parts = name.split_once(':').map(|(size, number)| (size.parse(), number.parse::<u64>()));
    matches!(parts, Some((Ok(bits), Ok(_))) if WindowSize::is_of_unknown_zone(bits))
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.size.bits(), self.number)
    }
}

/// Formats a position as the id of an entry in a stream.
pub(super) fn position(Position([sequence, tag]): Position) -> String {
    format!("{sequence}-{tag}")
}

/// Number of tags that a witness distinguishes.
const WITNESS_TAG: u64 = 10_000;

/// Returns the witness of an exchange after which the last change has this position. It consists
/// mostly of the sequence number, and of the last digits of the tag. An exchange with the same
/// sequence number in another history has another tag.
pub(super) fn witness(Position([sequence, tag]): Position) -> Option<Witness> {
    let word = sequence.checked_mul(WITNESS_TAG)?;
    let word = word.checked_add(tag.checked_rem(WITNESS_TAG)?)?;
    // A witness does not use the highest bit.
    let word = NonZeroU64::new(word).filter(|word| word.leading_zeros() > 0);
    word.map(Witness)
}

/// Formats a witness for the scripts.
pub(super) fn follows(after: Option<Witness>) -> String {
    match after {
        None => "none".into(),
        Some(Witness(word)) => {
            let (sequence, tag) = (word.get() / WITNESS_TAG, word.get() % WITNESS_TAG);
            // The tag is padded with zeros, since it may have fewer digits.
            format!("{sequence} {tag:04}")
        }
    }
}

/// Formats the state of charges for reserves for `push.lua`.
pub(super) fn grants(grants: Option<Grants>) -> String {
    match grants {
        None => String::new(),
        Some(Grants::None) => follows(None),
        Some(Grants::UpTo(witness)) => follows(Some(witness)),
        Some(Grants::Lost) => "lost".into(),
    }
}

pub(super) fn parse_position(text: &str) -> Option<Position> {
    let (sequence, tag) = text.split_once('-')?;
    Some(Position([sequence.parse().ok()?, tag.parse().ok()?]))
}
