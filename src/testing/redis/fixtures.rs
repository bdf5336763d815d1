//! Fixtures for the tests that every datastore passes, with each kind of connection.

use core::marker::PhantomData;

use super::{Server, options};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::{StoreOptions, TlsOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Position, Shard, Strategy as _};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::{Redis, key};
use crate::testing::certificates::{Authority, Certificate, trusting};
use crate::testing::conformance::{Fixture, LogFixture};
use crate::testing::server_tests::Served;

/// A server of one test, with connections of kind `W`.
pub(crate) struct Over<W> {
    server: Server,
    options: (StoreOptions, RedisOptions),
    way: PhantomData<W>,
}

/// A kind of connection to a server.
pub(super) trait Spoken {
    /// Starts a server, and returns it with the options of a store for such connections.
    fn start() -> (Server, (StoreOptions, RedisOptions));
}

/// Connections to the port.
pub(crate) enum Tcp {}

/// Connections to the port with TLS, with a certificate on each side.
pub(crate) enum Tls {}

/// Connections to the socket.
pub(crate) enum Unix {}

impl Spoken for Tcp {
    fn start() -> (Server, (StoreOptions, RedisOptions)) {
        let server = Server::start(&[]);
        let options = options(&[server.tcp()]);
        (server, options)
    }
}

impl Spoken for Tls {
    fn start() -> (Server, (StoreOptions, RedisOptions)) {
        let authority = Authority::new();
        let certificate = authority.issue("127.0.0.1");
        let server = Server::start_with_tls(&authority, &certificate, "yes");
        let (mut options, redis) = options(&[server.tcp()]);
        options.tls = Some(TlsOptions {
            identity: Some(authority.issue("a client").identity()),
            ..trusting(&authority)
        });
        (server, (options, redis))
    }
}

impl Spoken for Unix {
    fn start() -> (Server, (StoreOptions, RedisOptions)) {
        // The server has no port.
        let server = Server::start(&["--port", "0"]);
        let options = options(&[ServerAddress::Unix(server.socket())]);
        (server, options)
    }
}

impl<W: Spoken> Fixture for Over<W> {
    type Store = Redis;

    fn start() -> Self {
        let (server, options) = W::start();
        Over { server, options, way: PhantomData }
    }

    fn connect(&self) -> Redis {
        let (options, redis) = &self.options;
        Redis::new(options, redis)
    }

    fn flush(&self) {
        let _: String = self.server.ask(&["FLUSHALL"]).unwrap();
    }
}

impl<W: Spoken> LogFixture for Over<W> {
    fn forget_changes(&self, shard: &Shard) {
        let shard = key::shard("rl", shard);
        let epoch: String = self.server.ask(&["HGET", &shard, "epoch"]).unwrap();
        let stream = format!("{shard}:{epoch}:s");
        let _: i64 = self.server.ask(&["XTRIM", &stream, "MAXLEN", "0"]).unwrap();
    }

    fn ahead_of(&self, position: Position) -> Position {
        later(position)
    }
}

/// Returns a position that the stream may reach later.
pub(super) fn later(Position([sequence, rest]): Position) -> Position {
    Position([sequence + 1_000_000, rest])
}

impl Served for Server {
    type Store = Redis;
    const PROTOCOL: &str = "Redis";

    fn start() -> Server {
        Server::start(&[])
    }

    fn start_durable() -> Server {
        Server::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        wants_certificates: bool,
    ) -> Server {
        let auth_clients = if wants_certificates { "yes" } else { "no" };
        Server::start_with_tls(authority, certificate, auth_clients)
    }

    fn store(&self, common: &StoreOptions) -> Redis {
        let (_, redis) = options(&common.servers);
        Redis::new(common, &redis)
    }

    fn address(&self) -> ServerAddress {
        self.tcp()
    }

    fn signal(&self, name: &str) {
        self.signal(name);
    }

    fn crash(&mut self) {
        self.kill();
    }

    fn start_again(&mut self) {
        self.start_again();
    }

    fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    fn is_untouched(&self) -> bool {
        self.ask::<i64>(&["DBSIZE"]).unwrap() == 0
    }

    fn is_of_missing_certificate(error: &StoreError) -> bool {
        let is_told = error.to_string().contains("CertificateRequired");
        is_told && matches!(error.failure, Failure::Unreachable(_))
    }
}
