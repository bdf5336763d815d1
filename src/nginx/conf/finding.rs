//! Defines and finds namespaces for callers of the library.

use super::found::FoundNamespace;
use super::library_error::LibraryError;
use super::main::MainConf;
use super::served::LateNamespace;
use crate::conf::configuration::NamespaceConf;
use crate::conf::defined::NamespaceDefinition;
use crate::engine::Namespace;
use crate::nginx::zone::PATIENCE;
use crate::policy::namespace::DEFAULT_NAMESPACE;

/// The result of a definition.
pub(crate) enum Defined {
    /// The namespace is defined. Contains it if a worker defined it and it must be synced.
    Made(Option<Box<LateNamespace>>),
    /// nginx.conf or another instance defined the namespace before, and that definition stays. The
    /// text says where it is.
    Before(String),
}

impl MainConf {
    /// Defines a namespace in an instance, while the configuration is read or later.
    pub(crate) fn define(
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
        let made = match before {
            Some(place) => Defined::Before(place),
            None if self.is_attached() => {
                Defined::Made(self.define_late(definition)?.map(Box::new))
            }
            None => {
                self.extend(definition)?;
                Defined::Made(None)
            }
        };
        library.record_definition(instance, name, matches!(made, Defined::Made(_)))?;
        Ok(made)
    }

    /// Returns the handle of a namespace that the instance or nginx.conf defines.
    pub(crate) fn find(&'static self, instance: u32, name: &str) -> Result<u32, LibraryError> {
        if !self.is_attached() {
            return Err(LibraryError::Phase("no namespace can be used before workers start"));
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
            // Without a block, the default namespace is local.
            None => self.serve_default(),
        }
    }

    /// Returns a namespace of the configuration for callers of the library.
    fn found(
        &'static self,
        number: usize,
        conf: &NamespaceConf,
    ) -> Result<FoundNamespace, LibraryError> {
        let namespace = self.namespace(number).ok_or(LibraryError::Phase(
            "the namespace has no place in its zone, as the error log says",
        ))?;
        Ok(FoundNamespace {
            store: self.configuration().store(conf).map(|it| it.settings.kind()),
            synchronous: self.synchronous(number),
            ..FoundNamespace::of(conf, namespace)
        })
    }

    /// Makes this process serve the default namespace, which no block defines.
    fn serve_default(&'static self) -> Result<u32, LibraryError> {
        let definition = NamespaceDefinition::local(DEFAULT_NAMESPACE);
        let zone = self.zone(self.configuration().zone_of(&definition)?);
        let mapped = zone.and_then(|zone| Some((zone, zone.table()?)));
        let (zone, table) = mapped.ok_or(LibraryError::Phase("the zone is not mapped"))?;
        let _lock = zone.lock(PATIENCE).ok_or(LibraryError::Locked)?;
        let namespace = Namespace::new(&definition.name, table).map_err(LibraryError::Full)?;
        // Leaked, since callers refer to it until the process ends.
        let namespace = Box::leak(Box::new(namespace));
        let found = FoundNamespace::local(&definition.name, namespace);
        self.library().keep_found(found)
    }
}
