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

use crate::store::contract::strategy::{BatchId, Epoch, NodeId, Position, Shard};
use crate::store::keyed::name::{self, CounterId};

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

    pub(super) fn changes(&self) -> Vec<u8> {
        self.of_epoch("d/")
    }

    pub(super) fn news(&self) -> String {
        format!("{}news", self.epoch)
    }

    /// Returns the key with this name in the epoch.
    pub(super) fn of_epoch(&self, name: impl AsRef<[u8]>) -> Vec<u8> {
        [self.epoch.as_bytes(), name.as_ref()].concat()
    }

    pub(super) fn counter(&self, name: CounterId<'_>) -> Vec<u8> {
        self.of_epoch(name::counter(name))
    }

    pub(super) fn change(&self, number: u64) -> Vec<u8> {
        self.of_epoch(name::change(number))
    }
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
