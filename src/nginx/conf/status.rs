//! What the API and the metrics tell of a configuration, and what was counted under it.

use super::{MainConf, NamespaceConf, StoreConf};
use crate::engine::status::{NamespaceStatus, Status, StoreStatus, ZoneStatus};
use crate::policy::namespace::SyncMode;
use crate::store::options::Strategy;

impl MainConf {
    /// How this node is doing.
    pub(in super::super) fn status(&self) -> Status {
        let zones = self.zones.iter().filter_map(|zone| {
            let table = zone.table()?;
            Some(ZoneStatus {
                name: (*zone.name).into(),
                size: zone.size,
                keys: table.keys(),
                stats: table.zone_stats(),
            })
        });
        let namespaces = self.namespaces.iter();
        Status {
            zones: zones.collect(),
            namespaces: namespaces.filter_map(|it| it.status()).collect(),
            stores: self.stores.iter().map(StoreConf::status).collect(),
        }
    }
}

impl NamespaceConf {
    fn status(&self) -> Option<NamespaceStatus> {
        let (zone, namespace) = (self.zone.get()?, self.namespace.get()?);
        let options = self.definition.get().map(|definition| &definition.options);
        let store = options.and_then(|options| options.store.as_deref());
        Some(NamespaceStatus {
            name: (*self.name).into(),
            zone: (*zone.name).into(),
            store: store.map(Into::into),
            sync: options.map_or(SyncMode::Local, |options| options.sync),
            window_sizes: self.window_sizes(),
            stats: namespace.table().namespace_stats(namespace.index()),
            syncs: namespace.sync_state().map(|state| state.stats()),
        })
    }
}

impl StoreConf {
    fn status(&self) -> StoreStatus {
        StoreStatus {
            name: (*self.name).into(),
            strategy: match self.options.strategy {
                Strategy::Redis(_) => "redis",
                Strategy::Postgres(_) => "postgres",
            },
        }
    }
}
