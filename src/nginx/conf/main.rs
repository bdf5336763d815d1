//! The configuration of `http`: it is read, resolved, and served once the zones are mapped.

mod workers;

use core::cell::Cell;
use core::time::Duration;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use nginx_sys::{NGX_LOG_ALERT, NGX_LOG_WARN};
use ngx::http::HttpModuleMainConf;

use super::directives::Host;
use super::library::Library;
use super::location::LocationConf;
use super::reading::Conf;
use super::reading::ContentHandlers;
use super::rules::RuleSet;
use super::served::{LateNamespaces, Lent, ServedNamespace, ServedNamespaces, Synchronous};
use super::text::Text;
use crate::broker::{Bells, Observer, SharedQueues, WatchedStore};
use crate::conf::applied::AppliedRules;
use crate::conf::configuration::{Configuration, NamespaceConf};
use crate::conf::defined::{DefineError, NamespaceDefinition};
use crate::conf::http::HttpConf;
use crate::conf::level::rules::Rules;
use crate::conf::listed::ListedRule;
use crate::conf::words::message::ConfError;
use crate::engine::report::prometheus::OTHER_POLICIES;
use crate::engine::{Deciders, Machine, Namespace, RateLimitingError};
use crate::nginx::log;
use crate::nginx::log::Log;
use crate::nginx::module::Module;
use crate::nginx::zone::Zone;
use crate::policy::namespace::OnLoss;
use crate::policy::window::{Clock as _, UnixMillis};
use crate::table::{
    ChannelLease, CounterTable, ExchangeBudget, NameKind, Named, Outcome, StoreState,
};

/// The configuration of `http`.
#[derive(Debug, Default)]
pub(crate) struct MainConf {
    /// Directives of `http`; empty once resolved.
    http: HttpConf,
    /// The resolved configuration; empty before.
    configuration: Configuration,
    /// The configuration with definitions that callers of the library added while nginx.conf was
    /// read.
    extended: RefCell<Option<Configuration>>,
    /// The served configuration. Set when the zones are mapped.
    served: OnceCell<Configuration>,
    /// The zones, in the order of the configuration.
    zones: Vec<Rc<Zone>>,
    /// Places and keys of the rules, for warnings.
    applied: RefCell<AppliedRules<Text>>,
    /// The applied rules. Set when all levels were recorded.
    pub(super) listed: OnceCell<Vec<ListedRule>>,
    rule_sets: RefCell<RuleSets>,
    /// Content handlers of this module's locations. Set before the configuration is read.
    pub(crate) content_handlers: Option<ContentHandlers>,
    /// Index of the variable that stores a request's context.
    pub(crate) context_slot: usize,
    /// Index of the variable that stores a request's suspension.
    pub(crate) suspension_slot: usize,
    /// Index of the variable that stores a request's delay.
    pub(crate) delay_slot: usize,
    namespaces: ServedNamespaces,
    /// The stores with which namespaces are synced, by number. Set when the zones are mapped.
    stores: OnceCell<Vec<Option<Arc<WatchedStore>>>>,
    /// Set when the zones are mapped.
    policies: OnceCell<Vec<Policy>>,
    /// Set when the zones are mapped.
    loaded_at: OnceCell<UnixMillis>,
    /// Set when the zones are mapped, if there are deciders.
    shared_queues: OnceCell<Arc<SharedQueues>>,
    /// Set when the zones are mapped, if there is a zone.
    bells: OnceCell<Arc<Bells>>,
    /// Shared with those who use the zones and namespaces, such as the sync thread.
    lent: Arc<Lent>,
    /// State of the library's callers.
    library: Library,
    /// Whether callers of the library limit how many requests are under way.
    expects_holds: Cell<bool>,
    /// Synced namespaces that callers of the library have defined since the zones were mapped.
    pub(super) late: LateNamespaces,
}

// SAFETY: `create_main_conf` creates a value of this type for this module.
unsafe impl HttpModuleMainConf for Module {
    type MainConf = MainConf;
}

