//! The first bytes of a server, which show whether it speaks the expected protocol. The address may
//! belong to something else.

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::store::contract::error::Failure;
use crate::store::contract::options::Credentials;

/// A protocol, and how its servers begin.
pub(crate) struct Protocol {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Possible first bytes of a server.
    pub(crate) first: &'static [u8],
    /// Whether it is used inside TLS.
    pub(crate) has_tls: bool,
}

/// The bytes that a server has sent during a connection attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting(Arc<Heard>);

#[derive(Debug, Default)]
struct Heard {
    is_connected: AtomicBool,
    words: OnceLock<Box<[u8]>>,
}

/// A stream whose first bytes are stored.
pub(crate) struct Listening<S> {
    stream: S,
    greeting: Greeting,
}

impl Greeting {
    /// Stores the first bytes of `stream`, which has just been connected.
    pub(crate) fn of<S>(&self, stream: S) -> Listening<S> {
        // Relaxed: only the task that connects reads it.
        self.0.is_connected.store(true, Ordering::Relaxed);
        Listening { stream, greeting: self.clone() }
    }

    /// Returns the reason why no connection was made: the server speaks another protocol, with its
    /// words if they contain none of `credentials`; otherwise returns `failure`.
    pub(super) fn explain(
        &self,
        failure: Failure,
        protocol: &Protocol,
        credentials: &Credentials,
    ) -> Failure {
        /// Most bytes of a server's words in a message.
        const MAX: usize = 64;
        let Protocol { name, first, has_tls } = protocol;
        let Some(words) = self.0.words.get() else {
            return match failure {
                Failure::Unreachable(cause) if self.0.is_connected.load(Ordering::Relaxed) => {
                    // A TLS server's last bytes may be lost when it closes the connection.
                    let with = if *has_tls { "with" } else { "without" };
                    let cause = format!("{cause}; does it speak the {name} protocol, {with} TLS?");
                    Failure::Unreachable(cause.into())
                }
                other => other,
            };
        };
        if words.first().is_none_or(|byte| first.contains(byte)) {
            return failure;
        }
        let line = words.split(|byte| b"\r\n".contains(byte)).next();
        let line = line.unwrap_or_default();
        let line = line.get(..MAX).unwrap_or(line).escape_ascii().to_string();
        let says = match credentials.are_in(&line) {
            true => String::new(),
            false => format!(", but says \"{line}\""),
        };
        // An alert, or a part of a handshake.
        let is_tls = matches!(**words, [0x15 | 0x16, ..]);
        let hint = if is_tls { ": is \"tls on\" missing?" } else { "" };
        let cause = format!("it does not speak the {name} protocol{says}{hint}");
        Failure::Unreachable(cause.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let words = buffer.filled().get(before..).unwrap_or_default();
        if !words.is_empty() {
            self.greeting.0.words.get_or_init(|| words.into());
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::options::Secret;

    const PROTOCOL: Protocol = Protocol { name: "Redis", first: b"+-", has_tls: false };

    /// Returns the message after a server has sent `words`.
    fn explain(words: &[u8], username: &str) -> String {
        let greeting = Greeting::default();
        greeting.0.is_connected.store(true, Ordering::Relaxed);
        if !words.is_empty() {
            greeting.0.words.set(words.into()).unwrap();
        }
        let credentials =
            Credentials { username: Secret::parse(username.as_bytes()), password: None };
        let failure = Failure::Unreachable("cause".into());
        let Failure::Unreachable(cause) = greeting.explain(failure, &PROTOCOL, &credentials) else {
            panic!("another failure");
        };
        cause.into()
    }

    #[test]
    fn an_error_quotes_another_protocol() {
        for (words, expected) in [
            (&b"+PONG\r\n"[..], "cause"),
            (b"", "cause; does it speak the Redis protocol, without TLS?"),
            (
                b"HTTP/1.1 400 Bad Request\r\nServer: nginx",
                "it does not speak the Redis protocol, but says \"HTTP/1.1 400 Bad Request\"",
            ),
            (
                b"\x15\x03\x03\0\x02",
                "it does not speak the Redis protocol, but says \"\\x15\\x03\\x03\\x00\\x02\": is \
                 \"tls on\" missing?",
            ),
            (b"220 joe's mail", "it does not speak the Redis protocol"),
        ] {
            assert_eq!(explain(words, "joe"), expected);
        }
        let long = explain(&[b'x'; 1000], "joe");
        assert!(long.ends_with(&format!("\"{}\"", "x".repeat(64))), "{long}");
    }

    #[test]
    fn nothing_is_guessed_without_a_connection() {
        let failure = || Failure::Unreachable("cause".into());
        let nobody = Credentials::default();
        let explained = Greeting::default().explain(failure(), &PROTOCOL, &nobody);
        assert_eq!(explained, failure());
    }
}
