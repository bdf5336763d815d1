//! TLS for the client library's connections, with the client that all datastores use.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{self, ChannelBinding, TlsConnect};

use crate::store::net::tls::{TlsClient, TlsStream};

/// The destination of a stream. The library has asked the server for TLS before, and the server
/// agreed.
pub(super) struct Secure<'a> {
    pub(super) client: &'a TlsClient,
    pub(super) host: &'a str,
}

/// A stream with TLS.
pub(super) struct Secured<S>(TlsStream<S>);

impl<'a, S> TlsConnect<S> for Secure<'a>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'a,
{
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send + 'a>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let secured = self.client.wrap(self.host, stream).await;
            secured.map(Secured)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> tls::TlsStream for Secured<S> {
    /// Not supported. The certificate identifies the server. If that is not verified, channel
    /// binding would not help, since an impostor would request another method of authentication.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