/// The rules of all levels, in the order of the levels, and by address.
#[derive(Debug, Default)]
struct RuleSets {
    all: Vec<Rc<RuleSet>>,
    /// By address, and whether they are in a dry run, if that matters.
    known: HashMap<(*const Rules<Text>, bool), Rc<RuleSet>>,
}

/// A policy with its own counter of rejections.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) rejected: Named<'static>,
}

/// Longest time that a new configuration waits for a process that is defining a namespace.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most policies with their own counter of rejections.
const MAX_POLICIES: usize = 1000;

impl Drop for MainConf {
    fn drop(&mut self) {
        // nginx drops the configuration when the process ends or uses another one. The sync thread
        // is joined before that, but only for a limited time.
        self.late.clear();
        if Arc::get_mut(&mut self.lent).is_none() {
            core::mem::forget(self.namespaces.clone());
            core::mem::forget(core::mem::take(&mut self.zones));
        }
    }
}

impl MainConf {
    /// Returns the directives of `http` and the zones, to which the reader adds.
    pub(super) fn reading(&mut self) -> (&mut HttpConf, &mut Vec<Rc<Zone>>) {
        (&mut self.http, &mut self.zones)
    }

    /// Checks and resolves the directives, after all of `http` was read.
    ///
    /// # Errors
    ///
    /// The first error, which the caller must log.
    pub(crate) fn resolve(&mut self, conf: &mut Conf<'_>) -> Result<(), ConfError> {
        let http = core::mem::take(&mut self.http);
        self.configuration = http.resolve(&mut Host {
            conf,
            zones: &mut self.zones,
            handlers: self.content_handlers,
        })?;
        Ok(())
    }

    /// Returns the resolved configuration, or the served one once the zones are mapped.
    pub(crate) fn configuration(&self) -> &Configuration {
        self.served.get().unwrap_or(&self.configuration)
    }

    /// Adds a namespace that a caller of the library defines before the zones are mapped.
    pub(super) fn extend(&self, definition: &NamespaceDefinition) -> Result<(), DefineError> {
        let mut extended = self.extended.borrow_mut();
        let before = extended.as_ref().unwrap_or(&self.configuration);
        *extended = Some(before.with_defined(definition)?);
        Ok(())
    }

    /// Records the rules and the key of a level for warnings, and gives the level its rule set.
    pub(crate) fn record_level(&self, level: &mut LocationConf) {
        self.applied.borrow_mut().note(level.level());
        let Some(rules) = level.level().effective_rules().cloned() else {
            return;
        };
        let mut sets = self.rule_sets.borrow_mut();
        let RuleSets { all, known } = &mut *sets;
        let refusal = level.settings.refusal;
        let is_dry_run = rules.has_own_dry_run() && refusal == Outcome::RejectedDryRun;
        let set = known.entry((Rc::as_ptr(&rules), is_dry_run)).or_insert_with(|| {
            let set = Rc::new(RuleSet::new(rules, self.namespaces.clone(), is_dry_run));
            all.push(set.clone());
            set
        });
        level.set_rules(set.clone());
    }

    /// Lists the applied rules, and warns of those that have no use where they apply, after all
    /// levels were recorded.
    pub(crate) fn list_applied(&self, conf: &mut Conf<'_>) {
        let applied = self.applied.take();
        for warning in applied.warnings(self.configuration()) {
            conf.warn(warning);
        }
        // Cannot be set before: a configuration is read once.
        let _ = self.listed.set(applied.listed());
    }

