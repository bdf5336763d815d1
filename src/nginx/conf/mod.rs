//! The configuration of `http`: zones, stores and namespaces, and how they find each other.
//!
//! - [`directives`], [`blocks`], [`ratelimit`]: what each directive makes of its words
//! - [`text`], [`variable`]: text and variables
//! - [`room`]: whether zones have room for the namespaces
//! - [`status`]: what is told of it all
//! - [`location`], [`rules`]: the configuration of a location, and the rules in it

mod blocks;
mod directives;
mod location;
mod ratelimit;
mod room;
mod rules;
mod status;
mod text;
mod variable;

use core::fmt;
use core::time::Duration;
use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use nginx_sys::{NGX_LOG_ALERT, NGX_LOG_WARN, ngx_conf_t, ngx_log_t};

use super::log;
use super::time::unix_now;
use super::zone::Zone;
use crate::broker::{DecidingStore, SharedQueues, WatchedStore};
use crate::conf::namespace::NamespaceOptions;
use crate::conf::sharing::{Shared, Sharing};
use crate::engine::prometheus::OTHER_POLICIES;
use crate::engine::{Deciders, Namespace, RateLimitingError};
use crate::policy::namespace::{DEFAULT_NAMESPACE, OnError, SyncMode};
use crate::policy::options::{DirectiveName, OptionWarning, shown};
use crate::policy::window::{UnixMillis, WindowSize};
use crate::store::options::StoreOptions;
use crate::store::registry::StoreSettings;
use crate::store::strategy::{NodeId, Shard};
use crate::table::{CounterTable, NameKind, Named, StoreState};

pub(super) use directives::COMMANDS;
pub(super) use location::{Content, Headers, LocationConf, Phase, Settings};
pub(super) use rules::{Active, ActiveLimit, ActiveRule, Cost, Key as RuleKey, OwnKey, RuleSet};
pub(super) use status::Look;
pub(super) use text::{Amount, Evaluated, EvaluationError};

use directives::{Failure, Word};
use rules::RuleLimit;

/// The configuration of `http`.
#[derive(Debug, Default)]
pub(super) struct MainConf {
    zones: Vec<ZoneConf>,
    stores: Vec<StoreConf>,
    /// Those that are defined, and those that are used.
    namespaces: Vec<Rc<NamespaceConf>>,
    /// Where the rules stand, in the order of the configuration.
    rules: Vec<Origin>,
    /// Where rules apply that share counters, and by which keys.
    shared: RefCell<Vec<AppliedRules>>,
    /// Whether any level decides after access control.
    pub(super) has_precontent: bool,
    /// Whether any rule charges hits when the response is known.
    pub(super) has_late: bool,
    /// The index of the variable that keeps a request's context.
    pub(super) context_slot: usize,
    /// The index of the variable that keeps what a request is suspended for.
    pub(super) suspension_slot: usize,
    /// The rules that apply on any level.
    rule_sets: RefCell<Vec<Rc<RuleSet>>>,
    /// Set when the zones are mapped.
    policies: OnceCell<Vec<Policy>>,
    /// Set likewise.
    loaded_at: OnceCell<UnixMillis>,
    /// Set when the zones are mapped, if there are deciders.
    shared_queues: OnceCell<Arc<SharedQueues>>,
    /// Of which whoever syncs its namespaces has one.
    lent: Arc<Lent>,
}

/// While there is another one of a configuration's, its zones and namespaces stay.
#[derive(Debug, Default)]
pub(super) struct Lent;

impl Drop for MainConf {
    fn drop(&mut self) {
        // nginx drops the configuration of a process that ends, or that has another one. The thread
        // that syncs is waited for before, but not for ever.
        if Arc::get_mut(&mut self.lent).is_none() {
            core::mem::forget(core::mem::take(&mut self.namespaces));
            core::mem::forget(core::mem::take(&mut self.zones));
        }
    }
}

/// A `ratelimit_zone`.
#[derive(Debug)]
struct ZoneConf {
    zone: Rc<Zone>,
    origin: Origin,
}

