//! The weight of the previous window, which callers of the library may choose.

use super::method::Method as _;
use super::sliding::Sliding;
use super::windows::WindowCounts;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;

/// The share of the previous window that counts in the reported rate: `weight` in the specification.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    /// The share of the previous window that lies less than its size ago, as in a sliding window.
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
            // Windows of the calendar are fixed.
            Weight::Sliding if size.is_of_calendar() => counts.current,
            Weight::Sliding => Sliding::rate(size, counts),
            Weight::Share(share) => {
                let previous = counts.previous.thousandths() as f64;
                let weighted = Hits::from_thousandths((previous * share).round() as i64);
                counts.current.plus(weighted)
            }
        }
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
            let counts = WindowCounts { window: 1, current: hits(10), previous: hits(20), elapsed };
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
        let middle =
            WindowCounts { window: 1, current: hits(10), previous: hits(20), elapsed: 30_000 };
        assert_eq!(Weight::default().rate(size, &middle), hits(20));
        let full = WindowCounts { current: Hits::MAX, previous: Hits::MAX, ..middle };
        assert_eq!(Weight::Share(1.0).rate(size, &full), Hits::MAX);
    }
}
