//! A pooler between a node and its server, which gives the server's sessions to others after each transaction.
//!
//! What a node prepares and sets in a session, and what it listens for, is then somebody else's, or gone. It would fail now and
//! then, in many ways, so it is found out first: by two sessions at once that are the same one at the server.

use core::pin::pin;
use core::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// Message about a pooler that shares sessions.
pub(super) const SHARED: &str = "a pooler between gives its sessions to others after each transaction, and must keep them: \
                                 of PgBouncer, pool_mode = session";
/// Number of times that one session answers while another one is waited for, and the pause before each. A pooler that
/// keeps sessions may have none left, and answers the first. A pooler on a busy machine answers neither for a while.
const TURNS: usize = 5;
const PAUSE: Duration = Duration::from_millis(30);
/// Number of looks at both sessions: others may take theirs in between, so that a single look sees
/// two sessions where there is one in a third of all cases.
const LEAST_LOOKS: usize = 3;
/// Number of further looks, and the longest time for these.
const MORE_LOOKS: usize = 9;
const PATIENCE: Duration = Duration::from_millis(100);

/// A session as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSession {
    process: String,
    /// The port that its client has; empty where there is none.
    client_port: String,
}

impl ServerSession {
    /// The session that does what this client asks.
    pub(super) async fn of(client: &Client) -> Result<ServerSession, Error> {
        let query = "SELECT pg_backend_pid(), inet_client_port()";
        let answer = client.simple_query(query).await?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let column = |column: usize| {
            let text = row.and_then(|row| row.try_get(column).ok().flatten());
            text.unwrap_or_default().to_owned()
        };
        Ok(ServerSession { process: column(0), client_port: column(1) })
    }

    /// Whether it is the end of a connection from this port: then nobody is between.
    pub(super) fn is_direct(&self, port: Option<u16>) -> bool {
        port.is_some_and(|port| self.client_port == port.to_string())
    }
}

/// Waits for another client, which has a session; `None`: the pooler answers `one`, and has no other session.
pub(super) async fn other_client<T>(
    one: &Client,
    other: impl Future<Output = T>,
) -> Result<Option<T>, Error> {
    let mut other = pin!(other);
    for _ in 0..TURNS {
        if let Ok(other) = timeout(PAUSE, &mut other).await {
            return Ok(Some(other));
        }
        ServerSession::of(one).await?;
    }
    Ok(None)
}

/// Whether two clients, both of which are connected, have the same session at times: `one` had this one.
pub(super) async fn is_shared(
    session: &ServerSession,
    one: &Client,
    other: &Client,
) -> Result<bool, Error> {
    let look = async |looks| {
        for client in [other, one].repeat(looks) {
            let process = ServerSession::of(client).await?.process;
            let is_same = process == session.process;
            if is_same == core::ptr::eq(client, other) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match look(LEAST_LOOKS).await {
        Ok(false) => timeout(PATIENCE, look(MORE_LOOKS)).await.unwrap_or(Ok(false)),
        result => result,
    }
}
