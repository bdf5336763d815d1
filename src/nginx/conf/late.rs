//! Namespaces that callers of the library define in a worker, while it serves.
//!
//! Each worker that defines one serves it: what it counts is in the zone as all else is, and the zone remembers the
//! definition, so that all workers define it alike. Where its store decides, each worker asks that by itself: the
//! queues of the others were made before the workers, for the stores that nginx.conf names.

use std::sync::Arc;

use super::found::FoundNamespace;
use super::library_error::LibraryError;
use super::main::MainConf;
use super::served::{LateNamespace, SyncedNamespace};
use crate::broker::{DecidedNamespace, DecidingStore, WatchedStore};
use crate::conf::configuration::{Configuration, NamespaceConf};
use crate::conf::defined::NamespaceDefinition;
use crate::engine::Namespace;
use crate::nginx::zone::PATIENCE;
use crate::policy::namespace::SyncMode;
use crate::store::contract::strategy::{NodeId, Shard};
use crate::table::{ChannelLease, EarlyShare, LateDefinition, NameKind, StoreState};

impl MainConf {
    /// Returns the synced namespaces that callers have defined in this process.
    pub(crate) fn late(&self) -> Vec<LateNamespace> {
        self.late.all()
    }

    /// Defines a namespace in this process, of a name that nothing else in it has defined. Returns it if it is to be
    /// synced.
    pub(super) fn define_late(
        &'static self,
        definition: &NamespaceDefinition,
    ) -> Result<Option<LateNamespace>, LibraryError> {
        let name = &definition.name;
        if self.library().handle_of(name).is_some() {
            // That is the default one.
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

    /// Serves the last namespace of `late`.
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
        // Until the process ends, as what others find of it.
        let namespace: &'static Namespace<'static> =
            Box::leak(Box::new(namespace.pushed_early(conf.early_share())));
        let served = self.synced_late(late, conf, namespace);
        drop(lock);
        let found = FoundNamespace {
            sync: conf.options.sync,
            store: late.store(conf).map(|it| it.settings.kind()),
            synchronous: served.as_ref().and_then(|it| it.synchronous(conf)),
            ..FoundNamespace::local(
                &conf.name,
                namespace,
                conf.window_sizes.clone(),
                conf.is_open(),
            )
        };
        self.library().keep_found(found)?;
        self.late.served.borrow_mut().extend(served.clone());
        Ok(served)
    }

    /// Returns all that syncing a namespace takes, if it is synced.
    fn synced_late(
        &'static self,
        late: &Configuration,
        conf: &NamespaceConf,
        namespace: &'static Namespace<'static>,
    ) -> Option<LateNamespace> {
        let (period, number) = (conf.period()?, conf.store?);
        let store = late.stores.get(number)?;
        let (table, place) = (namespace.table(), store.place());
        // Workers that know other namespaces of the store listen for those.
        let channel = table.join_word(NameKind::Channel, [&conf.name, &format!("late {place}")]);
        let watched = self.watched(number).map(|it| it.state);
        let state = watched.unwrap_or_else(|| {
            let word = table.join_word(NameKind::Store, [&store.name, &place]);
            word.map(StoreState::join)
        });
        let watched = Arc::new(WatchedStore {
            name: store.name.clone(),
            without_it: late.without(number),
            state,
            channel: channel.map(ChannelLease::join),
        });
        let decided = conf.is_synchronous().then(|| {
            let (_, configured) = self.configuration().number_deciders();
            let shards = store.settings.shards();
            let first = configured.saturating_add(self.late.take_deciders(shards));
            let of_shard = |number| Shard { namespace: conf.name.as_ref().into(), number };
            let decider = DecidingStore {
                store: watched.clone(),
                source: Arc::new(store.settings.clone()),
                node: NodeId(table.node()),
                shards: (0..shards).map(of_shard).collect(),
                is_divided: store.is_divided(),
                namespaces: vec![DecidedNamespace {
                    name: namespace.name().clone(),
                    table,
                    index: namespace.index(),
                    // Callers of the library have no reserves.
                    granted: Vec::new(),
                    lent: self.lend(),
                }],
            };
            (first, decider)
        });
        Some(LateNamespace {
            synced: SyncedNamespace {
                name: conf.name.clone(),
                namespace,
                sizes: conf.window_sizes.clone(),
                period,
                lease_lifetime: store.lease_lifetime(),
                store: watched,
                // All workers know it by this.
                number: namespace.index().get(),
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
