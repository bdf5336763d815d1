//! The fixed window: only the hits of the current window count. Windows of the calendar are always fixed. A file of its
//! own, as each algorithm.

use super::method::{Method, has_room};
use super::windows::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

pub(super) struct Fixed;

impl Method for Fixed {
    type Stored = WindowCounts;

    /// Returns `current`.
    fn rate(_: WindowSize, counts: &WindowCounts) -> Hits {
        counts.current
    }

    #[inline]
    fn admits(_: WindowSize, counts: &WindowCounts, limit: Hits, cost: Hits) -> bool {
        has_room(counts.current, limit, cost)
    }

    fn start(size: WindowSize, counts: &WindowCounts) -> UnixMillis {
        counts.start(size)
    }

    fn reset(size: WindowSize, counts: &WindowCounts) -> u64 {
        counts.left_of_any(size)
    }

    /// Returns 0 if there is room, else the milliseconds to the window's end.
    fn retry_after(
        size: WindowSize,
        counts: &WindowCounts,
        limit: Hits,
        cost: Hits,
    ) -> Option<u64> {
        if has_room(counts.current, limit, cost) {
            return Some(0);
        }
        has_room(Hits::ZERO, limit, cost).then(|| counts.left_of_any(size))
    }

    /// Returns the size; `None` for a window of the calendar, whose length varies.
    fn window(size: WindowSize, _: &WindowCounts, _limit: Hits) -> Option<u64> {
        (!size.is_of_calendar()).then(|| size.millis())
    }
}
