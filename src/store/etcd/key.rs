//! The keys in etcd, and the text and bytes of their values.
//!
//! | key | value |
//! |---|---|
//! | `rl/api/0/head` | the epoch, and the number of the last change |
//! | `rl/api/0/<epoch>/c/<size>/<window>/<key>` | a total, in thousandths |
//! | `rl/api/0/<epoch>/l/<kind>/<measure>/<key>` | a level: hits, and the times of its change and its mark |
//! | `rl/api/0/<epoch>/d/<number>` | a change: the node, and the counters with their totals |
//! | `rl/api/0/<epoch>/news` | the last change that is news |
//! | `rl/api/0/<epoch>/n/<node>` | a node's last batch, and the time until which its counts matter |
//! | `rl/api/0/<epoch>/a/<node>` | empty; ends with the node's life |

use core::num::NonZeroU64;

use super::wire::{KeyValue, KeyValues};
use crate::policy::algorithm::Level;
use crate::policy::hits::Hits;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{BatchId, Count, Epoch, MAX_TOTAL, NodeId, Position, Shard};
use crate::store::decide::asked::AskedPlace;
use crate::store::decide::stored::StoredCount;

/// The keys of a shard, and of an epoch of it.
#[derive(Clone, Debug)]
pub(super) struct ShardKeys {
    head: String,
    epoch: String,
}

pub(super) fn head(prefix: &str, Shard { namespace, number }: &Shard) -> String {
    format!("{prefix}/{namespace}/{number}/head")
}

impl ShardKeys {
    pub(super) fn of(prefix: &str, shard: &Shard, epoch: Epoch) -> ShardKeys {
        let Shard { namespace, number } = shard;
        let epoch = format!("{prefix}/{namespace}/{number}/{epoch}/");
        ShardKeys { head: head(prefix, shard), epoch }
    }

    pub(super) fn head(&self) -> &str {
        &self.head
    }

    pub(super) fn node(&self, node: NodeId) -> String {
        format!("{}n/{node}", self.epoch)
    }

    pub(super) fn lives(&self) -> String {
        format!("{}a/", self.epoch)
    }

    pub(super) fn life(&self, node: NodeId) -> String {
        self.lives() + &node.to_string()
    }

    pub(super) fn changes(&self) -> String {
        format!("{}d/", self.epoch)
    }

    pub(super) fn news(&self) -> String {
        format!("{}news", self.epoch)
    }

    /// Returns the prefix of a window's counters.
    pub(super) fn window(&self, size: WindowSize, window: u64) -> Vec<u8> {
        format!("{}c/{}/{window}/", self.epoch, size.bits()).into()
    }

    pub(super) fn counter(&self, size: WindowSize, window: u64, key: &[u8]) -> Vec<u8> {
        [&self.window(size, window), key].concat()
    }

    pub(super) fn level(&self, place: &AskedPlace<'_>) -> Vec<u8> {
        let name = format!("{}l/{}/{:x}/", self.epoch, place.kind.wire_id(), place.measure);
        [name.as_bytes(), place.key].concat()
    }
}

/// Returns the part of the key of change `number` after the prefix, in the order of the numbers.
pub(super) fn change_name(number: u64) -> String {
    format!("{number:016x}")
}

/// The value of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) epoch: Epoch,
    /// Number of the last change.
    pub(super) number: u64,
}

impl Head {
    pub(super) fn parse(value: &[u8]) -> Option<Head> {
        let (epoch, number) = str::from_utf8(value).ok()?.split_once(' ')?;
        let epoch = NonZeroU64::new(u64::from_str_radix(epoch, 16).ok()?)?;
        // A larger one has no successor, or is not a position.
        let number = number.parse().ok().filter(|it| *it < u64::MAX - 1)?;
        Some(Head { epoch: Epoch(epoch), number })
    }

    pub(super) fn to_value(self) -> String {
        format!("{} {}", self.epoch, self.number)
    }

    pub(super) fn position(self) -> Position {
        Position([self.number, self.epoch.0.get()])
    }
}

/// The value of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) last: BatchId,
    /// Unix time in seconds until which the node's counts matter.
    pub(super) until: u64,
}

impl NodeState {
    pub(super) const NONE: NodeState = NodeState { last: BatchId::NONE, until: 0 };

    pub(super) fn parse(value: &[u8]) -> Option<NodeState> {
        let (last, until) = str::from_utf8(value).ok()?.split_once(' ')?;
        Some(NodeState { last: BatchId(last.parse().ok()?), until: until.parse().ok()? })
    }

    pub(super) fn to_value(self) -> String {
        format!("{} {}", self.last.0, self.until)
    }
}

/// Parses the total of a counter, zero if it does not exist; `None` if somebody else wrote it.
pub(super) fn total(answer: &KeyValues) -> Option<i64> {
    answer.kvs.first().map_or(Some(0), total_of)
}

pub(super) fn total_of(counter: &KeyValue) -> Option<i64> {
    let total: i64 = str::from_utf8(&counter.value).ok()?.parse().ok()?;
    Some(total.clamp(-MAX_TOTAL, MAX_TOTAL))
}

/// Parses a level, an empty one if it does not exist; `None` if somebody else wrote it.
pub(super) fn level(answer: &KeyValues) -> Option<StoredCount> {
    let Some(level) = answer.kvs.first() else {
        return Some(StoredCount::Level(Level::default()));
    };
    let mut numbers = str::from_utf8(&level.value).ok()?.splitn(3, ' ').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(StoredCount::level(next()?, next()?, next()?))
}

pub(super) fn level_value(level: &Level) -> String {
    // A bucket that leaks nothing is never empty.
    let mark = level.mark.millis().0.min(i64::MAX.cast_unsigned());
    format!("{} {} {mark}", level.hits.thousandths(), level.at.0)
}

/// A change of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedChange {
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) is_news: bool,
    /// The counters with their totals after the change.
    pub(super) counts: Vec<Count>,
}

impl LoggedChange {
    /// Encodes the change as 64-bit numbers, big-endian, and keys after their lengths.
    pub(super) fn to_value(&self) -> Vec<u8> {
        let NodeId([high, low]) = self.node;
        let head = [self.number, high, low, u64::from(self.is_news)];
        let mut value: Vec<u8> = head.into_iter().flat_map(u64::to_be_bytes).collect();
        for Count { key, size, window, total } in &self.counts {
            let total = total.thousandths().cast_unsigned();
            let numbers = [size.bits(), *window, total, key.len() as u64];
            value.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
            value.extend(key);
        }
        value
    }

    /// Decodes a change; `None` if somebody else wrote it. Leaves out windows in time zones that this process does
    /// not know.
    pub(super) fn parse(mut value: &[u8]) -> Option<LoggedChange> {
        let [number, high, low, is_news] = numbers(&mut value)?;
        let mut counts = Vec::new();
        while !value.is_empty() {
            let [size, window, total, length] = numbers(&mut value)?;
            let key = value.split_off(..usize::try_from(length).ok()?)?;
            let total = Hits::from_thousandths(total.cast_signed());
            let size = WindowSize::from_bits(size);
            counts.extend(size.map(|size| Count { key: key.into(), size, window, total }));
        }
        Some(LoggedChange { number, node: NodeId([high, low]), is_news: is_news != 0, counts })
    }
}

fn numbers(value: &mut &[u8]) -> Option<[u64; 4]> {
    let mut numbers = [0; 4];
    for number in &mut numbers {
        let bytes;
        (bytes, *value) = value.split_first_chunk()?;
        *number = u64::from_be_bytes(*bytes);
    }
    Some(numbers)
}
