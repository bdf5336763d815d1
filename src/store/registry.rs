//! The list of the kinds of datastores, by which a configuration is mapped to the type of its
//! strategy.
//!
//! Everything specific to a kind is in its folder; [`Registered`] is the interface to it.

use core::num::NonZeroU32;
use core::time::Duration;

#[cfg(feature = "cassandra")]
use super::cassandra::Cassandra;
use super::contract::decision::Decider;
use super::contract::options::StoreOptions;
use super::contract::strategy::Strategy;
#[cfg(feature = "etcd")]
use super::etcd::Etcd;
#[cfg(feature = "memcached")]
use super::memcached::Memcached;
#[cfg(feature = "postgres")]
use super::postgres::Postgres;
#[cfg(feature = "redis")]
use super::redis::Redis;
use super::settings::common::CommonDirectives;
use super::settings::kind::{KindDirectives as _, KindOptions, Registered};
use crate::policy::algorithm::Algorithm;
use crate::policy::options::{Directive, Directives, OptionError, Syntax};

/// Stack size of a thread that exchanges with stores. Without optimizations, connecting to
/// Cassandra needs more than the default of 2 MiB. Unused stack takes no memory.
pub(crate) const THREAD_STACK: usize = 8 << 20;

/// Formats the names of kinds for a message: `redis or postgres`.
macro_rules! offered {
    () => { "none: this build has no datastore" };
    ($last:ident) => { stringify!($last) };
    ($first:ident $last:ident) => { concat!(stringify!($first), " or ", stringify!($last)) };
    ($first:ident $($others:ident)+) => { concat!(stringify!($first), ", ", offered!($($others)+)) };
}

/// Defines the following items from lines with the name for `strategy` and the type of its
/// strategy: each line becomes a variant or a field.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $Kind:ident,)*) => {
        /// A kind of datastore.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StoreKind {
            $($(#[$doc])* $Kind,)*
        }

        /// The options that only one kind of datastore has.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum OwnOptions {
            $($(#[$doc])* $Kind(<$Kind as Strategy>::Options),)*
        }

        /// The directives that only some kinds have, as read so far, for each kind.
        #[derive(Debug, Default)]
        pub(super) struct OwnDirectives {
            $($name: <$Kind as Registered>::Directives,)*
        }

        /// The syntax of the directive `strategy`.
        pub(super) const STRATEGY: Syntax<StoreKind> = Syntax::new(offered!($($name)*), |word| {
            StoreKind::ALL.iter().copied().find(|kind| kind.name().as_bytes() == word)
        });

        impl StoreKind {
            /// All kinds in this build.
            pub(super) const ALL: &[StoreKind] = &[$(StoreKind::$Kind,)*];

            /// Returns the name for `strategy`.
            pub fn name(self) -> &'static str {
                match self {
                    $(StoreKind::$Kind => stringify!($name),)*
                }
            }

            /// Returns whether it decides by this algorithm.
            pub fn decides_by(self, algorithm: Algorithm) -> bool {
                let kinds: &[_] = match self {
                    $(StoreKind::$Kind => <$Kind as Decider>::KINDS,)*
                };
                kinds.contains(&algorithm.kind())
            }

            /// Returns the names of the directives that only this kind has.
            pub(super) fn directives(self) -> &'static [&'static str] {
                match self {
                    $(StoreKind::$Kind => <$Kind as Registered>::Directives::NAMES,)*
                }
            }
        }

        impl OwnDirectives {
            /// Reads a directive for each kind that has it.
            pub(super) fn set(&mut self, directive: &Directive<'_>) -> Result<(), OptionError> {
                $(self.$name.set(directive)?;)*
                Ok(())
            }

            /// Checks that no given directive contradicts another one.
            pub(super) fn check(
                &self,
                common: &CommonDirectives,
                chosen: Option<StoreKind>,
            ) -> Result<(), OptionError> {
                $(self.$name.check(common, chosen == Some(StoreKind::$Kind))?;)*
                Ok(())
            }

            /// Completes the directives of the chosen kind.
            pub(super) fn finish(
                self,
                common: &CommonDirectives,
                chosen: StoreKind,
            ) -> Result<OwnOptions, OptionError> {
                match chosen {
                    $(StoreKind::$Kind => self.$name.finish(common).map(OwnOptions::$Kind),)*
                }
            }
        }

        impl OwnOptions {
            fn kind(&self) -> StoreKind {
                match *self {
                    $(OwnOptions::$Kind(_) => StoreKind::$Kind,)*
                }
            }

            fn of_kind(&self) -> &dyn KindOptions {
                match *self {
                    $(OwnOptions::$Kind(ref own) => own,)*
                }
            }
        }

        impl StoreSettings {
            /// Calls `visitor` with the type of this kind's strategy.
            pub fn visit<V: StoreVisitor>(&self, visitor: V) -> V::Output {
                let options = self.common.clone();
                match self.own.clone() {
                    $(OwnOptions::$Kind(own) => visitor.visit(move || $Kind::new(&options, &own)),)*
                }
            }
        }
    };
}

