//! What a kind of datastore says of itself, to be in the registry.

use super::common::CommonDirectives;
use crate::policy::options::{Directive, OptionError};
use crate::store::contract::decision::Decider;
use crate::store::contract::strategy::Strategy;

/// A datastore that a `ratelimit_store` block can name, as a line of the registry.
pub trait Registered: Decider<Options: KindOptions> + 'static {
    /// How a block's directives become its options.
    type Directives: KindDirectives<Options = <Self as Strategy>::Options>;
}

/// What the options of one kind of datastore decide for its users.
pub trait KindOptions {
    /// Where servers listen unless they say otherwise.
    fn usual_port(&self) -> u16;

    /// Into how many shards the keys of a namespace are divided.
    fn shards(&self) -> u16 {
        1
    }

    /// How many servers are tried at most before there is a connection, where so many are configured.
    fn attempts(&self, servers: usize) -> usize {
        servers
    }
}

/// The directives that only one kind of datastore has, as far as they were read.
pub trait KindDirectives: Default {
    /// What becomes of them.
    type Options: KindOptions;

    /// Their names.
    const NAMES: &'static [&'static str];

    /// Reads one of them, which has this name.
    ///
    /// # Errors
    ///
    /// If it was given before, or its words are not accepted.
    fn set(&mut self, name: &str, directive: &Directive<'_>) -> Result<(), OptionError>;

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
