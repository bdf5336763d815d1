//! Schemas and servers for the tests that other datastores pass too, and the ways in which they are
//! spoken to.

use core::marker::PhantomData;
use std::sync::OnceLock;

use super::{PUBLIC, Schema, Server, options};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::{StoreOptions, TlsOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Position, Shard, Strategy as _};
use crate::store::postgres::Postgres;
use crate::testing::certificates::{Authority, Certificate, trusting};
use crate::testing::conformance::{Fixture, LogFixture};
use crate::testing::server_tests::Served;

/// A schema of a shared server that is spoken to in the way `W`.
pub(crate) struct Over<W> {
    schema: Schema,
    way: PhantomData<W>,
}

/// A way to speak to a server.
pub(super) trait Spoken {
    /// The server, which all tests share that speak to it so.
    fn server() -> &'static Server {
        Server::shared()
    }

    /// Returns the server's address.
    fn address() -> ServerAddress {
        Self::server().tcp()
    }

    /// Returns the options of TLS to it.
    fn tls() -> Option<TlsOptions> {
        None
    }
}

/// Through its port.
pub(crate) enum Tcp {}

/// Through its port with TLS, each side having a certificate.
pub(crate) enum Tls {}

/// Through its socket.
pub(crate) enum Unix {}

impl Spoken for Tcp {}

impl Tls {
    fn shared() -> &'static (Server, TlsOptions) {
        static SHARED: OnceLock<(Server, TlsOptions)> = OnceLock::new();
        SHARED.get_or_init(|| {
            let authority = Authority::new();
            let certificate = authority.issue("127.0.0.1");
            let server = Server::start_with_tls(&authority, &certificate, "clientcert=verify-ca");
            let options = TlsOptions {
                identity: Some(authority.issue("a client").identity()),
                ..trusting(&authority)
            };
            (server, options)
        })
    }
}

impl Spoken for Tls {
    fn server() -> &'static Server {
        &Tls::shared().0
    }

    fn tls() -> Option<TlsOptions> {
        Some(Tls::shared().1.clone())
    }
}

impl Spoken for Unix {
    fn address() -> ServerAddress {
        ServerAddress::Unix(Self::server().socket())
    }
}

impl<W: Spoken> Fixture for Over<W> {
    type Store = Postgres;

    fn start() -> Self {
        Over { schema: Schema::of(W::server()), way: PhantomData }
    }

    fn connect(&self) -> Postgres {
        let (options, postgres) = options(&[W::address()], &self.schema.name);
        let tls = W::tls();
        Postgres::new(&StoreOptions { tls, ..options }, &postgres)
    }

    fn flush(&self) {
        self.schema.flush();
    }
}

impl<W: Spoken> LogFixture for Over<W> {
    fn forget_changes(&self, shard: &Shard) {
        self.schema.forget_changes(shard);
    }

    fn ahead_of(&self, Position([number, epoch]): Position) -> Position {
        Position([number + 1_000_000, epoch])
    }
}

/// A server of the test's own, or a schema of the one that most tests share.
pub(crate) enum Place {
    Own(Server),
    Shared(Schema),
}

impl Place {
    fn server(&self) -> &Server {
        match self {
            Place::Own(server) => server,
            Place::Shared(_) => Server::shared(),
        }
    }

    fn own(&mut self) -> &mut Server {
        match self {
            Place::Own(server) => server,
            Place::Shared(_) => panic!("others use it"),
        }
    }
}

impl Served for Place {
    type Store = Postgres;
    const PROTOCOL: &str = "PostgreSQL";

    fn start() -> Place {
        Place::Own(Server::start(&[]))
    }

    fn shared() -> Place {
        Place::Shared(Schema::new())
    }

    fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        wants_certificates: bool,
    ) -> Place {
        let rule = if wants_certificates { "clientcert=verify-ca" } else { "" };
        Place::Own(Server::start_with_tls(authority, certificate, rule))
    }

    fn store(&self, common: &StoreOptions) -> Postgres {
        let schema = match self {
            Place::Own(_) => PUBLIC,
            Place::Shared(schema) => &schema.name,
        };
        let (_, postgres) = options(&common.servers, schema);
        Postgres::new(common, &postgres)
    }

    fn address(&self) -> ServerAddress {
        self.server().tcp()
    }

    fn signal(&self, name: &str) {
        self.server().signal(name);
    }

    fn crash(&mut self) {
        self.own().crash();
    }

    fn start_again(&mut self) {
        self.own().start_again();
    }

    fn restart(&mut self) {
        self.own().stop();
        self.own().start_again();
    }

    fn is_untouched(&self) -> bool {
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
        self.server().value(tables) == "0"
    }

    fn is_of_missing_certificate(error: &StoreError) -> bool {
        let is_told = error.to_string().contains("certificate");
        is_told && matches!(error.failure, Failure::Denied(_))
    }
}
