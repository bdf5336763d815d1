//! The options that only Cassandra has, and their directives.

use core::fmt;

use crate::policy::options::{Directive, OptionError, Syntax, directives, text};
use crate::store::settings::common::CommonDirectives;
use crate::store::settings::kind::{KindDirectives, KindOptions};
use crate::store::settings::syntax::{is_identifier, parse_read};

/// Options of Cassandra alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassandraOptions {
    /// The keyspace: `[A-Za-z_][A-Za-z0-9_]{0,47}`, case-sensitive.
    pub keyspace: Box<str>,
    /// The table of the counts, with the same syntax and at most 38 characters, since other tables'
    /// names begin with it.
    pub table: Box<str>,
    /// The datacenter whose nodes are asked; `None` for that of the first server.
    pub datacenter: Option<Box<str>>,
    /// Number of replicas that must answer.
    pub consistency: ConsistencyLevel,
    /// Number of replicas of a keyspace that this node creates.
    pub replication: Replication,
}

/// The number of replicas that must answer. With each level, a reader finds all written rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyLevel {
    /// A majority in the datacenter.
    LocalQuorum,
    /// A majority in all datacenters.
    Quorum,
    /// All replicas.
    All,
}

/// The number of replicas of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replication {
    /// This number of replicas, on any nodes.
    Simple(u8),
    /// Numbers of replicas in each of these datacenters, at least one; names match
    /// `[A-Za-z0-9_.-]{1,64}`.
    ByDatacenter(Vec<(Box<str>, u8)>),
}

impl KindOptions for CassandraOptions {
    fn usual_port(&self) -> u16 {
        9042
    }
}

directives! {
    /// The directives that were read so far.
    pub struct CassandraDirectives {
        /// Postgres has this directive too, with other names.
        table: Box<str> = ANY_TABLE,
        datacenter: Box<str> = DATACENTER,
        consistency: ConsistencyLevel = CONSISTENCY,
        replication: Replication => replication,
    }
}

impl KindDirectives for CassandraDirectives {
    type Options = CassandraOptions;

    fn check(&self, common: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError> {
        if is_chosen {
            keyspace(common)?;
            self.table()?;
        }
        common.check_no_path("strategy cassandra", is_chosen)
    }

    fn finish(self, common: &CommonDirectives) -> Result<CassandraOptions, OptionError> {
        // Cassandra has no users without a password.
        common.check_password()?;
        Ok(CassandraOptions {
            keyspace: keyspace(common)?,
            table: self.table()?,
            datacenter: self.datacenter,
            consistency: self.consistency.unwrap_or(ConsistencyLevel::LocalQuorum),
            replication: self.replication.unwrap_or(Replication::Simple(1)),
        })
    }
}

impl CassandraDirectives {
    fn table(&self) -> Result<Box<str>, OptionError> {
        parse_read("table", self.table.as_deref(), "rl_counters", &TABLE)
    }
}

fn keyspace(common: &CommonDirectives) -> Result<Box<str>, OptionError> {
    parse_read("database", common.database(), "ratelimit", &KEYSPACE)
}

/// Parses `replication`: a number, or numbers of datacenters.
fn replication(directive: &Directive<'_>) -> Result<Replication, OptionError> {
    let mut words = directive.words(&REPLICAS)?;
    let duplicate = |(index, (name, _)): (usize, &(Option<Box<str>>, u8))| {
        let before = words.iter().take(index);
        before.clone().any(|(other, _)| other == name)
    };
    let has_duplicate = words.iter().enumerate().any(duplicate);
    if let [(None, replicas)] = words[..] {
        return Ok(Replication::Simple(replicas));
    }
    let named = words.drain(..).map(|(name, replicas)| Some((name?, replicas)));
    match named.collect::<Option<Vec<_>>>() {
        Some(datacenters) if !has_duplicate => Ok(Replication::ByDatacenter(datacenters)),
        _ => Err(directive.invalid(None, REPLICAS.expected)),
    }
}

impl ConsistencyLevel {
    const ALL: [ConsistencyLevel; 3] =
        [ConsistencyLevel::LocalQuorum, ConsistencyLevel::Quorum, ConsistencyLevel::All];

    /// Returns Cassandra's upper-case name of the level; `consistency` accepts any case.
    pub fn name(self) -> &'static str {
        match self {
            ConsistencyLevel::LocalQuorum => "local_quorum",
            ConsistencyLevel::Quorum => "quorum",
            ConsistencyLevel::All => "all",
        }
    }
}

/// Formats the replication as `CREATE KEYSPACE` needs it.
impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replication::Simple(replicas) => {
                write!(f, "{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
            }
            Replication::ByDatacenter(datacenters) => {
                f.write_str("{'class': 'NetworkTopologyStrategy'")?;
                for (name, replicas) in datacenters {
                    write!(f, ", '{name}': {replicas}")?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Syntax of any table's name. The chosen kind checks it further.
const ANY_TABLE: Syntax<Box<str>> = Syntax::new(TABLE.expected, text);

const TABLE: Syntax<Box<str>> = Syntax::new(
    "name of 1 to 38 A-Z, a-z, 0-9, \"_\", no digit first",
    // Other tables' names begin with this one, and names are at most 48 characters.
    |word| text(word).filter(|name| is_identifier(name, 38)),
);

const KEYSPACE: Syntax<Box<str>> = Syntax::new(
    "the name of a Cassandra keyspace, of 1 to 48 A-Z, a-z, 0-9, \"_\", no digit first",
    |word| text(word).filter(|name| is_identifier(name, 48)),
);

const DATACENTER: Syntax<Box<str>> =
    Syntax::new("the name of a datacenter, such as datacenter1", text);

const CONSISTENCY: Syntax<ConsistencyLevel> = Syntax::new("local_quorum, quorum or all", |word| {
    let mut all = ConsistencyLevel::ALL.into_iter();
    all.find(|level| level.name().as_bytes().eq_ignore_ascii_case(word))
});

const REPLICAS: Syntax<(Option<Box<str>>, u8)> = Syntax::new(
    "a number of replicas from 1 to 255, or one for each datacenter, such as east:3 west:3",
    |word| {
        let text = text(word)?;
        let (name, number) = match text.rsplit_once(':') {
            Some((name, number)) => (Some(name), number),
            None => (None, &*text),
        };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let is_name = |name: &str| (1..=64).contains(&name.len()) && name.bytes().all(is_part);
        // The standard library would also accept a sign.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let replicas = number.parse().ok().filter(|it| *it > 0 && is_number)?;
        name.is_none_or(is_name).then(|| (name.map(Into::into), replicas))
    },
);
