//! The connection to the one server that is used at a time: made when needed, dropped when in doubt.

use core::time::Duration;
use std::io;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure;
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::{Credentials, RedisOptions, Secret, StoreOptions, Topology};
use crate::store::server::ServerAddress;

/// The way to a Redis: its servers, and a connection to one of them.
#[derive(Debug)]
pub(super) struct Link {
    servers: Vec<ServerAddress>,
    /// The index of the server that is used, or tried next.
    server: usize,
    current: Option<Connection>,
    /// How many connections there have been.
    connects: u64,
    credentials: Credentials,
    database: u32,
    connect_timeout: Duration,
    timeout: Duration,
    unsupported: Option<&'static str>,
}

/// An established connection, on which nothing is under way.
#[derive(Debug)]
struct Connection {
    requests: MultiplexedConnection,
    /// Moves bytes between `requests` and the socket; ends when the connection does.
    driver: JoinHandle<()>,
}

impl Link {
    pub(super) fn new(options: &StoreOptions, own: &RedisOptions) -> Link {
        Link {
            servers: options.servers.clone(),
            server: 0,
            current: None,
            connects: 0,
            credentials: options.credentials.clone(),
            database: own.database,
            connect_timeout: options.connect_timeout,
            timeout: options.timeout,
            unsupported: match own.topology {
                _ if options.tls.is_some() => Some("tls with Redis"),
                Topology::Cluster => Some("Redis Cluster"),
                Topology::Sentinel { .. } => Some("Redis Sentinel"),
                Topology::Single => None,
            },
        }
    }

    /// The number of the latest connection; 0 before the first.
    pub(super) fn connects(&self) -> u64 {
        self.connects
    }

    /// An answer of the present server was not what `what` says.
    pub(super) fn misunderstood(&self, what: &str) -> StoreError {
        self.error(Failure::Misunderstood(what.into()))
    }

    /// Sends a command, and returns its answer, which is no error. It is sent to another server only
    /// if one is no primary, and so did nothing.
    pub(super) async fn exchange(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        let mut result = self.send(command).await;
        for _ in 1..self.servers.len() {
            match &result {
                Err(error) if is_of_replica(&error.failure) => {}
                _ => break,
            }
            result = self.send(command).await;
        }
        result
    }

    /// Sends a command to one server, once.
    async fn send(&mut self, command: &Cmd) -> Result<Value, StoreError> {
        // Taken away, so that whatever ends this exchange early ends the connection too: a late
        // answer must not be taken for that to a later command.
        let mut connection = match self.current.take() {
            // One that was closed meanwhile would not have sent anything.
            Some(connection) if !connection.driver.is_finished() => connection,
            _ => self.connect().await?,
        };
        let exchange = timeout(self.timeout, connection.send(command, &self.credentials));
        let result = match exchange.await {
            Ok(result) => result,
            Err(_) => Err(Failure::TimedOut(self.timeout)),
        };
        let result = result.map_err(|failure| self.error(failure));
        match result.as_ref().map_err(|error| &error.failure) {
            // Another server is the primary now.
            Err(failure) if is_of_replica(failure) => self.move_on(),
            // It may be in the middle of an answer.
            Err(Failure::TimedOut(_) | Failure::Disconnected(_) | Failure::Misunderstood(_)) => {}
            _ => self.current = Some(connection),
        }
        result
    }

    /// Tries each server once, from the present one on.
    async fn connect(&mut self) -> Result<Connection, StoreError> {
        if let Some(what) = self.unsupported {
            return Err(self.error(Failure::Unsupported(what)));
        }
        let mut result = Err(self.error(Failure::Unreachable("no server".into())));
        for _ in 0..self.servers.len() {
            let attempt = match self.servers.get(self.server) {
                Some(server) => timeout(self.connect_timeout, self.open(server)).await,
                None => break,
            };
            let failure = match attempt {
                Ok(Ok(connection)) => {
                    self.connects = self.connects.saturating_add(1);
                    return Ok(connection);
                }
                Ok(Err(failure)) => before_sending(failure),
                Err(_) => {
                    let millis = self.connect_timeout.as_millis();
                    Failure::Unreachable(format!("no connection within {millis} ms").into())
                }
            };
            result = Err(self.error(failure));
            self.move_on();
        }
        result
    }

    fn move_on(&mut self) {
        let next = self.server.saturating_add(1);
        self.server = if next < self.servers.len() { next } else { 0 };
    }

    async fn open(&self, server: &ServerAddress) -> Result<Connection, Failure> {
        // TLS goes here, around the stream.
        match server {
            ServerAddress::Tcp { host, port } => {
                let stream = TcpStream::connect((&**host, *port)).await;
                let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
                self.introduce(stream.map_err(unreachable)?).await
            }
            ServerAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                self.introduce(stream.map_err(unreachable)?).await
            }
        }
    }

    /// Says who we are, and finds out whether the server is ready.
    async fn introduce<S>(&self, stream: S) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // The client would do the same, but its errors do not say what the server's say.
        let introduction = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (requests, driver) =
            MultiplexedConnection::new_with_config(&introduction, stream, config)
                .await
                .map_err(|error| broken(&error))?;
        let mut connection = Connection {
            requests,
            driver: tokio::spawn(driver),
        };
        let Credentials { username, password } = &self.credentials;
        if let Some(password) = password {
            let mut auth = Cmd::new();
            auth.arg("AUTH")
                .arg(username.as_ref().map(Secret::expose))
                .arg(password.expose());
            connection.send(&auth, &self.credentials).await?;
        }
        if self.database != 0 {
            let mut select = Cmd::new();
            select.arg("SELECT").arg(self.database);
            connection.send(&select, &self.credentials).await?;
        }
        let mut ping = Cmd::new();
        ping.arg("PING");
        connection.send(&ping, &self.credentials).await?;
        Ok(connection)
    }

    fn error(&self, failure: Failure) -> StoreError {
        // There is at least one.
        let nowhere = || ServerAddress::Unix("/".into());
        let server = self.servers.get(self.server).cloned();
        StoreError {
            server: server.unwrap_or_else(nowhere),
            failure,
        }
    }
}

impl Connection {
    async fn send(&mut self, command: &Cmd, credentials: &Credentials) -> Result<Value, Failure> {
        match self.requests.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => Err(failure::of(&error, credentials)),
            Ok(value) => Ok(value),
            Err(error) => Err(broken(&error)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Whether a server did nothing, since it is a replica: the primary may be another one.
fn is_of_replica(failure: &Failure) -> bool {
    let replica = |refusal: &Refusal| matches!(refusal, Refusal::ReadOnly | Refusal::PrimaryDown);
    matches!(failure, Failure::Refused(refusal) if replica(refusal))
}

fn unreachable(error: io::Error) -> Failure {
    Failure::Unreachable(error.to_string().into())
}

fn broken(error: &RedisError) -> Failure {
    match error.kind() {
        redis::ErrorKind::Io => Failure::Disconnected(error.to_string().into()),
        _ => Failure::Misunderstood(error.to_string().into()),
    }
}

/// What a failure means for a connection on which no command was sent yet.
fn before_sending(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(cause) | Failure::Disconnected(cause) | Failure::Misunderstood(cause) => {
            Failure::Unreachable(cause)
        }
        other => other,
    }
}
