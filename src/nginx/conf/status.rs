//! The status of a configuration for the API and the metrics. It is collected in steps, since
//! collecting all of it at once would block the worker for too long.

use core::slice;
use core::time::Duration;
use std::collections::HashMap;
use std::iter::Enumerate;
use std::rc::Rc;

use nginx_sys::NGINX_VERSION;

use super::main::{MainConf, Policy};
use super::served::Synchronous;
use crate::conf::configuration::{NamespaceConf, StoreConf};
use crate::conf::listed::ListedRule;
use crate::engine::Namespace;
use crate::engine::api::Counting;
use crate::engine::report::bans::BanSearch;
use crate::engine::report::status::{
    Build, NamespaceStatus, PolicyStatus, Status, StoreStatus, ZoneStatus,
};
use crate::nginx::event_loop::NgxClock;
use crate::nginx::zone::Zone;
use crate::policy::window::Clock as _;
use crate::table::{CounterTable, LookedAt, Pending, SyncState};

/// The part of this node's status that was collected so far.
pub(crate) struct Look {
    main: &'static MainConf,
    status: Status<'static>,
    zones: slice::Iter<'static, Rc<Zone>>,
    /// Table of the last zone, and the first namespace whose keys are not yet counted.
    uncounted: Option<(&'static CounterTable<'static>, usize)>,
    namespaces: Enumerate<slice::Iter<'static, NamespaceConf>>,
    /// The namespaces whose banned keys are not yet counted, and the search in the first of them.
    banning: Vec<&'static NamespaceConf>,
    bans: Option<(BanSearch<'static>, u64)>,
    /// The banned keys by namespace.
    banned: HashMap<&'static str, u64>,
    /// Pending counters by zone; `None` if they are not wanted.
    pending: Option<HashMap<&'static str, Pending>>,
    /// Indexes of stores in the status, by name.
    stores: HashMap<&'static str, usize>,
}

impl Look {
    /// Namespaces in one step; each one sums a line of every worker.
    const NAMESPACES: usize = 16;

    /// Collects a bounded part of the status. Returns whether any part is left.
    pub(crate) fn go_on(&mut self) -> bool {
        if let Some((table, start)) = self.uncounted {
            let end = start.saturating_add(Self::NAMESPACES);
            let keys = table.keys_of(start..end);
            self.uncounted = keys.map(|_| (table, end));
            if let Some(zone) = self.status.zones.last_mut() {
                zone.keys = zone.keys.saturating_add(keys.unwrap_or_default());
            }
        } else if let Some(zone) = self.zones.next() {
            if let Some(table) = zone.table() {
                self.status.zones.push(ZoneStatus {
                    name: &zone.name,
                    size: zone.size,
                    keys: 0,
                    capacity: table.capacity(),
                    stats: table.zone_stats(),
                });
                self.uncounted = Some((table, 0));
                if let Some(pending) = &mut self.pending {
                    let of_zone = table.pending(NgxClock.now(), LookedAt::BOUNDED);
                    pending.insert(&zone.name, of_zone);
                }
            }
        } else if let Some((search, count)) = &mut self.bans {
            match search.step(&NgxClock) {
                Some(found) => *count = count.saturating_add(found.len() as u64),
                None => {
                    let name = self.banning.pop().map(|namespace| &*namespace.name);
                    self.banned.extend(name.map(|name| (name, *count)));
                    self.bans = None;
                }
            }
        } else if let Some(conf) = self.banning.last() {
            match self.main.ban_search(conf.name.as_bytes()) {
                Some(search) => self.bans = Some((search, 0)),
                None => drop(self.banning.pop()),
            }
        } else if self.namespaces.len() > 0 {
            for (number, conf) in self.namespaces.by_ref().take(Self::NAMESPACES) {
                let zone = self.main.zone(conf.zone).map(|zone| &*zone.name);
                let pending = zone.zip(self.pending.as_ref());
                let pending = pending.and_then(|(zone, pending)| pending.get(zone));
                let Some(namespace) = self.main.namespace_status(number, conf, pending) else {
                    continue;
                };
                let bans = self.banned.get(namespace.name).copied();
                let namespace = NamespaceStatus { bans, ..namespace };
                let store = namespace.store.and_then(|store| self.stores.get(store));
                let store = store.and_then(|&index| self.status.stores.get_mut(index));
                if let (Some(store), Some(syncs)) = (store, &namespace.syncs) {
                    store.traffic.get_or_insert_default().add(syncs);
                }
                self.status.namespaces.push(namespace);
            }
        } else {
            return false;
        }
        true
    }

    /// Takes the collected status.
    pub(crate) fn take_status(&mut self) -> Status<'static> {
        core::mem::take(&mut self.status)
    }
}

impl MainConf {
    /// Starts to collect this node's status, with pending counters and bans, which take longer, if
    /// it `is_detailed`.
    pub(crate) fn look(&'static self, is_detailed: bool) -> Look {
        let configuration = self.configuration();
        let stores = configuration.stores.iter().enumerate();
        let status = Status {
            zones: Vec::new(),
            // Allocated at once, so that it is not moved while it grows.
            namespaces: Vec::with_capacity(configuration.namespaces.len()),
            stores: stores.clone().map(|(it, store)| self.store_status(it, store)).collect(),
            policies: self.policies().iter().map(Policy::status).collect(),
            build: Some(Build {
                version: env!("CARGO_PKG_VERSION"),
                nginx: NGINX_VERSION.to_str().unwrap_or_default(),
            }),
            loaded_at: self.loaded_at(),
        };
        let banning = configuration.namespaces.iter().filter(|it| !it.ban_sizes.is_empty());
        let banning = banning.filter(|_| is_detailed);
        Look {
            main: self,
            status,
            zones: self.zones().iter(),
            uncounted: None,
            namespaces: configuration.namespaces.iter().enumerate(),
            banning: banning.collect(),
            bans: None,
            banned: HashMap::new(),
            pending: is_detailed.then(HashMap::new),
            stores: stores.map(|(index, store)| (&*store.name, index)).collect(),
        }
    }

