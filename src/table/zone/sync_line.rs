//! Counts of what came of syncs, in a line for each synced namespace.

use super::event_lines::{clear, count_by, loaded};
use crate::policy::window::UnixMillis;
use crate::table::words::atomic::EventCounter;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::stats::{SyncCycle, SyncStats};

/// The sync of one namespace and shard with its store: the worker that syncs counts here, one at a
/// time, so that no worker has a line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct SyncLine {
    succeeded: EventCounter,
    failed: EventCounter,
    pushed: EventCounter,
    fetched: EventCounter,
    /// Unix milliseconds; 0: never.
    last_success: EventCounter,
    last_failure: EventCounter,
    /// Milliseconds of the last cycle.
    duration: EventCounter,
    /// Milliseconds, signed.
    clock_offset: EventCounter,
    /// Numbers of cycles by duration: the last count is of cycles beyond all bounds.
    durations: [EventCounter; SyncStats::BOUNDS.len() + 1],
    /// Milliseconds of all cycles.
    duration_sum: EventCounter,
    /// The process that syncs, or did so last; 0: none did.
    holder: EventCounter,
    /// Connections to the store.
    connects: EventCounter,
    /// Numbers of exchanges with the store by duration, as of cycles.
    exchanges: [EventCounter; SyncStats::EXCHANGE_BOUNDS.len() + 1],
    /// Microseconds of all exchanges.
    exchange_sum: EventCounter,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<SyncLine>() == 4 * 64);

impl SyncLine {
    /// Counts a cycle. Nothing else depends on the words, and a reader may see, while they
    /// change, a part of a cycle.
    pub(super) fn count(&self, cycle: &SyncCycle) {
        let (outcome, last, other) = if cycle.succeeded {
            (&self.succeeded, &self.last_success, &self.last_failure)
        } else {
            (&self.failed, &self.last_failure, &self.last_success)
        };
        outcome.fetch_add(1, Relaxed);
        last.store(cycle.at.0, Relaxed);
        // That was before, also if the clock was set back since: by these times it is known which was the last.
        if other.load(Relaxed) >= cycle.at.0 {
            other.store(cycle.at.0.saturating_sub(1), Relaxed);
        }
        self.pushed.fetch_add(cycle.pushed, Relaxed);
        self.fetched.fetch_add(cycle.fetched, Relaxed);
        if let Some(offset) = cycle.clock_offset {
            self.clock_offset.store(offset as u64, Relaxed);
        }
        self.duration.store(cycle.duration, Relaxed);
        self.duration_sum.fetch_add(cycle.duration, Relaxed);
        count_by(&SyncStats::BOUNDS, &self.durations, cycle.duration);
    }

    /// Counts an exchange with the store, which took so many microseconds.
    pub(super) fn exchanged(&self, micros: u64) {
        self.exchange_sum.fetch_add(micros, Relaxed);
        count_by(&SyncStats::EXCHANGE_BOUNDS, &self.exchanges, micros);
    }

    pub(super) fn connected(&self, times: u64) {
        self.connects.fetch_add(times, Relaxed);
    }

    pub(super) fn held_by(&self, process: u32) {
        self.holder.store(process.into(), Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let SyncLine {
            succeeded,
            failed,
            pushed,
            fetched,
            last_success,
            last_failure,
            duration,
            clock_offset,
            durations,
            duration_sum,
            holder,
            connects,
            exchanges,
            exchange_sum,
        } = self;
        clear(durations.iter().chain(exchanges).chain([
            succeeded,
            failed,
            pushed,
            fetched,
            last_success,
            last_failure,
            duration,
            clock_offset,
            duration_sum,
            holder,
            connects,
            exchange_sum,
        ]));
    }

    pub(super) fn stats(&self) -> SyncStats {
        let moment = |word: &EventCounter| match word.load(Relaxed) {
            0 => None,
            millis => Some(UnixMillis(millis)),
        };
        SyncStats {
            succeeded: self.succeeded.load(Relaxed),
            failed: self.failed.load(Relaxed),
            pushed: self.pushed.load(Relaxed),
            fetched: self.fetched.load(Relaxed),
            last_success: moment(&self.last_success),
            last_failure: moment(&self.last_failure),
            duration: self.duration.load(Relaxed),
            clock_offset: self.clock_offset.load(Relaxed) as i64,
            durations: loaded(&self.durations),
            duration_sum: self.duration_sum.load(Relaxed),
            holder: u32::try_from(self.holder.load(Relaxed)).ok().filter(|&it| it != 0),
            connects: self.connects.load(Relaxed),
            exchanges: loaded(&self.exchanges),
            exchange_sum: self.exchange_sum.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cycle_says_whether_the_store_is_there_whatever_the_clock_does() {
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
        line.connected(2);
        for micros in [250, 251, 1_000_001] {
            line.exchanged(micros);
        }
        let stats = line.stats();
        assert_eq!((stats.holder, stats.connects), (Some(17), 2));
        assert_eq!(stats.exchanges, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.exchange_sum, 1_000_502);
    }
}
