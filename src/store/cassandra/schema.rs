//! The keyspace and the tables: their names, columns and creation.

use core::time::Duration;

use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::failure::of_execution;
use super::options::CassandraOptions;
use crate::store::contract::error::Failure;
use crate::store::contract::options::Credentials;

/// Statements that create the tables. docs/cassandra.md shows them, too.
pub(super) const SCHEMA: &str = include_str!("schema.cql");

/// Longest time for creating missing tables.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tables, each with its placeholder in statements, and its columns by name: `p` marks a column
/// of the partition key, `c` a clustering column.
const TABLES: [(&str, &str, &str); 5] = [
    ("shards", "_shards", "epoch bigint, namespace text p0, shard int p1"),
    (
        "nodes",
        "_nodes",
        "began bigint, epoch bigint p0, first bigint, last bigint, lives bigint, node blob c0",
    ),
    (
        "changes",
        "_changes",
        "changed blob, counters int c1, epoch bigint p0, node blob p1, number bigint c0, part bigint p2",
    ),
    ("positions", "_positions", "nodes blob, position blob p0"),
    (
        "counters",
        "",
        "epoch bigint p0, name blob c0, part int p3, rest blob, thousandths bigint, window_number \
         bigint p2, window_size bigint p1, writer blob c1",
    ),
];

/// The names of keyspace and tables, and the replication of a new keyspace.
#[derive(Debug)]
pub(super) struct CqlTables {
    keyspace: Box<str>,
    table: Box<str>,
    replication: Box<str>,
}

/// A row of `system_schema.columns`: table, column, type, kind, and place in a key.
type Column = (String, String, String, String, i32);

impl CqlTables {
    pub(super) fn new(options: &CassandraOptions) -> CqlTables {
        CqlTables {
            keyspace: options.keyspace.clone(),
            table: options.table.clone(),
            replication: options.replication.to_string().into(),
        }
    }

    /// Replaces the placeholders in a statement by the names of the tables.
    pub(super) fn fill(&self, statement: &str) -> String {
        let mut filled = statement.to_owned();
        for (place, suffix, _) in TABLES {
            let name = format!("\"{}\".\"{}{suffix}\"", self.keyspace, self.table);
            filled = filled.replace(&format!("{{{place}}}"), &name);
        }
        filled
    }

    /// Checks the tables, and creates missing ones.
    pub(super) async fn provide(
        &self,
        session: &Session,
        credentials: &Credentials,
    ) -> Result<(), Failure> {
        let failed = |error: &ExecutionError| of_execution(error, credentials).before_sending();
        let columns = self.columns(session, credentials).await?;
        if columns.is_empty() {
            let keyspace = format!("keyspace \"{}\"", self.keyspace);
            let (name, replication) = (&self.keyspace, &self.replication);
            let exists =
                "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
            let found = session.query_unpaged(exists, (&**name,)).await;
            let found = found.map_err(|error| failed(&error))?.into_rows_result();
            if found.is_ok_and(|rows| rows.rows_num() == 0) {
                let create = format!(
                    "CREATE KEYSPACE IF NOT EXISTS \"{name}\" WITH replication = {replication}"
                );
                self.create(session, &create, &keyspace, credentials).await?;
            }
        }
        let mut statements = SCHEMA.split_terminator(";\n").map(str::trim);
        for (place, suffix, shape) in TABLES {
            let statement = statements.next().unwrap_or_default();
            let table = format!("{}{suffix}", self.table);
            let present = columns.iter().filter(|column| column.0 == table);
            let present: Vec<_> = present.map(described).collect();
            if present.is_empty() {
                let create = self.create_statement(statement, place, &table);
                let table = format!("table \"{table}\"");
                self.create(session, &create, &table, credentials).await?;
            } else if present.join(", ") != shape {
                return Err(Failure::Unusable(
                    format!(
                        "table \"{table}\" has another shape than ours: drop it, or use another name"
                    )
                    .into(),
                ));
            }
        }
        Ok(())
    }

    /// Returns the statement that creates a table, unless another node is faster. It contains the
    /// table's id: if several nodes of a ring execute it at the same time, each would choose an id,
    /// and they might never agree.
    fn create_statement(&self, statement: &str, place: &str, table: &str) -> String {
        let name = format!("{}.{table} {statement}", self.keyspace);
        let digest = Sha256::digest(name.as_bytes());
        let mut id = String::new();
        for (index, byte) in digest.iter().take(16).enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                id.push('-');
            }
            id.push_str(&format!("{byte:02x}"));
        }
        let statement = statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS");
        let statement = statement.replace(") WITH ", &format!(") WITH id = {id} AND "));
        debug_assert!(statement.contains(place), "{place}");
        self.fill(&statement)
    }

    async fn create(
        &self,
        session: &Session,
        statement: &str,
        what: &str,
        credentials: &Credentials,
    ) -> Result<(), Failure> {
        let created = timeout(PATIENCE, session.query_unpaged(statement, ())).await;
        let failure = match created {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => of_execution(&error, credentials),
            Err(_) => Failure::TimedOut(PATIENCE),
        };
        Err(match failure.before_sending() {
            Failure::Denied(cause) => Failure::Denied(
                format!("{what} is missing, and cannot be created ({cause})").into(),
            ),
            other => other,
        })
    }

    async fn columns(
        &self,
        session: &Session,
        credentials: &Credentials,
    ) -> Result<Vec<Column>, Failure> {
        let columns = "SELECT table_name, column_name, type, kind, position \
                       FROM system_schema.columns WHERE keyspace_name = ? AND table_name IN ?";
        let names: Vec<_> =
            TABLES.iter().map(|(_, suffix, _)| format!("{}{suffix}", self.table)).collect();
        let found = session.query_unpaged(columns, (&*self.keyspace, names)).await;
        let found = found.map_err(|error| of_execution(&error, credentials).before_sending())?;
        let misunderstood = || Failure::Misunderstood("system_schema.columns".into());
        let found = found.into_rows_result().map_err(|_| misunderstood())?;
        let rows = found.rows::<Column>().map_err(|_| misunderstood())?;
        rows.collect::<Result<_, _>>().map_err(|_| misunderstood())
    }
}

/// Returns a column in the form of [`TABLES`].
fn described((_, column, of_type, kind, position): &Column) -> String {
    match &**kind {
        "partition_key" => format!("{column} {of_type} p{position}"),
        "clustering" => format!("{column} {of_type} c{position}"),
        _ => format!("{column} {of_type}"),
    }
}