/// Defines a macro that adds a line to those it is called with, if this build has the feature, and passes all of them to
/// `next`. A dollar sign comes first.
macro_rules! with_kind {
    ($dollar:tt $feature:literal, $with:ident, $next:ident: $($line:tt)*) => {
        #[cfg(feature = $feature)]
        macro_rules! $with {
            ($dollar($dollar kinds:tt)*) => { $next! { $dollar($dollar kinds)* $($line)* } };
        }
        #[cfg(not(feature = $feature))]
        macro_rules! $with {
            ($dollar($dollar kinds:tt)*) => { $next! { $dollar($dollar kinds)* } };
        }
    };
}
with_kind! { $ "redis", with_redis, with_postgres: #[doc = "Redis or Valkey."] redis: Redis, }
with_kind! { $ "postgres", with_postgres, with_cassandra: #[doc = "PostgreSQL."] postgres: Postgres, }
with_kind! { $ "cassandra", with_cassandra, with_memcached: #[doc = "Apache Cassandra."] cassandra: Cassandra, }
with_kind! { $ "memcached", with_memcached, with_etcd: #[doc = "memcached."] memcached: Memcached, }
with_kind! { $ "etcd", with_etcd, kinds: #[doc = "etcd."] etcd: Etcd, }
with_redis! {}

/// The kinds that some builds lack: the name for `strategy`, and the directives that only the kind
/// has.
const OPTIONAL: [(&str, &[&str]); 5] = [
    ("redis", &["cluster", "sentinel_master", "sentinel_username", "sentinel_password", "prefix"]),
    ("postgres", &["table"]),
    ("cassandra", &["datacenter", "consistency", "replication"]),
    ("memcached", &["prefix"]),
    ("etcd", &["prefix"]),
];

/// Returns the kinds that this build lacks, with their directives.
pub(super) fn lacking() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let is_here = |name: &str| StoreKind::ALL.iter().any(|kind| kind.name() == name);
    OPTIONAL.into_iter().filter(move |(name, _)| !is_here(name))
}

/// The settings of a datastore of any kind, from a `ratelimit_store` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Options of all kinds.
    pub common: StoreOptions,
    /// Options of this kind alone.
    pub own: OwnOptions,
}

/// Code that is generic over the kind of datastore, and runs with its type.
pub trait StoreVisitor {
    /// Result of the visit.
    type Output;

    /// Runs the code. Each call of `connect` creates another client, which connects at its first
    /// use.
    fn visit<S: Decider + 'static>(self, connect: impl Fn() -> S + 'static) -> Self::Output;
}

impl StoreSettings {
    /// Returns the kind of datastore.
    pub fn kind(&self) -> StoreKind {
        self.own.kind()
    }

    /// Returns the number of shards of a namespace.
    pub fn shards(&self) -> u16 {
        self.own.of_kind().shards()
    }

    /// Returns the most servers that are tried for a connection.
    pub fn attempts(&self) -> usize {
        self.own.of_kind().attempts(self.common.servers.len())
    }

    /// Returns the time after which a worker that holds a lease without renewing it counts as dead.
    pub fn lease_lifetime(&self) -> Duration {
        let StoreOptions { connect_timeout, timeout, .. } = &self.common;
        let attempts = u32::try_from(self.attempts()).unwrap_or(u32::MAX);
        let exchange = connect_timeout.saturating_add(*timeout).saturating_mul(attempts);
        exchange.saturating_mul(2).max(Duration::from_secs(2))
    }
}

impl OwnOptions {
    /// Returns the default port of the servers.
    pub(super) fn usual_port(&self) -> u16 {
        self.of_kind().usual_port()
    }

    /// Returns the default of `exchanges`.
    pub(super) fn usual_exchanges(&self) -> NonZeroU32 {
        self.of_kind().usual_exchanges()
    }
}