    /// Returns the status of one namespace, in a time that does not depend on the number of
    /// namespaces. `None` if there is no such namespace.
    pub(crate) fn status_of(&self, name: &[u8]) -> Option<NamespaceStatus<'_>> {
        let (number, namespace) = self.named(name)?;
        let table = self.zone(namespace.zone)?.table();
        let table = table.filter(|_| namespace.period().is_some());
        let pending = table.map(|it| it.pending(NgxClock.now(), LookedAt::BOUNDED));
        self.namespace_status(number, namespace, pending.as_ref())
    }

    /// Returns the names of all namespaces, in the order of the configuration.
    pub(crate) fn namespace_names(&self) -> impl Iterator<Item = &str> {
        let namespaces = self.configuration().namespaces.iter();
        namespaces.map(|namespace| &*namespace.name)
    }

    /// Returns the names of the stores that are known to be down.
    pub(crate) fn stores_that_are_down(&self) -> Vec<&str> {
        let stores = self.configuration().stores.iter().enumerate();
        let down =
            stores.filter(|(number, store)| self.store_status(*number, store).is_up == Some(false));
        down.map(|(_, store)| &*store.name).collect()
    }

    /// Returns the namespace with this name, and its windows. `None` if there is none.
    pub(crate) fn counting_in(&self, name: &[u8]) -> Option<(&Namespace<'static>, Counting<'_>)> {
        let (number, conf) = self.named(name)?;
        let counting = Counting {
            sync: conf.options.sync,
            store: self.configuration().store(conf).map(|it| it.settings.kind()),
            sizes: &conf.window_sizes,
            rates: &conf.rates,
            counters: &conf.counters,
            // In a synced namespace only the windows of rules are fetched.
            is_open: conf.is_open(),
        };
        Some((self.namespace(number)?, counting))
    }

    /// Returns the rules of the namespace with this name. `None` if there is no such namespace.
    pub(crate) fn rules_of<'s>(
        &'s self,
        name: &[u8],
    ) -> Option<impl Iterator<Item = &'s ListedRule> + Clone + use<'s>> {
        let (number, _) = self.named(name)?;
        let rules = self.listed.get().map_or(&[][..], |rules| rules);
        Some(rules.iter().filter(move |rule| rule.namespace == number))
    }

    /// Returns a search for the banned keys of the namespace with this name. `None` if there is none.
    fn ban_search(&self, name: &[u8]) -> Option<BanSearch<'_>> {
        let (number, _) = self.named(name)?;
        Some(BanSearch::new(self.namespace(number)?, self.rules_of(name)?))
    }

    /// Returns the name of a synced namespace, and its store's timeout for one exchange. `None` if
    /// there is no such namespace, or it is local.
    pub(crate) fn synced_of(&self, name: &[u8]) -> Option<(&str, Duration)> {
        let (_, namespace) = self.named(name)?;
        let store = namespace.period().and(self.configuration().store(namespace))?;
        Some((&namespace.name, store.settings.common.timeout))
    }

    /// Returns how the store of this namespace decides; `None` if it does not.
    pub(crate) fn synchronous_of(&self, name: &[u8]) -> Option<Synchronous> {
        let (number, _) = self.named(name)?;
        self.synchronous(number)
    }

    /// Returns the namespace with this name, and its number.
    fn named(&self, name: &[u8]) -> Option<(usize, &NamespaceConf)> {
        let mut namespaces = self.configuration().namespaces.iter().enumerate();
        namespaces.find(|(_, namespace)| namespace.name.as_bytes() == name)
    }

    /// Returns the status of a namespace. `pending` are the pending counters of its zone.
    fn namespace_status<'c>(
        &'c self,
        number: usize,
        conf: &'c NamespaceConf,
        pending: Option<&Pending>,
    ) -> Option<NamespaceStatus<'c>> {
        let (zone, namespace) = (self.zone(conf.zone)?, self.namespace(number)?);
        let (table, index) = (namespace.table(), namespace.index());
        let state = namespace.sync_state();
        // Only the sync state knows the hits that are in flight.
        let pending = state.map(|_| {
            let shards = namespace.sync_states().iter();
            let sealed: usize = shards.map(SyncState::sealed_records).sum();
            let sealed = u64::try_from(sealed).unwrap_or(u64::MAX);
            pending.map_or(sealed, |it| it.of(index).saturating_add(sealed))
        });
        Some(NamespaceStatus {
            name: &conf.name,
            zone: &zone.name,
            store: self.configuration().store(conf).map(|store| &*store.name),
            sync: conf.options.sync,
            sizes: &conf.window_sizes,
            stats: table.namespace_stats(index),
            under_way: (conf.has_holds || self.has_holds()).then(|| table.held_in(index)),
            syncs: state.map(|state| state.stats()),
            nodes: state.map(|state| state.nodes()),
            pending,
            bans: None,
        })
    }

    fn store_status<'c>(&'c self, number: usize, store: &'c StoreConf) -> StoreStatus<'c> {
        StoreStatus {
            name: &store.name,
            strategy: store.settings.kind().name(),
            is_up: self.watched(number).and_then(|it| it.state?.is_up()),
            traffic: None,
        }
    }
}

impl Policy {
    fn status(&self) -> PolicyStatus<'_> {
        PolicyStatus { namespace: &self.namespace, name: &self.name, rejected: self.rejected.get() }
    }
}
