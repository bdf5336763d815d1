//! The naive model: the hits of each key by window.

use std::collections::BTreeMap;

use super::{MEMORY, PERIOD};
use crate::policy::algorithm::{Algorithm, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowPosition, WindowSize};

/// Returns whether a limit admits `cost`, by its definition, in numbers that cannot overflow.
pub(crate) fn is_within(
    size: WindowSize,
    counts: &WindowCounts,
    limit: Hits,
    algorithm: Algorithm,
    cost: i64,
) -> bool {
    let size = i128::from(size.millis());
    let thousandths = |hits: Hits| i128::from(hits.thousandths());
    let weighed = match algorithm {
        Algorithm::Sliding => thousandths(counts.previous) * (size - i128::from(counts.elapsed)),
        Algorithm::Fixed => 0,
        Algorithm::Elastic
        | Algorithm::Bucket
        | Algorithm::Moving
        | Algorithm::Concurrency
        | Algorithm::Ban => {
            unreachable!("its counters are no windows")
        }
    };
    let rate = (thousandths(counts.current) + i128::from(cost)) * size + weighed;
    let limit = thousandths(limit) * size;
    rate < limit || cost > 0 && rate == limit
}

/// The model's count of a key in a window.
#[derive(Clone, Copy)]
pub(crate) struct Total {
    pub(crate) thousandths: i64,
    /// Distinguishes it from an earlier total of the same window, which was dropped.
    pub(crate) birth: usize,
    /// Hits beyond the largest number were dropped, so the result of a refund is unspecified.
    pub(crate) is_saturated: bool,
    /// It had ended, or was in the future after the clock was set back, when the counter was used
    /// again. If its time comes again, it may have been dropped or not.
    pub(crate) is_open: bool,
    /// Its last hit came before its time, by a clock set back. It may be dropped slightly before
    /// the end of the next window.
    pub(crate) is_early: bool,
}

/// The model's history of a key.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) totals: BTreeMap<u64, Total>,
    /// Number of insertions of the key.
    pub(crate) occupancy: u32,
}

impl History {
    /// Returns the possible hits of a window.
    fn hits(&self, number: u64, as_previous: bool) -> Vec<i64> {
        match self.totals.get(&number) {
            None => vec![0],
            Some(total) if total.is_open || as_previous && total.is_early => {
                vec![total.thousandths, 0]
            }
            Some(total) => vec![total.thousandths],
        }
    }

    /// Returns the possible counts: one, unless something is unspecified. In the last tenth, or
    /// second, of a window, the next window counts if it already has hits.
    pub(crate) fn counts(&self, size: WindowSize, now: u64) -> Vec<WindowCounts> {
        let WindowPosition { number, elapsed } = size.at(UnixMillis(now));
        let is_ending = size.millis() - elapsed <= (size.millis() / 10).min(1000);
        let positions = self
            .hits(number + 1, false)
            .into_iter()
            .map(|next| if next != 0 && is_ending { (number + 1, 0) } else { (number, elapsed) });
        let mut all = Vec::new();
        for (window, elapsed) in positions {
            for current in self.hits(window, false) {
                for previous in self.hits(window - 1, true) {
                    all.push(WindowCounts {
                        window,
                        current: Hits::from_thousandths(current),
                        previous: Hits::from_thousandths(previous),
                        elapsed,
                    });
                }
            }
        }
        all
    }

    /// Returns the possible counts before hits are added. A worker with an old time may add to that
    /// time's window, unless it would discard or ignore hits of another one.
    pub(crate) fn counts_to_add_to(
        &self,
        size: WindowSize,
        seen: u64,
        real: u64,
    ) -> Vec<WindowCounts> {
        let mut all = self.counts(size, real);
        if seen == real {
            return all;
        }
        let real = size.at(UnixMillis(real)).number;
        let is_certain = |number: u64| !self.hits(number, false).contains(&0);
        all.extend(self.counts(size, seen).into_iter().filter(|counts| {
            let mut numbers = self.totals.keys().copied();
            let wipes_out = counts.window != real
                && numbers.any(|other| {
                    other > counts.window && other % 2 == counts.window % 2 && is_certain(other)
                });
            !wipes_out && !is_certain(counts.window + 1)
        }));
        all
    }

    /// Returns whether a window far from `now` has the same stamp as one near it, and the time of
    /// the last use does not distinguish them: after a jump back, or by more than a year, of a
    /// multiple of 2^17 windows. The result of counting is then unspecified.
    pub(crate) fn is_ambiguous(&self, size: WindowSize, now: u64) -> bool {
        let number = size.at(UnixMillis(now)).number;
        self.totals.keys().any(|&other| {
            let is_near = other.abs_diff(number) <= 2;
            let is_alike = (other + 2).wrapping_sub(number) % PERIOD <= 4;
            let is_recent = other < number && now - other * size.millis() < MEMORY;
            is_alike && !is_near && !is_recent
        })
    }

    /// Records that the counter was used in `window`. The window after that is dropped.
    pub(crate) fn use_in(&mut self, window: u64, size: WindowSize, real: u64) {
        let real = size.at(UnixMillis(real)).number;
        self.totals.retain(|&number, total| number != window + 1 || total.thousandths == 0);
        for (&number, total) in &mut self.totals {
            total.is_open |= number > window && number > real || number + 1 < window;
        }
    }
}
