//! The connection to the one server that is used at a time: made when needed, dropped when in doubt.

use core::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::connector::{Connection, Connector};
use crate::store::error::{Failure, Refusal, StoreError};
use crate::store::options::{RedisOptions, StoreOptions, Topology};
use crate::store::server::ServerAddress;

/// The way to a Redis: its servers, and a connection to one of them.
#[derive(Debug)]
pub(super) struct Link {
    servers: Vec<ServerAddress>,
    /// The index of the server that is used, or tried next.
    server: usize,
    current: Option<Connection>,
    /// The number of the latest connection; 0 before the first.
    connection: u64,
    connector: Connector,
    timeout: Duration,
    unsupported: Option<&'static str>,
}

impl Link {
    pub(super) fn new(options: &StoreOptions, own: &RedisOptions) -> Link {
        Link {
            servers: options.servers.clone(),
            server: 0,
            current: None,
            connection: 0,
            connector: Connector::new(options, own.database),
            timeout: options.timeout,
            unsupported: match own.topology {
                Topology::Cluster => Some("Redis Cluster"),
                Topology::Sentinel { .. } => Some("Redis Sentinel"),
                Topology::Single => None,
            },
        }
    }

    /// The number of the latest connection; 0 before the first.
    pub(super) fn connection(&self) -> u64 {
        self.connection
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
            Some(connection) if !connection.is_closed() => connection,
            _ => self.connect().await?,
        };
        let result = match timeout(self.timeout, connection.send(command)).await {
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
                Some(server) => self.connector.open(server).await,
                None => break,
            };
            match attempt {
                Ok(connection) => {
                    self.connection = connection.number();
                    return Ok(connection);
                }
                Err(failure) => result = Err(self.error(failure)),
            }
            self.move_on();
        }
        result
    }

    fn move_on(&mut self) {
        let next = self.server.saturating_add(1);
        self.server = if next < self.servers.len() { next } else { 0 };
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

/// Whether a server did nothing, since it is a replica: the primary may be another one.
fn is_of_replica(failure: &Failure) -> bool {
    let replica = |refusal: &Refusal| matches!(refusal, Refusal::ReadOnly | Refusal::PrimaryDown);
    matches!(failure, Failure::Refused(refusal) if replica(refusal))
}
