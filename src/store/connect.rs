//! What it takes to connect to a server, whatever it speaks: a stream, in time, and the cause if there
//! is none.

use core::time::Duration;
use std::io;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::Failure;
use super::greeting::{Greeting, Protocol};
use super::options::{Credentials, StoreOptions};
use super::tls::{TlsClient, TlsError};

/// How a connection is made, to whatever server of a datastore.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Who we are to the server.
    pub(super) credentials: Credentials,
    /// `None`: connections are not encrypted.
    pub(super) tls: Option<Result<TlsClient, TlsError>>,
    connect_timeout: Duration,
}

impl Access {
    pub(super) fn new(options: &StoreOptions) -> Access {
        Access {
            credentials: options.credentials.clone(),
            tls: options.tls.as_ref().map(TlsClient::new),
            connect_timeout: options.connect_timeout,
        }
    }

    /// The same for other servers, to whom we are somebody else.
    pub(super) fn with_credentials(&self, credentials: &Credentials) -> Access {
        Access {
            credentials: credentials.clone(),
            ..self.clone()
        }
    }

    /// Makes one attempt, within the time for one. A failure says if the server speaks something else
    /// than `protocol`; `before_sending` says what it means where nothing was sent yet.
    pub(super) async fn attempt<T>(
        &self,
        protocol: &Protocol,
        before_sending: impl FnOnce(Failure) -> Failure,
        attempt: impl AsyncFnOnce(&Greeting) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let greeting = Greeting::default();
        let result = match timeout(self.connect_timeout, attempt(&greeting)).await {
            Ok(result) => result.map_err(before_sending),
            Err(_) => {
                // A server that speaks no TLS waits for us to say something that it understands.
                let with_tls = self.tls.as_ref().map_or("", |_| " with TLS");
                let millis = self.connect_timeout.as_millis();
                let cause = format!("no connection{with_tls} within {millis} ms");
                Err(Failure::Unreachable(cause.into()))
            }
        };
        result.map_err(|failure| greeting.explain(failure, protocol, &self.credentials))
    }
}

/// A stream to a port, on which nothing waits for more to be sent.
pub(super) async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    stream.map_err(unreachable)
}

/// A stream could not be connected.
pub(super) fn unreachable(error: io::Error) -> Failure {
    Failure::Unreachable(error.to_string().into())
}
