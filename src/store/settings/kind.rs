//! The traits of a kind of datastore that is in the registry. A file of its own, since each
//! kind of datastore implements it.

use core::num::NonZeroU32;

use super::common::CommonDirectives;
use crate::policy::options::{Directives, OptionError};
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;

/// A datastore that a `ratelimit_store` block can name, as a line of the registry.
pub trait Registered: Decider<Options: KindOptions> + 'static {
    /// Reader of a block's directives, which become its options.
    type Directives: KindDirectives<Options = <Self as Strategy>::Options>;
}

/// The properties of a kind of datastore that follow from its options.
pub trait KindOptions {
    /// Returns the default port of the servers.
    fn usual_port(&self) -> u16;

    /// Returns the most exchanges that all nodes together make with one server in a second, by
    /// default.
    fn usual_exchanges(&self) -> NonZeroU32 {
        const { NonZeroU32::new(1000).unwrap() }
    }

    /// Returns the number of shards into which the keys of a namespace are divided.
    fn shards(&self) -> u16 {
        1
    }

    /// Returns the most servers that are tried for one connection, if this number is configured.
    fn attempts(&self, servers: usize) -> usize {
        servers
    }
}

/// The directives of one kind of datastore that were read so far.
pub trait KindDirectives: Directives {
    /// The options that result from the directives.
    type Options: KindOptions;

    /// Checks the directives after each one, so that a message has its line. Only if the kind
    /// `is_chosen` are the common directives known to be meant for it.
    ///
    /// # Errors
    ///
    /// A directive contradicts another one.
    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError>;

    /// Completes the options after all directives of a block were read.
    ///
    /// # Errors
    ///
    /// A required directive is missing.
    fn finish(self, common: &CommonDirectives) -> Result<Self::Options, OptionError>;
}
