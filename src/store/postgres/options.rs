//! The options that only Postgres has, and their directives.

use crate::policy::options::{OptionError, Syntax, directives, text};
use crate::store::settings::common::CommonDirectives;
use crate::store::settings::kind::{KindDirectives, KindOptions};
use crate::store::settings::syntax::{is_identifier, parse_read};

/// Options of Postgres alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// The name of the database.
    pub database: Box<str>,
    /// The table of the counters.
    pub table: TableName,
}

/// The name of a table, case-sensitive, since it is quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The schema; `None` for the first of the search path.
    pub schema: Option<Box<str>>,
    /// The table's own name, of at most 55 characters, since other tables' names begin with it.
    /// Schema and name match `[A-Za-z_][A-Za-z0-9_]{0,62}`.
    pub name: Box<str>,
}

impl KindOptions for PostgresOptions {
    fn usual_port(&self) -> u16 {
        5432
    }
}

directives! {
    /// The directives that were read so far.
    pub struct PostgresDirectives {
        /// Cassandra has this directive too, with other names.
        table: Box<str> = ANY_TABLE,
    }
}

impl KindDirectives for PostgresDirectives {
    type Options = PostgresOptions;

    fn check(&self, _: &CommonDirectives, is_chosen: bool) -> Result<(), OptionError> {
        match is_chosen {
            true => self.table().map(drop),
            false => Ok(()),
        }
    }

    fn finish(self, common: &CommonDirectives) -> Result<PostgresOptions, OptionError> {
        Ok(PostgresOptions {
            database: common.database().unwrap_or("postgres").into(),
            table: self.table()?,
        })
    }
}

impl PostgresDirectives {
    fn table(&self) -> Result<TableName, OptionError> {
        parse_read("table", self.table.as_deref(), "rl_counters", &TABLE)
    }
}

/// Syntax of any table's name. The chosen kind checks it further.
const ANY_TABLE: Syntax<Box<str>> = Syntax::new(TABLE.expected, text);

const TABLE: Syntax<TableName> = Syntax::new(
    "name or schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of 1 to 55",
    |word| {
        let text = text(word)?;
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, &*text),
        };
        // Other tables' names begin with this one, and names are at most 63 characters.
        let is_legal = is_identifier(name, 55) && schema.is_none_or(|it| is_identifier(it, 63));
        is_legal.then(|| TableName { schema: schema.map(Into::into), name: name.into() })
    },
);