/// A `ratelimit_store`.
#[derive(Debug)]
struct StoreConf {
    name: Box<str>,
    origin: Origin,
    options: StoreSettings,
    /// Set when the zones are mapped, if a namespace is synced with it.
    watched: OnceCell<Arc<WatchedStore>>,
}

/// Rules that apply to requests, and the key of their level, as it is written.
#[derive(Debug)]
struct AppliedRules {
    rules: Rc<RuleSet>,
    key: &'static [u8],
}

/// A policy whose rejections are counted by themselves.
#[derive(Debug)]
struct Policy {
    namespace: Rc<NamespaceConf>,
    name: Box<str>,
    rejected: Named<'static>,
}

/// The most policies whose rejections are counted by themselves.
const MAX_POLICIES: usize = 1000;

/// A namespace, as the configuration knows it.
#[derive(Debug, Default)]
struct NamespaceConf {
    name: Box<str>,
    definition: OnceCell<Definition>,
    uses: RefCell<Vec<Use>>,
    /// Set when the whole configuration was read.
    zone: OnceCell<Rc<Zone>>,
    /// Set when the zones are mapped, before any request.
    namespace: OnceCell<Namespace<'static>>,
    /// Set likewise, if its store decides.
    synchronous: OnceCell<Synchronous>,
}

/// A `ratelimit_namespace`.
#[derive(Debug)]
struct Definition {
    origin: Origin,
    /// Where the directives in the block stand.
    places: Places,
    options: NamespaceOptions,
}

/// A limit in a namespace.
#[derive(Debug)]
struct Use {
    origin: Origin,
    size: WindowSize,
    /// The size as written.
    window: Word,
}

/// A namespace that is synced with a store: all that takes.
#[derive(Clone)]
pub(super) struct SyncedNamespace {
    pub(super) name: Box<str>,
    pub(super) namespace: &'static Namespace<'static>,
    /// The windows that are counted in.
    pub(super) sizes: Vec<WindowSize>,
    /// How often it is synced.
    pub(super) period: Duration,
    /// How long a worker that says nothing is thought to be alive.
    pub(super) lease_lifetime: Duration,
    pub(super) store: Arc<WatchedStore>,
    /// The number of this namespace among those with the store.
    pub(super) number: usize,
    pub(super) options: StoreSettings,
    /// Whether the store decides: only what was counted without it is pushed.
    pub(super) is_synchronous: bool,
    /// Keeps the configuration's `namespace` and its table as long as there is this.
    _lent: Arc<Lent>,
}

/// How requests are decided on in a synchronous namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synchronous {
    /// Who decides: their numbers are those of all deciders in [`MainConf::deciding`].
    pub(super) store: Deciders,
    pub(super) on_error: OnError,
    /// How long a request may wait.
    pub(super) timeout: Duration,
}

/// Where the directives of a block stand, in their order.
#[derive(Debug, Default)]
struct Places(Vec<(Box<[u8]>, Origin)>);

/// A place in a configuration file.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    file: Box<str>,
    line: usize,
}

impl MainConf {
    /// The namespace `name`, which need not be defined yet.
    fn namespace(&mut self, name: &str) -> Rc<NamespaceConf> {
        if let Some(known) = self.namespaces.iter().find(|known| &*known.name == name) {
            return known.clone();
        }
        let namespace = Rc::new(NamespaceConf {
            name: name.into(),
            ..NamespaceConf::default()
        });
        self.namespaces.push(namespace.clone());
        namespace
    }

    /// The namespace `name`, in which a rule counts by `limits`.
    fn use_namespace(
        &mut self,
        name: &str,
        limits: &[RuleLimit],
        origin: Origin,
    ) -> Rc<NamespaceConf> {
        let namespace = self.namespace(name);
        namespace
            .uses
            .borrow_mut()
            .extend(limits.iter().map(|limit| Use {
                origin: origin.clone(),
                size: limit.limit.size,
                window: limit.window,
            }));
        namespace
    }

    /// The number of a rule that stands at `origin`: those before it have smaller ones.
    fn number_rule(&mut self, origin: &Origin) -> usize {
        self.rules.push(origin.clone());
        self.rules.len()
    }

