//! What sliding and fixed windows read: the hits of two adjacent windows.

use core::time::Duration;

use super::super::hits::Hits;
use super::super::window::{WindowPosition, WindowSize};

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

    #[inline]
    pub(super) fn plus(self, hits: Hits) -> WindowCounts {
        let current = self.current.plus_value(hits);
        WindowCounts { current, ..self }
    }

    #[inline]
    pub(super) fn minus(self, hits: Hits) -> WindowCounts {
        let current = self.current.minus(hits).max(Hits::ZERO);
        WindowCounts { current, ..self }
    }

    /// `None` if nothing is left of what was counted in this window.
    pub(super) fn later(self, size: WindowSize, passed: Duration) -> Option<WindowCounts> {
        let passed = u64::try_from(passed.as_millis()).ok()?;
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

    /// Milliseconds until the window's end.
    #[inline]
    pub(super) fn left(&self, size: WindowSize) -> u64 {
        size.millis().saturating_sub(self.elapsed)
    }
}
