//! The functions of the rate-limiting library under their own names: `increment`, `sliding_window`.

use crate::engine::namespace::{Namespace, RateLimitingError};
use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::{counted_name, is_accounted};
use crate::policy::window::{Clock, WindowSize};
use crate::table::{Admission, Counter};

/// The functions of the rate-limiting library for one namespace.
///
/// Optional arguments of the specification are explicit: `algorithm` stands for the weight (sliding
/// for 1 or no weight, fixed for 0).
#[derive(Debug)]
pub struct RateLimiting<'n, 'm> {
    namespace: &'n Namespace<'m>,
    counter: Option<&'n str>,
    rate: Hits,
}

impl<'n, 'm> RateLimiting<'n, 'm> {
    /// Returns the functions for `namespace`.
    pub fn new(namespace: &'n Namespace<'m>) -> Self {
        RateLimiting { namespace, counter: None, rate: Hits::ZERO }
    }

    /// Returns the functions for counters with this name, which rules set by `counter=`; `None` for
    /// the shared ones.
    pub fn in_counter(self, counter: Option<&'n str>) -> Self {
        RateLimiting { counter, ..self }
    }

    /// Returns the functions for buckets that leak `rate` hits per window.
    pub fn at_rate(self, rate: Hits) -> Self {
        RateLimiting { rate, ..self }
    }

    /// Returns the counters of this kind and size.
    fn counter_of(&self, kind: StoredKind, size: WindowSize) -> Counter {
        self.namespace.counter_of(kind.at_rate(self.rate), size)
    }

    /// Counts `value` hits of `key`, whatever the rate. Returns the new rate.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::NotAccounted`] if the key is empty.
    pub fn increment(
        &self,
        key: &[u8],
        window_size: WindowSize,
        value: Hits,
        algorithm: Algorithm,
        clock: &impl Clock,
    ) -> Result<Hits, RateLimitingError> {
        if !is_accounted(key) {
            return Err(RateLimitingError::NotAccounted);
        }
        if value <= Hits::ZERO {
            return self.sliding_window(key, window_size, algorithm, clock);
        }
        let table = self.namespace.table();
        let counter = self.counter_of(algorithm.kind(), window_size);
        let name = counted_name(key, self.counter);
        let key = table.key(&name);
        let counted = table.add(&counter, key, clock, value, Admission::Unconditional);
        table.count_hits(&counter, value);
        Ok(algorithm.rate(window_size, &counted.reading))
    }

    /// Returns the current rate of `key`; zero for a new key.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::NotAccounted`] if the key is empty.
    pub fn sliding_window(
        &self,
        key: &[u8],
        window_size: WindowSize,
        algorithm: Algorithm,
        clock: &impl Clock,
    ) -> Result<Hits, RateLimitingError> {
        let reading = self.reading(key, algorithm.kind(), window_size, clock)?;
        Ok(algorithm.rate(window_size, &reading))
    }

    /// Returns the reading of `key`, for algorithms of this kind.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::NotAccounted`] if the key is empty.
    pub fn reading(
        &self,
        key: &[u8],
        kind: StoredKind,
        window_size: WindowSize,
        clock: &impl Clock,
    ) -> Result<Reading, RateLimitingError> {
        if !is_accounted(key) {
            return Err(RateLimitingError::NotAccounted);
        }
        let table = self.namespace.table();
        let counter = self.counter_of(kind, window_size);
        Ok(table.read(&counter, table.key(&counted_name(key, self.counter)), clock))
    }

    /// Sets the count of `key` to zero, for algorithms of this kind. The next sync does so in the
    /// cluster; hits that other nodes have not pushed stay.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::NotAccounted`] if the key is empty.
    pub fn reset(
        &self,
        key: &[u8],
        kind: StoredKind,
        window_size: WindowSize,
        clock: &impl Clock,
    ) -> Result<(), RateLimitingError> {
        if !is_accounted(key) {
            return Err(RateLimitingError::NotAccounted);
        }
        let table = self.namespace.table();
        let counter = self.counter_of(kind, window_size);
        let name = counted_name(key, self.counter);
        table.reset(&counter, table.key(&name), clock);
        Ok(())
    }

