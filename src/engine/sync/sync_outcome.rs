//! The result of a sync cycle.

use core::fmt;

use crate::store::contract::error::StoreError;
use crate::table::LeaseLost;

/// The work of a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Counters (by window) of which diffs were pushed.
    pub pushed: usize,
    /// Counters (by window) whose totals were fetched.
    pub fetched: usize,
    /// Milliseconds by which the store's clock is ahead of this node's.
    pub clock_offset: i64,
    /// Whether some shards were left to another worker, which was at them.
    pub is_part: bool,
}

impl Report {
    /// Whether all that was to be pushed was: of a cycle that was another worker's, it is not known.
    pub fn is_whole(report: Option<Report>) -> bool {
        report.is_some_and(|report| !report.is_part)
    }

    /// Adds up two reports.
    pub(super) fn and(self, other: Report) -> Report {
        Report {
            pushed: self.pushed.saturating_add(other.pushed),
            fetched: self.fetched.saturating_add(other.fetched),
            // Of a shard that was not synced, it is not known.
            clock_offset: match other.clock_offset {
                0 => self.clock_offset,
                offset => offset,
            },
            is_part: self.is_part || other.is_part,
        }
    }
}

/// The reason why a cycle ended early. The next one, here or in another worker, goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncError {
    /// Another worker took over.
    LeaseLost,
    /// The store did not do as it was asked.
    Store(StoreError),
    /// The store answers, but as if everything was to be done again. Holds what it said last.
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
