//! Checks of the whole configuration: names refer to definitions, and zones have room for their namespaces.

use super::configuration::{Configuration, NamespaceConf, ZoneConf};
use super::http::{Definition, HttpConf, NamespaceText, NamespaceUse};
use super::namespace::NamespaceOptions;
use super::words::message::{ConfError, Message, Origin};
use super::words::nginx::Nginx;
use crate::policy::algorithm::Algorithm;
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncMode};
use crate::policy::options::OptionError;
use crate::store::registry::StoreKind;
use crate::table::ZoneRoom;

impl HttpConf {
    /// Resolves all of `http`.
    ///
    /// # Errors
    ///
    /// If a name has no definition, or a zone is too small.
    pub fn resolve(mut self, nginx: &mut impl Nginx) -> Result<Configuration, ConfError> {
        self.check_variables(nginx)?;
        self.find_zones();
        self.has_callers |= nginx.has_callers();
        let default = self.default_namespace();
        let warn = &mut |warning| nginx.warn(warning);
        let namespaces = self.namespaces.iter().chain(&default);
        let namespaces = namespaces.map(|namespace| self.resolve_namespace(namespace, warn));
        let namespaces = namespaces.collect::<Result<_, _>>()?;
        let configuration = Configuration {
            namespaces,
            zones: self.zones,
            stores: self.stores,
            rules: self.rules,
            has_precontent: self.has_precontent,
            has_deferred: self.has_deferred,
        };
        match configuration.check_room() {
            Ok(()) => Ok(configuration),
            Err((origin, message)) => Err(ConfError::at(&origin, message)),
        }
    }

    /// Returns the implicit namespace `default` if there is no other and one zone. It is for callers other than rules.
    fn default_namespace(&self) -> Option<NamespaceText> {
        let is_there = self.namespaces.is_empty() && self.zones.len() == 1;
        is_there.then(|| NamespaceText {
            name: DEFAULT_NAMESPACE.into(),
            definition: None,
            uses: Vec::new(),
            lists: Vec::new(),
            bans: Vec::new(),
        })
    }

    fn resolve_namespace(
        &self,
        namespace: &NamespaceText,
        warn: &mut dyn FnMut(Message),
    ) -> Result<NamespaceConf, ConfError> {
        let name = &namespace.name;
        let resolved = |zone, store, options| NamespaceConf {
            name: name.clone(),
            origin: namespace.origin(),
            zone,
            store,
            options,
            window_sizes: namespace.window_sizes(),
            ban_sizes: namespace.ban_sizes(),
            rates: namespace.rates(),
            counters: namespace.counters(),
            has_holds: namespace.has_holds(),
        };
        let Some(definition) = &namespace.definition else {
            if **name != *DEFAULT_NAMESPACE {
                let message = format!(
                    "ratelimit: unknown namespace \"{name}\": expected one that a \
                     \"ratelimit_namespace\" block defines"
                );
                return Err(ConfError::at(&namespace.origin(), message));
            }
            let options = NamespaceOptions::default();
            return Ok(resolved(self.only_zone(namespace)?, None, options));
        };
        let options = &definition.options;
        let zone = match &options.zone {
            Some(zone) => self.find_zone(definition, zone)?,
            None => self.only_zone(namespace)?,
        };
        let store = options.store.as_deref();
        let store = store.map(|store| self.find_store(definition, store));
        let store = store.transpose()?;
        check_windows(namespace, options)?;
        let strategy = store.and_then(|it| self.stores.get(it));
        let strategy = strategy.map(|it| it.settings.kind());
        check_algorithms(namespace, options, strategy)?;
        if store.is_some() && namespace.is_unused() && !self.has_callers {
            let message = format!(
                "no rule counts in it: expected \"ratelimit {name} limit=hits/window;\", or no such \
                 namespace"
            );
            warn(definition.block.message(None, message));
        }
        let smallest = namespace.window_sizes().into_iter().min_by_key(|size| size.usual());
        if let Some(warning) = smallest.and_then(|size| options.sync_rate_warning(size)) {
            warn(definition.block.message(Some(warning.directive), warning.message));
        }
        Ok(resolved(zone, store, options.clone()))
    }

    /// Returns the index of the zone that a namespace names.
    fn find_zone(&self, definition: &Definition, name: &str) -> Result<usize, ConfError> {
        let zone = self.zones.iter().position(|zone| *zone.name == *name);
        zone.ok_or_else(|| {
            let error = OptionError::new(format!(
                "unknown zone \"{name}\": expected one that \"ratelimit_zone zone=name:size;\" \
                 defines"
            ));
            definition.block.error(error.of("zone"))
        })
    }

