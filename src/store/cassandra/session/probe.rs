//! Probes a server on a separate connection: whether it is up, has the right certificate, and
//! speaks Cassandra's protocol. The driver's own errors say less.

use core::net::SocketAddr;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::store::contract::error::Failure;
use crate::store::contract::failure::chain;
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::{Access, connect_tcp, connect_unix};
use crate::store::net::greeting::{Greeting, Protocol};

/// An `OPTIONS` request of protocol version 4: version, no flags, stream 0, opcode, and an empty
/// body.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

/// Returns the first bytes of a server: the version of its answer.
pub(super) fn protocol(access: &Access) -> Protocol {
    Protocol { name: "Cassandra", first: b"\x84\x83\x85", has_tls: access.has_tls() }
}

/// Probes a server. Returns its IP address and port.
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
    let stream = connect_tcp(host, port).await?;
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
pub(super) async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&OPTIONS).await?;
    stream.flush().await?;
    stream.read_exact(&mut [0; OPTIONS.len()]).await.map(drop)
}
