//! Reads the directives of a `ratelimit_store` block.

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};

use super::options::{
    Credentials, PemFile, PostgresOptions, RedisOptions, Secret, StoreOptions, Strategy, TableName,
    TlsIdentity, TlsOptions, Topology,
};
use super::server::{ServerAddress, ServerName};
use super::syntax::{
    DATABASE, FILE, Kind, PASSWORD, PASSWORD_FILE, PREFIX, REDIS_DATABASE, SENTINEL_MASTER, SERVER,
    STRATEGY, TABLE, TIMEOUT, TLS_NAME, USERNAME,
};
use crate::policy::options::{Directive, DirectiveName, FLAG, OptionError};

/// Reads a store's directives, one by one, in any order.
pub struct StoreOptionsBuilder<R> {
    read_file: R,
    given: Given,
    /// Whether the last directive was a password.
    after_password: bool,
}

/// What was said so far.
#[derive(Debug, Default)]
struct Given {
    strategy: Option<Kind>,
    servers: Vec<ServerName>,
    cluster: Option<bool>,
    sentinel_master: Option<Box<str>>,
    sentinel_username: Option<Secret>,
    sentinel_password: Option<Secret>,
    username: Option<Secret>,
    password: Option<Secret>,
    /// What the file holds.
    password_file: Option<Secret>,
    /// For Redis a number, for Postgres a name.
    database: Option<Box<str>>,
    prefix: Option<Box<str>>,
    table: Option<TableName>,
    connect_timeout: Option<Duration>,
    timeout: Option<Duration>,
    tls: Option<bool>,
    tls_verify: Option<bool>,
    tls_name: Option<Box<str>>,
    tls_trusted_certificate: Option<PathBuf>,
    tls_certificate: Option<PathBuf>,
    tls_certificate_key: Option<PathBuf>,
}

pub(super) const DIRECTIVES: [&str; 20] = [
    "strategy",
    "server",
    "cluster",
    "sentinel_master",
    "sentinel_username",
    "sentinel_password",
    "username",
    "password",
    "password_file",
    "database",
    "prefix",
    "table",
    "connect_timeout",
    "timeout",
    "tls",
    "tls_verify",
    "tls_name",
    "tls_trusted_certificate",
    "tls_certificate",
    "tls_certificate_key",
];

/// Those that this build does not have yet.
pub(super) const LACKING: [&str; 3] = ["datacenter", "consistency", "replication"];

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);

impl StoreOptions {
    /// Nothing was said yet. `read_file` gives the content of the `password_file`, whose path it
    /// is given as written.
    pub fn builder<R>(read_file: R) -> StoreOptionsBuilder<R>
    where
        R: Fn(&Path) -> io::Result<Vec<u8>>,
    {
        StoreOptionsBuilder {
            read_file,
            given: Given::default(),
            after_password: false,
        }
    }
}

impl<R> StoreOptionsBuilder<R>
where
    R: Fn(&Path) -> io::Result<Vec<u8>>,
{
    /// Reads the directive `name words...;`.
    ///
    /// # Errors
    ///
    /// If there is no such directive, it was given before, its words are not accepted, or it
    /// contradicts another. No message holds a user's name or password.
    pub fn set(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), OptionError> {
        let directive = Directive::new(name, words);
        let is_password = matches!(name, b"password" | b"sentinel_password");
        let after_password = core::mem::replace(&mut self.after_password, is_password);
        let given = &mut self.given;
        match name {
            b"strategy" if words == [b"cassandra"] => Err(OptionError::new(
                "strategy \"cassandra\" is not in this build: expected redis or postgres",
            )),
            b"strategy" => directive.set(&mut given.strategy, &STRATEGY),
            b"server" => directive
                .word(&SERVER)
                .and_then(|server| given.add_server(server)),
            b"cluster" => directive.set(&mut given.cluster, &FLAG),
            b"sentinel_master" => directive.set(&mut given.sentinel_master, &SENTINEL_MASTER),
            b"sentinel_username" => directive.set(&mut given.sentinel_username, &USERNAME),
            b"sentinel_password" => directive.set(&mut given.sentinel_password, &PASSWORD),
            b"username" => directive.set(&mut given.username, &USERNAME),
            b"password" => directive.set(&mut given.password, &PASSWORD),
            b"password_file" => directive.set_with(&mut given.password_file, || {
                read_password(&directive, &self.read_file)
            }),
            b"database" => directive.set(&mut given.database, &DATABASE),
            b"prefix" => directive.set(&mut given.prefix, &PREFIX),
            b"table" => directive.set(&mut given.table, &TABLE),
            b"connect_timeout" => directive.set(&mut given.connect_timeout, &TIMEOUT),
            b"timeout" => directive.set(&mut given.timeout, &TIMEOUT),
            b"tls" => directive.set(&mut given.tls, &FLAG),
            b"tls_verify" => directive.set(&mut given.tls_verify, &FLAG),
            b"tls_name" => directive.set(&mut given.tls_name, &TLS_NAME),
            b"tls_trusted_certificate" => directive.set(&mut given.tls_trusted_certificate, &FILE),
            b"tls_certificate" => directive.set(&mut given.tls_certificate, &FILE),
            b"tls_certificate_key" => directive.set(&mut given.tls_certificate_key, &FILE),
            // What looks like a name is the end of a password with a ";" in it.
            _ if after_password => {
                Err(Directive::new(b"...", words).unknown(&DIRECTIVES, &LACKING))
            }
            _ => Err(directive.unknown(&DIRECTIVES, &LACKING)),
        }?;
        given.check_strategy()?;
        given.check_pairs()
    }

    /// All directives were read.
    ///
    /// # Errors
    ///
    /// If something is missing.
    pub fn finish(self) -> Result<StoreOptions, OptionError> {
        let mut given = self.given;
        let kind = given.strategy.ok_or_else(|| {
            OptionError::new("no strategy: add \"strategy redis;\" or \"strategy postgres;\"")
        })?;
        given.check_needs()?;
        given.check_tls()?;
        let servers = given.take_servers(kind)?;
        Ok(StoreOptions {
            strategy: match kind {
                Kind::Redis => Strategy::Redis(given.take_redis()?),
                Kind::Postgres => Strategy::Postgres(given.take_postgres()),
            },
            tls: given.take_tls(),
            servers,
            credentials: Credentials {
                username: given.username,
                password: given.password.or(given.password_file),
            },
            connect_timeout: given.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
            timeout: given.timeout.unwrap_or(DEFAULT_TIMEOUT),
        })
    }
}

