//! The options that only Redis has, and their directives.

use core::num::NonZeroU32;

use crate::policy::options::{Directives as _, FLAG, OptionError, Syntax, directives, text};
use crate::store::contract::options::{Credentials, Secret};
use crate::store::settings::common::CommonDirectives;
use crate::store::settings::kind::{KindDirectives, KindOptions};
use crate::store::settings::syntax::{PASSWORD, PREFIX, USERNAME, exclusive, needs, parse_read};

/// Options of Redis alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// Topology of the servers.
    pub topology: Topology,
    /// The number of the database; 0 in a cluster.
    pub database: u32,
    /// The prefix of every key: 1 to 64 printable ASCII characters without spaces and braces.
    pub prefix: Box<str>,
}

/// The topology of the servers of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each server has the whole store; they are tried in turn.
    Single,
    /// Seed nodes of a Redis Cluster, which name the other nodes.
    Cluster,
    /// Sentinels, which know the primary.
    Sentinel {
        /// The name by which the sentinels know the primary.
        master: Box<str>,
        /// The credentials for the sentinels.
        credentials: Credentials,
    },
}

/// Number of shards of a namespace in a cluster, which spreads them over its servers. All nodes
/// must agree on it, so it can never change.
const CLUSTER_SHARDS: u16 = 16;

impl KindOptions for RedisOptions {
    fn usual_port(&self) -> u16 {
        match self.topology {
            Topology::Single | Topology::Cluster => 6379,
            Topology::Sentinel { .. } => 26379,
        }
    }

    fn usual_exchanges(&self) -> NonZeroU32 {
        const { NonZeroU32::new(5000).unwrap() }
    }

    fn shards(&self) -> u16 {
        match self.topology {
            Topology::Cluster => CLUSTER_SHARDS,
            Topology::Single | Topology::Sentinel { .. } => 1,
        }
    }

    /// Returns the number of attempts: each sentinel and the primary that it names, or each seed
    /// node and about as many that they name.
    fn attempts(&self, servers: usize) -> usize {
        match self.topology {
            Topology::Single => servers,
            Topology::Cluster | Topology::Sentinel { .. } => servers.saturating_mul(2),
        }
    }
}

directives! {
    /// The directives that were read so far.
    pub struct RedisDirectives {
        cluster: bool = FLAG,
        sentinel_master: Box<str> = SENTINEL_MASTER,
        sentinel_username: Secret = USERNAME,
        sentinel_password: Secret = PASSWORD,
        prefix: Box<str> = PREFIX,
    }
}

impl KindDirectives for RedisDirectives {
    type Options = RedisOptions;

    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError> {
        let is_cluster = self.cluster == Some(true);
        let is_sentinel = self.sentinel_master.is_some();
        let database = if is_chosen { database(common)? } else { 0 };
        if is_cluster && is_sentinel {
            return Err(exclusive("cluster on", "\"sentinel_master\"", "one of them"));
        }
        if is_cluster && database != 0 {
            return Err(exclusive("cluster on", "other database than 0", "\"database 0\" or none"));
        }
        common.check_no_path("cluster on", is_cluster)?;
        common.check_no_path("sentinel_master", is_sentinel)
    }

    fn finish(self, common: &CommonDirectives) -> Result<RedisOptions, OptionError> {
        let of_sentinel = self.given().find(|name| name.starts_with("sentinel_"));
        if let (None, Some(name)) = (&self.sentinel_master, of_sentinel) {
            return Err(needs(name, "sentinel_master name"));
        }
        Ok(RedisOptions {
            topology: match self.sentinel_master {
                Some(master) => Topology::Sentinel {
                    master,
                    credentials: Credentials {
                        username: self.sentinel_username,
                        password: self.sentinel_password,
                    },
                },
                None if self.cluster == Some(true) => Topology::Cluster,
                None => Topology::Single,
            },
            database: database(common)?,
            prefix: self.prefix.unwrap_or_else(|| "rl".into()),
        })
    }
}

fn database(common: &CommonDirectives) -> Result<u32, OptionError> {
    parse_read("database", common.database(), "0", &DATABASE_NUMBER)
}

const SENTINEL_MASTER: Syntax<Box<str>> =
    Syntax::new("the name by which the sentinels know the primary, such as mymaster", text);

const DATABASE_NUMBER: Syntax<u32> =
    Syntax::new("the number of a Redis database, such as 0", |word| {
        // The standard library would also accept a sign.
        let digits = text(word).filter(|_| word.iter().all(u8::is_ascii_digit))?;
        digits.parse().ok()
    });
