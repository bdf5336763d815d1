//! Detects a pooler between node and server that gives the server's sessions to other clients after
//! each transaction.
//!
//! The statements, settings and subscriptions of a session would then be another client's, or lost,
//! and exchanges would fail at random. So it is detected first: two clients at the same time that
//! have the same session at the server.

use core::pin::pin;
use core::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// Message about a pooler that shares sessions.
pub(super) const SHARED: &str = "a pooler between gives its sessions to others after each transaction, and must keep them: \
                                 of PgBouncer, pool_mode = session";
/// Exchanges of one client while another one waits for its session, and the pause before each. A
/// pooler that does not share sessions may have none left for the other, and answers the first
/// client; one on a busy machine answers neither for a while.
const TURNS: usize = 5;
const PAUSE: Duration = Duration::from_millis(30);
/// Number of comparisons of both sessions. Other clients may take sessions in between, so that a
/// single comparison misses a shared one in a third of all cases.
const LEAST_LOOKS: usize = 3;
/// Number of further comparisons, and their longest time, which a busy machine needs.
const MORE_LOOKS: usize = 9;
const PATIENCE: Duration = Duration::from_millis(300);

/// A session, as the server identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSession {
    process: String,
    /// The port of its client; empty for a Unix socket.
    client_port: String,
}

impl ServerSession {
    /// Returns the session that executes this client's statements.
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

    /// Returns whether the server's client is the connection from this port, so that no pooler is
    /// between.
    pub(super) fn is_direct(&self, port: Option<u16>) -> bool {
        port.is_some_and(|port| self.client_port == port.to_string())
    }
}

/// Waits for another client with a session; `None` if the pooler answers `one` and has no other
/// session.
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

/// Returns whether two connected clients sometimes have the same session; `one` had this one.
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
