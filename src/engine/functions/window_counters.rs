//! Counters of a namespace in windows of one size, for repeated use.

use super::arguments::{self, ArgumentError};
use super::limiter::AskedHits;
use crate::engine::namespace::Namespace;
use crate::policy::algorithm::{Algorithm, Weight, WindowCounts};
use crate::policy::hits::Hits;
use crate::policy::key::{counted_name, is_plain};
use crate::policy::window::{Clock, WindowSize};
use crate::table::{Admission, Counter, CounterTable, Key};

/// Counters of a namespace in windows of one size. Saves the lookups that
/// [`RateLimiting`](crate::engine::RateLimiting) makes in each call.
///
/// Keys must be valid for [`arguments::key`](super::arguments::key).
#[derive(Debug)]
pub struct WindowCounters<'m> {
    table: &'m CounterTable<'m>,
    counter: Counter,
}

/// The checked arguments of `increment`.
#[derive(Clone, Copy, Debug)]
pub struct Increment<'k> {
    /// The size of the windows.
    pub size: WindowSize,
    /// The hits, which are counted whatever the rate.
    pub asked: AskedHits<'k>,
}

impl<'k> Increment<'k> {
    /// Checks the arguments of `increment`.
    ///
    /// # Errors
    ///
    /// An argument is invalid.
    #[inline]
    pub fn new(
        key: &'k [u8],
        window_size: f64,
        value: f64,
        weight: Option<f64>,
    ) -> Result<Self, ArgumentError> {
        let key = arguments::key(key)?;
        let size = arguments::window_size("window_size", window_size)?;
        let cost = arguments::hits("value", value)?;
        let weight = arguments::weight(weight)?;
        Ok(Increment { size, asked: AskedHits { key, cost, commit: true, weight } })
    }
}

impl<'m> WindowCounters<'m> {
    /// Returns the counters of `namespace` in windows of `size`.
    pub fn new(namespace: &Namespace<'m>, size: WindowSize) -> Self {
        namespace.record_counted(Algorithm::Sliding, size, Hits::ZERO);
        WindowCounters { table: namespace.table(), counter: namespace.counter(size) }
    }

    /// Returns the size of the windows.
    #[inline]
    pub fn size(&self) -> WindowSize {
        self.counter.size()
    }

    /// Counts `value` hits of `key`, whatever the rate. Returns the new rate.
    #[inline]
    pub fn increment(&self, key: &[u8], value: Hits, weight: Weight, clock: &impl Clock) -> Hits {
        match is_plain(key) {
            true => self.add(self.table.key(key), value, weight, clock),
            false => self.add_named(key, value, weight, clock),
        }
    }

    #[cold]
    fn add_named(&self, key: &[u8], value: Hits, weight: Weight, clock: &impl Clock) -> Hits {
        let name = counted_name(key, None);
        self.add(self.table.key(&name), value, weight, clock)
    }

    #[inline]
    fn add(&self, key: Key<'_>, value: Hits, weight: Weight, clock: &impl Clock) -> Hits {
        let WindowCounters { table, counter } = self;
        let reading = match value > Hits::ZERO {
            true => {
                let counted = table.add(counter, key, clock, value, Admission::Unconditional);
                table.count_hits(counter, value);
                counted.reading
            }
            false => table.read(counter, key, clock),
        };
        weight.rate(counter.size(), &reading.windows())
    }

    /// Returns the current rate of `key`; zero for a new key. `cur_diff`, if given, replaces this
    /// node's hits that the store has not.
    #[inline]
    pub fn sliding_window(
        &self,
        key: &[u8],
        cur_diff: Option<Hits>,
        weight: Weight,
        clock: &impl Clock,
    ) -> Hits {
        let WindowCounters { table, counter } = self;
        let name = counted_name(key, None);
        let key = table.key(&name);
        let mut reading = table.read(counter, key, clock);
        if let Some(diff) = cur_diff {
            let counts = reading.windows();
            let unsent = table.unsent(counter, key, counts.window, clock);
            let current = counts.current.minus(unsent).plus_at_least_zero(diff);
            reading = WindowCounts { current, ..counts }.into();
        }
        weight.rate(counter.size(), &reading.windows())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::testing::table::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    #[test]
    fn counts_as_the_library_does() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let windows = WindowCounters::new(&namespace, size);
        let clock = TestClock::at(28_000_000 * MINUTE);
        let long = [b'x'; 201];
        for key in [&b"1.2.3.4"[..], &long, b"sha256:x"] {
            clock.set(28_000_000 * MINUTE);
            let increment = |value, weight| windows.increment(key, hits(value), weight, &clock);
            assert_eq!(increment(40, Weight::Sliding), hits(40));
            clock.set(28_000_001 * MINUTE + MINUTE / 2);
            assert_eq!(increment(10, Weight::Sliding), hits(30));
            assert_eq!(increment(0, Weight::FIXED), hits(10));
            assert_eq!(increment(0, Weight::Share(1.0)), hits(50));
            let rate = |diff| windows.sliding_window(key, diff, Weight::Sliding, &clock);
            assert_eq!(rate(None), hits(30));
            // No hits were pushed.
            assert_eq!(rate(Some(hits(2))), hits(22));
            assert_eq!(rate(Some(Hits::ZERO.minus(hits(2)))), hits(20));
        }
        let unseen = windows.sliding_window(b"unseen", Some(hits(3)), Weight::FIXED, &clock);
        assert_eq!(unseen, hits(3));
    }
}
