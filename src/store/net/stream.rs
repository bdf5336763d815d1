//! A stream of bytes to a server, over TCP with TLS or without, or over a Unix socket.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::io;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::{Access, connect_unix};
use super::greeting::Greeting;
use crate::store::contract::error::Failure;
use crate::store::contract::server::ServerAddress;

/// A stream of bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Connects to a server, whose first bytes `greeting` stores.
pub(crate) async fn open(
    access: &Access,
    server: &ServerAddress,
    greeting: &Greeting,
) -> Result<Box<dyn ByteStream>, Failure> {
    Ok(match server {
        ServerAddress::Tcp { host, port } => {
            let stream = access.connect_tcp(host, *port).await?;
            match access.tls()? {
                None => Box::new(greeting.of(stream)),
                Some(tls) => {
                    let stream = tls.wrap(host, stream).await;
                    let stream =
                        stream.map_err(|it| Failure::Unreachable(it.to_string().into()))?;
                    Box::new(greeting.of(stream))
                }
            }
        }
        ServerAddress::Unix(path) => Box::new(greeting.of(connect_unix(path).await?)),
    })
}

/// Returns whether the server has neither closed the stream nor sent anything that was not received.
pub(crate) fn is_silent(stream: &mut dyn ByteStream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut buffer).is_pending()
}

/// Returns the failure of an exchange by a stream.
pub(crate) fn failed(error: io::Error) -> Failure {
    let words = error.to_string().into();
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::Other => Failure::Misunderstood(words),
        _ => Failure::Disconnected(words),
    }
}
