//! Connects to servers of any kind within a timeout, and explains failures.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::path::Path;

use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::greeting::{Greeting, Protocol};
use super::tls::{TlsClient, TlsError};
use crate::store::contract::error::Failure;
use crate::store::contract::options::{Credentials, StoreOptions};

/// Options of connections to any server of a datastore.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The credentials.
    pub(crate) credentials: Credentials,
    /// `None` if connections are not encrypted.
    tls: Option<Result<TlsClient, TlsError>>,
    /// Timeout of a connection attempt.
    pub(crate) connect_timeout: Duration,
    /// Timeout of an exchange.
    pub(crate) timeout: Duration,
}

impl Access {
    pub(crate) fn new(options: &StoreOptions) -> Access {
        Access {
            credentials: options.credentials.clone(),
            tls: options.tls.as_ref().map(TlsClient::new),
            connect_timeout: options.connect_timeout,
            timeout: options.timeout,
        }
    }

    /// Returns the options with other credentials, for servers that require them.
    pub(crate) fn with_credentials(&self, credentials: &Credentials) -> Access {
        Access { credentials: credentials.clone(), ..self.clone() }
    }

    /// Returns the options with a longer timeout of an exchange.
    pub(crate) fn with_longer_timeout(&self, longer: Duration) -> Access {
        Access { timeout: self.timeout.saturating_add(longer), ..self.clone() }
    }

    /// Returns whether TCP connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the TLS client; `None` if connections are not encrypted. Fails if its options are
    /// invalid.
    pub(crate) fn tls(&self) -> Result<Option<&TlsClient>, Failure> {
        let tls = self.tls.as_ref().map(Result::as_ref).transpose();
        tls.map_err(|error| Failure::Unreachable(error.to_string().into()))
    }

    /// Waits for an answer within the timeout of an exchange.
    pub(crate) async fn exchange<T>(
        &self,
        exchange: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let answer = timeout(self.timeout, exchange).await;
        answer.map_err(|_| Failure::TimedOut(self.timeout))
    }

    /// Connects to a TCP port of a host, which may have several addresses, without Nagle's algorithm.
    pub(crate) async fn connect_tcp(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        let addresses = lookup_host((host, port)).await.map_err(unreachable)?;
        let stream = connect_to_one(addresses.collect(), self.connect_timeout).await;
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        stream.map_err(unreachable)
    }

    /// Runs one connection attempt within its timeout. A failure is one [before anything was
    /// sent](Failure::before_sending), and says if the server speaks a protocol other than
    /// `protocol`.
    pub(crate) async fn attempt<T>(
        &self,
        protocol: &Protocol,
        attempt: impl AsyncFnOnce(&Greeting) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let greeting = Greeting::default();
        let result = match timeout(self.connect_timeout, attempt(&greeting)).await {
            Ok(result) => result.map_err(Failure::before_sending),
            Err(_) => {
                // A server without TLS waits for a request that it understands.
                let with_tls = self.tls.as_ref().map_or("", |_| " with TLS");
                let millis = self.connect_timeout.as_millis();
                let cause = format!("no connection{with_tls} within {millis} ms");
                Err(Failure::Unreachable(cause.into()))
            }
        };
        result.map_err(|failure| greeting.explain(failure, protocol, &self.credentials))
    }
}

/// Connects to the first of these addresses that answers. Each but the last one gets an equal share of
/// `within`, since one that is down may not answer at all.
async fn connect_to_one(addresses: Vec<SocketAddr>, within: Duration) -> io::Result<TcpStream> {
    let share = within.div_f64(addresses.len().max(1) as f64);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut addresses = addresses.into_iter();
    while let Some(address) = addresses.next() {
        let stream = TcpStream::connect(address);
        let stream = match addresses.len() {
            0 => stream.await,
            _ => timeout(share, stream).await.unwrap_or_else(|late| Err(late.into())),
        };
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a Unix socket, which is local and needs no TLS.
pub(crate) async fn connect_unix(path: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(path).await.map_err(unreachable)
}

fn unreachable(error: io::Error) -> Failure {
    Failure::Unreachable(error.to_string().into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::runtime::LocalRuntime;

    use super::*;

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        LocalRuntime::new().unwrap().block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(any).unwrap();
            // Its queue is full with one connection, which nobody accepts.
            let full = socket.listen(0).unwrap();
            let _first = TcpStream::connect(full.local_addr().unwrap()).await.unwrap();
            let there = TcpListener::bind(any).await.unwrap();
            let addresses = [full, there].map(|it| (it.local_addr().unwrap(), it));
            let within = Duration::from_secs(2);
            let connects = connect_to_one(addresses.iter().map(|it| it.0).collect(), within);
            let stream = timeout(within, connects).await.unwrap().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), addresses[1].0);
        });
    }
}
