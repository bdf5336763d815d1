//! Pushes of other nodes as they happen: the terms in which a channel tells them.
//!
//! It carries no counts that matter: what was missed, or came twice, is put right by the node's next
//! exchange, whose answer is the truth. So a datastore may forget it at any time.

use super::batch::{Count, Epoch, NodeId, Position};
use super::shard::Shard;

/// A shard that a node listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The shard.
    pub shard: Shard,
    /// The epoch that it is in.
    pub epoch: Epoch,
    /// After which of its changes.
    pub after: Position,
    /// The node that listens: what it pushes itself is no news to it.
    pub node: NodeId,
}

/// A batch that some node pushed, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushNews {
    /// The shard.
    pub shard: Shard,
    /// The epoch that it was in.
    pub epoch: Epoch,
    /// Node that pushed, which may be the listening one. Several batches have none.
    pub node: NodeId,
    /// Position of the shard's changes with the batch.
    pub position: Position,
    /// The counters of the batch, with their totals as of that position.
    pub counts: Vec<Count>,
}

impl Subscription {
    /// Whether this is where some news came from.
    pub fn is_of(&self, news: &PushNews) -> bool {
        self.epoch == news.epoch && self.shard == news.shard
    }
}