    /// Notes the rules that apply on a level, and their key.
    pub(super) fn note_level(&self, level: &LocationConf) {
        let key = level.written_key();
        let Some(rules) = level.effective_rules() else {
            return;
        };
        let mut sets = self.rule_sets.borrow_mut();
        if sets.last().is_none_or(|last| !Rc::ptr_eq(last, rules)) {
            sets.push(rules.clone());
        }
        let mut all = self.shared.borrow_mut();
        // Most locations inherit both, as the one before did.
        let last = all.last().filter(|last| Rc::ptr_eq(&last.rules, rules));
        if last.is_none_or(|last| last.key != key) {
            let rules = rules.clone();
            all.push(AppliedRules { rules, key });
        }
    }

    /// Warns of rules of different limits that share a counter, once all levels were noted.
    pub(super) fn warn_of_sharing(&self, log: *mut ngx_log_t) {
        let levels = self.shared.take();
        let mut sharing = Sharing::default();
        for AppliedRules { rules, key } in &levels {
            for rule in rules.rules() {
                let key = rule.key.text.as_ref().map_or(*key, |own| own.written.0);
                sharing.add(rule.number, key, &rule.namespace.name, &rule.shared);
            }
        }
        let place = |rule: usize| self.rules.get(rule.saturating_sub(1));
        for Shared {
            first,
            second,
            key,
            size,
        } in sharing.pairs()
        {
            if let (Some(first), Some(second)) = (place(first), place(second)) {
                let key = shown(key);
                let message = format_args!(
                    "ratelimit: this rule and that in {first} have different limits, and share the \
                     counter of key \"{key}\" and window {size}: expected counter=name for another \
                     counter, or counter=default if this is meant, in {second}"
                );
                log::error(NGX_LOG_WARN, log, message);
            }
        }
    }

