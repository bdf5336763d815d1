//! The options that only etcd has, and their directives. A file of its own, as for each kind of datastore.

use core::num::NonZeroU32;

use crate::policy::options::{OptionError, directives};
use crate::store::settings::common::CommonDirectives;
use crate::store::settings::kind::{KindDirectives, KindOptions};
use crate::store::settings::syntax::{PREFIX, exclusive};

/// Options of etcd alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// The prefix of every key, before a slash: 1 to 64 printable ASCII characters.
    pub prefix: Box<str>,
}

impl KindOptions for EtcdOptions {
    fn usual_port(&self) -> u16 {
        2379
    }

    /// Returns less than one etcd commits in a second: each push waits for its disk, and for other nodes.
    fn usual_exchanges(&self) -> NonZeroU32 {
        const { NonZeroU32::new(100).unwrap() }
    }
}

directives! {
    /// The directives that were read so far.
    pub struct EtcdDirectives {
        /// Redis has this directive too.
        prefix: Box<str> = PREFIX,
    }
}

impl KindDirectives for EtcdDirectives {
    type Options = EtcdOptions;

    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError> {
        match common.database() {
            Some(_) if is_chosen => Err(exclusive("database", "strategy etcd", "\"prefix\"")),
            _ => Ok(()),
        }
    }

    fn finish(self, common: &CommonDirectives) -> Result<EtcdOptions, OptionError> {
        // etcd has no users without a password.
        common.check_password()?;
        Ok(EtcdOptions { prefix: self.prefix.unwrap_or_else(|| "rl".into()) })
    }
}
