//! What the tests of Postgres have in common: servers of their own, schemas in them, strategies.

mod server;

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

pub(super) use self::server::{LOCKED, Server};
use super::Postgres;
use crate::store::conformance::Fixture;
use crate::store::options::{
    Credentials, PostgresOptions, Secret, StoreOptions, Strategy as Kind, TableName,
};
use crate::store::server::ServerAddress;
use crate::store::strategy::{Shard, Strategy};

/// The options of a store with these servers, in a schema of this name.
pub(super) fn options(servers: &[ServerAddress], schema: &str) -> (StoreOptions, PostgresOptions) {
    let postgres = PostgresOptions {
        database: "postgres".into(),
        table: TableName {
            schema: Some(schema.into()),
            name: "rl_counters".into(),
        },
    };
    let options = StoreOptions {
        strategy: Kind::Postgres(postgres.clone()),
        servers: servers.to_vec(),
        credentials: Credentials::default(),
        // Long enough for a machine that is busy.
        connect_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
        tls: None,
    };
    (options, postgres)
}

pub(super) fn connect(server: ServerAddress, schema: &str) -> Postgres {
    let (options, postgres) = options(&[server], schema);
    Postgres::new(&options, &postgres)
}

pub(super) fn secret(text: &str) -> Option<Secret> {
    Secret::parse(text.as_bytes())
}

/// A schema of the shared server.
pub(super) struct Schema {
    pub(super) name: String,
}

impl Schema {
    pub(super) fn new() -> Schema {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", CREATED.fetch_add(1, Ordering::Relaxed));
        Server::shared().ask(&format!("CREATE SCHEMA {name}"));
        Schema { name }
    }

    pub(super) fn connect(&self) -> Postgres {
        connect(Server::shared().tcp(), &self.name)
    }

    /// Puts the schema's name in place of `{}`, and asks the server.
    pub(super) fn ask(&self, query: &str) -> Vec<Vec<String>> {
        Server::shared().ask(&query.replace("{}", &self.name))
    }

    fn flush(&self) {
        self.ask(
            "TRUNCATE {}.rl_counters, {}.rl_counters_epochs, {}.rl_counters_nodes, \
             {}.rl_counters_changes",
        );
    }

    fn forget_changes(&self, shard: &Shard) {
        let Shard { namespace, number } = shard;
        self.ask(&format!(
            "DELETE FROM {{}}.rl_counters_changes USING {{}}.rl_counters_epochs AS e
             WHERE rl_counters_changes.epoch = e.epoch
                AND e.namespace = '{namespace}' AND e.shard = {number}"
        ));
    }
}

/// A schema that is spoken to through the server's port.
pub(super) struct Tcp(Schema);

impl Fixture for Tcp {
    type Store = Postgres;

    fn start() -> Tcp {
        Tcp(Schema::new())
    }

    fn connect(&self) -> Postgres {
        self.0.connect()
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn forget_changes(&self, shard: &Shard) {
        self.0.forget_changes(shard);
    }
}

/// A schema that is spoken to through the server's socket.
pub(super) struct Unix(Schema);

impl Fixture for Unix {
    type Store = Postgres;

    fn start() -> Unix {
        Unix(Schema::new())
    }

    fn connect(&self) -> Postgres {
        connect(ServerAddress::Unix(Server::shared().socket()), &self.0.name)
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn forget_changes(&self, shard: &Shard) {
        self.0.forget_changes(shard);
    }
}
