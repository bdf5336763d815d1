//! Counting the results of syncs.

use super::event_lines::{add, count_by};
use super::events::{SyncLine, SyncStats};
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::Ordering::Relaxed;

/// A cycle of a sync that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncCycle {
    /// Whether it succeeded; otherwise the store failed.
    pub succeeded: bool,
    /// Counters (by window) whose diffs were pushed.
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

impl SyncLine {
    /// Counts a cycle. The words order no other memory, and a concurrent reader may see a part of
    /// the cycle.
    pub(super) fn count(&self, cycle: &SyncCycle) {
        let (outcome, last, other) = if cycle.succeeded {
            (&self.succeeded, &self.last_success, &self.last_failure)
        } else {
            (&self.failed, &self.last_failure, &self.last_success)
        };
        add(outcome, 1);
        last.store(cycle.at.0, Relaxed);
        // The other time must be earlier, also if the clock was set back since: the later one tells the last outcome.
        if other.load(Relaxed) >= cycle.at.0 {
            other.store(cycle.at.0.saturating_sub(1), Relaxed);
        }
        add(&self.pushed, cycle.pushed);
        add(&self.fetched, cycle.fetched);
        if let Some(offset) = cycle.clock_offset {
            self.clock_offset.store(offset as u64, Relaxed);
        }
        self.duration.store(cycle.duration, Relaxed);
        add(&self.duration_sum, cycle.duration);
        count_by(&SyncStats::BOUNDS, &self.durations, cycle.duration);
    }

    /// Counts an exchange with the store that took `micros` microseconds.
    pub(super) fn exchanged(&self, micros: u64) {
        add(&self.exchange_sum, micros);
        count_by(&SyncStats::EXCHANGE_BOUNDS, &self.exchanges, micros);
    }

    /// Records the process that took the lease.
    pub(super) fn held_by(&self, process: u32) {
        self.holder.store(process.into(), Relaxed);
    }

    /// Reads the results of all cycles so far.
    pub(super) fn stats(&self) -> SyncStats {
        SyncLine::read(core::slice::from_ref(self), SyncStats::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cycle_decides_whether_the_store_is_up_whatever_the_clock_does() {
        let line = SyncLine::default();
        for (at, succeeded) in
            [(2000, false), (1000, true), (1000, false), (500, false), (499, true)]
        {
            line.count(&SyncCycle {
                succeeded,
                pushed: 0,
                fetched: 0,
                duration: 1,
                at: UnixMillis(at),
                clock_offset: None,
            });
            let stats = line.stats();
            assert_eq!(stats.is_up(), Some(succeeded), "{at}");
            assert_eq!(stats.last(), Some(UnixMillis(at)));
        }
    }

    #[test]
    fn a_cycle_is_counted_by_its_outcome_and_duration() {
        let line = SyncLine::default();
        assert_eq!(line.stats(), SyncStats::default());
        assert_eq!(line.stats().is_up(), None);
        let mut cycle = SyncCycle {
            succeeded: true,
            pushed: 2,
            fetched: 3,
            duration: 5,
            at: UnixMillis(1000),
            clock_offset: Some(-7),
        };
        line.count(&cycle);
        assert_eq!(line.stats().is_up(), Some(true));
        cycle.succeeded = false;
        cycle.duration = 9999;
        cycle.at = UnixMillis(2000);
        cycle.clock_offset = None;
        line.count(&cycle);
        let stats = line.stats();
        assert_eq!(stats.is_up(), Some(false));
        assert_eq!((stats.succeeded, stats.failed), (1, 1));
        assert_eq!((stats.pushed, stats.fetched), (4, 6));
        assert_eq!(stats.durations, [0, 1, 0, 0, 0, 0, 1]);
        assert_eq!((stats.duration, stats.duration_sum), (9999, 10_004));
        assert_eq!(stats.clock_offset, -7);
        assert_eq!((stats.holder, stats.connects), (None, 0));
        line.held_by(17);
        add(&line.connects, 2);
        for micros in [250, 251, 1_000_001] {
            line.exchanged(micros);
        }
        let stats = line.stats();
        assert_eq!((stats.holder, stats.connects), (Some(17), 2));
        assert_eq!(stats.exchanges, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.exchange_sum, 1_000_502);
    }
}
