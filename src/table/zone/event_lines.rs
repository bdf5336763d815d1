//! Counts of events, in cache lines of their own for each worker, so that counting them never
//! makes workers wait for each other. They are summed when read.

use crate::policy::hits::Hits;
use crate::policy::namespace::OnError;
use crate::table::words::atomic::EventCounter;
use crate::table::words::atomic::Ordering::Relaxed;
use crate::table::words::stats::{Evicted, Invalid, NamespaceStats, Outcome, ZoneStats};

/// Events of one namespace, as one worker counts them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct NamespaceLine {
    outcomes: [EventCounter; 3],
    hits: EventCounter,
    inserted: EventCounter,
    removed: EventCounter,
    dropped: EventCounter,
}

/// Events of one namespace that are few, or that come with something which takes far longer than to
/// wait for another worker: all of them count here.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct SharedLine {
    fallbacks: [EventCounter; 3],
    invalid: [EventCounter; 4],
    /// By policies that have no count of their own.
    rejected: EventCounter,
    /// Requests that a rate held back.
    delayed: EventCounter,
    /// Thousandths of hits that were admitted above a limit.
    excess: EventCounter,
    /// Numbers of requests by waiting time: the last count is of waits beyond all bounds.
    waits: [EventCounter; NamespaceStats::WAIT_BOUNDS.len() + 1],
    /// Microseconds of all of them.
    wait_sum: EventCounter,
}

/// Events of one zone, as one worker counts them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct ZoneLine {
    evicted: [EventCounter; 3],
    /// Numbers of callbacks by the time for which they held the worker's event loop, as with
    /// [`SharedLine::waits`].
    holds: [EventCounter; ZoneStats::HOLD_BOUNDS.len() + 1],
    /// Nanoseconds of all of them.
    hold_sum: EventCounter,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<NamespaceLine>() == 64 && size_of::<ZoneLine>() == 2 * 64);

impl NamespaceLine {
    #[inline]
    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Adds hits that are not refunded any more, so that their sum never falls.
    #[inline]
    pub(super) fn hits(&self, hits: Hits) {
        let thousandths = hits.thousandths().max(0) as u64;
        // A request that was refused, or only asked, has none.
        if thousandths != 0 {
            self.hits.fetch_add(thousandths, Relaxed);
        }
    }

    /// Adds hits that the store will not get.
    pub(crate) fn dropped(&self, thousandths: i64) {
        self.dropped.fetch_add(thousandths.max(0) as u64, Relaxed);
    }

