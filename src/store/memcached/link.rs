//! The connection to one of the servers.

use core::fmt;

use super::wire::MetaConnection;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::options::{Credentials, StoreOptions};
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::Access;
use crate::store::net::current::{Closable, Current};
use crate::store::net::greeting::{Greeting, Protocol};
use crate::store::net::servers::Servers;
use crate::store::net::stream;

/// The servers, one of which is used at a time, and a connection to it.
#[derive(Debug)]
pub(super) struct MemcachedLink {
    servers: Servers,
    current: Current<MetaConnection>,
    access: Access,
}

impl MemcachedLink {
    pub(super) fn new(options: &StoreOptions) -> MemcachedLink {
        MemcachedLink {
            servers: Servers::new(&options.servers),
            current: Current::none(),
            access: Access::new(options),
        }
    }

    pub(super) fn connects(&self) -> u64 {
        self.current.connects()
    }

    pub(super) fn described(&self) -> Option<String> {
        self.current.described()
    }

    /// Runs `work` on a connection, within the timeout of an exchange. A failure ends the connection, since a later
    /// reply may still arrive.
    pub(super) async fn exchange<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut MetaConnection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let kept = self.current.take().and_then(|mut kept| kept.is_idle().then_some(kept));
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let result = self.access.exchange(work(&mut connection)).await.unwrap_or_else(Err);
        if result.is_ok() {
            self.current.keep(connection);
        }
        result.map_err(|failure| self.error(failure))
    }

    /// Returns the error of a failure at the server in use.
    pub(super) fn error(&self, failure: Failure) -> StoreError {
        StoreError::new(self.servers.current().clone(), failure)
    }

    /// Tries each server once, from the current one on, until one lets this client in.
    async fn connect(&mut self) -> Result<MetaConnection, StoreError> {
        let access = &self.access;
        let protocol = Protocol { name: "memcached", first: b"VCES", has_tls: access.has_tls() };
        let attempt = async |server: &ServerAddress| {
            let open = async |greeting: &Greeting| {
                let stream = stream::open(access, server, greeting).await?;
                let mut connection = MetaConnection::new(stream, access.has_tls());
                let version = begin(&mut connection, &access.credentials).await?;
                Ok((connection, version))
            };
            access.attempt(&protocol, open).await.map_err(StoreError::of(server))
        };
        let (connection, version) = self.servers.try_each(attempt).await?;
        self.current.record_made(self.servers.current(), Some(format!("memcached {version}")));
        Ok(connection)
    }
}

/// Logs in, if the server demands it. Returns the server's version.
async fn begin(
    connection: &mut MetaConnection,
    credentials: &Credentials,
) -> Result<String, Failure> {
    let Credentials { username, password } = credentials;
    let user = username.as_ref().zip(password.as_ref());
    let mut reply = connection.ask("version\r\n").await?;
    match (reply.as_str(), user.map(|(name, password)| (name.expose(), password.expose()))) {
        ("CLIENT_ERROR unauthenticated", Some((name, password))) => {
            // An item of any name, which is not stored.
            let login = format!("{name} {password}");
            let login = format!("set {ANY} 0 0 {}\r\n{login}\r\n", login.len());
            match connection.ask(&login).await?.as_str() {
                "STORED" => reply = connection.ask("version\r\n").await?,
                _ => return Err(Failure::Denied("authentication failure".into())),
            }
        }
        ("CLIENT_ERROR unauthenticated", None) => {
            return Err(Failure::Denied("unauthenticated".into()));
        }
        // To a server without users, the login would be an item.
        (_, Some(_)) if reply.starts_with("VERSION ") => {
            return Err(Failure::Denied("authentication is not enabled".into()));
        }
        _ => {}
    }
    let Some(version) = reply.strip_prefix("VERSION ") else {
        return Err(match reply.as_str() {
            "ERROR Too many open connections" => Failure::Refused(Refusal::Other(reply.into())),
            _ => Failure::Unreachable(
                format!("it does not speak the memcached protocol, but says \"{reply}\"").into(),
            ),
        });
    };
    let mut numbers = version.split(['.', '-']).map(|it| it.parse::<u32>().ok());
    let numbers = [(); 3].map(|()| numbers.next().flatten());
    if numbers < [Some(1), Some(6), Some(14)] {
        return Err(Failure::Unsupported("memcached before 1.6.14"));
    }
    Ok(version.into())
}

/// A name of a login.
const ANY: &str = "auth";

/// A closed one is found by [`MetaConnection::is_idle`], which reads.
impl Closable for MetaConnection {
    fn is_closed(&self) -> bool {
        false
    }
}

impl fmt::Debug for MetaConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetaConnection")
    }
}
