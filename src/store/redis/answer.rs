//! Reads what Redis answers.

use core::num::{IntErrorKind, NonZeroU64, ParseIntError};

use redis::Value;

use super::key::{WindowName, parse_position};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{Batch, BatchId, Changes, Count, Epoch, Position, Pushed};

/// The answer of a command or script; the scripts say what it is. An answer of another form reads
/// as `None`.
pub(super) struct RedisAnswer(pub(super) Value);

impl RedisAnswer {
    /// Parses an answer of `HELLO`: names and values, among them the server's name and version, and
    /// its mode.
    pub(super) fn hello(self) -> Option<(String, String)> {
        let mut parts = self.list()?.into_iter().map(RedisAnswer);
        let (mut server, mut version, mut mode) = (None, None, String::new());
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            match &*name.text()? {
                "server" => server = value.text(),
                "version" => version = value.text(),
                "mode" => mode = value.text()?,
                _ => {}
            }
        }
        Some((format!("{} {}", server?, version?), mode))
    }

    /// Parses an answer of `push.lua` to a batch: the changes, the number of living nodes, if it
    /// tells, and whether charges ahead are lost.
    pub(super) fn pushed(self, batch: &Batch) -> Option<(Pushed, (Option<u64>, bool))> {
        let unapplied = (None, false);
        let mut parts = self.list()?.into_iter().map(RedisAnswer);
        let mut part = || parts.next();
        let is_behind = match &*part()?.text()? {
            "none" => return Some((Pushed::NoEpoch, unapplied)),
            "misfit" => {
                let last = part()?.text()?.parse().ok()?;
                return Some((batch.misfit(BatchId(last)), unapplied));
            }
            "other" => return Some((Pushed::OtherEpoch(part()?.epoch()?), unapplied)),
            "behind" => true,
            "since" => false,
            _ => return None,
        };
        let now = unix_millis(part()?.number()?, part()?.number()?)?;
        let position = part()?.position()?;
        let changes = if is_behind {
            Changes::Behind { position }
        } else {
            let has_more = part()?.number()? != 0;
            Changes::Since { counts: part()?.groups()?, position, has_more }
        };
        let is_lost = part()?.number()? != 0;
        let nodes = match part() {
            Some(nodes) => Some(u64::try_from(nodes.number()?).ok()?),
            None => None,
        };
        Some((Pushed::Applied { changes, now }, (nodes, is_lost)))
    }

    /// Counts in groups: a window, its keys, their totals.
    fn groups(self) -> Option<Vec<Count>> {
        let mut counts = Vec::new();
        let mut parts = self.list()?.into_iter().map(RedisAnswer);
        while let Some(name) = parts.next() {
            let name = name.text()?;
            let mut list = || parts.next()?.list();
            let (keys, totals) = (list()?, list()?);
            // One that no node has was written by somebody else.
            let Some(window) = WindowName::parse(&name) else {
                continue;
            };
            for (key, total) in keys.into_iter().zip(totals) {
                // A window that is over is gone, and does not matter.
                if total != Value::Nil {
                    counts.extend(count(window, RedisAnswer(key).bytes()?, total));
                }
            }
        }
        Some(counts)
    }

    /// Parses an answer of `HSCAN`: the next cursor, and counts.
    pub(super) fn page(self, window: WindowName) -> Option<(u64, Vec<Count>)> {
        let [cursor, entries] = <[Value; 2]>::try_from(self.list()?).ok()?;
        let mut counts = Vec::new();
        let mut entries = RedisAnswer(entries).list()?.into_iter();
        while let Some(key) = entries.next() {
            counts.extend(count(window, RedisAnswer(key).bytes()?, entries.next()?));
        }
        let cursor = RedisAnswer(cursor).text()?.parse().ok()?;
        Some((cursor, counts))
    }

    /// The first part of what `ROLE` answers.
    pub(super) fn role(self) -> Option<String> {
        RedisAnswer(self.list()?.into_iter().next()?).text()
    }

    /// A host and a port.
    pub(super) fn address(self) -> Option<ServerAddress> {
        let [host, port] = <[Value; 2]>::try_from(self.list()?).ok()?;
        let host = RedisAnswer(host).text().filter(|host| !host.is_empty())?.into();
        let port = u16::try_from(RedisAnswer(port).number()?).ok()?;
        Some(ServerAddress::Tcp { host, port })
    }

    pub(super) fn epoch(self) -> Option<Epoch> {
        let number = u64::from_str_radix(&self.text()?, 16).ok()?;
        NonZeroU64::new(number).map(Epoch)
    }

    /// A count; nothing is zero.
    pub(super) fn total(self) -> Option<Hits> {
        match self.0 {
            Value::Nil => Some(Hits::ZERO),
            _ => whole(&self.text()?).map(Hits::from_thousandths),
        }
    }

    /// Counts in thousandths, of which none is more than the hits that there can be, in one text.
    pub(super) fn totals(self) -> Option<Vec<i64>> {
        self.text()?.split(' ').map(whole).collect()
    }

    pub(super) fn position(self) -> Option<Position> {
        parse_position(&self.text()?)
    }

    pub(super) fn number(self) -> Option<i64> {
        match self.0 {
            Value::Int(number) => Some(number),
            _ => self.text()?.parse().ok(),
        }
    }

    pub(super) fn text(self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn bytes(self) -> Option<Vec<u8>> {
        match self.0 {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn list(self) -> Option<Vec<Value>> {
        match self.0 {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }
}

/// A count, unless it is no whole number: such a one was written by somebody else. It is left out,
/// so that it keeps no other count from being read; the next diff of its key puts it right.
fn count(window: WindowName, key: Vec<u8>, total: Value) -> Option<Count> {
    Some(Count {
        key,
        size: window.size,
        window: window.number,
        total: RedisAnswer(total).total()?,
    })
}

/// A whole number, saturated: `None` if it is none.
fn whole(text: &str) -> Option<i64> {
    text.parse().map_or_else(
        |error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => Some(i64::MAX),
            IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
        Some,
    )
}

/// Converts an answer of `TIME`: seconds, and microseconds of the present one.
pub(super) fn unix_millis(seconds: i64, micros: i64) -> Option<UnixMillis> {
    let seconds = u64::try_from(seconds).ok()?;
    let micros = u64::try_from(micros).ok()?;
    Some(UnixMillis(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
}