    /// Returns the hits of `key` in window `number` that this node has not pushed.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::NotAccounted`] if the key is empty.
    pub fn unsent(
        &self,
        key: &[u8],
        window_size: WindowSize,
        number: u64,
        clock: &impl Clock,
    ) -> Result<Hits, RateLimitingError> {
        if !is_accounted(key) {
            return Err(RateLimitingError::NotAccounted);
        }
        let table = self.namespace.table();
        let counter = self.namespace.counter(window_size);
        Ok(table.unsent(&counter, table.key(&counted_name(key, self.counter)), number, clock))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::testing::table::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    #[test]
    fn increment_returns_the_sliding_rate() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let library = RateLimiting::new(&namespace);
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let increment = |value, algorithm| {
            library.increment(b"1.2.3.4", size, hits(value), algorithm, &clock).unwrap()
        };

        assert_eq!(increment(40, Algorithm::Sliding), hits(40));
        clock.set(28_000_001 * MINUTE + MINUTE / 2);
        assert_eq!(increment(10, Algorithm::Sliding), hits(30));
        assert_eq!(increment(0, Algorithm::Fixed), hits(10));
        let rate = |key: &[u8]| library.sliding_window(key, size, Algorithm::Sliding, &clock);
        assert_eq!(rate(b"1.2.3.4"), Ok(hits(30)));
        assert_eq!(rate(b"unseen"), Ok(Hits::ZERO));
    }

    #[test]
    fn the_cost_of_a_long_key_is_bounded() {
        const CLIENTS: usize = 10_000;
        let lost_to = |key: &dyn Fn(usize) -> Vec<u8>| {
            let shared = SharedTable::new(4 << 20);
            let namespace = Namespace::new("foo", &shared.table).unwrap();
            let namespace = namespace.synced(1).unwrap();
            let library = RateLimiting::new(&namespace);
            let size = WindowSize::from_millis(MINUTE).unwrap();
            let clock = TestClock::at(28_000_000 * MINUTE);
            let add = |key: &[u8]| {
                let rate = library.increment(key, size, Hits::ONE, Algorithm::Fixed, &clock);
                assert_eq!(rate, Ok(Hits::ONE));
            };
            let client = |n: usize| format!("client {n}").into_bytes();
            (0..CLIENTS).for_each(|n| add(&client(n)));
            (0..900).for_each(|n| add(&key(n)));
            let reading =
                |n| library.reading(&client(n), StoredKind::Windows, size, &clock).unwrap();
            (0..CLIENTS).filter(|n| reading(*n).windows().current == Hits::ZERO).count()
        };
        assert_eq!(lost_to(&|n| format!("{n}").into()), 0);
        assert_eq!(lost_to(&|n| format!("{n:07900}").into()), 0);
    }

    #[test]
    fn a_digest_is_no_way_to_another_keys_counts() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let library = RateLimiting::new(&namespace);
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let increment =
            |key: &[u8]| library.increment(key, size, Hits::ONE, Algorithm::Fixed, &clock);
        let long = [b'x'; 201];
        assert_eq!(increment(&long), Ok(Hits::ONE));
        assert_eq!(increment(&long), Ok(hits(2)));
        let name = counted_name(&long, None);
        assert_eq!(increment(&name), Ok(Hits::ONE));
        let reading = |key: &[u8]| {
            library.reading(key, StoredKind::Windows, size, &clock).unwrap().windows().current
        };
        assert_eq!((reading(&long), reading(&name)), (hits(2), Hits::ONE));
    }

    #[test]
    fn a_key_that_cannot_be_accounted_is_an_error() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let library = RateLimiting::new(&namespace);
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(0);
        let increment =
            |key: &[u8]| library.increment(key, size, Hits::ONE, Algorithm::Fixed, &clock);
        assert_eq!(increment(b""), Err(RateLimitingError::NotAccounted));
        assert_eq!(increment(&[0; 65_536]), Ok(Hits::ONE));
    }
}
