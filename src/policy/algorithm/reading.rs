//! What an algorithm reads of a key, and how a charge and time change it.
//!
//! A table or a store makes a reading of what it keeps. All others only pass it on, beside the
//! algorithm that can tell what it means.

use crate::policy::hits::Hits;

/// What is stored of a key, at a moment: four words, of which only its algorithm knows the meaning.
///
/// That of each algorithm is in its file, as a type that converts from and to a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When what is counted began, or was last counted.
    pub(super) start: u64,
    /// What was counted, and what one more charge adds to.
    pub(super) hits: Hits,
    /// What was counted before that, or how much of it stops to count.
    pub(super) previous: Hits,
    /// Milliseconds since something that the algorithm knows, or parts of them.
    pub(super) elapsed: u64,
}

impl Reading {
    /// The same after a charge of `hits`, which are not below zero.
    #[inline]
    pub fn plus(self, hits: Hits) -> Reading {
        let hits = self.hits.plus_value(hits);
        Reading { hits, ..self }
    }

    /// The same without a charge of `hits`; at least nothing.
    #[inline]
    pub fn minus(self, hits: Hits) -> Reading {
        let hits = self.hits.minus(hits).max(Hits::ZERO);
        Reading { hits, ..self }
    }

    /// As words of a message between processes of one build.
    pub fn to_words(self) -> [u64; 4] {
        let Reading { start, hits, previous, elapsed } = self;
        let [hits, previous] = [hits, previous].map(|it| it.thousandths().cast_unsigned());
        [start, hits, previous, elapsed]
    }

    /// What [`Reading::to_words`] made these of.
    pub fn from_words([start, hits, previous, elapsed]: [u64; 4]) -> Reading {
        let [hits, previous] = [hits, previous].map(|it| Hits::from_thousandths(it.cast_signed()));
        Reading { start, hits, previous, elapsed }
    }
}
