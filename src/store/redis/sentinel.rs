//! Finds the primary of a Redis with sentinels.

use redis::{Cmd, Value};

use super::answer::RedisAnswer;
use super::connector::{Connector, RedisConnection};
use crate::store::contract::error::{Failure, StoreError};
use crate::store::contract::options::Credentials;
use crate::store::contract::server::ServerAddress;
use crate::store::net::servers::Servers;

/// The sentinels.
#[derive(Clone, Debug)]
pub(super) struct Sentinels {
    servers: Servers,
    connector: Connector,
    /// The name by which they know the primary.
    master: Box<str>,
}

impl Sentinels {
    /// Creates the sentinels, which are contacted like the primary, except for the credentials.
    pub(super) fn new(
        servers: Servers,
        connector: &Connector,
        credentials: &Credentials,
        master: &str,
    ) -> Sentinels {
        Sentinels { servers, connector: connector.to_sentinels(credentials), master: master.into() }
    }

    /// Asks the sentinels in turn, from the last successful one on, until one names a server that
    /// is the primary.
    pub(super) async fn connect(
        &mut self,
        connector: &Connector,
    ) -> Result<(ServerAddress, RedisConnection), StoreError> {
        let Sentinels { servers, connector: to_sentinels, master } = self;
        servers
            .try_each(async |sentinel| attempt(sentinel, to_sentinels, master, connector).await)
            .await
    }
}

/// Asks a sentinel for the primary, and connects to it.
async fn attempt(
    sentinel: &ServerAddress,
    to_sentinels: &Connector,
    master: &str,
    connector: &Connector,
) -> Result<(ServerAddress, RedisConnection), StoreError> {
    let primary = ask(sentinel, to_sentinels, master).await.map_err(StoreError::of(sentinel))?;
    let mut role = Cmd::new();
    role.arg("ROLE");
    let (connection, role) =
        connector.open_and_ask(&primary, &role).await.map_err(StoreError::of(&primary))?;
    if RedisAnswer(role).role().as_deref() == Some("master") {
        return Ok((primary, connection));
    }
    // The sentinel has not noticed a failover yet.
    let cause = format!("{primary}, which it names, is a replica");
    Err(StoreError::of(sentinel)(Failure::NoPrimary(cause.into())))
}

async fn ask(
    sentinel: &ServerAddress,
    to_sentinels: &Connector,
    master: &str,
) -> Result<ServerAddress, Failure> {
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg("get-master-addr-by-name");
    question.arg(master);
    let (_, answer) = to_sentinels.open_and_ask(sentinel, &question).await?;
    if answer == Value::Nil {
        let cause = format!("nothing has the name \"{master}\"");
        return Err(Failure::NoPrimary(cause.into()));
    }
    let address = RedisAnswer(answer).address();
    address.ok_or_else(|| Failure::NoPrimary("it answers something else".into()))
}
