//! What sliding and fixed windows read: the hits of two adjacent windows.

use super::super::hits::Hits;
use super::super::window::{UnixMillis, WindowPosition, WindowSize};
use super::method::Method as _;
use super::reading::Reading;
use super::sliding::Sliding;

/// What has been counted of a key in a window and in the one before, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// The number of the window that the moment is in: [`WindowPosition::number`].
    pub window: u64,
    /// Hits of the window that the moment is in.
    pub current: Hits,
    /// Hits of the window before it.
    pub previous: Hits,
    /// Milliseconds since the window's start; less than its size.
    pub elapsed: u64,
}

/// The share of the previous window that counts in the rate that a caller is told: the specification's `weight`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    /// The share of it that is less than a window's size ago: the formula of a sliding window.
    #[default]
    Sliding,
    /// This share, from 0 to 1, at any moment of the window.
    Share(f64),
}

impl Weight {
    /// A fixed window: the previous one does not count.
    pub const FIXED: Weight = Weight::Share(0.0);

    /// Returns the rate that `counts` amount to, with a share of the previous window to the nearest thousandth.
    #[inline]
    pub fn rate(self, size: WindowSize, counts: &WindowCounts) -> Hits {
        match self {
            Weight::Sliding => Sliding::rate(size, counts),
            Weight::Share(share) => {
                let previous = counts.previous.thousandths() as f64;
                let weighted = Hits::from_thousandths((previous * share).round() as i64);
                counts.current.plus(weighted)
            }
        }
    }
}

impl WindowCounts {
    /// These hits of the window that `at` is in, and of the one before.
    #[inline]
    pub fn of(at: WindowPosition, current: Hits, previous: Hits) -> WindowCounts {
        WindowCounts {
            window: at.number,
            current,
            previous,
            elapsed: at.elapsed,
        }
    }

    /// What is read when so many milliseconds have `passed` without a hit; `None` if nothing is left
    /// of what was counted in this window.
    pub fn later(self, size: WindowSize, passed: u64) -> Option<WindowCounts> {
        let elapsed = self.elapsed.saturating_add(passed);
        if elapsed < size.millis() {
            return Some(WindowCounts { elapsed, ..self });
        }
        let elapsed = elapsed.saturating_sub(size.millis());
        (elapsed < size.millis()).then_some(WindowCounts {
            window: self.window.saturating_add(1),
            current: Hits::ZERO,
            previous: self.current,
            elapsed,
        })
    }

    /// When the window began.
    pub(super) fn start(&self, size: WindowSize) -> UnixMillis {
        UnixMillis(self.window.saturating_mul(size.millis()))
    }

    /// When this was read.
    pub fn moment(&self, size: WindowSize) -> UnixMillis {
        UnixMillis(self.start(size).0.saturating_add(self.elapsed))
    }

    /// Milliseconds until the window's end.
    #[inline]
    pub(super) fn left(&self, size: WindowSize) -> u64 {
        size.millis().saturating_sub(self.elapsed)
    }
}

impl From<WindowCounts> for Reading {
    #[inline]
    fn from(counts: WindowCounts) -> Reading {
        Reading {
            start: counts.window,
            hits: counts.current,
            previous: counts.previous,
            elapsed: counts.elapsed,
        }
    }
}

impl From<Reading> for WindowCounts {
    #[inline]
    fn from(reading: Reading) -> WindowCounts {
        WindowCounts {
            window: reading.start,
            current: reading.hits,
            previous: reading.previous,
            elapsed: reading.elapsed,
        }
    }
}

impl Reading {
    /// The hits of the windows that it was made of.
    #[inline]
    pub fn windows(self) -> WindowCounts {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::hits::hits;

    #[test]
    fn a_weight_is_the_share_of_the_previous_window_at_any_moment() {
        let size = WindowSize::from_millis(60_000).unwrap();
        for elapsed in [0, 15_000, 59_999] {
            let counts = WindowCounts {
                window: 1,
                current: hits(10),
                previous: hits(20),
                elapsed,
            };
            for (share, thousandths) in [
                (0.0, 10_000),
                (0.1, 12_000),
                (0.25, 15_000),
                (0.5, 20_000),
                (1.0 / 3.0, 16_667),
                (1.0, 30_000),
            ] {
                let rate = Weight::Share(share).rate(size, &counts);
                assert_eq!(rate, Hits::from_thousandths(thousandths), "{share}");
            }
        }
        let middle = WindowCounts {
            window: 1,
            current: hits(10),
            previous: hits(20),
            elapsed: 30_000,
        };
        assert_eq!(Weight::default().rate(size, &middle), hits(20));
        let full = WindowCounts {
            current: Hits::MAX,
            previous: Hits::MAX,
            ..middle
        };
        assert_eq!(Weight::Share(1.0).rate(size, &full), Hits::MAX);
    }
}