    /// Whether any level has a rule.
    pub(super) fn has_rules(&self) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|namespace| !namespace.uses.borrow().is_empty())
    }

    /// Checks, once all of `http` was read, what one directive alone could not know.
    pub(super) fn resolve(&self, cf: &ngx_conf_t) -> Result<(), Failure> {
        for namespace in &self.namespaces {
            let zone = self.resolve_namespace(namespace, cf.log)?;
            // A configuration is resolved once.
            let _ = namespace.zone.set(zone);
        }
        self.check_room()
    }

    /// Checks a namespace; returns its zone.
    fn resolve_namespace(
        &self,
        namespace: &NamespaceConf,
        log: *mut ngx_log_t,
    ) -> Result<Rc<Zone>, Failure> {
        let NamespaceConf { name, .. } = namespace;
        let Some(definition) = namespace.definition.get() else {
            if **name != *DEFAULT_NAMESPACE {
                let message = format!(
                    "ratelimit: unknown namespace \"{name}\": expected one that a \
                     \"ratelimit_namespace\" block defines"
                );
                return Err(Failure::At(namespace.origin(), message));
            }
            return self.only_zone(namespace);
        };
        let options = &definition.options;
        let title = format!("ratelimit_namespace \"{name}\"");
        let fail = |directive: &'static str, message| {
            let place = definition.place_of(directive.into());
            Err(Failure::At(place.clone(), message))
        };

        let zone = match &options.zone {
            Some(zone) => match self.zone(zone) {
                Some(known) => known.zone.clone(),
                None => {
                    let message = format!(
                        "{title}: unknown zone \"{zone}\": expected one that \
                         \"ratelimit_zone zone=name:size;\" defines"
                    );
                    return fail("zone", message);
                }
            },
            None => self.only_zone(namespace)?,
        };
        if let Some(store) = &options.store {
            if !self.stores.iter().any(|it| it.name == *store) {
                let message = format!(
                    "{title}: unknown store \"{store}\": expected one that a \
                     \"ratelimit_store\" block defines"
                );
                return fail("store", message);
            }
        }
        for Use {
            origin,
            size,
            window,
        } in &*namespace.uses.borrow()
        {
            if !options.window_sizes.is_empty() && !options.window_sizes.contains(size) {
                let expected = options.window_sizes.iter().map(ToString::to_string);
                let message = format!(
                    "ratelimit: the window {window} is not one of the window_sizes of namespace \
                     \"{name}\": expected {}",
                    expected.collect::<Vec<_>>().join(", ")
                );
                return Err(Failure::At(origin.clone(), message));
            }
        }
        if let Some(warning) = namespace
            .window_sizes()
            .first()
            .and_then(|size| options.sync_rate_warning(*size))
        {
            definition.warn(&title, &warning, log);
        }
        Ok(zone)
    }

    /// The name of the store of a namespace, if it has one.
    pub(super) fn store_of(&self, namespace: &str) -> Option<&str> {
        let mut namespaces = self.namespaces.iter();
        let namespace = namespaces.find(|it| *it.name == *namespace)?;
        namespace.store(&self.stores).map(|store| &*store.name)
    }

    /// The namespaces that are synced, once the zones are mapped.
    pub(super) fn synced(&'static self) -> Vec<SyncedNamespace> {
        let mut synced: Vec<SyncedNamespace> = Vec::new();
        for namespace in &self.namespaces {
            let Some(mut namespace) = namespace.synced(&self.stores, &self.lent) else {
                continue;
            };
            let same_store = |it: &&SyncedNamespace| Arc::ptr_eq(&it.store, &namespace.store);
            namespace.number = synced.iter().filter(same_store).count();
            synced.push(namespace);
        }
        synced
    }

    /// The stores that decide about requests, once the zones are mapped.
    pub(super) fn deciding(&'static self) -> Vec<DecidingStore> {
        let mut deciding: Vec<DecidingStore> = Vec::new();
        for store in self.deciding_stores() {
            let mut namespaces = self.synchronous(store);
            let node = namespaces.find_map(|it| Some(it.namespace.get()?.table().node()));
            let shards = self.synchronous(store).flat_map(|namespace| {
                let namespace: Arc<str> = namespace.name.as_ref().into();
                (0..store.options.shards()).map(move |number| Shard {
                    namespace: namespace.clone(),
                    number,
                })
            });
            // Each has one: it is the store of a namespace.
            let node = node.zip(store.watched.get());
            deciding.extend(node.map(|(node, watched)| DecidingStore {
                store: watched.clone(),
                source: Arc::new(store.options.clone()),
                node: NodeId(node),
                shards: store.is_divided().then(|| shards.collect()),
            }));
        }
        deciding
    }

    /// The stores of synchronous namespaces, each once.
    fn deciding_stores(&self) -> impl Iterator<Item = &StoreConf> {
        let stores = self.stores.iter();
        stores.filter(|store| self.synchronous(store).next().is_some())
    }

    /// The namespaces about which a store decides.
    fn synchronous<'c>(&'c self, store: &'c StoreConf) -> impl Iterator<Item = &'c NamespaceConf> {
        let namespaces = self.namespaces.iter().map(|it| &**it);
        namespaces.filter(|it| {
            let its_store = it.store(&self.stores).filter(|_| it.is_synchronous());
            its_store.is_some_and(|its| its.name == store.name)
        })
    }

    /// What workers share to ask those stores, if there are any, and it could be made.
    pub(super) fn shared_queues(&self) -> Option<Arc<SharedQueues>> {
        self.shared_queues.get().cloned()
    }

    /// Numbers the deciders, and makes what so many workers share to ask them.
    ///
    /// # Errors
    ///
    /// There is too little memory, or there are too many open files. Then nobody can be asked.
    pub(super) fn share(&self, workers: usize) -> io::Result<()> {
        let deciders = self.number_deciders();
        if deciders > 0 {
            // Zones are mapped once in a cycle.
            let _ = self
                .shared_queues
                .set(Arc::new(SharedQueues::new(workers, deciders)?));
        }
        Ok(())
    }

    /// Gives the deciders their numbers, in the order of [`MainConf::deciding`]. Returns how many there
    /// are.
    fn number_deciders(&self) -> usize {
        let mut next: usize = 0;
        for store in self.deciding_stores() {
            let shards = store.options.shards();
            let mut first = next;
            for namespace in self.synchronous(store) {
                namespace.set_synchronous(Deciders { first, shards });
                next = first.saturating_add(shards.into());
                if store.is_divided() {
                    first = next;
                }
            }
        }
        next
    }

    /// The zone of a namespace that names none.
    fn only_zone(&self, namespace: &NamespaceConf) -> Result<Rc<Zone>, Failure> {
        let name = &namespace.name;
        let message = match self.zones.as_slice() {
            [only] => return Ok(only.zone.clone()),
            [] => format!(
                "namespace \"{name}\" has no zone for its counters: expected \
                 \"ratelimit_zone zone=name:size;\" in http"
            ),
            [..] => format!(
                "namespace \"{name}\" has no zone, and there are {}: expected \"zone name;\" in \
                 \"ratelimit_namespace {name} {{ ... }}\"",
                self.zones.len()
            ),
        };
        Err(Failure::At(namespace.origin(), message))
    }

    /// Finds every namespace in its zone, once the zones are mapped. That there is room was checked;
    /// nor would the lack of it be a reason for a running nginx to end: what has none is not limited.
    pub(super) fn attach(&'static self, log: *mut ngx_log_t) {
        self.begin_configuration();
        for namespace in &self.namespaces {
            if let Err(error) = namespace.attach(&self.stores) {
                let (name, origin) = (&namespace.name, namespace.origin());
                log::error(
                    NGX_LOG_ALERT,
                    log,
                    format_args!("ratelimit_namespace \"{name}\": {error} in {origin}"),
                );
            }
        }
        self.claim_words();
        // Zones are mapped once in a cycle.
        let _ = self.loaded_at.set(unix_now());
    }

    /// Has stores and policies find what is known of them in the zones of their namespaces.
    fn claim_words(&'static self) {
        let mut counted = Vec::new();
        let policies = self.policies();
        for ZoneConf { zone, .. } in &self.zones {
            let Some(table) = zone.table() else { continue };
            let is_in_zone =
                |it: &NamespaceConf| it.zone.get().is_some_and(|its| Rc::ptr_eq(its, zone));
            let stores = self.stores.iter();
            let stores = stores.filter(|store| self.first_synced(store).is_some_and(is_in_zone));
            let stores: Vec<_> = stores.map(|store| (store, store.place())).collect();
            let policies = policies
                .iter()
                .filter(|(namespace, _)| is_in_zone(namespace));
            let of_stores = stores.iter().map(|(store, place)| {
                let name: [&str; 2] = [&store.name, place];
                (NameKind::Store, name)
            });
            let of_policies = policies.clone().map(|(namespace, name)| {
                let name: [&str; 2] = [&namespace.name, name];
                (NameKind::Policy, name)
            });
            let mut words = table.claim_words(of_stores.chain(of_policies)).into_iter();
            for (store, _) in stores {
                let state = words.next().flatten().map(StoreState::new);
                // Zones are mapped once in a cycle.
                let _ = store.watched.set(Arc::new(WatchedStore {
                    name: store.name.clone(),
                    without_it: self.without(store),
                    state,
                }));
            }
            counted.extend(policies.zip(words).filter_map(|((namespace, name), word)| {
                Some(Policy {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    rejected: word?,
                })
            }));
        }
        // As above.
        let _ = self.policies.set(counted);
    }

    /// The policies whose rejections are counted by themselves: the first ones, each once.
    fn policies(&self) -> Vec<(Rc<NamespaceConf>, Box<str>)> {
        let mut known = HashSet::new();
        let sets = self.rule_sets.borrow();
        let all = sets.iter().flat_map(|rules| rules.policies());
        let named = all.filter(|(_, name)| *name != OTHER_POLICIES);
        let named = named.map(|(namespace, name)| (namespace.clone(), Box::from(name)));
        let new = named.filter(|(namespace, name): &(_, Box<str>)| {
            known.insert((Rc::as_ptr(namespace), name.clone()))
        });
        new.take(MAX_POLICIES).collect()
    }

    /// The namespaces that are synced with a store.
    fn synced_with<'c>(&'c self, store: &'c StoreConf) -> impl Iterator<Item = &'c NamespaceConf> {
        let namespaces = self.namespaces.iter().map(|it| &**it);
        namespaces.filter(|it| {
            let its_store = it.period().and_then(|_| it.store(&self.stores));
            its_store.is_some_and(|its| its.name == store.name)
        })
    }

    fn first_synced<'c>(&'c self, store: &'c StoreConf) -> Option<&'c NamespaceConf> {
        self.synced_with(store).next()
    }

    /// What becomes of requests while a store is away.
    fn without(&self, store: &StoreConf) -> String {
        let mut parts = Vec::new();
        for namespace in self.synced_with(store) {
            let options = namespace.definition.get().map(|it| &it.options);
            let part = match options.map(|it| (it.sync, it.on_error)) {
                Some((SyncMode::Synchronous, OnError::Local)) => {
                    "on_error local: requests are decided by what this node knows"
                }
                Some((SyncMode::Synchronous, OnError::Allow)) => {
                    "on_error allow: requests are admitted"
                }
                Some((SyncMode::Synchronous, OnError::Deny)) => {
                    "on_error deny: requests are denied"
                }
                _ => "nodes go on with what they know",
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.join(", ")
    }

    /// Warns of zones that have another size than in `old`, and of namespaces that are in another
    /// zone: they start anew.
    pub(super) fn warn_of_new_starts(&self, old: &MainConf, log: *mut ngx_log_t) {
        for ZoneConf { zone, origin } in &self.zones {
            let known = old.zone(&zone.name).map(|known| &known.zone);
            if let Some(known) = known.filter(|known| known.size != zone.size) {
                log::error(
                    NGX_LOG_WARN,
                    log,
                    format_args!(
                        "ratelimit_zone \"{}\" has another size than before, {} bytes for {}: its \
                         counters start anew in {origin}",
                        zone.name, zone.size, known.size
                    ),
                );
            }
        }
        for namespace in &self.namespaces {
            let known = old.namespaces.iter().find(|old| old.name == namespace.name);
            let zones = known.and_then(|known| Some((known.zone.get()?, namespace.zone.get()?)));
            if let Some((from, to)) = zones.filter(|(from, to)| from.name != to.name) {
                log::error(
                    NGX_LOG_WARN,
                    log,
                    format_args!(
                        "ratelimit_namespace \"{}\" moves from zone \"{}\" to \"{}\": its \
                         counters start anew in {}",
                        namespace.name,
                        from.name,
                        to.name,
                        namespace.origin()
                    ),
                );
            }
        }
    }

    /// The first of all zones' tables, for what is of no zone.
    pub(super) fn any_table(&self) -> Option<&CounterTable<'static>> {
        self.zones.first()?.zone.table()
    }

    /// The zone `name`.
    fn zone(&self, name: &str) -> Option<&ZoneConf> {
        self.zones.iter().find(|known| *known.zone.name == *name)
    }

    /// Makes this process count events as worker `worker` in all zones.
    pub(super) fn set_worker(&self, worker: usize) {
        for table in self.zones.iter().filter_map(|it| it.zone.table()) {
            table.set_worker(worker);
        }
    }
}

