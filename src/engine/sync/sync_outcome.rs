//! The result of a sync cycle.

use core::fmt;

use crate::store::contract::error::StoreError;
use crate::table::LeaseLost;

/// The work of a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of differences that were pushed, by counter and window.
    pub pushed: usize,
    /// Number of totals that were fetched, by counter and window.
    pub fetched: usize,
    /// Milliseconds by which the store's clock is ahead of this node's.
    pub clock_offset: i64,
    /// Whether another worker synced some of the shards.
    pub is_part: bool,
}

impl Report {
    /// Returns whether all changes were pushed. If another worker ran the cycle, that is unknown,
    /// and the result is false.
    pub fn is_whole(report: Option<Report>) -> bool {
        report.is_some_and(|report| !report.is_part)
    }

    /// Adds two reports.
    pub(super) fn and(self, other: Report) -> Report {
        Report {
            pushed: self.pushed.saturating_add(other.pushed),
            fetched: self.fetched.saturating_add(other.fetched),
            // Unknown for a shard that was not synced.
            clock_offset: match other.clock_offset {
                0 => self.clock_offset,
                offset => offset,
            },
            is_part: self.is_part || other.is_part,
        }
    }
}

/// The reason why a cycle ended early. The next cycle, of this or another worker, continues it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncError {
    /// Another worker has taken the lease.
    LeaseLost,
    /// The store failed.
    Store(StoreError),
    /// The store answers, but requires to repeat everything. Contains its last answer.
    NoProgress(&'static str),
}

impl From<LeaseLost> for SyncError {
    fn from(_: LeaseLost) -> Self {
        SyncError::LeaseLost
    }
}

impl From<StoreError> for SyncError {
    fn from(error: StoreError) -> Self {
        SyncError::Store(error)
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncError::LeaseLost => f.write_str("another worker took over"),
            SyncError::Store(error) => error.fmt(f),
            SyncError::NoProgress(what) => {
                write!(f, "its answers lead nowhere ({what}, again and again)")
            }
        }
    }
}

impl core::error::Error for SyncError {}
