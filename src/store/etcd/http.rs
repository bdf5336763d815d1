//! A connection that speaks HTTP/1.1: one request after another, each with an answer of any length.

use std::io;

use httparse::{EMPTY_HEADER, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::store::net::stream::{ByteStream, is_silent};

/// A connection. A call that is dropped can be repeated, and continues the answer, except for
/// [`HttpConnection::send`].
pub(super) struct HttpConnection {
    stream: Box<dyn ByteStream>,
    /// The server's name in requests.
    host: String,
    /// Received bytes that were not returned yet.
    input: Vec<u8>,
    rest: BodyRest,
}

/// The part of an answer's body that was not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRest {
    /// This number of bytes.
    Length(usize),
    /// Chunks; of the present one this number of bytes.
    Chunks(usize),
    /// The line end after a chunk, and then chunks.
    ChunkEnd,
    /// Headers after the last chunk.
    Trailers,
}

/// Most bytes of an answer, which no answer of etcd to this client reaches.
const LONGEST: usize = 64 << 20;
/// Bytes that are received at once.
const AT_ONCE: usize = 16 << 10;
/// Most headers of an answer.
const HEADERS: usize = 64;

impl HttpConnection {
    pub(super) fn new(stream: Box<dyn ByteStream>, host: String) -> HttpConnection {
        HttpConnection { stream, host, input: Vec::new(), rest: BodyRest::Length(0) }
    }

    /// Returns whether the server has neither closed the connection nor sent anything since the last answer.
    pub(super) fn is_idle(&mut self) -> bool {
        let has_all = self.rest == BodyRest::Length(0) && self.input.is_empty();
        has_all && is_silent(&mut *self.stream)
    }

    /// Sends a request with a JSON body, and `token`, if there is one. Returns the status of the answer, such
    /// as `200 OK`; [`HttpConnection::data`] then returns the body.
    pub(super) async fn send(
        &mut self,
        request: &str,
        token: Option<&str>,
        body: &[u8],
    ) -> io::Result<String> {
        let (host, length) = (&self.host, body.len());
        let token = token.map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).await?;
        self.stream.flush().await?;
        loop {
            if let Some((length, status, rest)) = parse_head(&self.input)? {
                self.input.drain(..length);
                self.rest = rest;
                return Ok(status);
            }
            self.fill().await?;
        }
    }

    /// Returns the next bytes of the body; empty at its end.
    pub(super) async fn data(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.rest {
                BodyRest::Length(0) => return Ok(Vec::new()),
                BodyRest::Length(left) | BodyRest::Chunks(left @ 1..) if !self.input.is_empty() => {
                    let length = left.min(self.input.len());
                    let data = self.input.drain(..length).collect();
                    self.rest = match (self.rest, left.saturating_sub(length)) {
                        (BodyRest::Chunks(_), 0) => BodyRest::ChunkEnd,
                        (BodyRest::Chunks(_), left) => BodyRest::Chunks(left),
                        (_, left) => BodyRest::Length(left),
                    };
                    return Ok(data);
                }
                BodyRest::Chunks(0) => {
                    let parsed = httparse::parse_chunk_size(&self.input);
                    let parsed = parsed.map_err(|_| invalid("an invalid chunk"))?;
                    if let Status::Complete((length, size)) = parsed {
                        self.input.drain(..length);
                        let size = usize::try_from(size).ok().filter(|size| *size <= LONGEST);
                        self.rest = match size.ok_or_else(|| invalid("a huge chunk"))? {
                            0 => BodyRest::Trailers,
                            size => BodyRest::Chunks(size),
                        };
                        continue;
                    }
                }
                BodyRest::ChunkEnd if self.input.len() >= 2 => {
                    self.input.drain(..2);
                    self.rest = BodyRest::Chunks(0);
                    continue;
                }
                BodyRest::Trailers => {
                    let mut headers = [EMPTY_HEADER; HEADERS];
                    let parsed = httparse::parse_headers(&self.input, &mut headers);
                    if let Status::Complete((length, _)) = parsed.map_err(io::Error::other)? {
                        self.input.drain(..length);
                        self.rest = BodyRest::Length(0);
                        continue;
                    }
                }
                BodyRest::Length(_) | BodyRest::Chunks(_) | BodyRest::ChunkEnd => {}
            }
            self.fill().await?;
        }
    }

    /// Returns the rest of the body.
    pub(super) async fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let data = self.data().await?;
            if data.is_empty() {
                return Ok(body);
            }
            body.extend(data);
        }
    }

    /// Receives more bytes.
    async fn fill(&mut self) -> io::Result<()> {
        self.input.reserve(AT_ONCE);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ if self.input.len() > LONGEST => Err(invalid("an endless answer")),
            _ => Ok(()),
        }
    }
}

/// Parses the head of an answer: its length, the status and the form of the body. `None` if it is not complete.
fn parse_head(input: &[u8]) -> io::Result<Option<(usize, String, BodyRest)>> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let Status::Complete(length) = answer.parse(input).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let value = |name: &str| {
        let mut headers = answer.headers.iter();
        headers.find(|it| it.name.eq_ignore_ascii_case(name)).map(|it| it.value)
    };
    let rest = match (value("transfer-encoding"), value("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case(b"chunked") => BodyRest::Chunks(0),
        (Some(_), _) => return Err(invalid("an unknown transfer coding")),
        (None, Some(digits)) => {
            let length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            let length = length.filter(|length| *length <= LONGEST);
            BodyRest::Length(length.ok_or_else(|| invalid("an invalid length"))?)
        }
        (None, None) => BodyRest::Length(0),
    };
    let status =
        format!("{} {}", answer.code.unwrap_or_default(), answer.reason.unwrap_or_default());
    Ok(Some((length, status, rest)))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
