//! The one connection in use, which is created when needed and dropped when its state is in doubt.

use core::fmt;

use crate::store::contract::server::ServerAddress;

/// A connection that can be closed.
pub(crate) trait Closable {
    /// Returns whether it is known to be closed.
    fn is_closed(&self) -> bool;
}

/// The connection, if there is one without a running exchange.
#[derive(Debug)]
pub(crate) struct Current<C> {
    connection: Option<C>,
    connects: u64,
    described: Option<String>,
}

impl<C: Closable> Current<C> {
    /// Creates a holder without a connection.
    pub(crate) fn none() -> Current<C> {
        Current { connection: None, connects: 0, described: None }
    }

    /// Takes the connection out, so that an exchange which ends early also ends the connection: a
    /// late answer must not be taken for that of a later request. `None` if a connection must be
    /// created.
    pub(crate) fn take(&mut self) -> Option<C> {
        // Nothing could be sent on a closed one.
        self.connection.take().filter(|it| !it.is_closed())
    }

    /// Puts the connection back after an exchange.
    pub(crate) fn keep(&mut self, connection: C) {
        self.connection = Some(connection);
    }

    /// Records a new connection and its server's description.
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

    /// Returns the server of the last connection, with its version; `None` before the first.
    pub(crate) fn described(&self) -> Option<String> {
        self.described.clone()
    }

    /// Returns the connection, if there is one.
    pub(crate) fn get_mut(&mut self) -> Option<&mut C> {
        self.connection.as_mut()
    }
}

/// Describes a server with its version.
pub(crate) fn described(server: &ServerAddress, version: Option<impl fmt::Display>) -> String {
    match version {
        Some(version) => format!("{server} ({version})"),
        None => server.to_string(),
    }
}
