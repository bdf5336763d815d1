//! The tables: their names, columns and creation.

use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::options::TableName;

/// `CREATE TABLE` statements of all tables. docs/postgres.md shows them, too.
const SCHEMA: &str = include_str!("schema.sql");

/// Lock during the creation of tables, so that nodes do not create them at the same time.
const CREATE_LOCK: i64 = 0x7261_7465_6c69_6d69;

/// The names of the tables, quoted for SQL.
#[derive(Clone, Debug)]
pub(super) struct Tables([(&'static str, Box<str>); 6]);

/// An error about the tables.
pub(super) enum SchemaError {
    /// A relation with this name is something else.
    OtherShape(Box<str>),
    /// The table does not exist, and could not be created.
    NotCreated(Box<str>, Error),
    /// The tables could not be read or created.
    Failed(Error),
}

/// Tables whose content nodes do not restore, so that each may be lost without the others.
const OF_NO_WINDOWS: [&str; 2] = ["levels", "logs"];

/// Required shape of each table: its kind, its columns by name, and its unique columns.
const SHAPES: [(&str, &str); 6] = [
    (
        "epochs",
        "r: changes bigint, ended_at timestamp with time zone, epoch bigint, namespace text, shard \
         integer; btree (epoch), btree (namespace, shard) WHERE (ended_at IS NULL)",
    ),
    (
        "nodes",
        "r: epoch bigint, expires_at timestamp with time zone, node uuid, number bigint; \
         btree (epoch, node)",
    ),
    (
        "counters",
        "r: epoch bigint, expires_at timestamp with time zone, id bigint, key bytea, thousandths \
         bigint, window_number bigint, window_size bigint; \
         btree (epoch, window_size, window_number, sha256(key)), btree (id)",
    ),
    (
        "changes",
        "r: counters bigint[], epoch bigint, node uuid, number bigint; btree (epoch, number)",
    ),
    (
        "levels",
        "r: began_at bigint, changed_at bigint, epoch bigint, expires_at timestamp with time zone, \
         key bytea, kind smallint, size bigint, thousandths bigint; \
         btree (epoch, kind, size, sha256(key))",
    ),
    (
        "logs",
        "r: at bigint, base bigint, epoch bigint, expires_at timestamp with time zone, key bytea, \
         log bigint, number bigint, size bigint, sums bigint[], times bigint[]; \
         btree (epoch, size, sha256(key), log, at)",
    ),
];

impl Tables {
    /// Returns the names of all tables that belong to a table of counters.
    pub(super) fn new(counters: &TableName) -> Tables {
        let name = |suffix: &str| match &counters.schema {
            // Valid names contain no quotes.
            Some(schema) => format!("\"{schema}\".\"{}{suffix}\"", counters.name).into(),
            None => format!("\"{}{suffix}\"", counters.name).into(),
        };
        Tables([
            ("epochs", name("_epochs")),
            ("nodes", name("_nodes")),
            ("counters", name("")),
            ("changes", name("_changes")),
            ("levels", name("_levels")),
            ("logs", name("_logs")),
        ])
    }

    /// Replaces the placeholders `{epochs}`, `{nodes}`, `{counters}`, `{changes}`, `{levels}` and
    /// `{logs}` by the names of the tables.
    pub(super) fn fill(&self, statement: &str) -> String {
        let Tables(tables) = self;
        tables.iter().fold(statement.into(), |statement, (table, name)| {
            statement.replace(&format!("{{{table}}}"), name)
        })
    }

    /// Creates missing tables, and checks the shapes of all.
    pub(super) async fn provide(&self, client: &Client) -> Result<(), SchemaError> {
        if self.missing(client).await?.is_empty() {
            return Ok(());
        }
        // Waits for other nodes that do so. An error leaves no change.
        let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({CREATE_LOCK})");
        client.simple_query(&begin).await?;
        let missing = self.missing(client).await?;
        for statement in SCHEMA.split_inclusive(";\n") {
            let mut tables = missing.iter().map(|table| format!("{{{table}}}"));
            let Some(table) = tables.find(|it| statement.contains(it)) else {
                continue;
            };
            let created = client.batch_execute(&self.fill(statement)).await;
            created.map_err(|error| SchemaError::NotCreated(self.fill(&table).into(), error))?;
        }
        let is_lost = missing.iter().any(|table| !OF_NO_WINDOWS.contains(table));
        if is_lost && !missing.contains(&"epochs") {
            // The content of the other tables is lost, so the nodes must restore it.
            let end = "UPDATE {epochs} SET ended_at = now() WHERE ended_at IS NULL";
            client.batch_execute(&self.fill(end)).await?;
        }
        self.missing(client).await?;
        client.batch_execute("COMMIT").await?;
        Ok(())
    }

    /// Returns the tables that do not exist, after checking the shapes of the others.
    async fn missing(&self, client: &Client) -> Result<Vec<&'static str>, SchemaError> {
        let Tables(tables) = self;
        let names =
            tables.iter().map(|(table, name)| format!("('{table}', to_regclass('{name}'))"));
        let names = names.collect::<Vec<_>>().join(", ");
        let query = include_str!("shapes.sql").replace("{names}", &names);
        let mut found = Vec::new();
        for message in client.simple_query(&query).await? {
            if let SimpleQueryMessage::Row(row) = message {
                let column = |column: usize| row.try_get(column).map(Option::unwrap_or_default);
                found.push([column(0)?, column(1)?, column(2)?].map(ToOwned::to_owned));
            }
        }
        // All tables must survive a crash, or none.
        let persistence = found.first().map(|[_, persistence, _]| persistence);
        let mut missing = Vec::new();
        for (table, shape) in SHAPES {
            match found.iter().find(|[name, ..]| name == table) {
                None => missing.push(table),
                Some([_, kept, is]) if is == shape && Some(kept) == persistence => {}
                Some(_) => {
                    let name = self.fill(&format!("{{{table}}}"));
                    return Err(SchemaError::OtherShape(name.into()));
                }
            }
        }
        Ok(missing)
    }
}

impl From<Error> for SchemaError {
    fn from(error: Error) -> Self {
        SchemaError::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(schema: Option<&str>, name: &str) -> Tables {
        Tables::new(&TableName { schema: schema.map(Into::into), name: name.into() })
    }

    #[test]
    fn names_are_quoted() {
        for (schema, name, expected) in [
            (None, "rl_counters", r#""rl_counters" "rl_counters_nodes""#),
            (Some("Rate"), "order", r#""Rate"."order" "Rate"."order_nodes""#),
        ] {
            let tables = tables(schema, name);
            assert_eq!(tables.fill("{counters} {nodes}"), expected);
        }
    }

    #[test]
    fn the_documents_have_the_schema() {
        let page = include_str!("../../../docs/postgres.md");
        let schema = tables(None, "rl_counters").fill(SCHEMA).replace('"', "");
        assert!(page.contains(&schema), "{schema}");
    }
}
