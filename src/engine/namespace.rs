//! A namespace in its zone, and its syncs with a store.

use core::fmt;
use std::sync::Arc;

use crate::policy::algorithm::{Algorithm, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::table::{
    CountedRate, Counter, CounterTable, EarlyShare, LateDefinition, LateError, NamespaceIndex,
    SyncState,
};

/// A namespace in its zone: settings under which hits are counted.
#[derive(Debug)]
pub struct Namespace<'m> {
    name: Arc<str>,
    table: &'m CounterTable<'m>,
    index: NamespaceIndex,
    /// Its syncs with a store, if it has one: one for each shard.
    syncs: Vec<SyncState<'m>>,
    /// Share that is kept from the store.
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
        let index = table.namespace(name.as_bytes()).ok_or(RateLimitingError::TooManyNamespaces)?;
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

    /// Returns the namespace with at most such a share of a limit kept from the store until its
    /// next sync.
    pub fn pushed_early(self, early: EarlyShare) -> Self {
        Namespace { early, ..self }
    }

    /// Returns the namespace with or without `on_loss share`: nodes admit of each limit their
    /// shares only while the store is away.
    pub fn sharing_alone(self, shares_alone: bool) -> Self {
        Namespace { shares_alone, ..self }
    }

    /// Whether they do.
    pub fn shares_alone(&self) -> bool {
        self.shares_alone
    }

    /// The share of a limit that it keeps.
    pub fn early_share(&self) -> EarlyShare {
        self.early
    }

    /// Returns the namespace under a new configuration, synced with a store that divides it into so
    /// many shards; 0: it is not synced.
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

    /// Returns the namespace for one more process that syncs it with the same store: the others go
    /// on.
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
    pub fn record_counted(&self, algorithm: Algorithm, size: WindowSize, rate: Hits) {
        match algorithm.is_of_rates() {
            true => self.table.record_counted_rate(self.index, CountedRate { hits: rate, size }),
            false => self.table.record_counted_size(self.index, size),
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

/// The reason why a function of the library did nothing.
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
