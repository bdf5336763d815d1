//! Reads the directives of a `ratelimit_store` block.

use std::io;
use std::path::Path;

use super::common::CommonDirectives;
use super::registry::{
    LACKING_DIRECTIVES, LACKING_KINDS, OwnDirectives, STRATEGY, StoreKind, StoreSettings,
};
use crate::policy::options::{Directive, OptionError};

/// Reads a store's directives, one by one, in any order.
pub struct StoreBlock<R> {
    read_file: R,
    strategy: Option<StoreKind>,
    common: CommonDirectives,
    own: OwnDirectives,
    /// Which directives were given that only one kind has.
    given: Vec<&'static str>,
    /// Whether the last directive was a password.
    after_password: bool,
}

impl StoreSettings {
    /// Nothing was said yet. `read_file` gives the content of the `password_file`, whose path it
    /// is given as written.
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
    /// If there is no such directive, it was given before, its words are not accepted, or it
    /// contradicts another. No message holds a user's name or password.
    pub fn set(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), OptionError> {
        let directive = Directive::new(name, words);
        // All that are one end so.
        let is_password = name.ends_with(b"password");
        let after_password = core::mem::replace(&mut self.after_password, is_password);
        if name == b"strategy" {
            if let Some(lacking) = LACKING_KINDS.iter().find(|it| words == [it.as_bytes()]) {
                let expected = STRATEGY.expected;
                return Err(OptionError::new(format!(
                    "strategy \"{lacking}\" is not in this build: expected {expected}"
                )));
            }
            directive.set(&mut self.strategy, &STRATEGY)?;
        } else if let Some(result) = self.common.set(name, &directive, &self.read_file) {
            result?;
        } else if let Some((kind, name)) = owner(name) {
            self.own.set(kind, name, &directive)?;
            self.given.push(name);
        } else {
            // What looks like a name is the end of a password with a ";" in it.
            let directive = if after_password {
                Directive::new(b"...", words)
            } else {
                directive
            };
            return Err(directive.unknown(&directives(), &LACKING_DIRECTIVES));
        }
        self.check_strategy()?;
        self.own.check(&self.common, self.strategy)?;
        self.common.check()
    }

    /// All directives were read.
    ///
    /// # Errors
    ///
    /// If something is missing.
    pub fn finish(self) -> Result<StoreSettings, OptionError> {
        let kind = self.strategy.ok_or_else(|| {
            let all = StoreKind::ALL.iter();
            let all = all.map(|kind| format!("\"strategy {};\"", kind.name()));
            let all = all.collect::<Vec<_>>().join(" or ");
            OptionError::new(format!("no strategy: add {all}"))
        })?;
        let own = self.own.finish(&self.common, kind)?;
        let common = self.common.finish(own.usual_port())?;
        Ok(StoreSettings { common, own })
    }

    /// Whether the strategy, once it is known, has the options that were given.
    fn check_strategy(&self) -> Result<(), OptionError> {
        let Some(strategy) = self.strategy else {
            return Ok(());
        };
        for owner in StoreKind::ALL.iter().filter(|kind| **kind != strategy) {
            let mut names = owner.directives().iter();
            if let Some(name) = names.find(|name| self.given.contains(name)) {
                let (owner, strategy) = (owner.name(), strategy.name());
                return Err(OptionError::new(format!(
                    "\"{name}\" is an option of strategy {owner}, not of {strategy}"
                ))
                .of(*name));
            }
        }
        Ok(())
    }
}

/// The kind of datastore that alone has a directive of this name, and the name.
fn owner(name: &[u8]) -> Option<(StoreKind, &'static str)> {
    StoreKind::ALL.iter().find_map(|&kind| {
        let mut names = kind.directives().iter();
        let own = names.find(|own| own.as_bytes() == name)?;
        Some((kind, *own))
    })
}

/// The names of all directives.
pub(super) fn directives() -> Vec<&'static str> {
    let own = StoreKind::ALL.iter().flat_map(|kind| kind.directives());
    let common = CommonDirectives::NAMES.iter();
    core::iter::once("strategy")
        .chain(common.chain(own).copied())
        .collect()
}
