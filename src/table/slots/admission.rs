//! On what condition hits are counted, and what came of it.

use crate::policy::algorithm::{Algorithm, Reading};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::table::words::atomic::AtomicU64;
use crate::table::words::word::Stamp;
use crate::table::zone::counter::Counter;
use crate::table::zone::near_cell::NearLimit;

/// On what condition hits are counted.
#[derive(Clone, Copy, Debug)]
pub enum Admission {
    /// Always.
    Unconditional,
    /// Always; what is read is about a limit, in a log.
    Regardless(Hits),
    /// Always, but only as many of a bucket as fill it to the limit; what is read is about that.
    Filling(Hits),
    /// If the rate including them is at most the limit.
    Within(Hits, Algorithm),
    /// Never, since another limit refused: what is done with each hit is done. Only for levels.
    Refused,
}

impl Admission {
    /// The limit that was asked, if one was.
    #[inline(always)]
    pub(crate) fn limit(self) -> Option<NearLimit> {
        match self {
            Admission::Within(hits, algorithm) => {
                Some(NearLimit { hits, algorithm: Some(algorithm) })
            }
            Admission::Regardless(hits) | Admission::Filling(hits) => {
                Some(NearLimit { hits, algorithm: None })
            }
            Admission::Unconditional | Admission::Refused => None,
        }
    }

    /// Whether `value` hits of a counter are counted, of which this is read before.
    #[inline(always)]
    pub(crate) fn admits(self, size: WindowSize, before: &Reading, value: Hits) -> bool {
        match self {
            Admission::Within(limit, algorithm) => algorithm.admits(size, before, limit, value),
            Admission::Unconditional | Admission::Regardless(_) | Admission::Filling(_) => true,
            Admission::Refused => false,
        }
    }
}

/// A hit whose waiting time is computed beside the count.
#[derive(Clone, Copy, Debug)]
pub struct AskedHit {
    /// Under this limit.
    pub limit: Hits,
    /// Cost of the hit.
    pub cost: Hits,
}

/// The result of counting hits.
#[derive(Debug)]
pub struct Counted<'m> {
    /// Reading after the count.
    pub reading: Reading,
    /// Whether the condition was met, and the hits were counted.
    pub admitted: bool,
    /// Receipt of the hits, if they were counted:
    /// [`CounterTable::refund`](crate::table::CounterTable::refund) takes it.
    pub receipt: Option<Receipt<'m>>,
}

/// The place where hits were counted.
#[derive(Debug)]
pub struct Receipt<'m> {
    pub(crate) column: &'m AtomicU64,
    pub(crate) stamp: Stamp,
    pub(crate) value: Hits,
}

impl Receipt<'_> {
    /// The hits that were counted.
    #[inline]
    pub fn value(&self) -> Hits {
        self.value
    }
}

impl<'m> Counted<'m> {
    /// Nothing is known, and nothing was counted.
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
    /// Returns the hits of `value` with which a new counter begins: all, unless the limit refuses
    /// them, or more than counting has to be done.
    #[inline]
    pub(crate) fn first_hits(&self, value: Hits, admission: Admission) -> Hits {
        let is_admitted = admission.admits(self.size, &Reading::default(), value);
        if is_admitted && self.begins_with_hits { value } else { Hits::ZERO }
    }
}
