//! The traits of a kind of datastore that is in the registry. A file of its own, since each
//! kind of datastore implements it.

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

    /// Into how many shards the keys of a namespace are divided.
    fn shards(&self) -> u16 {
        1
    }

    /// Returns the greatest number of servers that are tried before there is a connection, of so
    /// many configured ones.
    fn attempts(&self, servers: usize) -> usize {
        servers
    }
}

/// The directives that only one kind of datastore has, as far as they were read.
pub trait KindDirectives: Directives {
    /// Options that they become.
    type Options: KindOptions;

    /// Whether nothing that was given contradicts another, after each directive: a message then has
    /// its line. Only if the kind `is_chosen` is it known that the common ones are meant for it.
    ///
    /// # Errors
    ///
    /// If something does.
    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError>;

    /// All directives of a block of this kind were read.
    ///
    /// # Errors
    ///
    /// If something is missing.
    fn finish(self, common: &CommonDirectives) -> Result<Self::Options, OptionError>;
}
