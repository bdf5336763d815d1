//! A position in the changes of a shard: the last batch of each node that was read.
//!
//! It does not fit into the two words of a [`Position`], which is a hash of it. Nodes that have
//! read the same batches have the same position, whichever of them has stored it.

use std::collections::VecDeque;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::share::ReadShare;
use crate::store::contract::strategy::{BatchId, Epoch, NodeId, Position};

/// A position in the batches of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) node: NodeId,
    /// The first batch of the node's chain. It differs after the node was removed and began again.
    pub(crate) first: BatchId,
    /// The last batch.
    pub(crate) last: BatchId,
}

/// Positions in the batches of all nodes, in the order of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vector(Vec<Progress>);

/// Bytes of a node's position.
const BYTES: usize = 32;

impl Vector {
    /// Creates the vector. Each node may occur only once.
    pub(crate) fn new(mut nodes: Vec<Progress>) -> Vector {
        nodes.sort_by_key(|progress| progress.node);
        Vector(nodes)
    }

    pub(super) fn of(&self, node: NodeId) -> Option<&Progress> {
        let found = self.0.binary_search_by_key(&node, |progress| progress.node);
        found.ok().and_then(|index| self.0.get(index))
    }

    #[cfg(test)]
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Progress> {
        self.0.iter()
    }

    /// Encodes the positions in an epoch.
    pub(crate) fn to_bytes(&self, epoch: Epoch) -> Vec<u8> {
        let mut bytes = epoch.0.get().to_be_bytes().to_vec();
        for Progress { node, first, last } in &self.0 {
            bytes.extend(node_bytes(*node));
            bytes.extend(first.0.to_be_bytes());
            bytes.extend(last.0.to_be_bytes());
        }
        bytes
    }

    /// Decodes bytes of [`Vector::to_bytes`]; `None` if they belong to another epoch.
    pub(crate) fn from_bytes(bytes: &[u8], epoch: Epoch) -> Option<Vector> {
        let (of, nodes) = bytes.split_first_chunk()?;
        let (nodes, []) = nodes.as_chunks::<BYTES>() else {
            return None;
        };
        let progress = |bytes: &[u8; BYTES]| {
            let (node, batches) = bytes.split_first_chunk()?;
            let (first, last) = batches.split_first_chunk()?;
            Some(Progress {
                node: node_of(node),
                first: BatchId(u64::from_be_bytes(*first)),
                last: BatchId(u64::from_be_bytes(*last.first_chunk()?)),
            })
        };
        let nodes: Option<Vec<_>> = nodes.iter().map(progress).collect();
        (u64::from_be_bytes(*of) == epoch.0.get()).then(|| nodes.map(Vector::new))?
    }
}

/// Returns the name of encoded positions: 127 bits of their SHA-256.
pub(crate) fn name_of(bytes: &[u8]) -> Position {
    let digest = Sha256::digest(bytes);
    let mut words = digest.as_chunks().0.iter().copied();
    let mut word = || words.next().map_or(0, u64::from_be_bytes);
    Position([word() >> 1, word()])
}

/// The bytes of a name.
pub(crate) fn name_bytes(Position([first, second]): Position) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

/// Encodes a node.
pub(super) fn node_bytes(NodeId([high, low]): NodeId) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// Returns whether `id` is a charger of `node`: see `charger.rs`.
pub(super) fn is_charger_of(id: NodeId, node: NodeId) -> bool {
    let (NodeId([of, _]), NodeId([high, _])) = (id, node);
    of == high
}

/// Decodes bytes of [`node_bytes`].
pub(super) fn node_of(bytes: &[u8; 16]) -> NodeId {
    let (words, _) = bytes.as_chunks();
    let mut words = words.iter().copied();
    let mut word = || words.next().map_or(0, u64::from_be_bytes);
    NodeId([word(), word()])
}

/// State from the last answers.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The positions in the last answers, which then need not be read again.
    positions: VecDeque<(Epoch, Position, Arc<Vector>)>,
    /// Number of counters in a batch of other nodes; 0 if unknown.
    pub(super) batch_size: usize,
    /// Number of times that news were returned.
    turn: usize,
    /// The share of the news that is read in one exchange.
    pub(super) share: ReadShare,
}

impl Recent {
    /// A node continues from the last position or, if an answer was lost, the one before.
    const MOST: usize = 4;

    /// Rotates the nodes whose news are returned, by one more each time, so that nodes which the
    /// limit leaves out come first the next time.
    pub(super) fn take_turns<T>(&mut self, others: &mut [T]) {
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn.checked_rem(others.len());
        others.rotate_left(first.unwrap_or_default());
    }

    /// Returns the vector of a position in this epoch; `None` if it is not remembered.
    pub(super) fn find(&self, epoch: Epoch, position: Position) -> Option<Arc<Vector>> {
        let mut all = self.positions.iter();
        let found = all.find(|(of, name, _)| (*of, *name) == (epoch, position));
        found.map(|(_, _, vector)| vector.clone())
    }

    pub(super) fn note(&mut self, epoch: Epoch, position: Position, vector: Arc<Vector>) {
        self.positions.retain(|(_, name, _)| *name != position);
        self.positions.truncate(Self::MOST.saturating_sub(1));
        self.positions.push_front((epoch, position, vector));
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;

    const EPOCH: Epoch = Epoch(NonZeroU64::new(7).unwrap());

    fn progress(node: u64, last: u64) -> Progress {
        Progress {
            node: NodeId([node, u64::MAX - node]),
            first: BatchId::new(1, 5),
            last: BatchId::new(last, 6),
        }
    }

    #[test]
    fn a_position_is_read_as_it_was_kept() {
        for nodes in [vec![], vec![progress(2, 3), progress(1, 9)]] {
            let vector = Vector::new(nodes.clone());
            let bytes = vector.to_bytes(EPOCH);
            assert_eq!(Vector::from_bytes(&bytes, EPOCH), Some(vector.clone()));
            assert_eq!(Vector::from_bytes(&bytes, Epoch(NonZeroU64::MIN)), None);
            assert_eq!(Vector::from_bytes(&bytes[..bytes.len() - 1], EPOCH), None);
            for node in nodes {
                assert_eq!(vector.of(node.node), Some(&node));
            }
            assert_eq!(vector.of(NodeId([9, 9])), None);
        }
    }

    #[test]
    fn nodes_that_have_read_the_same_are_at_one_position() {
        let name = |nodes, epoch| name_of(&Vector::new(nodes).to_bytes(epoch));
        let here = name(vec![progress(2, 3), progress(1, 9)], EPOCH);
        assert_eq!(here, name(vec![progress(1, 9), progress(2, 3)], EPOCH));
        assert_ne!(here, name(vec![progress(1, 9), progress(2, 4)], EPOCH));
        assert_ne!(here, name(vec![progress(1, 9)], EPOCH));
        assert_ne!(name(vec![], EPOCH), name(vec![], Epoch(NonZeroU64::MIN)));
        assert!(here.0[0] < u64::MAX);
    }

    #[test]
    fn the_last_positions_are_known() {
        let mut recent = Recent::default();
        for number in 0..9 {
            recent.note(EPOCH, Position([number, 0]), Arc::default());
        }
        recent.note(EPOCH, Position([6, 0]), Arc::default());
        let is_known = |epoch, number| recent.find(epoch, Position([number, 0])).is_some();
        let known = (0..9).filter(|number| is_known(EPOCH, *number));
        assert_eq!(known.collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(!is_known(Epoch(NonZeroU64::MIN), 8));
    }
}
