//! Namespaces that a caller of the library defines, in addition to those of nginx.conf.

use core::fmt;
use core::hash::Hasher as _;
use std::hash::DefaultHasher;

use super::configuration::{Configuration, NamespaceConf, StoreConf};
use super::namespace::NamespaceOptions;
use super::words::message::Origin;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
use crate::store::registry::StoreSettings;

/// A caller's definition of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDefinition {
    /// The namespace's name.
    pub name: Box<str>,
    /// The name of its zone; `None` for the only zone.
    pub zone: Option<Box<str>>,
    /// The mode of its sync with the store.
    pub sync: SyncMode,
    /// The store; present unless `sync` is [`SyncMode::Local`].
    pub store: Option<DefinedStore>,
    /// The windows in which hits are counted, ascending. In a local namespace, an empty list allows all windows.
    pub window_sizes: Vec<WindowSize>,
}

/// The store of a namespace that a caller defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinedStore {
    /// The name of a `ratelimit_store` in nginx.conf.
    Named(Box<str>),
    /// The settings of a store of its own.
    Own(Box<StoreSettings>),
}

/// An error in the definition of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefineError {
    /// A setting is missing or invalid.
    Wrong(String),
    /// The named zone or store does not exist.
    Unknown(String),
    /// The zone has no room for the namespace.
    NoRoom(String),
}

impl fmt::Display for DefineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefineError::Wrong(text) | DefineError::Unknown(text) | DefineError::NoRoom(text) => {
                f.write_str(text)
            }
        }
    }
}

impl core::error::Error for DefineError {}

impl NamespaceDefinition {
    /// A definition without settings.
    pub fn local(name: &str) -> NamespaceDefinition {
        NamespaceDefinition {
            name: name.into(),
            zone: None,
            sync: SyncMode::Local,
            store: None,
            window_sizes: Vec::new(),
        }
    }
}

impl Configuration {
    /// Returns this configuration with one more namespace, whose name must be new.
    ///
    /// # Errors
    ///
    /// If the named zone or store does not exist, or the zone has no room for the namespace.
    pub fn with_defined(&self, definition: &NamespaceDefinition) -> Result<Self, DefineError> {
        let mut extended = self.clone();
        extended.add_defined(definition)?;
        match extended.check_room() {
            Ok(()) => Ok(extended),
            Err((_, message)) => Err(DefineError::NoRoom(message)),
        }
    }

    /// Returns a configuration with these zones and stores, and without namespaces. It holds the namespaces that are
    /// defined while this configuration is in service.
    pub fn without_namespaces(&self) -> Configuration {
        Configuration {
            zones: self.zones.clone(),
            stores: self.stores.clone(),
            ..Configuration::default()
        }
    }

    /// Adds a namespace, whose name must be new, without checking that its zone has room for it. On error, nothing is
    /// added.
    ///
    /// # Errors
    ///
    /// If the named zone or store does not exist.
    pub fn add_defined(&mut self, definition: &NamespaceDefinition) -> Result<(), DefineError> {
        let zone = self.zone_of(definition)?;
        let store = match (definition.sync, &definition.store) {
            (SyncMode::Local, _) => None,
            (_, Some(DefinedStore::Named(name))) => Some(self.find_store(name)?),
            (_, Some(DefinedStore::Own(settings))) => {
                Some(self.add_store(&definition.name, settings))
            }
            (_, None) => None,
        };
        let its_store = store.and_then(|it| self.stores.get(it));
        let options = NamespaceOptions {
            zone: self.zones.get(zone).map(|zone| zone.name.clone()),
            store: its_store.map(|store| store.name.clone()),
            sync: definition.sync,
            window_sizes: definition.window_sizes.clone(),
            ..NamespaceOptions::default()
        };
        self.namespaces.push(NamespaceConf {
            name: definition.name.clone(),
            origin: Origin::library(),
            zone,
            store,
            options,
            window_sizes: definition.window_sizes.clone(),
            ban_sizes: Vec::new(),
            rates: Vec::new(),
            counters: Vec::new(),
            has_holds: false,
        });
        Ok(())
    }

