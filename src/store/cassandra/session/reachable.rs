//! Probes servers on connections of their own: the configured ones, and the ring's nodes. The driver's own errors say
//! less, and it waits long for a node that accepts a connection but does not
//! answer, and it finishes a session only after each node has a connection or an error.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::store::contract::error::Failure;
use crate::store::contract::failure::chain;
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::{Access, connect_unix};
use crate::store::net::greeting::{Greeting, Protocol};
use crate::store::net::tls::TlsClient;

/// Lets the driver connect to a node only if the node answers in time. Does not change addresses.
pub(super) struct ReachableNodes {
    pub(super) within: Duration,
    /// TLS client of the connections, and a name that nodes may have.
    pub(super) tls: Option<(TlsClient, Box<str>)>,
}

#[async_trait]
impl AddressTranslator for ReachableNodes {
    async fn translate_address(
        &self,
        node: &UntranslatedPeer,
    ) -> Result<SocketAddr, TranslationError> {
        let address = node.untranslated_address();
        self.answers(address)
            .await
            .map(|()| address)
            .map_err(|error| TranslationError::IoError(Arc::new(error)))
    }
}

impl ReachableNodes {
    /// Waits for an answer, for as long as a node may take.
    async fn answers(&self, address: SocketAddr) -> io::Result<()> {
        let answered = timeout(self.within, self.asked(address)).await;
        answered.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Reads a node's first answer.
    async fn asked(&self, address: SocketAddr) -> io::Result<()> {
        let stream = TcpStream::connect(address).await?;
        let _answer = match &self.tls {
            None => ask(stream).await,
            Some((client, host)) => client.wrap(host, stream).await.map(drop),
        };
        Ok(())
    }
}

/// An `OPTIONS` request of protocol version 4: version, no flags, stream 0, opcode, and an empty
/// body.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

/// Returns the first bytes of a server: the version of its answer.
pub(super) fn protocol(access: &Access) -> Protocol {
    Protocol { name: "Cassandra", first: b"\x84\x83\x85", has_tls: access.has_tls() }
}

/// Probes a server: whether it is up, has the right certificate, and speaks Cassandra's protocol. Returns its IP address and port.
pub(super) async fn probe(
    access: &Access,
    server: &ServerAddress,
    greeting: &Greeting,
) -> Result<SocketAddr, Failure> {
    let (host, port) = match server {
        ServerAddress::Tcp { host, port } => (host, *port),
        // A configuration of Cassandra cannot contain one.
        ServerAddress::Unix(path) => {
            connect_unix(path).await?;
            return Err(Failure::Unsupported("Cassandra has no socket"));
        }
    };
    let stream = access.connect_tcp(host, port).await?;
    let address = stream.peer_addr().map_err(|error| lost(&error))?;
    let asked = match access.tls()? {
        None => ask(greeting.of(stream)).await,
        Some(client) => match client.wrap(host, stream).await {
            Ok(stream) => ask(greeting.of(stream)).await,
            Err(error) => Err(error),
        },
    };
    asked.map(|()| address).map_err(|error| lost(&error))
}

fn lost(error: &io::Error) -> Failure {
    Failure::Unreachable(chain(error))
}

/// Sends the request, and waits for the first bytes of the answer.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&OPTIONS).await?;
    stream.flush().await?;
    stream.read_exact(&mut [0; OPTIONS.len()]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::conformance::block_on;

    #[test]
    fn a_node_that_accepts_connections_and_answers_nothing_is_not_reachable() {
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let reachable =
                |millis| ReachableNodes { within: Duration::from_millis(millis), tls: None };
            let silent = reachable(20).answers(address).await;
            assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let speaks = async {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    // The first client has disconnected.
                    let _ = stream.write_all(&[0x84; 9]).await;
                }
            };
            tokio::select! {
                () = speaks => {}
                answered = async { reachable(20_000).answers(address).await } => answered.unwrap(),
            }
            drop(listener);
            let gone = reachable(20_000).answers(address).await;
            assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