impl StoreConf {
    /// Where it is.
    fn place(&self) -> String {
        let servers = self.options.common.servers.iter().map(ToString::to_string);
        servers.collect::<Vec<_>>().join(" ")
    }

    /// Whether the keys of a namespace are in several shards, each of which decides for itself.
    fn is_divided(&self) -> bool {
        self.options.shards() > 1
    }
}

impl NamespaceConf {
    /// Where it is defined, or else first used.
    fn origin(&self) -> Origin {
        match (self.definition.get(), self.uses.borrow().first()) {
            (Some(Definition { origin, .. }), _) | (None, Some(Use { origin, .. })) => {
                origin.clone()
            }
            (None, None) => Origin::unknown(),
        }
    }

    /// The windows that are counted in, ascending.
    fn window_sizes(&self) -> Vec<WindowSize> {
        let listed = self.definition.get().map(|it| &it.options.window_sizes);
        let mut sizes = listed.cloned().unwrap_or_default();
        sizes.extend(self.uses.borrow().iter().map(|it| it.size));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn attach(&'static self, stores: &[StoreConf]) -> Result<(), RateLimitingError> {
        if let Some(table) = self.zone.get().and_then(|zone| zone.table()) {
            let namespace = Namespace::new(&self.name, table)?.synced(self.shards(stores))?;
            // Zones are mapped once in a cycle.
            let _ = self.namespace.set(namespace);
        }
        Ok(())
    }

    /// Into how many shards the namespace is divided; 0: it is not synced.
    fn shards(&self, stores: &[StoreConf]) -> u16 {
        let store = self.period().and_then(|_| self.store(stores));
        store.map_or(0, |store| store.options.shards())
    }

    /// The store that the namespace names.
    fn store<'s>(&self, stores: &'s [StoreConf]) -> Option<&'s StoreConf> {
        let name = self.definition.get()?.options.store.as_deref()?;
        stores.iter().find(|store| *store.name == *name)
    }

    fn is_synchronous(&self) -> bool {
        let definition = self.definition.get();
        definition.is_some_and(|it| it.options.sync == SyncMode::Synchronous)
    }

    /// Notes who decides.
    fn set_synchronous(&self, store: Deciders) {
        if let Some(Definition { options, .. }) = self.definition.get() {
            // Zones are mapped once in a cycle.
            let _ = self.synchronous.set(Synchronous {
                store,
                on_error: options.on_error,
                timeout: options.timeout,
            });
        }
    }

    /// How often the namespace is synced, if it is: one whose store decides, to push what was counted
    /// while the store was away.
    fn period(&self) -> Option<Duration> {
        match self.definition.get()?.options.sync {
            SyncMode::Periodic(period) => Some(period),
            SyncMode::Synchronous => Some(Duration::from_secs(1)),
            SyncMode::Local => None,
        }
    }

    /// All that syncing takes, if the namespace is synced.
    fn synced(&'static self, stores: &[StoreConf], lent: &Arc<Lent>) -> Option<SyncedNamespace> {
        let (period, namespace) = (self.period()?, self.namespace.get()?);
        let store = self.store(stores)?;
        let StoreOptions {
            connect_timeout,
            timeout,
            ..
        } = &store.options.common;
        let attempts = u32::try_from(store.options.attempts()).unwrap_or(u32::MAX);
        let exchange = connect_timeout
            .saturating_add(*timeout)
            .saturating_mul(attempts);
        Some(SyncedNamespace {
            name: self.name.clone(),
            namespace,
            sizes: self.window_sizes(),
            period,
            lease_lifetime: exchange.saturating_mul(2).max(Duration::from_secs(2)),
            store: store.watched.get()?.clone(),
            number: 0,
            options: store.options.clone(),
            is_synchronous: self.is_synchronous(),
            _lent: lent.clone(),
        })
    }
}

