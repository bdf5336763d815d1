//! The configuration of `http`, when all of it was read: zones, stores and namespaces have found each
//! other, and nothing changes any more.

use core::time::Duration;

use super::namespace::NamespaceOptions;
use super::words::message::Origin;
use crate::policy::namespace::{OnError, OnLoss, SyncEarly, SyncMode};
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;
use crate::table::{CountedRate, EarlyShare};

/// The configuration of `http`. It names zones, stores and namespaces by their index.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The zones, in the order of the configuration.
    pub zones: Vec<ZoneConf>,
    /// The stores, likewise.
    pub stores: Vec<StoreConf>,
    /// The namespaces, as they were first defined or used.
    pub namespaces: Vec<NamespaceConf>,
    /// Places of the rules, in their order.
    pub rules: Vec<Origin>,
    /// Whether any level decides after access control.
    pub has_precontent: bool,
    /// Whether any rule charges hits when the response is known.
    pub has_deferred: bool,
}

/// A `ratelimit_zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneConf {
    /// Its name: no other zone has it.
    pub name: Box<str>,
    /// In bytes, as configured.
    pub size: usize,
    /// Place of the definition.
    pub origin: Origin,
}

/// A `ratelimit_store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConf {
    /// Its name: no other store has it.
    pub name: Box<str>,
    /// Place of the definition.
    pub origin: Origin,
    /// Settings of its block.
    pub settings: StoreSettings,
}

/// A namespace that is defined, or used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConf {
    /// Its name: no other namespace has it.
    pub name: Box<str>,
    /// Place of the definition, or else of the first use.
    pub origin: Origin,
    /// The number of its zone.
    pub zone: usize,
    /// The number of its store, if it names one.
    pub store: Option<usize>,
    /// Options of its block.
    pub options: NamespaceOptions,
    /// The windows that are counted in, ascending: those that are listed, and those of rules.
    pub window_sizes: Vec<WindowSize>,
    /// The rates of rules, but for those that requests tell.
    pub rates: Vec<CountedRate>,
    /// The names of the counters that rules have beside the shared one, ascending.
    pub counters: Vec<Box<str>>,
}

impl Configuration {
    /// The store that a namespace names.
    pub fn store(&self, namespace: &NamespaceConf) -> Option<&StoreConf> {
        self.stores.get(namespace.store?)
    }

    /// Into how many shards a namespace is divided; 0: it is not synced.
    pub fn shards(&self, namespace: &NamespaceConf) -> u16 {
        let store = namespace.period().and_then(|_| self.store(namespace));
        store.map_or(0, |store| store.settings.shards())
    }

    /// The namespaces in a zone.
    pub fn namespaces_in(&self, zone: usize) -> impl Iterator<Item = &NamespaceConf> {
        let namespaces = self.namespaces.iter();
        namespaces.filter(move |namespace| namespace.zone == zone)
    }

    /// The namespaces that are synced with a store.
    pub fn synced_with(&self, store: usize) -> impl Iterator<Item = &NamespaceConf> {
        let namespaces = self.namespaces.iter();
        namespaces.filter(move |it| it.period().is_some() && it.store == Some(store))
    }

    /// The namespaces about which a store decides, with their numbers.
    pub fn decided_by(
        &self,
        store: usize,
    ) -> impl Iterator<Item = (usize, &NamespaceConf)> + Clone {
        let namespaces = self.namespaces.iter().enumerate();
        namespaces.filter(move |(_, it)| it.is_synchronous() && it.store == Some(store))
    }

    /// The stores of synchronous namespaces, each once, with their numbers.
    pub fn deciding_stores(&self) -> impl Iterator<Item = (usize, &StoreConf)> {
        let stores = self.stores.iter().enumerate();
        stores.filter(|(store, _)| self.decided_by(*store).next().is_some())
    }

    /// Numbers the deciders, in the order of their stores: one for all namespaces of a store, or one
    /// for each shard of each namespace where a store has several. Returns the first number of each
    /// namespace, if a store decides about it, and how many deciders there are.
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

    /// Describes how requests are decided while a store is away.
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
    /// Lists the addresses of its servers.
    pub fn place(&self) -> String {
        let servers = self.settings.common.servers.iter().map(ToString::to_string);
        servers.collect::<Vec<_>>().join(" ")
    }

    /// Whether the keys of a namespace are in several shards, each of which decides for itself.
    pub fn is_divided(&self) -> bool {
        self.settings.shards() > 1
    }

    /// Returns the time after which a worker that syncs with the store, and is silent, counts as
    /// dead.
    pub fn lease_lifetime(&self) -> Duration {
        self.settings.lease_lifetime()
    }
}

impl NamespaceConf {
    /// Whether its store decides about each request.
    pub fn is_synchronous(&self) -> bool {
        self.options.sync == SyncMode::Synchronous
    }

    /// Returns the period of the sync, if there is one. If the store decides, the sync pushes hits
    /// that were counted while the store was away.
    pub fn period(&self) -> Option<Duration> {
        match self.options.sync {
            SyncMode::Periodic(period) => Some(period),
            SyncMode::Synchronous => Some(Duration::from_secs(1)),
            SyncMode::Local => None,
        }
    }

    /// Returns the share of a limit that a node may keep from the store until the next sync.
    pub fn early_share(&self) -> EarlyShare {
        match (self.options.sync, self.options.sync_early) {
            (SyncMode::Periodic(_), SyncEarly::MilliPercent(share)) => {
                EarlyShare::of_milli_percent(share)
            }
            (_, _) => EarlyShare::OFF,
        }
    }

    /// Whether windows are counted in that no rule names: none is listed, and none has to be fetched.
    pub fn is_open(&self) -> bool {
        self.options.window_sizes.is_empty() && self.period().is_none()
    }
}
