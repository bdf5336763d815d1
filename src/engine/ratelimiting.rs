//! The functions of the rate-limiting library, by their names: `increment`, `sliding_window`.

use core::fmt;
use std::sync::Arc;

use crate::policy::algorithm::{Algorithm, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::{counted_name, is_accounted};
use crate::policy::window::{Clock, WindowSize};
use crate::table::{
    Admission, CountedRate, Counter, CounterTable, EarlyShare, LateDefinition, LateError,
    NamespaceIndex, SyncState,
};

/// A namespace in its zone: settings under which hits are counted.
#[derive(Debug)]
pub struct Namespace<'m> {
    name: Arc<str>,
    table: &'m CounterTable<'m>,
    index: NamespaceIndex,
    /// Its syncs with a store, if it has one: one for each shard.
    syncs: Vec<SyncState<'m>>,
    /// When hits are pushed before their time.
    early: EarlyShare,
    /// Whether nodes admit their shares only while the store is away.
    shares_alone: bool,
}

impl<'m> Namespace<'m> {
    /// The namespace `name` with its counters in `table`.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManyNamespaces`] if the zone has no room for another one.
    pub fn new(name: &str, table: &'m CounterTable<'m>) -> Result<Self, RateLimitingError> {
        let index = table
            .namespace(name.as_bytes())
            .ok_or(RateLimitingError::TooManyNamespaces)?;
        Ok(Namespace {
            name: name.into(),
            table,
            index,
            syncs: Vec::new(),
            early: EarlyShare::OFF,
            shares_alone: false,
        })
    }

    /// Defines the namespace `name` in a worker of a configuration that is served, synced in so many shards (0: not
    /// at all). Of several processes, one at a time defines.
    ///
    /// # Errors
    ///
    /// Another worker has defined it otherwise, or the zone has no room for it.
    pub fn define(
        name: &str,
        table: &'m CounterTable<'m>,
        definition: LateDefinition,
        shards: u16,
    ) -> Result<Self, LateError> {
        let (index, syncs) = table.define(name.as_bytes(), definition, shards)?;
        Ok(Namespace {
            name: name.into(),
            table,
            index,
            syncs,
            early: EarlyShare::OFF,
            shares_alone: false,
        })
    }

    /// The same namespace, which keeps at most such a share of a limit from the store until its next sync.
    pub fn pushed_early(self, early: EarlyShare) -> Self {
        Namespace { early, ..self }
    }

    /// The same namespace, in which nodes admit of each limit their shares only while the store is away.
    pub fn sharing_alone(self, shares_alone: bool) -> Self {
        Namespace {
            shares_alone,
            ..self
        }
    }

    /// Whether they do.
    pub fn shares_alone(&self) -> bool {
        self.shares_alone
    }

    /// The share of a limit that it keeps.
    pub fn early_share(&self) -> EarlyShare {
        self.early
    }

    /// The same namespace, under a new configuration: into how many shards the store divides it with
    /// which it is synced; 0: it is not synced.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManySynced`] if the zone has no room for the syncs of so many.
    pub fn synced(mut self, shards: u16) -> Result<Self, RateLimitingError> {
        self.syncs = match shards {
            0 => Vec::new(),
            _ => {
                let states = self.table.sync_states(self.index, shards);
                states.ok_or(RateLimitingError::TooManySynced { shards })?
            }
        };
        Ok(self)
    }

    /// The same namespace, for one more process that syncs it with the same store as others: they go on.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManySynced`] if the zone has no room for the syncs of so many.
    pub fn sharing_sync(mut self, shards: u16) -> Result<Self, RateLimitingError> {
        self.syncs = match shards {
            0 => Vec::new(),
            _ => {
                let states = self.table.join_sync(self.index, shards);
                states.ok_or(RateLimitingError::TooManySynced { shards })?
            }
        };
        Ok(self)
    }

    /// The namespace's syncs with a store, one for each shard; none if it has no store.
    pub fn sync_states(&self) -> &[SyncState<'m>] {
        &self.syncs
    }

    /// The first of them, with which is noted what concerns all.
    pub fn sync_state(&self) -> Option<SyncState<'m>> {
        self.syncs.first().copied()
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The table that holds the namespace's counters.
    pub fn table(&self) -> &'m CounterTable<'m> {
        self.table
    }

    /// The namespace's place in the table's directory.
    pub fn index(&self) -> NamespaceIndex {
        self.index
    }

    /// Notes that a caller counts by `algorithm` in windows of this size, or at a `rate` that is told for it: of a
    /// key that is set to zero, these are set so, too.
    pub fn note_counted(&self, algorithm: Algorithm, size: WindowSize, rate: Hits) {
        match algorithm.is_of_rates() {
            true => self
                .table
                .note_counted_rate(self.index, CountedRate { hits: rate, size }),
            false => self.table.note_counted_size(self.index, size),
        }
    }

    /// The namespace's counters in windows of `size`.
    pub fn counter(&self, size: WindowSize) -> Counter {
        self.counter_of(StoredKind::Windows, size)
    }