    /// Returns a hash of a namespace's definition. In processes of one build, equal definitions have equal hashes; the
    /// password of the store is not included.
    pub fn fingerprint(&self, namespace: &NamespaceConf) -> u64 {
        let mut hasher = DefaultHasher::new();
        if namespace.period().is_some() {
            let store = self.store(namespace).map(|it| &it.settings);
            let said = (namespace.options.sync, &namespace.window_sizes, store);
            // The `Debug` output contains no secrets.
            hasher.write(format!("{said:?}").as_bytes());
        }
        hasher.finish()
    }

    /// Returns the index of the store with this name.
    fn find_store(&self, name: &str) -> Result<usize, DefineError> {
        let number = self.stores.iter().position(|store| *store.name == *name);
        number.ok_or_else(|| {
            let message = format!(
                "invalid argument \"store\": expected the name of a ratelimit_store, not \"{name}\""
            );
            DefineError::Unknown(message)
        })
    }

    /// Returns the index of the store with these settings, and adds it if there is none. A new store gets the name of
    /// the `namespace`, with a number appended if that is taken.
    fn add_store(&mut self, namespace: &str, settings: &StoreSettings) -> usize {
        let mut stores = self.stores.iter();
        if let Some(known) = stores.position(|store| store.settings == *settings) {
            return known;
        }
        let is_free = |name: &String| self.stores.iter().all(|store| *store.name != **name);
        let mut names = (2_u32..).map(|number| format!("{namespace}-{number}"));
        let name = Some(namespace.to_owned()).filter(is_free);
        let name = name.or_else(|| names.find(is_free)).unwrap_or_default();
        self.stores.push(StoreConf {
            name: name.into(),
            origin: Origin::library(),
            settings: settings.clone(),
        });
        self.stores.len().saturating_sub(1)
    }

