//! The data that workers need to sync namespaces, and to ask stores about requests.

use std::io;
use std::sync::Arc;

use super::MainConf;
use crate::broker::{Bells, DecidedNamespace, DecidingStore, Observer, SharedQueues};
use crate::conf::configuration::NamespaceConf;
use crate::nginx::conf::served::SyncedNamespace;
use crate::store::contract::strategy::{NodeId, Shard};
use crate::table::EarlyShare;

impl MainConf {
    /// Returns the synced namespaces; empty before the zones are mapped.
    pub(crate) fn synced(&'static self) -> Vec<SyncedNamespace> {
        let mut synced: Vec<SyncedNamespace> = Vec::new();
        for (number, namespace) in self.configuration().namespaces.iter().enumerate() {
            let Some(mut namespace) = self.synced_namespace(number, namespace) else {
                continue;
            };
            let same_store = |it: &&SyncedNamespace| Arc::ptr_eq(&it.store, &namespace.store);
            namespace.observer = Observer::Sync(synced.iter().filter(same_store).count());
            synced.push(namespace);
        }
        synced
    }

    /// Returns the data for syncing a namespace; `None` if it is local.
    fn synced_namespace(
        &'static self,
        number: usize,
        conf: &NamespaceConf,
    ) -> Option<SyncedNamespace> {
        let (period, namespace) = (conf.period()?, self.namespace(number)?);
        let store = self.configuration().store(conf)?;
        Some(SyncedNamespace {
            name: conf.name.clone(),
            namespace,
            sizes: conf.synced_windows(),
            period,
            lease_lifetime: store.lease_lifetime(),
            store: self.watched(conf.store?)?.clone(),
            observer: Observer::Sync(0),
            options: store.settings.clone(),
            is_early: conf.early_share() != EarlyShare::OFF,
            is_synchronous: conf.is_synchronous(),
            waits_for_caller: !conf.is_synchronous() && self.library().is_defined(&conf.name),
            _lent: self.lent.clone(),
        })
    }

    /// Returns the stores that decide about requests; empty before the zones are mapped.
    pub(crate) fn deciding(&'static self) -> Vec<DecidingStore> {
        let mut deciding: Vec<DecidingStore> = Vec::new();
        for (number, store) in self.configuration().deciding_stores() {
            let mut namespaces = self.configuration().decided_by(number);
            let node = namespaces.find_map(|(it, _)| Some(self.namespace(it)?.table().decider()));
            let namespaces = self.configuration().decided_by(number);
            let shards = namespaces.clone().flat_map(|(_, namespace)| {
                let namespace: Arc<str> = namespace.name.as_ref().into();
                (0..store.settings.shards())
                    .map(move |number| Shard { namespace: namespace.clone(), number })
            });
            let decided = namespaces.filter_map(|(it, conf)| {
                let namespace = self.namespace(it)?;
                Some(DecidedNamespace {
                    name: namespace.name().clone(),
                    table: namespace.table(),
                    index: namespace.index(),
                    granted: match conf.options.is_reserving {
                        true => namespace.sync_states().to_vec(),
                        false => Vec::new(),
                    },
                    timeout: conf.options.timeout,
                    lent: self.lent.clone(),
                })
            });
            // A deciding store always belongs to a namespace, so it is watched.
            let node = node.zip(self.watched(number));
            deciding.extend(node.map(|(node, watched)| DecidingStore {
                store: watched.clone(),
                source: Arc::new(store.settings.clone()),
                node: NodeId(node),
                shards: shards.collect(),
                is_divided: store.is_divided(),
                namespaces: decided.collect(),
                is_superseded: self.is_superseded(),
            }));
        }
        deciding
    }

    /// Returns the queues by which workers ask deciders; `None` if there are no deciders, or
    /// creating the queues failed.
    pub(crate) fn shared_queues(&self) -> Option<Arc<SharedQueues>> {
        self.shared_queues.get().cloned()
    }

    /// Returns the eventfds that wake the workers' threads; `None` if there is no zone, or creating
    /// them failed.
    pub(crate) fn bells(&self) -> Option<Arc<Bells>> {
        self.bells.get().cloned()
    }

    /// Creates the data that all workers share: queues if there are deciders, and bells for early
    /// pushes if there are zones.
    ///
    /// # Errors
    ///
    /// Too little memory, or too many open files. Without queues no store can be asked; without
    /// bells hits are pushed only once in each period.
    pub(crate) fn share(&self, workers: usize) -> io::Result<()> {
        let (_, deciders) = self.configuration().number_deciders();
        let queues = (deciders > 0).then(|| SharedQueues::new(workers, deciders));
        // Workers may define namespaces whose hits are pushed early.
        let bells = (!self.zones().is_empty()).then(|| Bells::new(workers));
        // Cannot be set before: zones are mapped once in a cycle. If one of the two fails, the
        // other is used all the same.
        let queues = queues.map(|it| it.map(|it| self.shared_queues.set(Arc::new(it))));
        let bells = bells.map(|it| it.map(|it| self.bells.set(Arc::new(it))));
        queues.transpose().and(bells.transpose()).map(drop)
    }
}
