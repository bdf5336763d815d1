//! Meta commands, several of which are sent at once: `protocol.txt` of memcached.

use std::io;

use futures_util::future::try_join;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, split};

use crate::store::contract::error::Failure;
use crate::store::net::stream::{ByteStream, failed, is_silent};

/// Most bytes of a value: memcached's default of `-I`, which no value of this client reaches.
const LARGEST: u64 = 1 << 20;
/// Most bytes of a line.
const LONGEST_LINE: u64 = 2048;

/// Most bytes of commands that are sent over TLS before their replies are received. Some servers leave commands that
/// they have received unanswered until more bytes arrive.
const MOST_AT_ONCE: usize = 12 << 10;

/// Commands that are sent together.
#[derive(Debug, Default)]
pub(super) struct Requests {
    bytes: Vec<u8>,
    /// The end of each command.
    ends: Vec<usize>,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The item does not exist.
    Missing,
    /// The item has this CAS number.
    Unchanged(u64),
}

/// A reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MetaReply {
    Done,
    /// A value, and the CAS number of the item.
    Value(Vec<u8>, u64),
    /// The item does not exist.
    Missing,
    /// The item has changed, or exists.
    Changed,
    /// There is no memory for the item, which does not exist any more.
    NoMemory,
}

impl Requests {
    pub(super) fn get(&mut self, name: &[u8]) {
        self.add(&[b"mg ", name, b" v c\r\n"]);
    }

    /// Writes an item that ends after `seconds`, or at this Unix time if it is more than a month; never if it is zero.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8], seconds: u64, expected: Expected) {
        let condition = match expected {
            Expected::Missing => "ME".into(),
            Expected::Unchanged(cas) => format!("C{cas}"),
        };
        let flags = format!(" {} T{seconds} {condition}\r\n", value.len());
        self.add(&[b"ms ", name, flags.as_bytes(), value, b"\r\n"]);
    }

    /// Deletes an item with this CAS number.
    pub(super) fn delete(&mut self, name: &[u8], cas: u64) {
        self.add(&[b"md ", name, format!(" C{cas}\r\n").as_bytes()]);
    }

    /// Only finds out whether the server answers.
    pub(super) fn nothing(&mut self) {
        self.add(&[b"mn\r\n"]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn add(&mut self, parts: &[&[u8]]) {
        self.bytes.extend(parts.iter().copied().flatten());
        self.ends.push(self.bytes.len());
    }

    /// Returns groups of commands, each with its number of commands. A group has at most `most` bytes, or one command.
    fn groups(&self, most: usize) -> impl Iterator<Item = (&[u8], usize)> {
        let (mut start, mut ends) = (0, &*self.ends);
        core::iter::from_fn(move || {
            let first = start;
            let fitting = ends.partition_point(|end| end.saturating_sub(first) <= most).max(1);
            let group;
            (group, ends) = ends.split_at_checked(fitting)?;
            start = *group.last()?;
            Some((self.bytes.get(first..start)?, fitting))
        })
    }
}

/// A connection that speaks memcached's text protocol.
pub(super) struct MetaConnection {
    stream: BufReader<Box<dyn ByteStream>>,
    /// Most bytes of commands without replies.
    most_at_once: usize,
}

impl MetaConnection {
    pub(super) fn new(stream: Box<dyn ByteStream>, has_tls: bool) -> MetaConnection {
        let most_at_once = if has_tls { MOST_AT_ONCE } else { usize::MAX };
        MetaConnection { stream: BufReader::new(stream), most_at_once }
    }

    /// Returns whether the server has neither closed the connection nor sent anything since the last reply.
    pub(super) fn is_idle(&mut self) -> bool {
        self.stream.buffer().is_empty() && is_silent(&mut **self.stream.get_mut())
    }

    /// Sends a command, and data after it. Returns the line of the reply.
    pub(super) async fn ask(&mut self, request: &str) -> Result<String, Failure> {
        let reply = async {
            self.stream.write_all(request.as_bytes()).await?;
            self.stream.flush().await?;
            line(&mut self.stream).await
        };
        reply.await.map_err(failed)
    }

    /// Sends commands. Returns the reply to each.
    pub(super) async fn exchange(
        &mut self,
        requests: &Requests,
    ) -> Result<Vec<MetaReply>, Failure> {
        let (reader, mut writer) = split(&mut self.stream);
        let mut reader = BufReader::new(reader);
        let mut replies = Vec::with_capacity(requests.ends.len());
        for (bytes, count) in requests.groups(self.most_at_once) {
            // Both at once, since a server that cannot send its replies does not receive.
            let write = async {
                writer.write_all(bytes).await.map_err(failed)?;
                writer.flush().await.map_err(failed)
            };
            let read = async {
                for _ in 0..count {
                    replies.push(reply(&mut reader).await?);
                }
                Ok(())
            };
            try_join(read, write).await?;
        }
        match reader.buffer() {
            b"" => Ok(replies),
            rest => Err(misunderstood(&rest.escape_ascii().to_string())),
        }
    }
}

type ReplyReader<'a, 'c> =
    BufReader<tokio::io::ReadHalf<&'a mut BufReader<Box<dyn ByteStream + 'c>>>>;

async fn reply(reader: &mut ReplyReader<'_, '_>) -> Result<MetaReply, Failure> {
    let line = line(reader).await.map_err(failed)?;
    let mut words = line.split(' ');
    Ok(match words.next() {
        Some("HD" | "MN") => MetaReply::Done,
        Some("EN" | "NF") => MetaReply::Missing,
        Some("EX" | "NS") => MetaReply::Changed,
        Some("VA") => {
            let length = words.next().and_then(|it| it.parse::<u64>().ok());
            let cas = words.find_map(|it| it.strip_prefix('c')?.parse().ok());
            match (length.filter(|it| *it <= LARGEST), cas) {
                (Some(_), Some(0)) => {
                    return Err(Failure::Unusable("it runs with -C, so without CAS".into()));
                }
                (Some(length), Some(cas)) => {
                    let mut value = Vec::new();
                    let data = length.saturating_add(2);
                    let read = reader.take(data).read_to_end(&mut value).await.map_err(failed)?;
                    if read as u64 != data {
                        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
                    }
                    value.truncate(value.len().saturating_sub(2));
                    MetaReply::Value(value, cas)
                }
                _ => return Err(misunderstood(&line)),
            }
        }
        Some("SERVER_ERROR") if line.contains("out of memory") => MetaReply::NoMemory,
        Some("SERVER_ERROR" | "CLIENT_ERROR" | "ERROR") => {
            return Err(Failure::Failed(line.into()));
        }
        _ => return Err(misunderstood(&line)),
    })
}

/// Returns the next line without its end.
async fn line(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(line.escape_ascii().to_string()),
        None if line.len() as u64 == LONGEST_LINE => Err(io::Error::other("an endless line")),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn misunderstood(words: &str) -> Failure {
    Failure::Misunderstood(words.into())
}