    /// The namespace's counters of this kind and size: of a bucket, with its rate.
    pub fn counter_of(&self, kind: StoredKind, size: WindowSize) -> Counter {
        let name = self.name.as_bytes();
        let counter = self.table.counter_of(self.index, name, kind, size);
        let counter = counter.synced(!self.syncs.is_empty());
        counter.pushed_early(self.early)
    }
}

/// The rate-limiting library: its functions on one namespace.
///
/// The specification's optional arguments are explicit here: `algorithm` is its weight (1 or
/// absent: sliding; 0: fixed).
#[derive(Debug)]
pub struct RateLimiting<'n, 'm> {
    namespace: &'n Namespace<'m>,
    counter: Option<&'n str>,
    rate: Hits,
}

impl<'n, 'm> RateLimiting<'n, 'm> {
    /// The functions on `namespace`.
    pub fn new(namespace: &'n Namespace<'m>) -> Self {
        RateLimiting {
            namespace,
            counter: None,
            rate: Hits::ZERO,
        }
    }

    /// The functions on the counters of this name, which `counter=` gives rules; `None`: on those that
    /// are shared.
    pub fn in_counter(self, counter: Option<&'n str>) -> Self {
        RateLimiting { counter, ..self }
    }

    /// The functions on buckets from which so many hits leak in the time of a window.
    pub fn at_rate(self, rate: Hits) -> Self {
        RateLimiting { rate, ..self }
    }

    /// The counters of this kind and size.
    fn counter_of(&self, kind: StoredKind, size: WindowSize) -> Counter {
        self.namespace.counter_of(kind.at_rate(self.rate), size)
    }

    /// Counts `value` hits of `key`, whatever the rate; returns the rate afterwards.
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
        let Namespace { table, .. } = self.namespace;
        let counter = self.counter_of(algorithm.kind(), window_size);
        let name = counted_name(key, self.counter);
        let key = table.key(&name);
        let counted = table.add(&counter, key, clock, value, Admission::Unconditional);
        table.count_hits(&counter, value);
        Ok(algorithm.rate(window_size, &counted.reading))
    }

    /// The rate of `key` now; zero for a key that was never seen.
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

    /// What `key` has counted now, for algorithms of this kind.
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
        let Namespace { table, .. } = self.namespace;
        let counter = self.counter_of(kind, window_size);
        Ok(table.read(&counter, table.key(&counted_name(key, self.counter)), clock))
    }

    /// Sets what is counted of `key` to zero, for algorithms of this kind: here, and with the next sync in the
    /// cluster, but for what other nodes have not pushed.
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
        let Namespace { table, .. } = self.namespace;
        let counter = self.counter_of(kind, window_size);
        let name = counted_name(key, self.counter);
        table.reset(&counter, table.key(&name), clock);
        Ok(())
    }

    /// What of its hits of `key` in window `number` this node has not sent to the store.
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
        let Namespace { table, .. } = self.namespace;
        let counter = self.namespace.counter(window_size);
        Ok(table.unsent(
            &counter,
            table.key(&counted_name(key, self.counter)),
            number,
            clock,
        ))
    }
}

/// Why a function of the library did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitingError {
    /// The key is empty.
    NotAccounted,
    /// The zone has no room for another namespace.
    TooManyNamespaces,
    /// The zone has no room for another namespace that is synced with a store.
    TooManySynced {
        /// Into how many shards that store divides it.
        shards: u16,
    },
}

impl fmt::Display for RateLimitingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateLimitingError::NotAccounted => f.write_str("the key is empty"),
            RateLimitingError::TooManyNamespaces => {
                f.write_str("the zone has no room for another namespace")
            }
            RateLimitingError::TooManySynced { shards } => write!(
                f,
                "the zone has no room for another namespace that is synced in {shards} shards"
            ),
        }
    }
}

impl core::error::Error for RateLimitingError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::hits::hits;
    use crate::table::testing::{SharedTable, TestClock};

    const MINUTE: u64 = 60_000;

    #[test]
    fn increment_returns_the_sliding_rate() {
        let shared = SharedTable::new(1 << 20);
        let namespace = Namespace::new("foo", &shared.table).unwrap();
        let library = RateLimiting::new(&namespace);
        let size = WindowSize::from_millis(MINUTE).unwrap();
        let clock = TestClock::at(28_000_000 * MINUTE);
        let increment = |value, algorithm| {
            library
                .increment(b"1.2.3.4", size, hits(value), algorithm, &clock)
                .unwrap()
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
    fn what_a_long_key_costs_is_bounded() {
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
            let reading = |n| {
                library
                    .reading(&client(n), StoredKind::Windows, size, &clock)
                    .unwrap()
            };
            (0..CLIENTS)
                .filter(|n| reading(*n).windows().current == Hits::ZERO)
                .count()
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
            library
                .reading(key, StoredKind::Windows, size, &clock)
                .unwrap()
                .windows()
                .current
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