    /// Returns the index of the only zone, for a namespace that names none.
    fn only_zone(&self, namespace: &NamespaceText) -> Result<usize, ConfError> {
        let name = &namespace.name;
        let message = match self.zones.as_slice() {
            [_] => return Ok(0),
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
        Err(ConfError::at(&namespace.origin(), message))
    }

    /// Returns the index of the store that a namespace names.
    fn find_store(&self, definition: &Definition, name: &str) -> Result<usize, ConfError> {
        let store = self.stores.iter().position(|store| *store.name == *name);
        store.ok_or_else(|| {
            let error = OptionError::new(format!(
                "unknown store \"{name}\": expected one that a \"ratelimit_store\" block defines"
            ));
            definition.block.error(error.of("store"))
        })
    }
}

/// Checks that rules use only windows listed in `window_sizes`, if the namespace has that directive.
fn check_windows(namespace: &NamespaceText, options: &NamespaceOptions) -> Result<(), ConfError> {
    let listed = &options.window_sizes;
    let mut uses = namespace.uses.iter();
    let other = uses.find(|it| it.has_window() && !listed.is_empty() && !listed.contains(&it.size));
    let Some(NamespaceUse { origin, window, size, .. }) = other else {
        return Ok(());
    };
    let window = match size.is_of_calendar() {
        true => size.to_string().into(),
        false => window.clone(),
    };
    let expected = listed.iter().map(ToString::to_string);
    let message = format!(
        "ratelimit: the window {window} is not one of the window_sizes of namespace \"{}\": \
         expected {}",
        namespace.name,
        expected.collect::<Vec<_>>().join(", ")
    );
    Err(ConfError::at(origin, message))
}

/// Checks that the algorithms of rules go with the sync mode. Periodic sync needs windows that nodes can sum up; a
/// synchronous store has to support the algorithm.
fn check_algorithms(
    namespace: &NamespaceText,
    options: &NamespaceOptions,
    store: Option<StoreKind>,
) -> Result<(), ConfError> {
    let goes = |algorithm: Algorithm| {
        let decides = || store.is_none_or(|store| store.decides_by(algorithm));
        options.sync.goes_with(algorithm, decides)
    };
    let uses = namespace.uses.iter().map(|it| (&it.origin, it.algorithm));
    let mut uses = uses.chain(namespace.lists.iter().map(|it| (&it.origin, it.algorithm)));
    let Some((origin, algorithm)) = uses.find(|(_, algorithm)| !goes(*algorithm)) else {
        return Ok(());
    };
    let (name, sync) = (&namespace.name, options.sync);
    let word = match algorithm {
        Algorithm::Bucket => "rate=".into(),
        Algorithm::Concurrency => "concurrent=".into(),
        _ => format!("window={}", algorithm.name()),
    };
    let message = match store.filter(|_| sync == SyncMode::Synchronous) {
        Some(_) if algorithm.is_of_concurrency() => format!(
            "ratelimit: concurrent= does not go with \"sync_rate 0;\" of namespace \"{name}\", since no \
             store knows which requests are under way: expected \"sync_rate off;\" or a period there"
        ),
        Some(store) => {
            let accepted = match store.decides_by(Algorithm::Elastic) {
                true => "sliding, fixed or elastic",
                false => "sliding or fixed",
            };
            format!(
                "ratelimit: {word} does not go with \"sync_rate 0;\" of namespace \"{name}\", whose \
                 strategy {} cannot count so exactly: expected a {accepted} window, or \
                 \"sync_rate off;\" there",
                store.name()
            )
        }
        None => format!(
            "ratelimit: {word} does not go with \"sync_rate {sync}\" of namespace \"{name}\": \
             expected \"sync_rate off;\" or \"sync_rate 0;\" there"
        ),
    };
    Err(ConfError::at(origin, message))
}

impl Configuration {
    /// Checks that each zone has room for its namespaces. This depends only on the zone's size, so it is known before
    /// the zone is mapped.
    ///
    /// # Errors
    ///
    /// Returns the place of the first namespace without room, and a message.
    pub(super) fn check_room(&self) -> Result<(), (Origin, String)> {
        for (number, ZoneConf { name: zone, size, .. }) in self.zones.iter().enumerate() {
            let room = ZoneRoom::of(*size);
            let mut left = room;
            for namespace in self.namespaces_in(number) {
                let (namespaces, shards) = (
                    left.namespaces.checked_sub(1),
                    left.shards.checked_sub(self.shards(namespace).into()),
                );
                let reason = match (namespaces, shards) {
                    (Some(namespaces), Some(shards)) => {
                        left = ZoneRoom { namespaces, shards };
                        continue;
                    }
                    (None, _) => format!("{} namespaces: expected fewer", room.namespaces),
                    (_, None) => format!(
                        "{} shards of namespaces that are synced: expected fewer (16 for each \
                         with a Redis Cluster, 1 for each other)",
                        room.shards
                    ),
                };
                let message = format!(
                    "ratelimit_namespace \"{}\": zone \"{zone}\" has room for {reason}, or a \
                     larger zone",
                    namespace.name
                );
                return Err((namespace.origin.clone(), message));
            }
        }
        Ok(())
    }
}
