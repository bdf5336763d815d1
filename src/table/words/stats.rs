//! Events as they are counted, and the sums of their counts.

use crate::policy::window::UnixMillis;

/// An outcome of a request (or another caller) of a namespace: but for the last, the number of its
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
    /// The cost of a request.
    Cost,
    /// The charge when the response is known.
    Charge,
    /// A key that is too long.
    Key,
}

/// A loss with a key that had to give its place away.
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
    /// Duration, in milliseconds.
    pub duration: u64,
    /// Time of the end.
    pub at: UnixMillis,
    /// Milliseconds by which the store's clock is ahead of this node's; `None`: not seen.
    pub clock_offset: Option<i64>,
}

/// Results of the syncs of a namespace and shard, since the zone was made.
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
    /// Time of the last cycle that succeeded; `None`: never.
    pub last_success: Option<UnixMillis>,
    /// Time of the last cycle that failed; `None`: never.
    pub last_failure: Option<UnixMillis>,
    /// Duration of the last cycle, in milliseconds.
    pub duration: u64,
    /// Milliseconds by which the store's clock was last ahead of this node's.
    pub clock_offset: i64,
    /// Numbers of cycles by duration, each counted by the first of [`SyncStats::BOUNDS`] that it
    /// kept; last, those that took longer.
    pub durations: [u64; SyncStats::BOUNDS.len() + 1],
    /// Total duration of all cycles, in milliseconds.
    pub duration_sum: u64,
    /// The process that syncs, or did so last; `None`: none did.
    pub holder: Option<u32>,
    /// Connections that were made to the store.
    pub connects: u64,
    /// Numbers of exchanges with the store by duration, by [`SyncStats::EXCHANGE_BOUNDS`].
    pub exchanges: [u64; SyncStats::EXCHANGE_BOUNDS.len() + 1],
    /// Total duration of all exchanges, in microseconds.
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

    /// Returns the time at which the last cycle ended; `None` if there was none.
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
    /// Numbers of requests by the time that they waited for a store, or because a rate held them
    /// back, each counted by the first of [`NamespaceStats::WAIT_BOUNDS`] that it kept; last, those
    /// that waited longer.
    pub waits: [u64; NamespaceStats::WAIT_BOUNDS.len() + 1],
    /// Total waiting time, in microseconds.
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
    /// Numbers of callbacks by the time for which they held a worker's event loop, by
    /// [`ZoneStats::HOLD_BOUNDS`], as [`NamespaceStats::waits`] counts.
    pub holds: [u64; ZoneStats::HOLD_BOUNDS.len() + 1],
    /// Total time of these callbacks, in nanoseconds.
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