    /// Returns the index of a definition's zone.
    ///
    /// # Errors
    ///
    /// If the zone does not exist, or if the definition names none and there is not exactly one.
    pub fn zone_of(&self, definition: &NamespaceDefinition) -> Result<usize, DefineError> {
        let name = match (&definition.zone, self.zones.as_slice()) {
            (Some(name), _) => name,
            (None, [_]) => return Ok(0),
            (None, zones) => {
                let message = format!(
                    "namespace \"{}\" names no zone, and there are {}: expected \"dict\"",
                    definition.name,
                    zones.len()
                );
                return Err(DefineError::Unknown(message));
            }
        };
        let number = self.zones.iter().position(|zone| zone.name == *name);
        number.ok_or_else(|| {
            let message = format!(
                "invalid argument \"dict\": expected the name of a ratelimit_zone, not \"{name}\""
            );
            DefineError::Unknown(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::configuration::ZoneConf;
    use crate::conf::words::message::Origin;

    fn configuration(zones: &[&str]) -> Configuration {
        let zones = zones.iter().map(|name| ZoneConf {
            name: (*name).into(),
            size: 1 << 20,
            origin: Origin::unknown(),
        });
        Configuration { zones: zones.collect(), ..Configuration::default() }
    }

    /// A namespace that is synced once per second.
    fn synced(name: &str, store: DefinedStore) -> NamespaceDefinition {
        NamespaceDefinition {
            sync: SyncMode::Periodic(core::time::Duration::from_secs(1)),
            store: Some(store),
            window_sizes: vec![WindowSize::MIN],
            ..NamespaceDefinition::local(name)
        }
    }

    fn own(server: &[u8]) -> DefinedStore {
        let mut block = StoreSettings::builder(|_| Ok(Vec::new()));
        block.set(b"strategy", &[b"redis"]).unwrap();
        block.set(b"server", &[server]).unwrap();
        DefinedStore::Own(Box::new(block.finish().unwrap()))
    }

    #[test]
    fn a_store_is_that_of_the_configuration_or_its_own() {
        let mut all = configuration(&["a"]);
        for definition in [
            synced("one", own(b"10.0.0.1")),
            synced("two", own(b"10.0.0.2")),
            // Equal settings share one store.
            synced("three", own(b"10.0.0.1")),
            synced("four", DefinedStore::Named("two".into())),
            NamespaceDefinition::local("five"),
        ] {
            all = all.with_defined(&definition).unwrap();
        }
        // Another store has the name.
        all.stores[0].name = "six".into();
        all = all.with_defined(&synced("six", own(b"10.0.0.3"))).unwrap();
        let stores: Vec<_> = all.stores.iter().map(|it| &*it.name).collect();
        assert_eq!(stores, ["six", "two", "six-2"]);
        let of = all.namespaces.iter().map(|it| (&*it.name, it.store));
        let expected = [
            ("one", Some(0)),
            ("two", Some(1)),
            ("three", Some(0)),
            ("four", Some(1)),
            ("five", None),
            ("six", Some(2)),
        ];
        assert_eq!(of.collect::<Vec<_>>(), expected);
        let is_open = all.namespaces.iter().map(NamespaceConf::is_open);
        let expected = [false, false, false, false, true, false];
        assert_eq!(is_open.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_fingerprint_depends_on_the_definition() {
        let with = |word: &[u8], password: &[u8]| {
            let mut block = StoreSettings::builder(|_| Ok(Vec::new()));
            block.set(b"strategy", &[b"redis"]).unwrap();
            block.set(b"server", &[word]).unwrap();
            block.set(b"password", &[password]).unwrap();
            DefinedStore::Own(Box::new(block.finish().unwrap()))
        };
        let fingerprint = |definition: &NamespaceDefinition| {
            let mut all = configuration(&["a"]).without_namespaces();
            all.add_defined(definition).unwrap();
            all.fingerprint(&all.namespaces[0])
        };
        let one = synced("x", with(b"10.0.0.1", b"secret"));
        let same = fingerprint(&one);
        // The namespace's fingerprint does not include the store's name.
        for alike in [&one, &synced("y", with(b"10.0.0.1", b"another"))] {
            assert_eq!(fingerprint(alike), same);
        }
        let of_ms = |millis| SyncMode::Periodic(core::time::Duration::from_millis(millis));
        for other in [
            synced("x", with(b"10.0.0.2", b"secret")),
            NamespaceDefinition { sync: of_ms(500), ..one.clone() },
            NamespaceDefinition { sync: SyncMode::Synchronous, ..one.clone() },
            NamespaceDefinition {
                window_sizes: vec![WindowSize::MIN, WindowSize::from_millis(2).unwrap()],
                ..one.clone()
            },
            NamespaceDefinition::local("x"),
        ] {
            assert_ne!(fingerprint(&other), same, "{other:?}");
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_changes_nothing() {
        let mut all = configuration(&["a"]);
        let missing = synced("x", DefinedStore::Named("none".into()));
        assert_eq!(
            all.with_defined(&missing).unwrap_err().to_string(),
            "invalid argument \"store\": expected the name of a ratelimit_store, not \"none\""
        );
        let full = (0..10_000).find_map(|number| {
            let definition = NamespaceDefinition::local(&number.to_string());
            match all.with_defined(&definition) {
                Ok(more) => {
                    all = more;
                    None
                }
                Err(error) => Some((number, error)),
            }
        });
        let (number, error) = full.unwrap();
        assert!(matches!(error, DefineError::NoRoom(_)), "{error}");
        assert_eq!((number >= 64, all.namespaces.len()), (true, number));
    }

    #[test]
    fn a_definition_names_a_zone_or_there_is_only_one() {
        let local = NamespaceDefinition::local("api");
        let in_b = NamespaceDefinition { zone: Some("b".into()), ..local.clone() };
        assert_eq!(configuration(&["a"]).zone_of(&local), Ok(0));
        assert_eq!(configuration(&["a", "b"]).zone_of(&in_b), Ok(1));
        for (zones, definition, message) in [
            (
                &["a", "b"][..],
                &local,
                "namespace \"api\" names no zone, and there are 2: expected \"dict\"",
            ),
            (&[], &local, "namespace \"api\" names no zone, and there are 0: expected \"dict\""),
            (
                &["a"],
                &in_b,
                "invalid argument \"dict\": expected the name of a ratelimit_zone, not \"b\"",
            ),
        ] {
            let error = configuration(zones).zone_of(definition).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
