//! Counts of sliding and fixed windows: the hits of two adjacent windows.

use super::reading::Reading;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowPosition, WindowSize};

/// The counts of a key in a window and in the one before, at a moment.
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

impl WindowCounts {
    /// Creates the counts of the window of `at` and of the one before.
    #[inline]
    pub fn of(at: WindowPosition, current: Hits, previous: Hits) -> WindowCounts {
        WindowCounts { window: at.number, current, previous, elapsed: at.elapsed }
    }

    /// Returns the counts after so many milliseconds without a hit; `None` if nothing of this
    /// window's count is left.
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

    /// Returns the start of the window.
    pub(super) fn start(&self, size: WindowSize) -> UnixMillis {
        UnixMillis(self.window.saturating_mul(size.millis()))
    }

    /// Returns the moment of the reading.
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