impl Definition {
    /// Where a directive of the block stands.
    fn place_of(&self, directive: DirectiveName) -> &Origin {
        self.places.of(directive).unwrap_or(&self.origin)
    }

    /// Warns of a directive of the block, which `title` names.
    fn warn(&self, title: &str, warning: &OptionWarning, log: *mut ngx_log_t) {
        let (message, place) = (&warning.message, self.place_of(warning.directive));
        let message = format_args!("{title}: {message} in {place}");
        log::error(NGX_LOG_WARN, log, message);
    }
}

impl Places {
    /// Where a directive stands, if it was given.
    fn of(&self, directive: DirectiveName) -> Option<&Origin> {
        let name = directive.name.as_bytes();
        let mut same = self.0.iter().filter(|(it, _)| **it == *name);
        same.nth(directive.index).map(|(_, origin)| origin)
    }
}

impl Origin {
    /// Where nginx is reading now.
    fn of(cf: &ngx_conf_t) -> Origin {
        // SAFETY: while nginx reads a file, `conf_file` tells which; it is null for `-g`.
        match unsafe { cf.conf_file.as_ref() } {
            Some(file) => Origin {
                file: String::from_utf8_lossy(file.file.name.as_bytes()).into(),
                line: file.line,
            },
            None => Origin::unknown(),
        }
    }

    fn unknown() -> Origin {
        Origin {
            file: "command line".into(),
            line: 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