    /// Counts a key that got a place.
    #[inline]
    pub(crate) fn inserted(&self) {
        self.inserted.fetch_add(1, Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let NamespaceLine { outcomes, hits, inserted, removed, dropped } = self;
        clear(outcomes.iter().chain([hits, inserted, removed, dropped]));
    }

    pub(crate) fn removed(&self) {
        self.removed.fetch_add(1, Relaxed);
    }

    /// Sums the counts of all workers, single and shared.
    pub(super) fn sum(lines: &[NamespaceLine], shared: &SharedLine) -> NamespaceStats {
        let total = |of: fn(&NamespaceLine) -> &EventCounter| total(lines, of);
        NamespaceStats {
            passed: total(|line| &line.outcomes[0]),
            rejected: total(|line| &line.outcomes[1]),
            rejected_dry_run: total(|line| &line.outcomes[2]),
            fallbacks: loaded(&shared.fallbacks),
            invalid: loaded(&shared.invalid),
            rejected_unnamed: shared.rejected.load(Relaxed),
            delayed: shared.delayed.load(Relaxed),
            excess: shared.excess.load(Relaxed),
            waits: loaded(&shared.waits),
            wait_sum: shared.wait_sum.load(Relaxed),
            hits: total(|line| &line.hits),
            dropped: total(|line| &line.dropped),
            keys: NamespaceLine::keys(lines),
        }
    }

    /// Returns the number of keys with a place.
    pub(super) fn keys(lines: &[NamespaceLine]) -> u64 {
        // Removals first: a key that is inserted meanwhile is counted, never a negative.
        let removed = total(lines, |line| &line.removed);
        total(lines, |line| &line.inserted).saturating_sub(removed)
    }
}

impl SharedLine {
    pub(super) fn fell_back(&self, on_error: OnError) {
        let [local, allow, deny] = &self.fallbacks;
        let counter = match on_error {
            OnError::Local => local,
            OnError::Allow => allow,
            OnError::Deny => deny,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn invalid(&self, what: Invalid) {
        if let Some(counter) = self.invalid.get(what as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    pub(super) fn delayed(&self) {
        self.delayed.fetch_add(1, Relaxed);
    }

    pub(super) fn exceeded(&self, hits: Hits) {
        let thousandths = hits.thousandths().max(0) as u64;
        self.excess.fetch_add(thousandths, Relaxed);
    }

    /// Counts a request that waited for so many microseconds.
    pub(super) fn waited(&self, micros: u64) {
        self.wait_sum.fetch_add(micros, Relaxed);
        count_by(&NamespaceStats::WAIT_BOUNDS, &self.waits, micros);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let SharedLine { fallbacks, invalid, rejected, delayed, excess, waits, wait_sum } = self;
        let all = fallbacks.iter().chain(invalid).chain(waits);
        clear(all.chain([rejected, delayed, excess, wait_sum]));
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

    /// Counts a callback that held the worker's event loop for so many nanoseconds.
    pub(super) fn held(&self, nanos: u64) {
        self.hold_sum.fetch_add(nanos, Relaxed);
        count_by(&ZoneStats::HOLD_BOUNDS, &self.holds, nanos);
    }

    pub(super) fn sum(lines: &[ZoneLine]) -> ZoneStats {
        let total = |of: fn(&ZoneLine) -> &EventCounter| total(lines, of);
        ZoneStats {
            evicted_ended: total(|line| &line.evicted[0]),
            evicted_sent: total(|line| &line.evicted[1]),
            evicted_unsent: total(|line| &line.evicted[2]),
            holds: core::array::from_fn(|index| {
                let counts = lines.iter().filter_map(|line| line.holds.get(index));
                counts.fold(0, |sum: u64, count| sum.wrapping_add(count.load(Relaxed)))
            }),
            hold_sum: total(|line| &line.hold_sum),
        }
    }
}

/// Adds one to the count of the first bound that `value` keeps, or else to the last count.
pub(super) fn count_by(bounds: &[u64], counts: &[EventCounter], value: u64) {
    let exceeded = bounds.iter().take_while(|bound| value > **bound);
    if let Some(count) = counts.get(exceeded.count()) {
        count.fetch_add(1, Relaxed);
    }
}

/// Sets counters to zero.
pub(super) fn clear<'l>(counters: impl Iterator<Item = &'l EventCounter>) {
    counters.for_each(|counter| counter.store(0, Relaxed));
}

/// The values of counters.
pub(super) fn loaded<const N: usize>(counts: &[EventCounter; N]) -> [u64; N] {
    counts.each_ref().map(|count| count.load(Relaxed))
}

/// The sum of one counter of all workers.
fn total<L>(lines: &[L], of: fn(&L) -> &EventCounter) -> u64 {
    let counts = lines.iter().map(|line| of(line).load(Relaxed));
    counts.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rare_is_counted_for_all_workers() {
        let line = SharedLine::default();
        line.fell_back(OnError::Deny);
        line.invalid(Invalid::Key);
        line.rejected();
        for micros in [500, 501, 10_000_001] {
            line.waited(micros);
        }
        let stats = NamespaceLine::sum(&[], &line);
        assert_eq!((stats.fallbacks, stats.error()), ([0, 0, 1], 1));
        assert_eq!((stats.invalid, stats.rejected_unnamed), ([0, 0, 0, 1], 1));
        assert_eq!(stats.waits, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.wait_sum, 10_001_002);
        let lines = [ZoneLine::default(), ZoneLine::default()];
        for (line, nanos) in lines.iter().zip([1000, 10_000_001]) {
            line.held(nanos);
        }
        let stats = ZoneLine::sum(&lines);
        assert_eq!(stats.holds, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.hold_sum, 10_001_001);
    }
}
