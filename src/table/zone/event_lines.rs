//! Counts events of namespaces and zones. A worker counts frequent ones in cache lines of its own,
//! so that workers never wait for each other.

use super::events::{NamespaceLine, NamespaceStats, SharedLine, ZoneLine, ZoneStats};
use crate::policy::hits::Hits;
use crate::policy::namespace::OnError;
use crate::table::words::atomic::EventCounter;
use crate::table::words::atomic::Ordering::Relaxed;

/// An outcome of a request (or another caller) of a namespace: its index in [`NamespaceStats::outcomes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Passed,
    /// Rejected.
    Rejected,
    /// Admitted only because of the dry run.
    RejectedDryRun,
    /// Decided by `on_error`, which is counted as a fallback.
    Error,
}

/// A value that is invalid at run time: its index in [`NamespaceStats::invalid`].
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

/// A loss caused by the eviction of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evicted {
    /// Nothing: its windows had ended.
    Ended,
    /// Hits of live windows that were all sent to the store, or belong to no store.
    Sent,
    /// Hits of live windows that the store lacks.
    Unsent,
}

impl NamespaceLine {
    #[inline]
    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            add(counter, 1);
        }
    }

    /// Counts hits that will not be refunded.
    #[inline]
    pub(super) fn hits(&self, hits: Hits) {
        let thousandths = thousandths(hits);
        // A refused request, or one that only asks, has no hits.
        if thousandths != 0 {
            add(&self.hits, thousandths);
        }
    }

    /// Counts hits that the store will not get.
    pub(crate) fn dropped(&self, hits: Hits) {
        add(&self.dropped, thousandths(hits));
    }

    /// Counts a key that got a slot.
    #[inline]
    pub(crate) fn inserted(&self) {
        add(&self.inserted, 1);
    }

    /// Counts a key that lost its slot.
    pub(crate) fn removed(&self) {
        add(&self.removed, 1);
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
        add(counter, 1);
    }

    pub(super) fn invalid(&self, what: Invalid) {
        if let Some(counter) = self.invalid.get(what as usize) {
            add(counter, 1);
        }
    }

    pub(super) fn exceeded(&self, hits: Hits) {
        add(&self.excess, thousandths(hits));
    }

    /// Counts a wait of `micros` microseconds.
    pub(super) fn waited(&self, micros: u64) {
        add(&self.wait_sum, micros);
        count_by(&NamespaceStats::WAIT_BOUNDS, &self.waits, micros);
    }
}

impl ZoneLine {
    pub(super) fn evicted(&self, what: Evicted) {
        let counter = match what {
            Evicted::Ended => &self.evicted_ended,
            Evicted::Sent => &self.evicted_sent,
            Evicted::Unsent => &self.evicted_unsent,
        };
        add(counter, 1);
    }

    /// Counts a callback that blocked the worker's event loop for `nanos` nanoseconds.
    pub(super) fn held(&self, nanos: u64) {
        add(&self.hold_sum, nanos);
        count_by(&ZoneStats::HOLD_BOUNDS, &self.holds, nanos);
    }
}

fn thousandths(hits: Hits) -> u64 {
    hits.thousandths().max(0) as u64
}

#[inline]
pub(super) fn add(counter: &EventCounter, count: u64) {
    counter.fetch_add(count, Relaxed);
}

/// Increments the counter of the first bound that is not below `value`, or else the last counter.
pub(super) fn count_by(bounds: &[u64], counts: &[EventCounter], value: u64) {
    let exceeded = bounds.iter().take_while(|bound| value > **bound);
    if let Some(counter) = counts.get(exceeded.count()) {
        add(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_events_are_counted_for_all_workers() {
        let line = SharedLine::default();
        line.fell_back(OnError::Deny);
        line.invalid(Invalid::Key);
        for micros in [500, 501, 10_000_001] {
            line.waited(micros);
        }
        let stats = SharedLine::read(&[line], NamespaceStats::default());
        assert_eq!((stats.fallbacks, stats.error()), ([0, 0, 1], 1));
        assert_eq!(stats.invalid, [0, 0, 0, 1]);
        assert_eq!(stats.waits, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.wait_sum, 10_001_002);
        let lines = [ZoneLine::default(), ZoneLine::default()];
        for (line, nanos) in lines.iter().zip([1000, 10_000_001]) {
            line.held(nanos);
        }
        let stats = ZoneLine::read(&lines, ZoneStats::default());
        assert_eq!(stats.holds, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(stats.hold_sum, 10_001_001);
    }
}
