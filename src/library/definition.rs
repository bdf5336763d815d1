//! A namespace and its memory.

use core::num::NonZeroU32;
use std::sync::Arc;

use super::error::NewError;
use crate::engine::functions::arguments::{self, ArgumentError};
use crate::engine::{
    AskedHits, Increment, Limiter, Machine, Namespace, RateLimitingError, WindowCounters,
};
use crate::policy::hits::Hits;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::table::{
    ChannelLease, EarlyShare, ExchangeBudget, InTable, NameKind, TableMemory, WithTable,
};

/// A namespace with its configured window sizes.
#[derive(Debug)]
pub(super) struct DefinedNamespace {
    pub(super) name: Box<str>,
    pub(super) sizes: Vec<WindowSize>,
    pub(super) sync: SyncMode,
    sharing: StoreSharing,
    counters: WithTable<CountersInTable>,
}

/// The settings by which nodes share a namespace; the default is those of a local one.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreSharing {
    /// Number of the store's shards; 0 without a store.
    pub(super) shards: u16,
    /// The share of a limit that may be left unpushed until the next sync.
    pub(super) early: EarlyShare,
    /// The store's servers, and the most exchanges of all nodes with one of them in a second.
    pub(super) exchanges: Option<(Box<str>, NonZeroU32)>,
}

/// The parts of a namespace that borrow its table.
#[derive(Debug)]
pub(super) struct NamespaceCounters<'m> {
    pub(super) namespace: Namespace<'m>,
    /// Lease of the user of the memory that listens to the store's channel; `None` if nothing is
    /// pushed early, or the memory has no room for it, and then none listens.
    pub(super) channel: Option<ChannelLease<'m>>,
    /// Budget of exchanges with the store; `None` without a bound.
    pub(super) budget: Option<ExchangeBudget<'m>>,
    windows: Vec<WindowCounters<'m>>,
    /// Limiters without a limit, by which a deciding store counts `increment`.
    unlimited: Vec<Limiter<'m>>,
}

#[derive(Debug)]
struct CountersInTable;

impl InTable for CountersInTable {
    type Of<'m> = NamespaceCounters<'m>;

    fn shorten<'a, 'm: 'a>(of: &'a Self::Of<'m>) -> &'a Self::Of<'a> {
        of
    }
}

impl DefinedNamespace {
    /// Defines the namespace `name` in `memory`.
    pub(super) fn new(
        name: Box<str>,
        sizes: Vec<WindowSize>,
        sync: SyncMode,
        sharing: StoreSharing,
        memory: &Arc<TableMemory>,
    ) -> Result<DefinedNamespace, NewError> {
        let counters = with_namespace(memory, &name, &sharing, |namespace| {
            let word = |kind, of: &str| namespace.table().join_word(kind, ["library", of]);
            let is_early = sharing.early != EarlyShare::OFF;
            let channel = is_early.then(|| word(NameKind::Channel, &name)).flatten();
            let budget = sharing.exchanges.as_ref().and_then(|(servers, exchanges)| {
                let word = word(NameKind::Budget, servers)?;
                Some(ExchangeBudget::new(word, *exchanges))
            });
            let windows = sizes.iter();
            let windows = windows.map(|size| WindowCounters::new(&namespace, *size));
            let unlimited = sizes.iter().filter(|_| sync == SyncMode::Synchronous);
            let unlimited = unlimited.map(|size| Limiter::unlimited(&namespace, *size));
            NamespaceCounters {
                windows: windows.collect(),
                unlimited: unlimited.collect(),
                channel: channel.map(ChannelLease::join),
                budget,
                namespace,
            }
        });
        Ok(DefinedNamespace { counters: counters?, name, sizes, sync, sharing })
    }

    /// Returns the parts that borrow the table.
    pub(super) fn counters(&self) -> &NamespaceCounters<'_> {
        self.counters.get()
    }

    /// Calls `make` with the namespace, and stores the result together with its memory.
    pub(super) fn keep<F: InTable>(
        &self,
        make: impl for<'m> FnOnce(Namespace<'m>) -> F::Of<'m>,
    ) -> Result<WithTable<F>, NewError> {
        with_namespace(self.counters.memory(), &self.name, &self.sharing, make)
    }

    /// Calls `callback` with the counters of windows of this size.
    #[inline]
    pub(super) fn with_windows<T>(
        &self,
        size: WindowSize,
        callback: impl FnOnce(&WindowCounters<'_>) -> T,
    ) -> Result<T, ArgumentError> {
        let NamespaceCounters { namespace, windows, .. } = self.counters();
        if let Some(windows) = windows.iter().find(|it| it.size() == size) {
            return Ok(callback(windows));
        }
        arguments::counted_size("window_size", size, self.counted())?;
        Ok(callback(&WindowCounters::new(namespace, size)))
    }

    /// Counts in memory. Returns the rate.
    #[inline]
    pub(super) fn increment(&self, increment: &Increment<'_>) -> Result<Hits, ArgumentError> {
        let AskedHits { key, cost, weight, .. } = increment.asked;
        self.with_windows(increment.size, |it| it.increment(key, cost, weight, &Machine))
    }

    /// Returns the limiter without a limit for windows of this size, which a deciding store needs
    /// for `increment`.
    pub(super) fn unlimited(&self, size: WindowSize) -> Result<&Limiter<'_>, ArgumentError> {
        arguments::counted_size("window_size", size, self.counted())?;
        let mut unlimited = self.counters().unlimited.iter();
        let found = unlimited.find(|it| it.bound().limit.size == size);
        // There is one limiter for each size.
        found.ok_or_else(|| ArgumentError::new("window_size", "one of the window_sizes", size))
    }

    /// Returns its name, and the sizes that callers may use; `None` if they may use any.
    pub(super) fn counted(&self) -> (&str, Option<&[WindowSize]>) {
        (&self.name, Some(&*self.sizes).filter(|it| !it.is_empty()))
    }
}

/// Calls `make` with a namespace in its memory. A new namespace gets its place there, under a lock
/// between processes.
fn with_namespace<F: InTable>(
    memory: &Arc<TableMemory>,
    name: &str,
    sharing: &StoreSharing,
    make: impl for<'m> FnOnce(Namespace<'m>) -> F::Of<'m>,
) -> Result<WithTable<F>, NewError> {
    let kept = memory.set_up(|| {
        WithTable::new(memory.clone(), |table| {
            let namespace = Namespace::new(name, table)?.sharing_sync(sharing.shards)?;
            Ok::<_, RateLimitingError>(make(namespace.pushed_early(sharing.early)))
        })
    });
    Ok(kept??)
}
