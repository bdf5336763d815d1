//! The immutable configuration of `http`, in which zones, stores and namespaces refer to each other by index.

use core::time::Duration;

use super::namespace::NamespaceOptions;
use super::words::message::Origin;
use crate::policy::namespace::{OnError, OnLoss, SyncMode};
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;
use crate::table::{CountedRate, EarlyShare};

/// The configuration of `http`.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The zones, in the order of the configuration.
    pub zones: Vec<ZoneConf>,
    /// The stores, in the order of the configuration.
    pub stores: Vec<StoreConf>,
    /// The namespaces, in the order of their first definition or use.
    pub namespaces: Vec<NamespaceConf>,
    /// Places of the rules, in the order of the configuration.
    pub rules: Vec<Origin>,
    /// Whether any level decides after access control.
    pub has_precontent: bool,
    /// Whether any rule charges hits when the response is known (`charge=`).
    pub has_deferred: bool,
}

/// A `ratelimit_zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneConf {
    /// The zone's unique name.
    pub name: Box<str>,
    /// The size in bytes, as configured.
    pub size: usize,
    /// Place of the definition.
    pub origin: Origin,
}

/// A `ratelimit_store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConf {
    /// The store's unique name.
    pub name: Box<str>,
    /// Place of the definition.
    pub origin: Origin,
    /// The settings of its block.
    pub settings: StoreSettings,
}

/// A namespace that is defined or used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConf {
    /// The namespace's unique name.
    pub name: Box<str>,
    /// Place of the definition, or of the first use if it is not defined.
    pub origin: Origin,
    /// The index of its zone.
    pub zone: usize,
    /// The index of its store, if it names one.
    pub store: Option<usize>,
    /// The options of its block.
    pub options: NamespaceOptions,
    /// The windows in which hits are counted, ascending: those of `window_sizes`, and those of rules.
    pub window_sizes: Vec<WindowSize>,
    /// The windows in which bans are counted, ascending.
    pub ban_sizes: Vec<WindowSize>,
    /// The constant rates of rules; variable ones are not included.
    pub rates: Vec<CountedRate>,
    /// The names of the counters of rules, ascending, without the shared one.
    pub counters: Vec<Box<str>>,
    /// Whether rules limit how many of its requests are under way.
    pub has_holds: bool,
}

