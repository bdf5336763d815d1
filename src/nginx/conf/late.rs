//! Namespaces that callers of the library define in a worker, while it serves requests.
//!
//! Each worker that defines such a namespace serves it. Its counters are in the zone, as all
//! counters are; the zone also stores the definition, so that all workers must define it alike. If
//! its store decides, each worker asks the store itself: the queues to the shared decider exist
//! only for the stores in nginx.conf.

use std::sync::Arc;

use super::found::FoundNamespace;
use super::library_error::LibraryError;
use super::main::MainConf;
use super::served::{LateNamespace, SyncedNamespace};
use crate::broker::{DecidedNamespace, DecidingStore, Observer, WatchedStore};
use crate::conf::configuration::{Configuration, NamespaceConf};
use crate::conf::defined::NamespaceDefinition;
use crate::engine::Namespace;
use crate::nginx::zone::PATIENCE;
use crate::policy::namespace::SyncMode;
use crate::store::contract::strategy::{NodeId, Shard};
use crate::table::{
    ChannelLease, EarlyShare, ExchangeBudget, LateDefinition, NameKind, StoreState,
};

impl MainConf {
    /// Returns the synced namespaces that callers have defined in this process.
    pub(crate) fn late(&self) -> Vec<LateNamespace> {
        self.late.all()
    }

    /// Defines a namespace, whose name nothing else in this process has defined. Returns it if it
    /// must be synced.
    pub(super) fn define_late(
        &'static self,
        definition: &NamespaceDefinition,
    ) -> Result<Option<LateNamespace>, LibraryError> {
        let name = &definition.name;
        if self.library().handle_of(name).is_some() {
            // Only the default namespace can be in use without a definition.
            return match definition.sync {
                SyncMode::Local => Ok(None),
                _ => Err(LibraryError::InUse(name.clone())),
            };
        }
        let mut late = self.late.configuration.borrow_mut();
        let late = late.get_or_insert_with(|| self.configuration().without_namespaces());
        late.add_defined(definition)?;
        let served = self.serve_late(late);
        if served.is_err() {
            late.namespaces.pop();
        }
        served
    }

    /// Starts to serve the last namespace of `late`.
    fn serve_late(
        &'static self,
        late: &Configuration,
    ) -> Result<Option<LateNamespace>, LibraryError> {
        let conf = late.namespaces.last().ok_or(LibraryError::Fault)?;
        let zone = self.zone(conf.zone);
        let zone = zone.ok_or(LibraryError::Phase("the zone is not mapped"))?;
        let table = zone.table().ok_or(LibraryError::Phase("the zone is not mapped"))?;
        let lock = zone.lock(PATIENCE).ok_or(LibraryError::Locked)?;
        let definition = LateDefinition {
            configuration: zone.configuration(),
            fingerprint: late.fingerprint(conf),
        };
        let shards = late.shards(conf);
        let namespace = Namespace::define(&conf.name, table, definition, shards);
        let namespace = namespace.map_err(|error| LibraryError::Late(conf.name.clone(), error))?;
        // Leaked, since callers refer to it until the process ends.
        let namespace: &'static Namespace<'static> =
            Box::leak(Box::new(namespace.pushed_early(conf.early_share())));
        let served = self.synced_late(late, conf, namespace);
        drop(lock);
        let found = FoundNamespace {
            store: late.store(conf).map(|it| it.settings.kind()),
            synchronous: served.as_ref().and_then(|it| it.synchronous(conf)),
            ..FoundNamespace::of(conf, namespace)
        };
        self.library().keep_found(found)?;
        self.late.served.borrow_mut().extend(served.clone());
        Ok(served)
    }

    /// Returns the data for syncing a namespace; `None` if it is local.
    fn synced_late(
        &'static self,
        late: &Configuration,
        conf: &NamespaceConf,
        namespace: &'static Namespace<'static>,
    ) -> Option<LateNamespace> {
        let (period, number) = (conf.period()?, conf.store?);
        let store = late.stores.get(number)?;
        let (table, place) = (namespace.table(), store.place());
        // The channel's name is the worker's own, since other workers may have defined other
        // namespaces of this store.
        let channel = table.join_word(NameKind::Channel, [&conf.name, &format!("late {place}")]);
        let watched = self.watched(number).map(|it| it.state);
        let state = watched.unwrap_or_else(|| {
            let word = table.join_word(NameKind::Store, [&store.name, &place]);
            word.map(StoreState::join)
        });
        let budget = table.join_word(NameKind::Budget, [&store.name, &place]);
        let exchanges = store.settings.common.exchanges;
        let watched = Arc::new(WatchedStore {
            name: store.name.clone(),
            without_it: late.without(number),
            state,
            channel: channel.map(ChannelLease::join),
            budget: budget.map(|it| ExchangeBudget::new(it, exchanges)),
        });
        let decided = conf.is_synchronous().then(|| {
            let (_, configured) = self.configuration().number_deciders();
            let shards = store.settings.shards();
            let first = configured.saturating_add(self.late.take_deciders(shards));
            let of_shard = |number| Shard { namespace: conf.name.as_ref().into(), number };
            let decider = DecidingStore {
                store: watched.clone(),
                source: Arc::new(store.settings.clone()),
                node: NodeId(table.decider()),
                shards: (0..shards).map(of_shard).collect(),
                is_divided: store.is_divided(),
                namespaces: vec![DecidedNamespace {
                    name: namespace.name().clone(),
                    table,
                    index: namespace.index(),
                    // Callers of the library have no reserves.
                    granted: Vec::new(),
                    timeout: conf.options.timeout,
                    lent: self.lend(),
                }],
                is_superseded: self.is_superseded(),
            };
            (first, decider)
        });
        Some(LateNamespace {
            synced: SyncedNamespace {
                name: conf.name.clone(),
                namespace,
                sizes: conf.synced_windows(),
                period,
                lease_lifetime: store.lease_lifetime(),
                store: watched,
                // The index is the same in all workers.
                observer: Observer::Late(namespace.index().get()),
                options: store.settings.clone(),
                is_early: conf.early_share() != EarlyShare::OFF,
                is_synchronous: conf.is_synchronous(),
                waits_for_caller: !conf.is_synchronous(),
                _lent: self.lend(),
            },
            decided,
        })
    }
}
