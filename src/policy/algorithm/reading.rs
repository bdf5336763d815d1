//! What an algorithm reads of a key, and how a charge and time change it.
//!
//! A table or a store makes a reading of what it keeps. All others only pass it on, beside the
//! algorithm that can tell what it means.

use core::time::Duration;

use super::super::hits::Hits;
use super::super::window::WindowSize;
use super::windows::WindowCounts;

/// What is stored of a key, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading(pub(super) WindowCounts);

impl From<WindowCounts> for Reading {
    #[inline]
    fn from(counts: WindowCounts) -> Reading {
        Reading(counts)
    }
}

impl Reading {
    /// The hits of the windows that it was made of: for a table that is to keep them, and for those
    /// who are shown them.
    #[inline]
    pub fn windows(&self) -> WindowCounts {
        self.0
    }

    /// The same after a charge of `hits`, which are not below zero.
    #[inline]
    pub fn plus(self, hits: Hits) -> Reading {
        Reading(self.0.plus(hits))
    }

    /// The same without a charge of `hits`; at least nothing.
    #[inline]
    pub fn minus(self, hits: Hits) -> Reading {
        Reading(self.0.minus(hits))
    }

    /// What is read when some time has `passed` without a hit; `None` if that is so much that
    /// nothing is left of what was counted.
    pub fn later(self, size: WindowSize, passed: Duration) -> Option<Reading> {
        self.0.later(size, passed).map(Reading)
    }

    /// As words of a message between processes of one build.
    pub fn to_words(self) -> [u64; 4] {
        let WindowCounts {
            window,
            current,
            previous,
            elapsed,
        } = self.0;
        let [current, previous] = [current, previous].map(|it| it.thousandths().cast_unsigned());
        [window, current, previous, elapsed]
    }

    /// What [`Reading::to_words`] made these of.
    pub fn from_words([window, current, previous, elapsed]: [u64; 4]) -> Reading {
        let [current, previous] =
            [current, previous].map(|it| Hits::from_thousandths(it.cast_signed()));
        Reading(WindowCounts {
            window,
            current,
            previous,
            elapsed,
        })
    }
}
