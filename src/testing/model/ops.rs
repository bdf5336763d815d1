//! Operations on a table, and a clock that jumps.

use std::cell::Cell as StdCell;

use super::{DAY, PERIOD, T};
use crate::policy::algorithm::Algorithm;
use crate::policy::window::{Clock, UnixMillis};

/// A worker's clock: the time that it remembers, and the real one.
pub(crate) struct SteppedClock {
    pub(crate) seen: StdCell<u64>,
    pub(crate) real: StdCell<u64>,
    pub(crate) looks: StdCell<u32>,
}

impl SteppedClock {
    pub(crate) fn at(millis: u64) -> SteppedClock {
        SteppedClock {
            seen: StdCell::new(millis),
            real: StdCell::new(millis),
            looks: StdCell::new(0),
        }
    }

    pub(crate) fn set(&self, millis: u64) {
        self.seen.set(millis);
        self.real.set(millis);
        self.looks.set(0);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.seen.get())
    }

    fn fresh(&self) -> UnixMillis {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        assert!(looks < 10_000, "an operation does not end while time stands still");
        self.seen.set(self.real.get());
        self.now()
    }
}

/// An operation on the table, or on the time. Indexes count modulo the number of elements.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Adds the same to `count` keys, starting with `from`.
    Add {
        counter: (usize, usize),
        from: u32,
        count: u32,
        cost: i64,
        within: Option<(i64, Algorithm)>,
    },
    /// Adds to the key of the last addition.
    Again {
        cost: i64,
    },
    Read {
        counter: (usize, usize),
        key: u32,
    },
    /// Refunds one of the receipts.
    GiveBack(usize),
    Forward(Step),
    Back(Step),
    /// The worker does not read the clock for this time.
    Stall(Step),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Millis(u64),
    /// To the end of the window, or this number of milliseconds past it (before it, if negative).
    ToEnd(usize, i64),
    Windows(usize, u64),
    /// By this number of windows, and then to this number of milliseconds before the end of that
    /// window.
    Deferred(usize, u64, u64),
    /// Until the stamps recur, or this number of windows longer.
    Period(usize, i64),
}

impl Step {
    pub(crate) fn after(self, now: u64, sizes: &[u64]) -> u64 {
        let size = |index: usize| sizes[index % sizes.len()];
        match self {
            Step::Millis(millis) => now + millis,
            Step::ToEnd(index, offset) => {
                let end = (now / size(index) + 1) * size(index);
                end.saturating_add_signed(offset).max(now)
            }
            Step::Deferred(index, count, left) => {
                let end = (now / size(index) + 1 + count) * size(index);
                (end - left.min(size(index))).max(now)
            }
            Step::Windows(index, count) => now + size(index).min(DAY) * count,
            Step::Period(index, windows) => {
                now + size(index).min(60_000) * PERIOD.saturating_add_signed(windows)
            }
        }
    }

    /// Returns the time before the step.
    pub(crate) fn before(self, now: u64, sizes: &[u64]) -> u64 {
        let way = match self {
            Step::ToEnd(index, offset) => {
                let size = sizes[index % sizes.len()];
                (now % size).saturating_add_signed(-offset)
            }
            Step::Deferred(index, count, left) => {
                let size = sizes[index % sizes.len()];
                now % size + (count - 1) * size + left.min(size)
            }
            step => step.after(now, sizes) - now,
        };
        now.saturating_sub(way).max(T / 2)
    }
}
