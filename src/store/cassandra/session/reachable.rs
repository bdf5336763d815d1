//! Probes the ring's nodes. The driver waits long for a node that accepts a connection but does not
//! answer, and it finishes a session only after each node has a connection or an error.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::probe::ask;
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::conformance::block_on;

    #[test]
    fn a_node_that_takes_connections_and_says_nothing_is_not_awake() {
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
