//! Makes connections to servers, and sends commands on them.

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
use crate::store::net::connect::{Access, connect_tcp, connect_unix};
use crate::store::net::current::Closable;
use crate::store::net::greeting::{Greeting, Protocol};

/// A maker of connections to any server.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    access: Access,
    database: u32,
    expected: ServerRole,
}

/// The role that a server is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerRole {
    /// The primary, or a replica.
    Server,
    /// A node of a cluster.
    ClusterNode,
    /// A sentinel.
    Sentinel,
}

impl ServerRole {
    /// Returns the reason why a server in this mode cannot have this role, if there is one. Whether
    /// a node of a cluster has the keys turns out later.
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

/// An established connection, on which nothing is under way.
#[derive(Debug)]
pub(super) struct RedisConnection {
    requests: MultiplexedConnection,
    /// Moves bytes between `requests` and the socket; ends when the connection does.
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

    /// Returns a connector with a longer time for an exchange.
    pub(super) fn with_longer_timeout(&self, longer: Duration) -> Connector {
        Connector { access: self.access.with_longer_timeout(longer), ..*self }
    }

    /// Connects to a server that is ready then. A failure is none after which anything was applied.
    pub(super) async fn open(&self, server: &ServerAddress) -> Result<RedisConnection, Failure> {
        self.within_time(async |greeting| self.connect(server, greeting).await).await
    }

    /// Connects and asks one thing, in the time of one attempt to connect. The rest is as above.
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

    /// Waits for an answer, within the time for one exchange.
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
                let stream = connect_tcp(host, *port).await?;
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

    /// Logs in, and finds out whether the server is ready.
    async fn introduce<S>(&self, stream: S) -> Result<RedisConnection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        // The client would do the same, but its errors do not say what the server's say.
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
            // Relaxed: nothing but the numbers themselves is told by them.
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
        // Alone, so that what ends the connection instead of an answer is heard: a write after that would
        // fail with less to say.
        connection.send(&ping).await?;
        // What it is: any user may ask for it, and what does not know the command has another answer.
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
    /// Returns a number above 0 that no other connection of this process has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the server's version, if it tells one: `redis 7.0.15`.
    pub(super) fn version(&self) -> Option<&Arc<str>> {
        self.version.as_ref()
    }

    /// Sends commands, each after the answer to the one before, which is no error; returns the last
    /// answer. The rest is as with one.
    pub(super) async fn send_all(&mut self, commands: &[&Cmd]) -> Result<Value, Failure> {
        let mut answer = Value::Nil;
        for command in commands {
            answer = self.send(command).await?;
        }
        Ok(answer)
    }

    /// Sends a command, and returns its answer, which is no error. To be dropped before that is to
    /// leave the connection in a state in which it must not be used any more.
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
    // What cannot be parsed is told in several lines; a log takes one.
    let words = error.to_string().lines().collect::<Vec<_>>().join(", ");
    match error.kind() {
        redis::ErrorKind::Io => Failure::Disconnected(words.into()),
        _ => Failure::Misunderstood(words.into()),
    }
}

/// Returns the failure of an error that answers the first commands of a connection: the next
/// attempt may have no error.
fn not_ready(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(cause) => Failure::Unreachable(cause),
        other => other,
    }
}
