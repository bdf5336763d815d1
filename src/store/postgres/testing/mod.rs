//! What the tests of Postgres have in common: servers of their own, schemas in them, strategies.

mod server;

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::OnceLock;

pub(super) use self::server::{LOCKED, Server};
use super::Postgres;
use super::options::{PostgresOptions, TableName};
use crate::store::conformance::Fixture;
use crate::store::options::{Credentials, Secret, StoreOptions, TlsOptions};
use crate::store::server::ServerAddress;
use crate::store::strategy::{Shard, Strategy};
use crate::store::tls_testing::{Authority, trusting};

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

pub(super) fn with_tls(server: &Server, schema: &str, tls: TlsOptions) -> Postgres {
    let (mut options, postgres) = options(&[server.tcp()], schema);
    options.tls = Some(tls);
    Postgres::new(&options, &postgres)
}

/// A schema of a shared server.
pub(super) struct Schema {
    server: &'static Server,
    pub(super) name: String,
}

impl Schema {
    /// One of the server that most tests share.
    pub(super) fn new() -> Schema {
        Schema::of(Server::shared())
    }

    fn of(server: &'static Server) -> Schema {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", CREATED.fetch_add(1, Ordering::Relaxed));
        server.ask(&format!("CREATE SCHEMA {name}"));
        Schema { server, name }
    }

    pub(super) fn connect(&self) -> Postgres {
        connect(self.server.tcp(), &self.name)
    }

    /// Puts the schema's name in place of `{}`, and asks the server.
    pub(super) fn ask(&self, query: &str) -> Vec<Vec<String>> {
        self.server.ask(&query.replace("{}", &self.name))
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

/// A schema that is spoken to with TLS, each side having a certificate.
pub(super) struct Tls {
    schema: Schema,
    options: &'static TlsOptions,
}

impl Fixture for Tls {
    type Store = Postgres;

    fn start() -> Tls {
        static SHARED: OnceLock<(Server, TlsOptions)> = OnceLock::new();
        let (server, options) = SHARED.get_or_init(|| {
            let authority = Authority::new();
            let certificate = authority.issue("127.0.0.1");
            let server = Server::start_with_tls(&authority, &certificate, "clientcert=verify-ca");
            let options = TlsOptions {
                identity: Some(authority.issue("a client").identity()),
                ..trusting(&authority)
            };
            (server, options)
        });
        let schema = Schema::of(server);
        Tls { schema, options }
    }

    fn connect(&self) -> Postgres {
        with_tls(self.schema.server, &self.schema.name, self.options.clone())
    }

    fn flush(&self) {
        self.schema.flush();
    }

    fn forget_changes(&self, shard: &Shard) {
        self.schema.forget_changes(shard);
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
        connect(ServerAddress::Unix(self.0.server.socket()), &self.0.name)
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn forget_changes(&self, shard: &Shard) {
        self.0.forget_changes(shard);
    }
}
