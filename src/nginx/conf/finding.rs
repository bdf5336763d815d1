//! How callers of the library define namespaces, and find them.

use core::cell::RefCell;

use super::found::{FoundNamespace, HeldNamespace};
use super::library_error::LibraryError;
use super::main::MainConf;
use crate::conf::configuration::NamespaceConf;
use crate::conf::defined::NamespaceDefinition;
use crate::engine::Namespace;
use crate::policy::namespace::{DEFAULT_NAMESPACE, SyncMode};

/// What becomes of a definition.
pub(in super::super) enum Defined {
    /// It is one.
    Made,
    /// Something else has defined the namespace before, and that stays: nginx.conf, at a place that the
    /// text says, or another instance.
    Before(String),
}

impl MainConf {
    /// Defines a namespace in an instance, while the configuration is read or afterwards.
    pub(in super::super) fn define(
        &'static self,
        instance: u32,
        definition: &NamespaceDefinition,
    ) -> Result<Defined, LibraryError> {
        let (library, name) = (self.library(), &*definition.name);
        if library.defines(instance, name)? {
            return Err(LibraryError::Defined(name.into()));
        }
        let mut namespaces = self.configuration().namespaces.iter();
        let before = match namespaces.find(|it| *it.name == *name) {
            _ if library.is_defined(name) => Some("in another instance".into()),
            Some(conf) => Some(format!("in {}", conf.origin)),
            None => None,
        };
        if before.is_none() {
            if !self.is_attached() {
                self.extend(definition)?;
            } else if definition.sync == SyncMode::Local {
                self.serve_own(definition)?;
            } else {
                return Err(LibraryError::Phase(
                    "a namespace with a store cannot be defined any more in workers: expected \
                     init_by_lua (in C, postconfiguration), or nginx.conf",
                ));
            }
        }
        library.note_definition(instance, name, before.is_none())?;
        Ok(before.map_or(Defined::Made, Defined::Before))
    }

    /// The handle of a namespace that an instance or nginx.conf defines.
    pub(in super::super) fn find(
        &'static self,
        instance: u32,
        name: &str,
    ) -> Result<u32, LibraryError> {
        if !self.is_attached() {
            return Err(LibraryError::Phase(
                "no namespace can be used before workers start",
            ));
        }
        let library = self.library();
        let is_there = library.defines(instance, name)?;
        let namespaces = &self.configuration().namespaces;
        let number = namespaces.iter().position(|it| *it.name == *name);
        let is_there = is_there || number.is_some() && !library.is_defined(name);
        if !is_there && (*name != *DEFAULT_NAMESPACE || library.is_defined(name)) {
            return Err(LibraryError::Unknown(format!(
                "unknown namespace \"{name}\": expected one that nginx.conf or this instance defines"
            )));
        }
        if let Some(known) = library.handle_of(name) {
            return known;
        }
        match number.and_then(|number| Some((number, namespaces.get(number)?))) {
            Some((number, conf)) => library.keep_found(self.found(number, conf)?),
            // The default one is local where no block defines it.
            None => {
                let definition = NamespaceDefinition::local(name);
                self.serve_own(&definition)
            }
        }
    }

    /// A namespace of the configuration, as callers have it.
    fn found(
        &'static self,
        number: usize,
        conf: &NamespaceConf,
    ) -> Result<FoundNamespace, LibraryError> {
        let namespace = self.namespace(number).ok_or(LibraryError::Phase(
            "the namespace has no place in its zone, as the error log says",
        ))?;
        Ok(FoundNamespace {
            name: conf.name.clone(),
            namespace: HeldNamespace::OfConfiguration(namespace),
            sizes: conf.window_sizes.clone(),
            is_open: conf.is_open(),
            sync: conf.options.sync,
            store: self
                .configuration()
                .store(conf)
                .map(|it| it.settings.kind()),
            synchronous: self.synchronous(number),
            windows: RefCell::default(),
            unlimited: RefCell::default(),
        })
    }

    /// Has this process serve a local namespace that is not of the configuration.
    pub(super) fn serve_own(
        &'static self,
        definition: &NamespaceDefinition,
    ) -> Result<u32, LibraryError> {
        let zone = self.configuration().zone_of(definition)?;
        let table = self.zone(zone).and_then(|zone| zone.table());
        let table = table.ok_or(LibraryError::Phase("the zone is not mapped"))?;
        let namespace = Namespace::new(&definition.name, table).map_err(LibraryError::Full)?;
        self.library().keep_found(FoundNamespace {
            name: definition.name.clone(),
            namespace: HeldNamespace::Own(namespace),
            sizes: definition.window_sizes.clone(),
            is_open: definition.window_sizes.is_empty(),
            sync: SyncMode::Local,
            store: None,
            synchronous: None,
            windows: RefCell::default(),
            unlimited: RefCell::default(),
        })
    }
}