impl Given {
    fn add_server(&mut self, server: ServerName) -> Result<(), OptionError> {
        if self.servers.contains(&server) {
            let message = format!("server \"{server}\" is duplicate");
            return Err(OptionError::new(message));
        }
        self.servers.push(server);
        Ok(())
    }

    /// The servers, at least one: where none is given, the usual one.
    fn take_servers(&mut self, kind: Kind) -> Result<Vec<ServerAddress>, OptionError> {
        let usual_port = match kind {
            Kind::Redis if self.sentinel_master.is_some() => 26379,
            Kind::Redis => 6379,
            Kind::Postgres => 5432,
        };
        let mut servers = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let server = server.at(usual_port);
            if servers.contains(&server) {
                let message = format!("server \"{server}\" is duplicate");
                let name = "server";
                return Err(OptionError::new(message).of(DirectiveName { name, index }));
            }
            servers.push(server);
        }
        if servers.is_empty() {
            let (host, port) = ("127.0.0.1".into(), usual_port);
            servers.push(ServerAddress::Tcp { host, port });
        }
        Ok(servers)
    }

    /// Whether the strategy, once it is known, has the options that were given.
    fn check_strategy(&self) -> Result<(), OptionError> {
        let Some(strategy) = self.strategy else {
            return Ok(());
        };
        let redis = [
            ("cluster", self.cluster.is_some()),
            ("sentinel_master", self.sentinel_master.is_some()),
            ("sentinel_username", self.sentinel_username.is_some()),
            ("sentinel_password", self.sentinel_password.is_some()),
            ("prefix", self.prefix.is_some()),
        ];
        let postgres = [("table", self.table.is_some())];
        let (foreign, owner) = match strategy {
            Kind::Redis => (&postgres[..], Kind::Postgres),
            Kind::Postgres => (&redis[..], Kind::Redis),
        };
        if let Some((name, _)) = foreign.iter().find(|(_, is_given)| *is_given) {
            let (owner, strategy) = (owner.name(), strategy.name());
            return Err(OptionError::new(format!(
                "\"{name}\" is an option of strategy {owner}, not of {strategy}"
            ))
            .of(*name));
        }
        if strategy == Kind::Redis {
            self.redis_database()?;
        }
        Ok(())
    }

    /// Whether no two of the options that were given exclude each other.
    ///
    /// What no further directive can mend is said at once, so that the message has its line.
    fn check_pairs(&self) -> Result<(), OptionError> {
        let is_cluster = self.cluster == Some(true);
        let is_sentinel = self.sentinel_master.is_some();
        if self.password.is_some() && self.password_file.is_some() {
            return Err(exclusive("password", "\"password_file\"", "one of them"));
        }
        if is_cluster && is_sentinel {
            return Err(exclusive(
                "cluster on",
                "\"sentinel_master\"",
                "one of them",
            ));
        }
        if is_cluster && self.strategy.is_some() && self.redis_database()? != 0 {
            return Err(exclusive(
                "cluster on",
                "other database than 0",
                "\"database 0\" or none",
            ));
        }
        let mut paths = self.servers.iter().filter_map(|server| match server {
            ServerName::Unix(path) => Some(path),
            ServerName::Tcp { .. } => None,
        });
        if let Some(path) = paths.next() {
            let server = format!("server \"unix:{}\"", path.display());
            for (name, is_given) in [
                ("cluster on", is_cluster),
                ("sentinel_master", is_sentinel),
                ("tls on", self.tls == Some(true)),
            ] {
                if is_given {
                    return Err(exclusive(name, &server, "host[:port] or [v6][:port]"));
                }
            }
        }
        Ok(())
    }

    /// Whether every option that was given has the one beside it that it needs.
    fn check_needs(&self) -> Result<(), OptionError> {
        let has_master = self.sentinel_master.is_some();
        let has_certificate = self.tls_certificate.is_some();
        let has_key = self.tls_certificate_key.is_some();
        for (name, is_given, needed, has_needed) in [
            (
                "sentinel_username",
                self.sentinel_username.is_some(),
                "sentinel_master name",
                has_master,
            ),
            (
                "sentinel_password",
                self.sentinel_password.is_some(),
                "sentinel_master name",
                has_master,
            ),
            (
                "tls_certificate",
                has_certificate,
                "tls_certificate_key file",
                has_key,
            ),
            (
                "tls_certificate_key",
                has_key,
                "tls_certificate file",
                has_certificate,
            ),
        ] {
            if is_given && !has_needed {
                return Err(OptionError::new(format!(
                    "\"{name}\" needs another option: add \"{needed};\""
                ))
                .of(name));
            }
        }
        Ok(())
    }

    /// Whether options of TLS were given where there is TLS: else a connection would be plain that
    /// looks as if it were not.
    fn check_tls(&self) -> Result<(), OptionError> {
        if self.tls == Some(true) {
            return Ok(());
        }
        for (name, is_given) in [
            ("tls_verify", self.tls_verify.is_some()),
            ("tls_name", self.tls_name.is_some()),
            (
                "tls_trusted_certificate",
                self.tls_trusted_certificate.is_some(),
            ),
            ("tls_certificate", self.tls_certificate.is_some()),
            ("tls_certificate_key", self.tls_certificate_key.is_some()),
        ] {
            if is_given {
                let message = format!("\"{name}\" has no effect without TLS: add \"tls on;\"");
                return Err(OptionError::new(message).of(name));
            }
        }
        Ok(())
    }

    fn take_redis(&mut self) -> Result<RedisOptions, OptionError> {
        let topology = match self.sentinel_master.take() {
            Some(master) => Topology::Sentinel {
                master,
                credentials: Credentials {
                    username: self.sentinel_username.take(),
                    password: self.sentinel_password.take(),
                },
            },
            None if self.cluster == Some(true) => Topology::Cluster,
            None => Topology::Single,
        };
        Ok(RedisOptions {
            topology,
            database: self.redis_database()?,
            prefix: self.prefix.take().unwrap_or_else(|| "rl".into()),
        })
    }

    fn take_postgres(&mut self) -> PostgresOptions {
        let database = self.database.take();
        let table = self.table.take();
        PostgresOptions {
            database: database.unwrap_or_else(|| "postgres".into()),
            table: table.unwrap_or_else(|| TableName {
                schema: None,
                name: "rl_counters".into(),
            }),
        }
    }

    fn take_tls(&mut self) -> Option<TlsOptions> {
        let files = self
            .tls_certificate
            .take()
            .zip(self.tls_certificate_key.take());
        (self.tls == Some(true)).then(|| TlsOptions {
            verify: self.tls_verify.unwrap_or(true),
            name: self.tls_name.take(),
            trusted_certificate: self.tls_trusted_certificate.take().map(PemFile::unread),
            identity: files.map(|(certificate, key)| TlsIdentity {
                certificate: PemFile::unread(certificate),
                key: PemFile::unread(key),
            }),
        })
    }

    fn redis_database(&self) -> Result<u32, OptionError> {
        match &self.database {
            None => Ok(0),
            Some(text) => Directive::new(b"database", &[text.as_bytes()])
                .word(&REDIS_DATABASE)
                .map_err(|error| error.of("database")),
        }
    }
}

fn exclusive(name: &str, other: &str, expected: &str) -> OptionError {
    OptionError::new(format!(
        "\"{name}\" goes with no {other}: expected {expected}"
    ))
}

/// The password in the file that `directive` names, without the newline at its end.
fn read_password(
    directive: &Directive<'_>,
    read_file: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Secret, OptionError> {
    let path = directive.word(&PASSWORD_FILE)?;
    let content = read_file(&path)
        .map_err(|error| OptionError::new(format!("password_file cannot be read ({error})")))?;
    let password = match content.as_slice() {
        [password @ .., b'\r', b'\n'] | [password @ .., b'\n'] | password => password,
    };
    let expected = "a file with a password of at least one character, in UTF-8";
    Secret::parse(password).ok_or_else(|| directive.invalid(None, expected))
}
