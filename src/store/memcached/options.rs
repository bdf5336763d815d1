//! The options that only memcached has, and their directives. A file of its own, as for each kind of datastore.

use crate::policy::options::{OptionError, directives};
use crate::store::settings::common::CommonDirectives;
use crate::store::settings::kind::{KindDirectives, KindOptions};
use crate::store::settings::syntax::{PREFIX, exclusive};

/// Options of memcached alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedOptions {
    /// The prefix of every item's name, before a slash: 1 to 64 printable ASCII characters.
    pub prefix: Box<str>,
}

/// Number of a namespace's shards, which nodes change independently.
pub(super) const SHARDS: u16 = 4;

impl KindOptions for MemcachedOptions {
    fn usual_port(&self) -> u16 {
        11211
    }

    fn shards(&self) -> u16 {
        SHARDS
    }
}

directives! {
    /// The directives that were read so far.
    pub struct MemcachedDirectives {
        /// Redis and etcd have this directive too.
        prefix: Box<str> = PREFIX,
    }
}

impl KindDirectives for MemcachedDirectives {
    type Options = MemcachedOptions;

    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError> {
        match common.database() {
            Some(_) if is_chosen => Err(exclusive("database", "strategy memcached", "\"prefix\"")),
            _ => Ok(()),
        }
    }

    fn finish(self, common: &CommonDirectives) -> Result<MemcachedOptions, OptionError> {
        // memcached has no users without a password.
        common.check_password()?;
        Ok(MemcachedOptions { prefix: self.prefix.unwrap_or_else(|| "rl".into()) })
    }
}
