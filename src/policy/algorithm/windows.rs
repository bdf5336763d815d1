//! Counts of sliding and fixed windows: the hits of two adjacent windows.

use super::method::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowPosition, WindowSize};

/// The counts of a key in the current window and the previous one, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Number of the current window: [`WindowPosition::number`].
    pub window: u64,
    /// Hits of the current window.
    pub current: Hits,
    /// Hits of the previous window.
    pub previous: Hits,
    /// Milliseconds since the window's start; less than its size.
    pub elapsed: u64,
}

impl WindowCounts {
    /// Creates the counts of the window of `at` and of the previous one.
    #[inline]
    pub fn of(at: WindowPosition, current: Hits, previous: Hits) -> WindowCounts {
        WindowCounts { window: at.number, current, previous, elapsed: at.elapsed }
    }

    /// Returns the counts after so many milliseconds without a hit; `None` if the current window's count does not
    /// matter any more by then.
    pub fn later(self, size: WindowSize, passed: u64) -> Option<WindowCounts> {
        let elapsed = self.elapsed.saturating_add(passed);
        let length = size.length_of(self.window);
        if elapsed < length {
            return Some(WindowCounts { elapsed, ..self });
        }
        let elapsed = elapsed.saturating_sub(length);
        let window = self.window.saturating_add(1);
        (elapsed < size.length_of(window)).then_some(WindowCounts {
            window,
            current: Hits::ZERO,
            previous: self.current,
            elapsed,
        })
    }

    /// Returns the start of the current window.
    pub(super) fn start(&self, size: WindowSize) -> UnixMillis {
        size.start_of(self.window)
    }

    /// Returns the moment of the reading.
    pub fn moment(&self, size: WindowSize) -> UnixMillis {
        UnixMillis(self.start(size).0.saturating_add(self.elapsed))
    }

    /// Returns the milliseconds until the current window's end, which is not one of the calendar.
    #[inline]
    pub(super) fn left(&self, size: WindowSize) -> u64 {
        size.millis().saturating_sub(self.elapsed)
    }

    /// Returns the milliseconds until the current window's end, of the calendar or not.
    #[inline]
    pub(super) fn left_of_any(&self, size: WindowSize) -> u64 {
        size.length_of(self.window).saturating_sub(self.elapsed)
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
    /// Converts a reading of windows to their counts.
    #[inline]
    pub fn windows(self) -> WindowCounts {
        self.into()
    }
}
