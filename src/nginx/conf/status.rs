//! What the API and the metrics tell of a configuration, and what was counted under it.

use nginx_sys::NGINX_VERSION;

use super::super::time::NgxClock;
use super::{MainConf, NamespaceConf, Policy, StoreConf, ZoneConf};
use crate::engine::Namespace;
use crate::engine::status::{
    Build, NamespaceStatus, PolicyStatus, Status, StoreStatus, ZoneStatus,
};
use crate::policy::namespace::SyncMode;
use crate::policy::window::{Clock as _, WindowSize};
use crate::table::{LookedAt, Pending, SyncState};

impl MainConf {
    /// How this node is doing.
    pub(in super::super) fn status(&self) -> Status {
        let zones = self.zones.iter().filter_map(|ZoneConf { zone, .. }| {
            let table = zone.table()?;
            Some(ZoneStatus {
                name: (*zone.name).into(),
                size: zone.size,
                keys: table.keys(),
                capacity: table.capacity(),
                stats: table.zone_stats(),
            })
        });
        let namespaces = self.namespaces.iter();
        let pending = self.pending();
        Status {
            zones: zones.collect(),
            namespaces: namespaces.filter_map(|it| it.status(&pending)).collect(),
            stores: self.stores.iter().map(StoreConf::status).collect(),
            policies: self
                .policies
                .get()
                .into_iter()
                .flatten()
                .map(Policy::status)
                .collect(),
            build: Some(Build {
                version: env!("CARGO_PKG_VERSION"),
                nginx: NGINX_VERSION.to_str().unwrap_or_default(),
            }),
            loaded_at: self.loaded_at.get().copied(),
        }
    }

    /// How one namespace is doing, alone: however many there are.
    pub(in super::super) fn status_of(&self, name: &[u8]) -> Status {
        let mut namespaces = self.namespaces.iter();
        let namespace = namespaces.find(|it| it.name.as_bytes() == name);
        let status = namespace.and_then(|namespace| {
            let zone = namespace.zone.get()?;
            let at_most = LookedAt::BOUNDED;
            let is_synced = namespace.period().is_some();
            let table = zone.table().filter(|_| is_synced);
            let pending = table.map(|it| (&*zone.name, it.pending(NgxClock.now(), at_most)));
            namespace.status(pending.as_slice())
        });
        Status {
            namespaces: status.into_iter().collect(),
            ..Status::default()
        }
    }

    /// What is pending, by the names of the zones that have synced namespaces.
    fn pending(&self) -> Vec<(&str, Pending)> {
        let synced = self.namespaces.iter().filter(|it| it.period().is_some());
        let mut zones: Vec<_> = synced.filter_map(|it| it.zone.get()).collect();
        zones.sort_unstable_by_key(|zone| &zone.name);
        zones.dedup_by_key(|zone| &zone.name);
        let at_most = LookedAt::BOUNDED.part_of(zones.len());
        let pending = zones.into_iter().filter_map(|zone| {
            let pending = zone.table()?.pending(NgxClock.now(), at_most);
            Some((&*zone.name, pending))
        });
        pending.collect()
    }

    /// Calls `answer` with the namespace `name`, the windows that it counts in, and whether it may
    /// count in others. `None`: there is no such namespace.
    pub(in super::super) fn with_namespace<T>(
        &self,
        name: &[u8],
        answer: impl FnOnce(&Namespace<'static>, &[WindowSize], bool) -> T,
    ) -> Option<T> {
        let mut namespaces = self.namespaces.iter();
        let conf = namespaces.find(|namespace| namespace.name.as_bytes() == name)?;
        let namespace = conf.namespace.get()?;
        let listed = conf.definition.get().map(|it| &it.options.window_sizes);
        let is_listed = listed.is_some_and(|sizes| !sizes.is_empty());
        // Of a synced namespace, the windows of rules are fetched, and no others.
        let is_open = !is_listed && conf.period().is_none();
        Some(answer(namespace, &conf.window_sizes(), is_open))
    }
}

impl NamespaceConf {
    fn status(&self, pending: &[(&str, Pending)]) -> Option<NamespaceStatus> {
        let (zone, namespace) = (self.zone.get()?, self.namespace.get()?);
        let options = self.definition.get().map(|definition| &definition.options);
        let store = options.and_then(|options| options.store.as_deref());
        let (table, index) = (namespace.table(), namespace.index());
        let state = namespace.sync_state();
        // What is on its way is known to nobody else.
        let pending = state.map(|_| {
            let shards = namespace.sync_states().iter();
            let sealed: usize = shards.map(SyncState::sealed_records).sum();
            let sealed = u64::try_from(sealed).unwrap_or(u64::MAX);
            let of_zone = pending.iter().find(|(name, _)| *name == &*zone.name);
            of_zone.map_or(sealed, |(_, it)| it.of(index).saturating_add(sealed))
        });
        Some(NamespaceStatus {
            name: (*self.name).into(),
            zone: (*zone.name).into(),
            store: store.map(Into::into),
            sync: options.map_or(SyncMode::Local, |options| options.sync),
            window_sizes: self.window_sizes(),
            stats: table.namespace_stats(index),
            syncs: state.map(|state| state.stats()),
            pending,
        })
    }
}

impl Policy {
    fn status(&self) -> PolicyStatus {
        PolicyStatus {
            namespace: (*self.namespace.name).into(),
            name: (*self.name).into(),
            rejected: self.rejected.get(),
        }
    }
}

impl StoreConf {
    fn status(&self) -> StoreStatus {
        StoreStatus {
            name: (*self.name).into(),
            strategy: self.options.kind().name(),
            is_up: self.watched.get().and_then(|it| it.state?.is_up()),
        }
    }
}
