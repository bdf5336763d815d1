//! Reads the directives of a `ratelimit_store` block.

use std::io;
use std::path::Path;

use super::registry::{OwnDirectives, STRATEGY, StoreKind, StoreSettings, lacking};
use super::settings::common::CommonDirectives;
use crate::policy::options::{Directive, OptionError};

/// Reads the directives of a store, one by one, in any order.
pub struct StoreBlock<R> {
    read_file: R,
    strategy: Option<StoreKind>,
    common: CommonDirectives,
    own: OwnDirectives,
    /// The given directives that not all kinds have.
    given: Vec<&'static str>,
    /// Whether the last directive was a password.
    after_password: bool,
}

impl StoreSettings {
    /// Creates a block without directives. `read_file` returns the content of the `password_file`,
    /// whose path it gets as written.
    pub fn builder<R>(read_file: R) -> StoreBlock<R>
    where
        R: Fn(&Path) -> io::Result<Vec<u8>>,
    {
        StoreBlock {
            read_file,
            strategy: None,
            common: CommonDirectives::default(),
            own: OwnDirectives::default(),
            given: Vec::new(),
            after_password: false,
        }
    }
}

impl<R> StoreBlock<R>
where
    R: Fn(&Path) -> io::Result<Vec<u8>>,
{
    /// Reads the directive `name words...;`.
    ///
    /// # Errors
    ///
    /// The directive is unknown, a duplicate, contradicts another one, or has invalid words. No
    /// message contains a user's name or password.
    pub fn set(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), OptionError> {
        let directive = Directive::new(name, words);
        // The names of all directives with a password end like this.
        let is_password = name.ends_with(b"password");
        let after_password = core::mem::replace(&mut self.after_password, is_password);
        if name == b"strategy" {
            if let Some((lacking, _)) = lacking().find(|(name, _)| words == [name.as_bytes()]) {
                let expected = STRATEGY.expected;
                return Err(OptionError::new(format!(
                    "strategy \"{lacking}\" is not in this build: expected {expected}"
                )));
            }
            let is_first = self.strategy.is_none();
            let set = directive.set(&mut self.strategy, &STRATEGY);
            set.map_err(|error| match meant_strategy(words) {
                Some(meant) if is_first => {
                    OptionError::new(format!("{error}: did you mean {meant}?"))
                }
                _ => error,
            })?;
        } else if let Some(name) = own_name(name) {
            self.own.set(&directive)?;
            self.given.push(name);
        } else if !self.common.set(&directive, &self.read_file)? {
            // A name after a password can be the rest of a password with a ";" in it.
            let directive = if after_password { Directive::new(b"...", words) } else { directive };
            let lacking: Vec<_> = lacking().flat_map(|(_, names)| names).copied().collect();
            let error = directive.unknown(&directives(self.strategy), &lacking);
            let meant = MEANT_DIRECTIVES.iter().find(|(other, _)| other.as_bytes() == name);
            return Err(match meant.filter(|_| !after_password) {
                Some((_, meant)) => OptionError::new(format!("{error}: did you mean {meant}?")),
                None => error,
            });
        }
        self.check_strategy()?;
        self.own.check(&self.common, self.strategy)?;
        self.common.check()
    }

    /// Completes the block, after all directives were read.
    ///
    /// # Errors
    ///
    /// A required directive is missing.
    pub fn finish(self) -> Result<StoreSettings, OptionError> {
        let kind = self.strategy.ok_or_else(|| {
            let all = StoreKind::ALL.iter();
            let all = all.map(|kind| format!("\"strategy {};\"", kind.name()));
            let all = all.collect::<Vec<_>>().join(" or ");
            OptionError::new(format!("no strategy: add {all}"))
        })?;
        let own = self.own.finish(&self.common, kind)?;
        let common = self.common.finish(own.usual_port(), own.usual_exchanges())?;
        Ok(StoreSettings { common, own })
    }

    /// Checks that the strategy, once it is known, has the given directives.
    fn check_strategy(&self) -> Result<(), OptionError> {
        let Some(strategy) = self.strategy else {
            return Ok(());
        };
        let mut given = self.given.iter();
        match given.find(|name| !strategy.directives().contains(name)) {
            None => Ok(()),
            Some(name) => {
                let owners: Vec<_> = owners(name).map(StoreKind::name).collect();
                let (owners, strategy) = (owners.join(" and "), strategy.name());
                Err(OptionError::new(format!(
                    "\"{name}\" is an option of strategy {owners}, not of {strategy}"
                ))
                .of(*name))
            }
        }
    }
}

/// Returns the name of a directive that not all kinds have; `None` for others.
fn own_name(name: &[u8]) -> Option<&'static str> {
    let mut names = StoreKind::ALL.iter().flat_map(|kind| kind.directives());
    names.find(|own| own.as_bytes() == name).copied()
}

/// Returns the kinds with a directive of this name.
fn owners(name: &'static str) -> impl Iterator<Item = StoreKind> {
    let all = StoreKind::ALL.iter().copied();
    all.filter(move |kind| kind.directives().contains(&name))
}

/// Directives of other programs, and the equivalent here.
const MEANT_DIRECTIVES: [(&str, &str); 8] = [
    ("host", "server"),
    ("port", "server"),
    ("sentinel_nodes", "server"),
    ("cluster_nodes", "server"),
    ("user", "username"),
    ("ssl", "tls"),
    ("ssl_verify", "tls_verify"),
    ("server_name", "tls_name"),
];

/// Returns the strategy that the word of `strategy` probably means: another name of the datastore,
/// or one in capitals.
fn meant_strategy(words: &[&[u8]]) -> Option<&'static str> {
    let [word] = words else { return None };
    let word = word.to_ascii_lowercase();
    let name = match word.as_slice() {
        b"postgresql" | b"pg" | b"pgsql" | b"psql" => b"postgres",
        b"valkey" | b"keydb" | b"dragonfly" => b"redis".as_slice(),
        b"scylla" | b"scylladb" => b"cassandra",
        name => name,
    };
    let mut all = StoreKind::ALL.iter().map(|kind| kind.name());
    all.find(|known| known.as_bytes() == name)
}

/// Returns the names of all directives of a strategy, or of all strategies.
pub(super) fn directives(strategy: Option<StoreKind>) -> Vec<&'static str> {
    let kinds = StoreKind::ALL.iter();
    let kinds = kinds.filter(|kind| strategy.is_none_or(|it| it == **kind));
    let own = kinds.flat_map(|kind| kind.directives());
    let mut all = vec!["strategy"];
    for name in CommonDirectives::names().chain(own.copied()) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}
