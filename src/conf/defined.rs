//! Namespaces that a caller of the library defines, beside those of nginx.conf.

use core::fmt;

use super::configuration::Configuration;
use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;

/// What a caller says of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDefinition {
    /// Its name.
    pub name: Box<str>,
    /// The zone; `None`: the only one.
    pub zone: Option<Box<str>>,
    /// When its store is talked to.
    pub sync: SyncMode,
    /// The windows that are counted in; none, if it is local: any.
    pub window_sizes: Vec<WindowSize>,
}

/// Why a namespace cannot be defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefineError {
    /// Something is missing, or wrong.
    Wrong(String),
    /// It names what is not there.
    Unknown(String),
    /// The zone has no room for it.
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
    /// A namespace about which nothing is said.
    pub fn local(name: &str) -> NamespaceDefinition {
        NamespaceDefinition {
            name: name.into(),
            zone: None,
            sync: SyncMode::Local,
            window_sizes: Vec::new(),
        }
    }
}

impl Configuration {
    /// The number of the zone that a definition names.
    ///
    /// # Errors
    ///
    /// There is none, or it names none of several.
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
    use super::super::configuration::ZoneConf;
    use super::super::message::Origin;
    use super::*;

    fn configuration(zones: &[&str]) -> Configuration {
        let zones = zones.iter().map(|name| ZoneConf {
            name: (*name).into(),
            size: 1 << 20,
            origin: Origin::unknown(),
        });
        Configuration {
            zones: zones.collect(),
            ..Configuration::default()
        }
    }

    #[test]
    fn a_definition_names_a_zone_or_there_is_only_one() {
        let local = NamespaceDefinition::local("api");
        let in_b = NamespaceDefinition {
            zone: Some("b".into()),
            ..local.clone()
        };
        assert_eq!(configuration(&["a"]).zone_of(&local), Ok(0));
        assert_eq!(configuration(&["a", "b"]).zone_of(&in_b), Ok(1));
        for (zones, definition, message) in [
            (
                &["a", "b"][..],
                &local,
                "namespace \"api\" names no zone, and there are 2: expected \"dict\"",
            ),
            (
                &[],
                &local,
                "namespace \"api\" names no zone, and there are 0: expected \"dict\"",
            ),
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
