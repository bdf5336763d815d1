//! Counts of events, in cache lines of their own for each worker, so that counting them never
//! makes workers wait for each other. They are summed when read.

use super::atomic::{EventCounter, Ordering::Relaxed};

/// What became of the requests (or other callers) of a namespace: the number of its event counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Passed,
    /// Rejected.
    Rejected,
    /// Would have been rejected, were it not for the dry run.
    RejectedDryRun,
    /// Decided by `on_error`.
    Error,
}

/// Events of one namespace, as one worker counts them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct NamespaceLine {
    outcomes: [EventCounter; 4],
    hits: EventCounter,
    inserted: EventCounter,
    removed: EventCounter,
    dropped: EventCounter,
}

/// Events of one zone, as one worker counts them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(super) struct ZoneLine {
    evicted: [EventCounter; 3],
}

/// What was lost with a key that had to give its place away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evicted {
    /// Nothing: its windows had ended.
    Ended,
    /// Hits of live windows, all of which the store has, or which are nobody else's business.
    Sent,
    /// Hits of live windows that the store should have had.
    Unsent,
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
    /// Requests decided by `on_error`.
    pub error: u64,
    /// Hits counted, in thousandths.
    pub hits: u64,
    /// Keys that have a place now: an estimate while workers count.
    pub keys: u64,
    /// Hits, in thousandths, that the store should have had, but whose window ended so long ago that
    /// they matter to nobody.
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
}

impl NamespaceLine {
    #[inline]
    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Adds hits; what is given back is subtracted, hence the wrapping.
    #[inline]
    pub(super) fn hits(&self, thousandths: i64) {
        self.hits.fetch_add(thousandths as u64, Relaxed);
    }

    /// Adds hits that the store will not get.
    pub(super) fn dropped(&self, thousandths: i64) {
        self.dropped.fetch_add(thousandths.max(0) as u64, Relaxed);
    }

    pub(super) fn inserted(&self) {
        self.inserted.fetch_add(1, Relaxed);
    }

    pub(super) fn removed(&self) {
        self.removed.fetch_add(1, Relaxed);
    }

    pub(super) fn sum(lines: &[NamespaceLine]) -> NamespaceStats {
        let total = |of: fn(&NamespaceLine) -> &EventCounter| total(lines, of);
        NamespaceStats {
            passed: total(|line| &line.outcomes[0]),
            rejected: total(|line| &line.outcomes[1]),
            rejected_dry_run: total(|line| &line.outcomes[2]),
            error: total(|line| &line.outcomes[3]),
            hits: total(|line| &line.hits),
            dropped: total(|line| &line.dropped),
            // Removals first: a key that is inserted meanwhile is counted, never a negative.
            keys: {
                let removed = total(|line| &line.removed);
                total(|line| &line.inserted).saturating_sub(removed)
            },
        }
    }
}

impl ZoneLine {
    pub(super) fn evicted(&self, what: Evicted) {
        let [ended, sent, unsent] = &self.evicted;
        let counter = match what {
            Evicted::Ended => ended,
            Evicted::Sent => sent,
            Evicted::Unsent => unsent,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn sum(lines: &[ZoneLine]) -> ZoneStats {
        let total = |of: fn(&ZoneLine) -> &EventCounter| total(lines, of);
        ZoneStats {
            evicted_ended: total(|line| &line.evicted[0]),
            evicted_sent: total(|line| &line.evicted[1]),
            evicted_unsent: total(|line| &line.evicted[2]),
        }
    }
}

/// The sum of one counter of all workers.
fn total<L>(lines: &[L], of: fn(&L) -> &EventCounter) -> u64 {
    let counts = lines.iter().map(|line| of(line).load(Relaxed));
    counts.fold(0, u64::wrapping_add)
}
