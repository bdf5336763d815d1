//! Parses the answers of Redis.

use core::num::{IntErrorKind, NonZeroU64, ParseIntError};

use redis::Value;

use super::key::{WindowName, parse_position};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::store::contract::server::ServerAddress;
use crate::store::contract::strategy::{
    Batch, BatchId, Changes, Count, Epoch, LivingNodes, Position, Pushed,
};

/// The rest of an answer to a batch.
#[derive(Debug, Default)]
pub(super) struct PushRest {
    /// The living nodes, if the answer contains them.
    pub(super) living: Option<LivingNodes>,
    /// Whether the charges for reserves are lost.
    pub(super) has_lost_grants: bool,
    /// The counters that the batch has made negative.
    pub(super) overdrawn: Vec<Count>,
}

/// The answer to a command or a script, which the script describes. The methods return `None` for
/// an answer of another form.
pub(super) struct RedisAnswer(pub(super) Value);

impl RedisAnswer {
    /// Parses the answer to `HELLO`: the server's name and version, and its mode.
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

    /// Parses the answer of `push.lua` to a batch: the result, and the rest.
    pub(super) fn pushed(self, batch: &Batch) -> Option<(Pushed, PushRest)> {
        let unapplied = PushRest::default();
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
        let has_lost_grants = part()?.number()? != 0;
        let overdrawn = part()?.groups()?;
        let living = match part() {
            Some(count) => Some(LivingNodes {
                count: u64::try_from(count.number()?).ok()?,
                place: part().and_then(|place| u64::try_from(place.number()?).ok()),
            }),
            None => None,
        };
        Some((Pushed::Applied { changes, now }, PushRest { living, has_lost_grants, overdrawn }))
    }

    /// Parses counts in groups: a window, its keys, and their totals.
    pub(super) fn groups(self) -> Option<Vec<Count>> {
        let mut counts = Vec::new();
        let mut parts = self.list()?.into_iter().map(RedisAnswer);
        while let Some(name) = parts.next() {
            let name = name.text()?;
            let mut list = || parts.next()?.list();
            let (keys, totals) = (list()?, list()?);
            // No node writes this name, so somebody else did.
            let Some(window) = WindowName::parse(&name) else {
                continue;
            };
            for (key, total) in keys.into_iter().zip(totals) {
                // An ended window has expired, and does not matter.
                if total != Value::Nil {
                    counts.extend(count(window, RedisAnswer(key).bytes()?, total));
                }
            }
        }
        Some(counts)
    }

    /// Parses the answer to `HSCAN`: the next cursor, and counts.
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

    /// Parses the first part of the answer to `ROLE`.
    pub(super) fn role(self) -> Option<String> {
        RedisAnswer(self.list()?.into_iter().next()?).text()
    }

    /// Parses a host and a port.
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

    /// Parses a count; a missing one is zero.
    pub(super) fn total(self) -> Option<Hits> {
        match self.0 {
            Value::Nil => Some(Hits::ZERO),
            _ => whole(&self.text()?).map(Hits::from_thousandths),
        }
    }

    /// Parses counts in thousandths from one text. Each must be in the range of hits.
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

/// Parses a count. `None` if it is not an integer, which somebody else must have written. It is
/// left out, so that the other counts can be read; the next diff of its key corrects it.
fn count(window: WindowName, key: Vec<u8>, total: Value) -> Option<Count> {
    Some(Count {
        key,
        size: window.size,
        window: window.number,
        total: RedisAnswer(total).total()?,
    })
}

/// Parses an integer, saturating; `None` for other text.
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

/// Converts the answer to `TIME`: seconds, and microseconds of the current second.
pub(super) fn unix_millis(seconds: i64, micros: i64) -> Option<UnixMillis> {
    let seconds = u64::try_from(seconds).ok()?;
    let micros = u64::try_from(micros).ok()?;
    Some(UnixMillis(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
}
