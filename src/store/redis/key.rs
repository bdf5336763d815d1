//! The names of things in Redis.

use core::fmt;
use core::num::NonZeroU64;

use crate::policy::reserve::{Grants, Witness};
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{Epoch, Position, Shard};

/// The last part of the key of a hash of counts: `<size in ms>:<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WindowName {
    pub(super) size: WindowSize,
    pub(super) number: u64,
}

/// The key of a shard's hash, which all its other keys begin with.
pub(crate) fn shard(prefix: &str, shard: &Shard) -> String {
    // In braces: a cluster chooses the place of a key by what is between them. The prefix is before
    // them, so that it is what a user may be given the right to.
    let Shard { namespace, number } = shard;
    format!("{prefix}:{{{namespace}:{number}}}")
}

/// The key of a hash of counts.
pub(super) fn counts(shard: &str, epoch: Epoch, window: WindowName) -> String {
    format!("{shard}:{epoch}:{window}")
}

/// The key of the hash of nodes that live.
pub(super) fn living(shard: &str) -> String {
    format!("{shard}:l")
}

/// The key of the stream of changes.
pub(super) fn stream(shard: &str, epoch: Epoch) -> String {
    format!("{shard}:{epoch}:s")
}

/// The key of the stream of news.
pub(super) fn news(shard: &str, epoch: Epoch) -> String {
    format!("{shard}:{epoch}:n")
}

impl WindowName {
    pub(super) fn parse(text: &str) -> Option<WindowName> {
        let (size, number) = text.split_once(':')?;
        Some(WindowName {
            size: WindowSize::from_millis(size.parse().ok()?)?,
            number: number.parse().ok()?,
        })
    }
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.size.millis(), self.number)
    }
}

/// A position as Redis writes the id of an entry in a stream.
pub(super) fn position(Position([sequence, tag]): Position) -> String {
    format!("{sequence}-{tag}")
}

/// Number of a tag's digits in a witness.
const WITNESS_TAG: u64 = 10_000;

/// The witness of an exchange after which the last change has this position: most of it is the sequence, the rest the last
/// digits of the tag. One after the same number of bytes, in another history, has another tag.
pub(super) fn witness(Position([sequence, tag]): Position) -> Option<Witness> {
    let word = sequence.checked_mul(WITNESS_TAG)?;
    let word = word.checked_add(tag.checked_rem(WITNESS_TAG)?)?;
    // The highest bit is not a witness's.
    let word = NonZeroU64::new(word).filter(|word| word.leading_zeros() > 0);
    word.map(Witness)
}

/// A witness as the scripts have it.
pub(super) fn follows(after: Option<Witness>) -> String {
    match after {
        None => "none".into(),
        Some(Witness(word)) => {
            let (sequence, tag) = (word.get() / WITNESS_TAG, word.get() % WITNESS_TAG);
            // A tag may have fewer digits, and its last ones no zeros before them.
            format!("{sequence} {tag:04}")
        }
    }
}

/// Encodes the state of charges ahead as `push.lua` takes it.
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
