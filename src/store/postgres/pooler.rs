//! A pooler between a node and its server, which gives the server's sessions to others after each transaction.
//!
//! What a node prepares and sets in a session, and what it listens for, is then somebody else's, or gone. It would fail now and
//! then, in many ways, so it is found out first: by two sessions at once that are the same one at the server.

use core::time::Duration;

use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// Message about a pooler that shares sessions.
pub(super) const SHARED: &str = "a pooler between gives its sessions to others after each transaction, and must keep them: \
                                 of PgBouncer, pool_mode = session";
/// Longest wait for another session. A pooler that keeps sessions may have none left.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// Number of looks at both sessions: others may take theirs in between, so that a single look sees
/// two sessions where there is one in a third of all cases.
const LOOKS: usize = 12;

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

/// Whether two clients, both of which are connected, have the same session at times: `one` had this one.
pub(super) async fn is_shared(
    session: &ServerSession,
    one: &Client,
    other: &Client,
) -> Result<bool, Error> {
    for _ in 0..LOOKS {
        for client in [other, one] {
            let process = ServerSession::of(client).await?.process;
            let is_same = process == session.process;
            if is_same == core::ptr::eq(client, other) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
