//! Creates connections to servers, and sends commands on them.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::answer::RedisAnswer;
use super::failure;
use crate::store::contract::error::Failure;
use crate::store::contract::options::{Credentials, Secret, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::{Access, connect_unix};
use crate::store::net::current::Closable;
use crate::store::net::greeting::{Greeting, Protocol};

/// Creates connections to any server.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    access: Access,
    database: u32,
    expected: ServerRole,
}

/// The required role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerRole {
    /// A primary or a replica.
    Server,
    /// A node of a cluster.
    ClusterNode,
    /// A sentinel.
    Sentinel,
}

impl ServerRole {
    /// Returns the reason why a server in this mode does not have this role; `None` if it has.
    /// Whether a cluster node has certain keys turns out later.
    fn misfit(self, mode: &str) -> Option<&'static str> {
        match (self, mode) {
            (ServerRole::Server, "sentinel") => {
                Some("it is a sentinel, and \"sentinel_master\" is missing")
            }
            (ServerRole::ClusterNode, "standalone" | "sentinel") => {
                Some("it is no node of a Redis Cluster, which \"cluster on\" is for")
            }
            (ServerRole::Sentinel, "standalone" | "cluster") => {
                Some("it is no sentinel, which \"sentinel_master\" is for")
            }
            _ => None,
        }
    }
}

/// An established connection without a running exchange.
#[derive(Debug)]
pub(super) struct RedisConnection {
    requests: MultiplexedConnection,
    /// Moves bytes between `requests` and the socket, and ends with the connection.
    driver: JoinHandle<()>,
    credentials: Credentials,
    /// Version of the server.
    version: Option<Arc<str>>,
    number: u64,
}

impl Connector {
    pub(super) fn new(options: &StoreOptions, database: u32, expected: ServerRole) -> Connector {
        Connector { access: Access::new(options), database, expected }
    }

    /// Returns a connector for sentinels, with other credentials.
    pub(super) fn to_sentinels(&self, credentials: &Credentials) -> Connector {
        Connector {
            access: self.access.with_credentials(credentials),
            database: 0,
            expected: ServerRole::Sentinel,
        }
    }

    /// Returns a connector with a longer timeout of an exchange.
    pub(super) fn with_longer_timeout(&self, longer: Duration) -> Connector {
        Connector { access: self.access.with_longer_timeout(longer), ..*self }
    }

    /// Connects to a server, and checks that it is ready. If this fails, nothing was applied.
    pub(super) async fn open(&self, server: &ServerAddress) -> Result<RedisConnection, Failure> {
        self.within_time(async |greeting| self.connect(server, greeting).await).await
    }

    /// Connects, and sends one request within the timeout of a connection attempt. See
    /// [`Connector::open`].
    pub(super) async fn open_and_ask(
        &self,
        server: &ServerAddress,
        question: &Cmd,
    ) -> Result<(RedisConnection, Value), Failure> {
        self.within_time(async |greeting| {
            let mut connection = self.connect(server, greeting).await?;
            let answer = connection.send(question).await?;
            Ok((connection, answer))
        })
        .await
    }

    /// Waits for an answer within the timeout of an exchange.
    pub(super) async fn exchange<T>(
        &self,
        exchange: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.access.exchange(exchange).await?
    }

    async fn within_time<T>(
        &self,
        attempt: impl AsyncFnOnce(&Greeting) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let protocol = Protocol {
            name: "Redis",
            // Of RESP 2 and 3.
            first: b"+-:$*_#,(!=%~>|",
            has_tls: self.access.has_tls(),
        };
        let attempt = async |greeting: &Greeting| attempt(greeting).await.map_err(not_ready);
        self.access.attempt(&protocol, attempt).await
    }

