//! A first look at a server, on a connection of our own: whether it is there, is who it should be, and
//! speaks what the driver does, which tells less of what went wrong.

use core::net::SocketAddr;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::store::contract::error::Failure;
use crate::store::contract::failure::chain;
use crate::store::contract::server::ServerAddress;
use crate::store::net::connect::{Access, connect_tcp, connect_unix};
use crate::store::net::greeting::{Greeting, Protocol};

/// Asks for the options of the fourth version of the protocol: version, no flags, stream 0, `OPTIONS`, and
/// no body.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

/// Describes the first bytes of a server: the version that it answers with.
pub(super) fn protocol(access: &Access) -> Protocol {
    Protocol { name: "Cassandra", first: b"\x84\x83\x85", has_tls: access.has_tls() }
}

/// Asks a server, and returns where exactly it is.
pub(super) async fn probe(
    access: &Access,
    server: &ServerAddress,
    greeting: &Greeting,
) -> Result<SocketAddr, Failure> {
    let (host, port) = match server {
        ServerAddress::Tcp { host, port } => (host, *port),
        // The configuration has none.
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

/// Asks for the options, and waits until the answer begins.
pub(super) async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.write_all(&OPTIONS).await?;
    stream.flush().await?;
    stream.read_exact(&mut [0; OPTIONS.len()]).await.map(drop)
}
