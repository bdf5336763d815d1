//! The channel of a store, by which nodes learn of other nodes' pushes immediately. A file of its
//! own, since a store may have none.
//!
//! Counts on the channel are only hints: a missed or repeated one is corrected by the node's next
//! exchange, whose answer is authoritative. So a datastore may drop them at any time.

use super::batch::{Count, Epoch, NodeId, Position};
use super::shard::Shard;

/// A shard whose channel a node listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The shard.
    pub shard: Shard,
    /// The shard's epoch.
    pub epoch: Epoch,
    /// Only changes after this position are received.
    pub after: Position,
    /// The listening node, whose own pushes are not news.
    pub node: NodeId,
}

/// One or several batches of other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushNews {
    /// The shard.
    pub shard: Shard,
    /// The shard's epoch at that time.
    pub epoch: Epoch,
    /// Node that pushed, which may be the listening one. Unspecified for several batches.
    pub node: NodeId,
    /// Position of the shard's changes after the batch.
    pub position: Position,
    /// The counters of the batch, with their totals at that position.
    pub counts: Vec<Count>,
}

impl Subscription {
    /// Returns whether news came from this subscription.
    pub fn is_of(&self, news: &PushNews) -> bool {
        self.epoch == news.epoch && self.shard == news.shard
    }
}
