//! The one connection that is used at a time: made when needed, dropped when in doubt.

use core::fmt;

use crate::store::contract::server::ServerAddress;

/// The state of a connection to a server.
pub(crate) trait Closable {
    /// Whether it was closed, as far as is known.
    fn is_closed(&self) -> bool;
}

/// A connection, if there is one on which nothing is under way.
#[derive(Debug)]
pub(crate) struct Current<C> {
    connection: Option<C>,
    connects: u64,
    described: Option<String>,
}

impl<C: Closable> Current<C> {
    /// None, before the first.
    pub(crate) fn none() -> Current<C> {
        Current { connection: None, connects: 0, described: None }
    }

    /// Takes the connection away, so that whatever ends an exchange early ends the connection too: a
    /// late answer must not be taken for that to a later question. `None`: one is to be made.
    pub(crate) fn take(&mut self) -> Option<C> {
        // On one that was closed meanwhile, nothing would be sent.
        self.connection.take().filter(|it| !it.is_closed())
    }

    /// Gives it back, on which nothing is under way any more.
    pub(crate) fn keep(&mut self, connection: C) {
        self.connection = Some(connection);
    }

    /// Notes that one was made to a server, which says what it is.
    pub(crate) fn record_made(
        &mut self,
        server: &ServerAddress,
        version: Option<impl fmt::Display>,
    ) {
        self.connects = self.connects.saturating_add(1);
        self.described = Some(described(server, version));
    }

    /// Returns the number of connections made so far.
    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// The server of the latest one, with its version; `None` before the first.
    pub(crate) fn described(&self) -> Option<String> {
        self.described.clone()
    }

    /// The connection, if there is one.
    pub(crate) fn get_mut(&mut self) -> Option<&mut C> {
        self.connection.as_mut()
    }
}

/// A server with its version.
pub(crate) fn described(server: &ServerAddress, version: Option<impl fmt::Display>) -> String {
    match version {
        Some(version) => format!("{server} ({version})"),
        None => server.to_string(),
    }
}
