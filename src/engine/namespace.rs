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

/// A namespace in its zone, with the settings for counting.
#[derive(Debug)]
pub struct Namespace<'m> {
    name: Arc<str>,
    table: &'m CounterTable<'m>,
    index: NamespaceIndex,
    /// The state of its syncs, one for each shard; empty if it is local.
    syncs: Vec<SyncState<'m>>,
    /// The share of a limit that it may keep from the store.
    early: EarlyShare,
    /// Whether nodes admit only their shares while the store is down.
    shares_alone: bool,
    /// The windows in which nodes tell each other how many requests are under way.
    told: Option<WindowSize>,
}

impl<'m> Namespace<'m> {
    /// Finds or creates the namespace `name` in `table`.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManyNamespaces`] if the zone has no room for another one.
    pub fn new(name: &str, table: &'m CounterTable<'m>) -> Result<Self, RateLimitingError> {
        let index = table.namespace(name.as_bytes()).ok_or(RateLimitingError::TooManyNamespaces)?;
        Ok(Namespace::of(name, table, index, Vec::new()))
    }

    /// Defines the namespace `name` in a worker while its configuration is served, with this number
    /// of shards (0 for a local one). Only one process at a time may call this.
    ///
    /// # Errors
    ///
    /// Another worker has defined it differently, or the zone has no room for it.
    pub fn define(
        name: &str,
        table: &'m CounterTable<'m>,
        definition: LateDefinition,
        shards: u16,
    ) -> Result<Self, LateError> {
        let (index, syncs) = table.define(name.as_bytes(), definition, shards)?;
        Ok(Namespace::of(name, table, index, syncs))
    }

    fn of(
        name: &str,
        table: &'m CounterTable<'m>,
        index: NamespaceIndex,
        syncs: Vec<SyncState<'m>>,
    ) -> Self {
        Namespace {
            name: name.into(),
            table,
            index,
            syncs,
            early: EarlyShare::OFF,
            shares_alone: false,
            told: None,
        }
    }

    /// Sets the share of a limit that is kept from the store until the next sync.
    pub fn pushed_early(self, early: EarlyShare) -> Self {
        Namespace { early, ..self }
    }

    /// Sets `on_loss share`: whether nodes admit only their shares of each limit while the store is
    /// down.
    pub fn sharing_alone(self, shares_alone: bool) -> Self {
        Namespace { shares_alone, ..self }
    }

    /// Sets the windows in which nodes tell each other how many requests are under way.
    pub fn telling(self, told: Option<WindowSize>) -> Self {
        Namespace { told, ..self }
    }

    /// Returns the counters in which nodes tell each other how many requests are under way; `None` if they do not.
    pub fn told_counter(&self) -> Option<Counter> {
        let told = self.told.filter(|_| !self.syncs.is_empty());
        told.map(|size| self.counter(size))
    }

    /// Returns whether nodes admit only their shares while the store is down.
    pub fn shares_alone(&self) -> bool {
        self.shares_alone
    }

    /// Returns the share of a limit that is kept from the store.
    pub fn early_share(&self) -> EarlyShare {
        self.early
    }

    /// Begins the sync under a new configuration, with a store that divides the namespace into
    /// `shards` shards; 0 for a local namespace.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManySynced`] if the zone has no room for the shards.
    pub fn synced(self, shards: u16) -> Result<Self, RateLimitingError> {
        self.with_syncs(shards, CounterTable::sync_states)
    }

    /// Joins the sync with the same store, for another process, without interrupting the others.
    ///
    /// # Errors
    ///
    /// [`RateLimitingError::TooManySynced`] if the zone has no room for the shards.
    pub fn sharing_sync(self, shards: u16) -> Result<Self, RateLimitingError> {
        self.with_syncs(shards, CounterTable::join_sync)
    }

    fn with_syncs(
        self,
        shards: u16,
        states: impl Fn(&'m CounterTable<'m>, NamespaceIndex, u16) -> Option<Vec<SyncState<'m>>>,
    ) -> Result<Self, RateLimitingError> {
        let syncs = match shards {
            0 => Vec::new(),
            _ => states(self.table, self.index, shards)
                .ok_or(RateLimitingError::TooManySynced { shards })?,
        };
        Ok(Namespace { syncs, ..self })
    }

    /// Returns the state of the syncs, one for each shard; empty if the namespace is local.
    pub fn sync_states(&self) -> &[SyncState<'m>] {
        &self.syncs
    }

    /// Returns the state of the first shard's sync, which also has the state of all shards
    /// together.
    pub fn sync_state(&self) -> Option<SyncState<'m>> {
        self.syncs.first().copied()
    }

    /// Returns the name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the table with the namespace's counters.
    pub fn table(&self) -> &'m CounterTable<'m> {
        self.table
    }

    /// Returns the namespace's index in the table's directory.
    pub fn index(&self) -> NamespaceIndex {
        self.index
    }

    /// Records that a caller counts by `algorithm` in windows of this size, or at this `rate`, so
    /// that a reset of a key includes these counters.
    pub fn record_counted(&self, algorithm: Algorithm, size: WindowSize, rate: Hits) {
        match algorithm.is_of_rates() {
            true => self.table.record_counted_rate(self.index, CountedRate { hits: rate, size }),
            false => self.table.record_counted_size(self.index, size),
        }
    }

    /// Returns the namespace's counters in windows of `size`.
    pub fn counter(&self, size: WindowSize) -> Counter {
        self.counter_of(StoredKind::Windows, size)
    }

    /// Returns the namespace's counters of this kind and size; a bucket's kind has its rate.
    pub fn counter_of(&self, kind: StoredKind, size: WindowSize) -> Counter {
        let name = self.name.as_bytes();
        let counter = self.table.counter_of(self.index, name, kind, size);
        let counter = counter.synced(!self.syncs.is_empty());
        counter.pushed_early(self.early)
    }
}

/// The reason why a function of the library failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitingError {
    /// The key is empty.
    NotAccounted,
    /// The zone has no room for another namespace.
    TooManyNamespaces,
    /// The zone has no room for another synced namespace.
    TooManySynced {
        /// Number of its shards.
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
