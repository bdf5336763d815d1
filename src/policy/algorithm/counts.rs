//! What is stored of a key that sliding and fixed windows read: the hits of two adjacent windows.
//!
//! Who only carries it changes it by what is here, and does not know that there are two windows.

use core::time::Duration;

use super::super::hits::Hits;
use super::super::window::{Position, WindowSize};

/// What has been counted of a key, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of the window that the moment is in: [`Position::number`].
    pub window: u64,
    /// Hits of the window that the moment is in.
    pub current: Hits,
    /// Hits of the window before it.
    pub previous: Hits,
    /// Milliseconds since the window's start; less than its size.
    pub elapsed: u64,
}

impl Counts {
    /// These hits of the window that `at` is in, and of the one before.
    #[inline]
    pub fn of(at: Position, current: Hits, previous: Hits) -> Counts {
        Counts {
            window: at.number,
            current,
            previous,
            elapsed: at.elapsed,
        }
    }

    /// The same after a charge of `hits`, which are not below zero.
    #[inline]
    pub fn plus(self, hits: Hits) -> Counts {
        let current = self.current.plus_value(hits);
        Counts { current, ..self }
    }

    /// The same without a charge of `hits`; at least nothing.
    #[inline]
    pub fn minus(self, hits: Hits) -> Counts {
        let current = self.current.minus(hits).max(Hits::ZERO);
        Counts { current, ..self }
    }

    /// What is counted when some time has `passed` without a hit; `None` if that is so much that
    /// nothing is left of what was counted in this window.
    pub fn later(self, size: WindowSize, passed: Duration) -> Option<Counts> {
        let passed = u64::try_from(passed.as_millis()).ok()?;
        let elapsed = self.elapsed.saturating_add(passed);
        if elapsed < size.millis() {
            return Some(Counts { elapsed, ..self });
        }
        let elapsed = elapsed.saturating_sub(size.millis());
        (elapsed < size.millis()).then_some(Counts {
            window: self.window.saturating_add(1),
            current: Hits::ZERO,
            previous: self.current,
            elapsed,
        })
    }

    /// As words of a message between processes of one build.
    pub fn to_words(self) -> [u64; 4] {
        [
            self.window,
            self.current.thousandths().cast_unsigned(),
            self.previous.thousandths().cast_unsigned(),
            self.elapsed,
        ]
    }

    /// What [`Counts::to_words`] made these of.
    pub fn from_words([window, current, previous, elapsed]: [u64; 4]) -> Counts {
        Counts {
            window,
            current: Hits::from_thousandths(current.cast_signed()),
            previous: Hits::from_thousandths(previous.cast_signed()),
            elapsed,
        }
    }

    /// Milliseconds until the window's end.
    #[inline]
    pub(super) fn left(&self, size: WindowSize) -> u64 {
        size.millis().saturating_sub(self.elapsed)
    }
}
