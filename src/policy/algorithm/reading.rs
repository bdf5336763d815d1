//! Readings of the stored state of a key, and how charges and time change them.
//!
//! A table or a store makes a reading of its stored state. All other code passes it on, together with the algorithm
//! that interprets it.

use crate::policy::hits::Hits;

/// The stored state of a key at a moment: four words, which only its algorithm interprets.
///
/// Each algorithm's file has a type that converts to and from a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Start of the count, or time of the last hit.
    pub(super) start: u64,
    /// The count that one more charge increases.
    pub(super) hits: Hits,
    /// The previous count, or the part of the count that expires.
    pub(super) previous: Hits,
    /// Milliseconds since a moment that the algorithm defines, or parts of them.
    pub(super) elapsed: u64,
}

impl Reading {
    /// Returns the reading after a charge of `hits`, which must not be negative.
    #[inline]
    pub fn plus(self, hits: Hits) -> Reading {
        let hits = self.hits.plus_value(hits);
        Reading { hits, ..self }
    }

    /// Returns the reading after a refund of `hits`; at least zero.
    #[inline]
    pub fn minus(self, hits: Hits) -> Reading {
        let hits = self.hits.minus(hits).max(Hits::ZERO);
        Reading { hits, ..self }
    }

    /// Encodes the reading for messages between processes of one build.
    pub fn to_words(self) -> [u64; 4] {
        let Reading { start, hits, previous, elapsed } = self;
        let [hits, previous] = [hits, previous].map(|it| it.thousandths().cast_unsigned());
        [start, hits, previous, elapsed]
    }

    /// Decodes the words of [`Reading::to_words`].
    pub fn from_words([start, hits, previous, elapsed]: [u64; 4]) -> Reading {
        let [hits, previous] = [hits, previous].map(|it| Hits::from_thousandths(it.cast_signed()));
        Reading { start, hits, previous, elapsed }
    }
}
