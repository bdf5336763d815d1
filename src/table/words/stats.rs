//! What happened: events as they are counted, and the sums of their counts.

use crate::policy::window::UnixMillis;

/// What became of a request (or another caller) of a namespace: but for the last, the number of its
/// event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Passed,
    /// Rejected.
    Rejected,
    /// Would have been rejected, were it not for the dry run.
    RejectedDryRun,
    /// Decided by `on_error`, which is counted as a fallback.
    Error,
}

/// A value that is wrong at run time: the number of its event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The hits of a limit.
    Limit,
    /// What a request is charged.
    Cost,
    /// What it is charged when its response is known.
    Charge,
    /// A key that is too long.
    Key,
}

/// What was lost with a key that had to give its place away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evicted {
    /// Nothing: its windows had ended.
    Ended,
    /// Hits of live windows, all of which the store has, or which no store is to have.
    Sent,
    /// Hits of live windows that the store should have had.
    Unsent,
}

/// A cycle of a sync that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncCycle {
    /// Whether it did all that was to be done, or else the store failed.
    pub succeeded: bool,
    /// Counters (by window) of which diffs were pushed.
    pub pushed: u64,
    /// Counters (by window) whose totals were fetched.
    pub fetched: u64,
    /// How long it took, in milliseconds.
    pub duration: u64,
    /// When it ended.
    pub at: UnixMillis,
    /// How far the store's clock is ahead of this node's, in milliseconds; `None`: not seen.
    pub clock_offset: Option<i64>,
}

/// What came of the syncs of a namespace and shard, since the zone was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncStats {
    /// Cycles that did all that was to be done.
    pub succeeded: u64,
    /// Cycles that ended early, because the store failed.
    pub failed: u64,
    /// Counters (by window) of which diffs were pushed.
    pub pushed: u64,
    /// Counters (by window) whose totals were fetched.
    pub fetched: u64,
    /// When a cycle last succeeded; `None`: never.
    pub last_success: Option<UnixMillis>,
    /// When a cycle last failed; `None`: never.
    pub last_failure: Option<UnixMillis>,
    /// How long the last cycle took, in milliseconds.
    pub duration: u64,
    /// How far the store's clock was last ahead of this node's, in milliseconds.
    pub clock_offset: i64,
    /// How many cycles took at most so long as [`SyncStats::BOUNDS`] says, each of them counted by
    /// the first bound that it kept; last, those that took longer.
    pub durations: [u64; SyncStats::BOUNDS.len() + 1],
    /// How long all cycles took, in milliseconds.
    pub duration_sum: u64,
    /// The process that syncs, or did so last; `None`: none did.
    pub holder: Option<u32>,
    /// Connections that were made to the store.
    pub connects: u64,
    /// How many exchanges with the store took at most so long as [`SyncStats::EXCHANGE_BOUNDS`] says,
    /// likewise.
    pub exchanges: [u64; SyncStats::EXCHANGE_BOUNDS.len() + 1],
    /// How long all exchanges took, in microseconds.
    pub exchange_sum: u64,
}

impl SyncStats {
    /// The bounds of [`SyncStats::durations`], in milliseconds.
    pub const BOUNDS: [u64; 6] = [1, 5, 25, 100, 500, 2500];

    /// The bounds of [`SyncStats::exchanges`], in microseconds.
    pub const EXCHANGE_BOUNDS: [u64; 12] =
        [250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000];

    /// Whether the last cycle succeeded; `None` if there was none.
    pub fn is_up(&self) -> Option<bool> {
        let last = self.last_success.max(self.last_failure)?;
        Some(self.last_success == Some(last))
    }

    /// When the last cycle ended; `None` if there was none.
    pub fn last(&self) -> Option<UnixMillis> {
        self.last_success.max(self.last_failure)
    }
}

/// Events of a namespace, since the zone was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceStats {
    /// Admitted requests.
    pub passed: u64,
    /// Rejected requests.
    pub rejected: u64,
    /// Requests that a dry run did not reject.
    pub rejected_dry_run: u64,
    /// Requests decided by `on_error`: by `local`, `allow`, `deny`.
    pub fallbacks: [u64; 3],
    /// Values that were wrong at run time, in the order of [`Invalid`].
    pub invalid: [u64; 4],
    /// Requests that were rejected by policies without a count of their own.
    pub rejected_unnamed: u64,
    /// Requests that a rate held back.
    pub delayed: u64,
    /// Hits, in thousandths, that were admitted above a limit, as the store's answers tell.
    pub excess: u64,
    /// How many requests waited, for a store or since a rate held them back, at most so long as [`NamespaceStats::WAIT_BOUNDS`] says,
    /// each counted by the first bound that it kept; last, those that waited longer.
    pub waits: [u64; NamespaceStats::WAIT_BOUNDS.len() + 1],
    /// How long all of them waited, in microseconds.
    pub wait_sum: u64,
    /// Hits of requests that were decided on, as often as they were charged to a counter, in
    /// thousandths: it never falls.
    pub hits: u64,
    /// Keys that have a place now: an estimate while workers count.
    pub keys: u64,
    /// Hits, in thousandths, that the store should have had, but whose window ended so long ago that
    /// they matter no more.
    pub dropped: u64,
}

/// Events of a zone, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStats {
    /// Keys that gave their place away after their windows had ended.
    pub evicted_ended: u64,
    /// Keys that gave it away alive, with nothing unsent.
    pub evicted_sent: u64,
    /// Keys that gave it away alive, with hits that the store had not got.
    pub evicted_unsent: u64,
    /// How many callbacks held a worker's event loop at most so long as [`ZoneStats::HOLD_BOUNDS`]
    /// says, as with [`NamespaceStats::waits`].
    pub holds: [u64; ZoneStats::HOLD_BOUNDS.len() + 1],
    /// How long all of them did, in nanoseconds.
    pub hold_sum: u64,
}

impl NamespaceStats {
    /// The bounds of [`NamespaceStats::waits`], in microseconds.
    pub const WAIT_BOUNDS: [u64; 10] =
        [500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 1_000_000, 10_000_000];

    /// Requests decided by `on_error`.
    pub fn error(&self) -> u64 {
        self.fallbacks.iter().copied().fold(0, u64::wrapping_add)
    }
}

impl ZoneStats {
    /// The bounds of [`ZoneStats::holds`], in nanoseconds.
    pub const HOLD_BOUNDS: [u64; 10] =
        [1000, 5000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000];
}