impl Configuration {
    /// Whether any rule limits how many requests are under way (`concurrent=`).
    pub fn has_holds(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.has_holds)
    }

    /// Returns the store of a namespace, if it names one.
    pub fn store(&self, namespace: &NamespaceConf) -> Option<&StoreConf> {
        self.stores.get(namespace.store?)
    }

    /// Returns the number of shards of a namespace; 0 if it is not synced.
    pub fn shards(&self, namespace: &NamespaceConf) -> u16 {
        let store = namespace.period().and_then(|_| self.store(namespace));
        store.map_or(0, |store| store.settings.shards())
    }

    /// Returns the namespaces in a zone.
    pub fn namespaces_in(&self, zone: usize) -> impl Iterator<Item = &NamespaceConf> {
        let namespaces = self.namespaces.iter();
        namespaces.filter(move |namespace| namespace.zone == zone)
    }

    /// Returns the namespaces that are synced with a store.
    pub fn synced_with(&self, store: usize) -> impl Iterator<Item = &NamespaceConf> {
        let namespaces = self.namespaces.iter();
        namespaces.filter(move |it| it.period().is_some() && it.store == Some(store))
    }

    /// Returns the synchronous namespaces of a store, with their indexes.
    pub fn decided_by(
        &self,
        store: usize,
    ) -> impl Iterator<Item = (usize, &NamespaceConf)> + Clone {
        let namespaces = self.namespaces.iter().enumerate();
        namespaces.filter(move |(_, it)| it.is_synchronous() && it.store == Some(store))
    }

    /// Returns the stores of synchronous namespaces, each once, with their indexes.
    pub fn deciding_stores(&self) -> impl Iterator<Item = (usize, &StoreConf)> {
        let stores = self.stores.iter().enumerate();
        stores.filter(|(store, _)| self.decided_by(*store).next().is_some())
    }

    /// Numbers the deciders in the order of their stores. A store has one decider for all its namespaces, or one for
    /// each shard of each namespace if it is divided into shards. Returns the first number for each synchronous
    /// namespace, and the number of deciders.
    pub fn number_deciders(&self) -> (Vec<Option<usize>>, usize) {
        let mut numbers = vec![None; self.namespaces.len()];
        let mut next: usize = 0;
        for (number, store) in self.deciding_stores() {
            let mut first = next;
            for (namespace, _) in self.decided_by(number) {
                if let Some(number) = numbers.get_mut(namespace) {
                    *number = Some(first);
                }
                next = first.saturating_add(store.settings.shards().into());
                if store.is_divided() {
                    first = next;
                }
            }
        }
        (numbers, next)
    }

    /// Describes for log messages how requests are decided while a store is down.
    pub fn without(&self, store: usize) -> String {
        let mut parts = Vec::new();
        for NamespaceConf { options, .. } in self.synced_with(store) {
            let part = match (options.sync, options.on_error) {
                (SyncMode::Synchronous, OnError::Local) => {
                    "on_error local: requests are decided by what this node knows"
                }
                (SyncMode::Synchronous, OnError::Allow) => "on_error allow: requests are admitted",
                (SyncMode::Synchronous, OnError::Deny) => "on_error deny: requests are denied",
                (_, _) if options.on_loss == OnLoss::Share => {
                    "on_loss share: each node admits its share of each limit"
                }
                (_, _) => "nodes go on with what they know",
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.join(", ")
    }
}

impl StoreConf {
    /// Returns the addresses of the store's servers, for messages.
    pub fn place(&self) -> String {
        let servers = self.settings.common.servers.iter().map(ToString::to_string);
        servers.collect::<Vec<_>>().join(" ")
    }

    /// Whether the store divides a namespace's keys into several shards, each with its own decisions.
    pub fn is_divided(&self) -> bool {
        self.settings.shards() > 1
    }

    /// Returns the time after which a silent worker that syncs with the store counts as dead.
    pub fn lease_lifetime(&self) -> Duration {
        self.settings.lease_lifetime()
    }
}

impl NamespaceConf {
    /// Whether the store decides about each request.
    pub fn is_synchronous(&self) -> bool {
        self.options.sync == SyncMode::Synchronous
    }

    /// Returns the period of the sync, if there is one. In a synchronous namespace, the sync pushes the hits that were
    /// counted while the store was down.
    pub fn period(&self) -> Option<Duration> {
        match self.options.sync {
            SyncMode::Periodic(period) => Some(period),
            SyncMode::Synchronous => Some(Duration::from_secs(1)),
            SyncMode::Local => None,
        }
    }

    /// Returns the windows in which nodes tell each other how many requests are under way; `None` if they do not. A node
    /// tells in each window, and one that is gone counts for two.
    pub fn told_window(&self) -> Option<WindowSize> {
        const LEAST: Duration = Duration::from_millis(2500);
        let SyncMode::Periodic(period) = self.options.sync else { return None };
        let millis = u64::try_from(period.max(LEAST).as_millis()).ok();
        millis.and_then(WindowSize::from_millis).filter(|_| self.has_holds)
    }

    /// Returns the windows whose counters are synced: those of hits, of bans, and of requests that are under way.
    pub fn synced_windows(&self) -> Vec<WindowSize> {
        let mut sizes = self.window_sizes.clone();
        for size in self.ban_sizes.iter().copied().chain(self.told_window()) {
            if !sizes.contains(&size) {
                sizes.push(size);
            }
        }
        sizes
    }

    /// Returns the share of a limit that a node may leave unpushed until the next sync.
    pub fn early_share(&self) -> EarlyShare {
        match self.options.sync {
            SyncMode::Periodic(_) => self.options.sync_early.into(),
            SyncMode::Synchronous | SyncMode::Local => EarlyShare::OFF,
        }
    }

    /// Whether requests may be counted in windows that no rule names: no windows are listed, and no sync needs to know
    /// them.
    pub fn is_open(&self) -> bool {
        self.options.window_sizes.is_empty() && self.period().is_none()
    }
}
