//! The condition under which hits are counted, and the result.

use crate::policy::algorithm::{Algorithm, Reading};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::word::Stamp;
use crate::table::zone::counter::Counter;
use crate::table::zone::near_cell::NearLimit;

/// The condition under which hits are counted.
#[derive(Clone, Copy, Debug)]
pub enum Admission {
    /// Always count.
    Unconditional,
    /// Always count, in a log; the reading is for this limit.
    Regardless(Hits),
    /// Always count, in a log that keeps only the latest hits, those of this limit; the reading is for this limit.
    Latest(Hits),
    /// Always count, in a bucket, but no more than fill it to the limit; the reading is for this
    /// limit.
    Filling(Hits),
    /// Count if the rate including the hits is at most the limit.
    Within(Hits, Algorithm),
    /// Never count, since another limit refused, but apply the effects of a refused hit. Only for
    /// levels.
    Refused,
}

impl Admission {
    /// Returns the limit that was asked; `None` without one.
    #[inline(always)]
    pub(crate) fn limit(self) -> Option<NearLimit> {
        match self {
            Admission::Within(hits, algorithm) => {
                Some(NearLimit { hits, algorithm: Some(algorithm) })
            }
            Admission::Regardless(hits) | Admission::Latest(hits) | Admission::Filling(hits) => {
                Some(NearLimit { hits, algorithm: None })
            }
            Admission::Unconditional | Admission::Refused => None,
        }
    }

    /// Returns whether `value` hits are counted after the reading `before`.
    #[inline(always)]
    pub(crate) fn admits(self, size: WindowSize, before: &Reading, value: Hits) -> bool {
        match self {
            Admission::Within(limit, algorithm) => algorithm.admits(size, before, limit, value),
            Admission::Unconditional
            | Admission::Regardless(_)
            | Admission::Latest(_)
            | Admission::Filling(_) => true,
            Admission::Refused => false,
        }
    }
}

/// A hit whose waiting time is computed with the count.
#[derive(Clone, Copy, Debug)]
pub struct AskedHit {
    /// The limit.
    pub limit: Hits,
    /// Its cost.
    pub cost: Hits,
}

/// The result of counting hits.
#[derive(Debug)]
pub struct Counted<'m> {
    /// Reading after the count.
    pub reading: Reading,
    /// Whether the condition held and the hits were counted.
    pub admitted: bool,
    /// Receipt for [`CounterTable::refund`](crate::table::CounterTable::refund); `None` if no hits
    /// were counted.
    pub receipt: Option<Receipt<'m>>,
}

/// The place in which hits were counted.
#[derive(Debug)]
pub struct Receipt<'m> {
    pub(crate) column: &'m AtomicU64,
    pub(crate) stamp: Stamp,
    pub(crate) value: Hits,
}

impl Receipt<'_> {
    /// Returns the hits that were counted.
    #[inline]
    pub fn value(&self) -> Hits {
        self.value
    }

    /// Returns the receipt of a part of the hits.
    pub fn part(&self, value: Hits) -> Self {
        Receipt { value, ..*self }
    }
}

impl<'m> Counted<'m> {
    /// Returns the result without a reading, and without counted hits.
    #[cold]
    pub(crate) fn unknown() -> Self {
        Counted { reading: Reading::default(), admitted: true, receipt: None }
    }

    #[inline]
    pub(crate) fn refused(reading: Reading) -> Self {
        Counted { reading, admitted: false, receipt: None }
    }

    #[inline]
    pub(crate) fn admitted(before: Reading, receipt: Receipt<'m>) -> Self {
        Counted { reading: before.plus(receipt.value), admitted: true, receipt: Some(receipt) }
    }
}

impl Counter {
    /// Returns the hits of `value` with which a new counter begins: all of them, or zero if the
    /// limit refuses them or the algorithm needs more than the count.
    #[inline]
    pub(crate) fn first_hits(&self, value: Hits, admission: Admission) -> Hits {
        let is_admitted = admission.admits(self.size, &Reading::default(), value);
        if is_admitted && self.begins_with_hits { value } else { Hits::ZERO }
    }
}
