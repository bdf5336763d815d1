//! Support for tests with Postgres: servers, schemas in them, and clients.

#[cfg(test)]
pub(crate) mod fixtures;
mod pooler;
mod server;

use core::sync::atomic::{AtomicU64, Ordering};

use super::server_tests;
use crate::store::contract::options::{Secret, StoreOptions, TlsOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Shard, Strategy};
use crate::store::postgres::Postgres;
use crate::store::postgres::options::{PostgresOptions, TableName};
pub(crate) use pooler::Pooler;
pub(crate) use server::LOCKED;
pub(crate) use server::Server;

/// The schema that every server has from the beginning.
pub(crate) const PUBLIC: &str = "public";

/// Returns the options of a store with these servers, in a schema of this name.
pub(crate) fn options(servers: &[ServerAddress], schema: &str) -> (StoreOptions, PostgresOptions) {
    let postgres = PostgresOptions {
        database: "postgres".into(),
        table: TableName { schema: Some(schema.into()), name: "rl_counters".into() },
    };
    (server_tests::options(servers), postgres)
}

pub(crate) fn connect(server: ServerAddress, schema: &str) -> Postgres {
    let (options, postgres) = options(&[server], schema);
    Postgres::new(&options, &postgres)
}

pub(crate) fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

pub(crate) fn with_tls(server: &Server, schema: &str, tls: TlsOptions) -> Postgres {
    let (mut options, postgres) = options(&[server.tcp()], schema);
    options.tls = Some(tls);
    Postgres::new(&options, &postgres)
}

/// A schema of a shared server.
pub(crate) struct Schema {
    server: &'static Server,
    pub(crate) name: String,
}

impl Schema {
    /// Creates a schema of the server that most tests share.
    pub(crate) fn new() -> Schema {
        Schema::of(Server::shared())
    }

    pub(super) fn of(server: &'static Server) -> Schema {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", CREATED.fetch_add(1, Ordering::Relaxed));
        server.ask(&format!("CREATE SCHEMA {name}"));
        Schema { server, name }
    }

    pub(crate) fn connect(&self) -> Postgres {
        connect(self.server.tcp(), &self.name)
    }

    /// Runs a query, in which `{}` stands for the schema's name.
    pub(crate) fn ask(&self, query: &str) -> Vec<Vec<String>> {
        self.server.ask(&query.replace("{}", &self.name))
    }

    pub(super) fn flush(&self) {
        self.ask(
            "TRUNCATE {}.rl_counters, {}.rl_counters_epochs, {}.rl_counters_nodes, \
             {}.rl_counters_changes, {}.rl_counters_levels, {}.rl_counters_logs",
        );
    }

    pub(super) fn forget_changes(&self, shard: &Shard) {
        let Shard { namespace, number } = shard;
        self.ask(&format!(
            "DELETE FROM {{}}.rl_counters_changes USING {{}}.rl_counters_epochs AS e
             WHERE rl_counters_changes.epoch = e.epoch
                AND e.namespace = '{namespace}' AND e.shard = {number}"
        ));
    }
}