    /// Returns the state of the library's callers.
    #[inline]
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// Returns whether the zones are mapped and the namespaces are found in them.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.namespaces.get().is_some()
    }

    /// Returns whether any level has rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.configuration().rules.is_empty()
    }

    /// Returns whether any level decides in the precontent phase, after access control.
    pub(crate) fn has_precontent(&self) -> bool {
        self.configuration().has_precontent
    }

    /// Returns whether any rule charges hits that depend on the response.
    pub(crate) fn has_deferred(&self) -> bool {
        self.configuration().has_deferred
    }

    /// Returns whether any rule or caller of the library limits how many requests are under way.
    pub(crate) fn has_holds(&self) -> bool {
        self.expects_holds.get() || self.configuration().has_holds()
    }

    /// Records that callers of the library limit how many requests are under way.
    pub(crate) fn expect_holds(&self) {
        self.expects_holds.set(true);
    }

    /// Returns the name of a namespace's store; `None` without one.
    pub(crate) fn store_of(&self, namespace: &str) -> Option<&str> {
        let mut namespaces = self.configuration().namespaces.iter();
        let namespace = namespaces.find(|it| *it.name == *namespace)?;
        let store = self.configuration().store(namespace);
        store.map(|store| &*store.name)
    }

    /// Finds every namespace in its zone, after the zones were mapped. The required room was
    /// checked before; if it is missing all the same, the namespace is not limited, since a running
    /// nginx must not stop. `old` is the configuration before.
    pub(crate) fn attach(&'static self, old: Option<&MainConf>, log: Log<'_>) {
        if let Some(extended) = self.extended.take() {
            // Cannot be set before: zones are mapped once in a cycle.
            let _ = self.served.set(extended);
        }
        // Workers of the previous configuration may be defining namespaces. One that was stopped
        // while it holds the lock is not waited for any longer: it writes only what belongs to the
        // older configuration.
        let locks = self.zones.iter().map(|it| it.lock(PATIENCE));
        let _locks: Vec<_> = locks.collect();
        if let Some(old) = old {
            self.start_anew(old, log);
        }
        self.begin_configuration();
        let (deciders, _) = self.configuration().number_deciders();
        let namespaces = self.configuration().namespaces.iter().zip(deciders);
        let namespaces = namespaces.map(|(namespace, first)| {
            let served = self.serve(namespace, first);
            served.unwrap_or_else(|error| {
                let NamespaceConf { name, origin, .. } = namespace;
                let message = format_args!("ratelimit_namespace \"{name}\": {error} in {origin}");
                log::error(NGX_LOG_ALERT, log, message);
                None
            })
        });
        // Cannot be set before: zones are mapped once in a cycle.
        let _ = self.namespaces.set(namespaces.collect());
        self.claim_words();
        // Cannot be set before, either.
        let _ = self.loaded_at.set(Machine.now());
    }

    /// Announces the new configuration, and the room that it needs, to the mapped zones.
    fn begin_configuration(&self) {
        for (number, zone) in self.zones.iter().enumerate() {
            if let Some(table) = zone.table() {
                let namespaces = self.configuration().namespaces_in(number);
                let namespaces =
                    namespaces.map(|it| (it.name.as_bytes(), self.configuration().shards(it)));
                zone.set_configuration(table.begin_configuration(namespaces));
            }
        }
    }

    /// Finds a namespace in its zone, if that is mapped. Its deciders, if any, are numbered from
    /// `first_decider`.
    fn serve(
        &'static self,
        namespace: &NamespaceConf,
        first: Option<usize>,
    ) -> Result<Option<ServedNamespace>, RateLimitingError> {
        let Some(table) = self.zones.get(namespace.zone).and_then(|zone| zone.table()) else {
            return Ok(None);
        };
        let shards = self.configuration().shards(namespace);
        Ok(Some(ServedNamespace {
            namespace: Namespace::new(&namespace.name, table)?
                .synced(shards)?
                .pushed_early(namespace.early_share())
                .sharing_alone(namespace.options.on_loss == OnLoss::Share)
                .telling(namespace.told_window()),
            synchronous: first.map(|first| Synchronous {
                store: Deciders { first, shards },
                on_error: namespace.options.on_error,
                timeout: namespace.options.timeout,
                is_reserving: namespace.options.is_reserving,
            }),
        }))
    }

    /// Claims words in the zones for the states of stores and the counters of policies.
    fn claim_words(&'static self) {
        let configuration = self.configuration();
        let mut counted = Vec::new();
        let mut watched = vec![None; configuration.stores.len()];
        let policies = self.named_policies();
        for (number, zone) in self.zones.iter().enumerate() {
            let Some(table) = zone.table() else { continue };
            let is_in_zone = |it: &NamespaceConf| it.zone == number;
            let stores = configuration.stores.iter().enumerate();
            let stores = stores.filter(|(store, _)| {
                let first = configuration.synced_with(*store).next();
                first.is_some_and(is_in_zone)
            });
            let stores: Vec<_> = stores.map(|(index, it)| (index, it, it.place())).collect();
            let policies = policies.iter().filter(|(it, _)| is_in_zone(it));
            let of_stores = stores.iter().flat_map(|(_, store, place)| {
                let name: [&str; 2] = [&store.name, place];
                [NameKind::Store, NameKind::Channel, NameKind::Budget].map(|kind| (kind, name))
            });
            let of_policies = policies.clone().map(|(namespace, name)| {
                let name: [&str; 2] = [&namespace.name, name];
                (NameKind::Policy, name)
            });
            let mut words = table.claim_words(of_stores.chain(of_policies)).into_iter();
            for (index, store, _) in stores {
                let users = self.users_of(index);
                let state = words.next().flatten();
                let state = state.map(|it| StoreState::new(it, users.into_iter()));
                let channel = words.next().flatten().map(ChannelLease::new);
                let exchanges = store.settings.common.exchanges;
                let budget = words.next().flatten();
                let budget = budget.map(|it| ExchangeBudget::new(it, exchanges));
                if let Some(watched) = watched.get_mut(index) {
                    *watched = Some(Arc::new(WatchedStore {
                        name: store.name.clone(),
                        without_it: configuration.without(index),
                        state,
                        channel,
                        budget,
                    }));
                }
            }
            counted.extend(policies.zip(words).filter_map(|((namespace, name), word)| {
                Some(Policy {
                    namespace: namespace.name.clone(),
                    name: name.clone(),
                    rejected: word?,
                })
            }));
        }
        // Cannot be set before: zones are mapped once in a cycle.
        let _ = self.stores.set(watched);
        let _ = self.policies.set(counted);
    }

    /// Returns the numbers of a store's users: the syncs of namespaces, unless they wait for a caller
    /// of the library, and the broker.
    fn users_of(&self, store: usize) -> Vec<usize> {
        let configuration = self.configuration();
        let namespaces = configuration.namespaces.iter().enumerate();
        let synced = namespaces.filter(|(number, it)| {
            it.period().is_some() && it.store == Some(store) && self.namespace(*number).is_some()
        });
        let waits_for_caller =
            |it: &NamespaceConf| !it.is_synchronous() && self.library().is_defined(&it.name);
        let syncs = synced.enumerate();
        let syncs = syncs.filter(|(_, (_, namespace))| !waits_for_caller(namespace));
        let syncs = syncs.map(|(number, _)| Observer::Sync(number));
        let mut decided = configuration.decided_by(store);
        let broker = decided.next().map(|_| Observer::Broker);
        syncs.chain(broker).map(Observer::number).collect()
    }

    /// Forgets what killed workers alone knew of stores: losses that only the syncs of namespaces which
    /// callers had defined there have found.
    pub(crate) fn forget_late_losses(&self) {
        for (number, store) in self.stores.get().into_iter().flatten().enumerate() {
            if let Some(state) = store.as_ref().and_then(|it| it.state) {
                state.forget_others(self.users_of(number).into_iter());
            }
        }
    }

    /// Returns the policies with their own counter of rejections: the first ones, each once.
    fn named_policies(&self) -> Vec<(&NamespaceConf, Box<str>)> {
        let mut known = HashSet::new();
        let sets = self.rule_sets.borrow();
        let all = sets.all.iter().flat_map(|rules| rules.policies());
        let named = all.filter(|(_, name)| *name != OTHER_POLICIES);
        let named = named.map(|(namespace, name)| (namespace, Box::from(name)));
        let new = named.filter(|policy: &(usize, Box<str>)| known.insert(policy.clone()));
        let policies = new.take(MAX_POLICIES).filter_map(|(namespace, name)| {
            Some((self.configuration().namespaces.get(namespace)?, name))
        });
        policies.collect()
    }

    /// Lets namespaces that moved to another zone since `old` start at zero, though that zone may have
    /// counters of them from before. Warns of them, and of zones whose size differs from that in `old`.
    fn start_anew(&self, old: &MainConf, log: Log<'_>) {
        let warn = |message: core::fmt::Arguments<'_>| log::error(NGX_LOG_WARN, log, message);
        for zone in &self.configuration().zones {
            let mut zones = old.configuration().zones.iter();
            let known = zones.find(|known| known.name == zone.name);
            if let Some(known) = known.filter(|known| known.size != zone.size) {
                warn(format_args!(
                    "ratelimit_zone \"{}\" has another size than before, {} bytes for {}: its \
                     counters start anew in {}",
                    zone.name, zone.size, known.size, zone.origin
                ));
            }
        }
        for namespace in &self.configuration().namespaces {
            let mut known = old.configuration().namespaces.iter();
            let known = known.find(|known| known.name == namespace.name);
            let from = known.and_then(|known| old.configuration().zones.get(known.zone));
            let zones = from.zip(self.configuration().zones.get(namespace.zone));
            if let Some((from, to)) = zones.filter(|(from, to)| from.name != to.name) {
                if let Some(table) = self.zones.get(namespace.zone).and_then(|it| it.table()) {
                    table.start_anew(namespace.name.as_bytes());
                }
                warn(format_args!(
                    "ratelimit_namespace \"{}\" moves from zone \"{}\" to \"{}\": its counters \
                     start anew in {}",
                    namespace.name, from.name, to.name, namespace.origin
                ));
            }
        }
    }

    /// Returns a value that keeps the zones and namespaces alive.
    pub(crate) fn lend(&self) -> Arc<Lent> {
        self.lent.clone()
    }

    /// Returns the zone with this number in the configuration.
    pub(super) fn zone(&self, number: usize) -> Option<&Zone> {
        self.zones.get(number).map(|zone| &**zone)
    }

    /// Returns a function that tells the sync thread whether a newer configuration serves.
    pub(super) fn is_superseded(&'static self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let zones = self.zones().iter().filter_map(|it| Some((it.table()?, it.configuration())));
        let (zones, lent): (Vec<_>, _) = (zones.collect(), self.lent.clone());
        Arc::new(move || {
            // The tables are mapped as long as they are lent.
            let _ = &lent;
            zones.iter().any(|(table, own)| table.configuration() != *own)
        })
    }

    /// Returns the zones, in the order of the configuration.
    pub(super) fn zones(&self) -> &[Rc<Zone>] {
        &self.zones
    }

    /// Returns the tables of the zones, once they are mapped.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &CounterTable<'static>> {
        self.zones.iter().filter_map(|zone| zone.table())
    }

    /// Returns the table of the first zone, for events that belong to no zone.
    pub(crate) fn any_table(&self) -> Option<&CounterTable<'static>> {
        self.zones.first()?.table()
    }

    /// Sets the worker whose event counters this process increments in all zones.
    pub(crate) fn set_worker(&self, worker: usize) {
        self.tables().for_each(|table| table.set_worker(worker));
    }

    /// Returns the namespace with this number in the configuration; `None` before the zones are
    /// mapped.
    pub(super) fn namespace(&self, number: usize) -> Option<&Namespace<'static>> {
        let namespace = self.namespaces.get()?.get(number)?;
        namespace.as_ref().map(|served| &served.namespace)
    }

    /// Returns how the store of the namespace with this number decides; `None` if it does not.
    pub(super) fn synchronous(&self, number: usize) -> Option<Synchronous> {
        self.namespaces.get()?.get(number)?.as_ref()?.synchronous
    }

    /// Returns the store with this number in the configuration, if a namespace is synced with it.
    /// `None` before the zones are mapped.
    pub(super) fn watched(&self, number: usize) -> Option<&Arc<WatchedStore>> {
        self.stores.get()?.get(number)?.as_ref()
    }

    /// Returns the policies with their own counter of rejections; empty before the zones are
    /// mapped.
    pub(super) fn policies(&self) -> &[Policy] {
        self.policies.get().map_or(&[], |policies| policies)
    }

    /// Returns the time at which the zones were mapped.
    pub(super) fn loaded_at(&self) -> Option<UnixMillis> {
        self.loaded_at.get().copied()
    }
}