    async fn connect(
        &self,
        server: &ServerAddress,
        greeting: &Greeting,
    ) -> Result<RedisConnection, Failure> {
        match server {
            ServerAddress::Tcp { host, port } => {
                let stream = self.access.connect_tcp(host, *port).await?;
                match self.access.tls()? {
                    None => self.introduce(greeting.of(stream)).await,
                    Some(tls) => {
                        let stream = tls.wrap(host, stream).await;
                        let stream = stream.map_err(without_tls)?;
                        self.introduce(greeting.of(stream)).await
                    }
                }
            }
            ServerAddress::Unix(path) => {
                let stream = connect_unix(path).await?;
                self.introduce(greeting.of(stream)).await
            }
        }
    }

    /// Logs in, and checks that the server is ready.
    async fn introduce<S>(&self, stream: S) -> Result<RedisConnection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        // The client library would log in too, but its errors lack the server's words.
        let introduction = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (requests, driver) =
            MultiplexedConnection::new_with_config(&introduction, stream, config)
                .await
                .map_err(|error| broken(&error))?;
        let mut connection = RedisConnection {
            requests,
            driver: tokio::spawn(driver),
            credentials: self.access.credentials.clone(),
            version: None,
            // Relaxed: the number orders no other memory.
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
        };
        let Credentials { username, password } = &self.access.credentials;
        if let Some(password) = password {
            let mut auth = Cmd::new();
            auth.arg("AUTH").arg(username.as_ref().map(Secret::expose)).arg(password.expose());
            connection.send(&auth).await?;
        }
        if self.database != 0 {
            let mut select = Cmd::new();
            select.arg("SELECT").arg(self.database);
            connection.send(&select).await?;
        }
        let (mut hello, mut ping) = (Cmd::new(), Cmd::new());
        hello.arg("HELLO");
        ping.arg("PING");
        // Sent alone, so that the server's reason for closing the connection is read; after a
        // further write, the error would say less.
        connection.send(&ping).await?;
        // Asks for the kind of server. Any user may, and a server that does not know the command
        // returns another error.
        let hello = connection.requests.send_packed_command(&hello).await;
        if let Some((version, mode)) = hello.ok().and_then(|it| RedisAnswer(it).hello()) {
            if let Some(cause) = self.expected.misfit(&mode) {
                return Err(Failure::Unusable(cause.into()));
            }
            connection.version = Some(version.into());
        }
        Ok(connection)
    }
}

impl RedisConnection {
    /// Returns a number above 0 that is unique among the connections of this process.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the server's version, such as `redis 7.0.15`; `None` if it is unknown.
    pub(super) fn version(&self) -> Option<&Arc<str>> {
        self.version.as_ref()
    }

    /// Sends commands, each after the previous answer, and returns the last answer. An error answer
    /// is a failure.
    pub(super) async fn send_all(&mut self, commands: &[&Cmd]) -> Result<Value, Failure> {
        let mut answer = Value::Nil;
        for command in commands {
            answer = self.send(command).await?;
        }
        Ok(answer)
    }

    /// Sends a command, and returns its answer. An error answer is a failure. If the call is
    /// dropped before it ends, the connection must not be used any more.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, Failure> {
        match self.requests.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => Err(failure::of(&error, &self.credentials)),
            Ok(value) => Ok(value),
            Err(error) => Err(broken(&error)),
        }
    }
}

impl Closable for RedisConnection {
    fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn without_tls(error: io::Error) -> Failure {
    Failure::Unreachable(format!("no TLS: {error}").into())
}

fn broken(error: &RedisError) -> Failure {
    // The client library's text can have several lines; a log line is one.
    let words = error.to_string().lines().collect::<Vec<_>>().join(", ");
    match error.kind() {
        redis::ErrorKind::Io => Failure::Disconnected(words.into()),
        _ => Failure::Misunderstood(words.into()),
    }
}

/// Converts the failure of a connection's first commands: the next attempt may succeed.
fn not_ready(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(cause) => Failure::Unreachable(cause),
        other => other,
    }
}
