//! The connection to the one server in use, and the search for another one.

use core::slice;
use core::time::Duration;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::connector::{Connector, RedisConnection, ServerRole};
use super::options::{RedisOptions, Topology};
use super::sentinel::Sentinels;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::StoreOptions;
use crate::store::contract::server::ServerAddress;
use crate::store::net::current::Current;
use crate::store::net::servers::Servers;

/// The connection to a Redis with one server in use.
#[derive(Debug)]
pub(super) struct RedisLink {
    source: PrimarySource,
    /// The server that is in use, or was tried last.
    server: ServerAddress,
    current: Current<RedisConnection>,
    /// The number of the last connection; 0 before the first.
    connection: u64,
    /// Version of the last server.
    version: Option<Arc<str>>,
    connector: Connector,
}

/// The way to find the primary.
#[derive(Clone, Debug)]
enum PrimarySource {
    /// One of these servers is the primary.
    Servers(Servers),
    /// Sentinels know the primary.
    Sentinels(Sentinels),
}

impl RedisLink {
    pub(super) fn new(options: &StoreOptions, own: &RedisOptions) -> RedisLink {
        let servers = Servers::new(&options.servers);
        let connector = Connector::new(options, own.database, ServerRole::Server);
        RedisLink {
            server: servers.current().clone(),
            current: Current::none(),
            connection: 0,
            version: None,
            source: match &own.topology {
                Topology::Single | Topology::Cluster => PrimarySource::Servers(servers),
                Topology::Sentinel { master, credentials } => PrimarySource::Sentinels(
                    Sentinels::new(servers, &connector, credentials, master),
                ),
            },
            connector,
        }
    }

    /// Creates a link to one server.
    pub(super) fn to(server: &ServerAddress, connector: &Connector) -> RedisLink {
        RedisLink {
            source: PrimarySource::Servers(Servers::new(slice::from_ref(server))),
            server: server.clone(),
            current: Current::none(),
            connection: 0,
            version: None,
            connector: connector.clone(),
        }
    }

    /// Returns a link to the same servers with a connection of its own and a longer timeout of an
    /// exchange.
    pub(super) fn with_longer_timeout(&self, longer: Duration) -> RedisLink {
        RedisLink {
            source: self.source.clone(),
            server: self.server.clone(),
            current: Current::none(),
            connection: 0,
            version: None,
            connector: self.connector.with_longer_timeout(longer),
        }
    }

    /// Closes the connection, if there is one.
    pub(super) fn close(&mut self) {
        self.current.take();
    }

    /// Returns the number of connections created so far, without those to sentinels.
    pub(super) fn connects(&self) -> u64 {
        self.current.connects()
    }

    /// Returns the number of the last connection; 0 before the first.
    pub(super) fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns the version of the last connection's server.
    pub(super) fn version(&self) -> Option<&Arc<str>> {
        self.version.as_ref()
    }

    /// Returns the server of the last connection, with its version; `None` before the first.
    pub(super) fn described(&self) -> Option<String> {
        self.current.described()
    }

    /// Returns the error that the server's answer is invalid; `what` describes it.
    pub(super) fn misunderstood(&self, what: &str) -> StoreError {
        StoreError::new(self.server.clone(), Failure::Misunderstood(what.into()))
    }

    /// Sends commands one after another, and returns the answer to the last one. Stops at the first
    /// error. Sends them to another server only if this one is not the primary, and so has executed
    /// nothing.
    pub(super) async fn exchange(&mut self, commands: &[&Cmd]) -> Result<Value, StoreError> {
        let mut result = self.send(commands).await;
        let others = match &self.source {
            PrimarySource::Servers(servers) => servers.len().saturating_sub(1),
            PrimarySource::Sentinels(_) => 1,
        };
        for _ in 0..others {
            match &result {
                Err(error) if is_of_replica(&error.failure) => {}
                _ => break,
            }
            result = self.send(commands).await;
        }
        result
    }

    /// Sends commands to one server, once.
    async fn send(&mut self, commands: &[&Cmd]) -> Result<Value, StoreError> {
        let mut connection = match self.current.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let result = self.connector.exchange(connection.send_all(commands)).await;
        let result = result.map_err(StoreError::of(&self.server));
        match result.as_ref().map_err(|error| &error.failure) {
            // Another server is the primary now.
            Err(failure) if is_of_replica(failure) => self.move_on(),
            // The rest of an answer may still arrive.
            Err(Failure::TimedOut(_) | Failure::Disconnected(_) | Failure::Misunderstood(_)) => {}
            _ => self.current.keep(connection),
        }
        result
    }

    async fn connect(&mut self) -> Result<RedisConnection, StoreError> {
        let connector = &self.connector;
        let result = match &mut self.source {
            PrimarySource::Servers(servers) => {
                servers
                    .try_each(async |server| {
                        let opened = connector.open(server).await;
                        let connection = opened.map_err(StoreError::of(server))?;
                        Ok((server.clone(), connection))
                    })
                    .await
            }
            PrimarySource::Sentinels(sentinels) => sentinels.connect(connector).await,
        };
        let (server, connection) = match result {
            Ok(found) => found,
            Err(error) => {
                self.server = error.server.clone();
                return Err(error);
            }
        };
        self.server = server;
        self.connection = connection.number();
        self.version = connection.version().cloned();
        self.current.record_made(&self.server, self.version.as_ref());
        Ok(connection)
    }

    /// Records that the server is not the primary any more. Sentinels are asked again for each
    /// connection.
    fn move_on(&mut self) {
        if let PrimarySource::Servers(servers) = &mut self.source {
            servers.move_on();
        }
    }
}

/// Returns whether a server has executed nothing, since it is a replica.
fn is_of_replica(failure: &Failure) -> bool {
    let replica = |refusal: &Refusal| matches!(refusal, Refusal::ReadOnly | Refusal::PrimaryDown);
    matches!(failure, Failure::Refused(refusal) if replica(refusal))
}
