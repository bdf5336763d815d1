//! Batches of a node, and their names in a store.

use core::fmt;
use core::hash::BuildHasher as _;
use core::num::NonZeroU64;
use core::time::Duration;
use std::hash::RandomState;

use crate::policy::hits::Hits;
use crate::policy::reserve::Grants;
use crate::policy::window::WindowSize;

/// The most that a total is, up and down, in thousandths: 2^53 - 1. Up to it, doubles, which are the
/// numbers of Lua, tell all whole numbers apart; and it is so far from 2^63 that no batch makes an
/// `i64` or a `bigint` overflow. It is more than [`Hits::MAX`], as which a larger total is told: so
/// what little is above that can be taken back exactly.
pub const MAX_TOTAL: i64 = (1 << 53) - 1;

/// A node: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u64; 2]);

/// 32 hexadecimal digits.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeId([high, low]) = self;
        write!(f, "{high:016x}{low:016x}")
    }
}

/// The name of a shard's counts from their birth to their loss: 64 random bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(pub NonZeroU64);

impl Epoch {
    /// Proposes an epoch that no other node proposes. Asks the system for random numbers only once.
    pub fn proposed() -> Epoch {
        let number = RandomState::new().hash_one(());
        Epoch(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of a node's batch in an epoch, from 1, with random bits. A later one is greater.
///
/// The random bits tell two nodes apart that are one to the store, such as a machine and its clone,
/// whose memories are alike: neither takes the other's batch for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The number before a node's first batch.
    pub const NONE: BatchId = BatchId(0);
    const NONCE_BITS: u32 = 24;

    /// The id of batch `number`, of which 36 bits count, with 24 random bits. That of number 0 is
    /// [`BatchId::NONE`].
    pub fn new(number: u64, nonce: u32) -> BatchId {
        match number {
            0 => BatchId::NONE,
            _ => BatchId(number << Self::NONCE_BITS | u64::from(nonce & 0xff_ffff)),
        }
    }

    /// Returns the number of batches up to this one.
    pub fn number(self) -> u64 {
        self.0 >> Self::NONCE_BITS
    }
}

/// For how much longer than any count that a node pushed the store remembers the node, at least.
pub const NODE_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest that a node is said to live from a moment on. A store believes nothing longer.
pub const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// For how much longer than they matter counts are kept, since clocks differ.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// A point in the sequence of a shard's changes. Only the strategy that gave it knows what it
/// says. In another epoch the store does not know it.
///
/// The first word is less than [`u64::MAX`]. What does not fit, such as a number for each node, a store
/// keeps by itself, and gives the name of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub [u64; 2]);

impl Position {
    /// Whether this comes after another position of the same epoch, of a store with a
    /// [`channel`](super::strategy::Strategy::channel): the first words of its positions say so.
    pub fn is_after(self, Position([other, _]): Position) -> bool {
        let Position([this, _]) = self;
        this > other
    }
}

/// The stay of a counter in a node's table: a counter that was evicted and comes back begins at
/// zero, with another occupancy.
///
/// It is made of the counter's slot and 16 bits of that slot's generation: as good as unique among
/// the stays of one counter that matter at the same time. A store may use 0 for what it counts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occupancy(pub NonZeroU64);

/// A node's hits since its last push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The key: 1 to 65535 bytes, any.
    pub key: Vec<u8>,
    /// The size of the window.
    pub size: WindowSize,
    /// The number of the window: Unix time divided by the size.
    pub window: u64,
    /// Number to be added to the total; may be negative.
    pub diff: Hits,
    /// All that the node counted in the window during this occupancy, this diff included.
    pub local: Hits,
    /// Occupancy of the counter.
    pub occupancy: Occupancy,
    /// Time from now until the window loses its meaning: its start + 2 sizes, and [`CLOCK_MARGIN`].
    /// The store keeps its counts for at least as long.
    pub expires_in: Duration,
}

/// A push or a question of a node.
///
/// A sensible batch has at most [`Batch::MAX_DIFFS`] diffs and [`Batch::MAX_KEY_BYTES`] bytes of
/// keys. A larger one is taken too, but holds the store's server for longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The node that pushes.
    pub node: NodeId,
    /// The epoch that the node believes the shard to be in.
    pub epoch: Epoch,
    /// For how long from now on the node is to be counted as one that lives; zero: no more. Then
    /// [`Strategy::nodes`](super::strategy::Strategy::nodes) tells how many do. `None`: it stays as it is.
    pub lives_for: Option<Duration>,
    /// The node's last batch in this epoch that the store acknowledged.
    pub previous: BatchId,
    /// This batch, which follows that one. `None`: the node only asks, and there are no diffs.
    pub id: Option<BatchId>,
    /// Up to where the node has seen the changes of others; `None`: it has seen nothing.
    pub position: Option<Position>,
    /// The diffs. A counter may occur several times, each time with another occupancy; the order does
    /// not matter.
    pub diffs: Vec<Diff>,
    /// State of the charges that the store made ahead for the node, if the store decides about its
    /// requests: diffs below zero give them back, as far as the store still has them, and take no
    /// total below zero. `None`: each diff is added as it is.
    pub grants: Option<Grants>,
    /// Whether nodes that listen are to be told of it, with its totals: for a batch that cannot wait for
    /// their next exchange. Nothing but a store with a [`channel`](super::strategy::Strategy::channel)
    /// looks at it.
    pub is_news: bool,
}

impl Batch {
    /// Greatest number of diffs in a batch: a store applies them in a few milliseconds.
    pub const MAX_DIFFS: usize = 500;
    /// Greatest number of bytes of keys in a batch. A batch of one diff may have a longer key.
    pub const MAX_KEY_BYTES: usize = 32 * 1024;

    /// Returns the number of counters of the next page, for keys of about this length: it holds a
    /// server no longer than a batch does. `None` if the page is empty.
    pub fn page_after(page: &[Count]) -> Option<usize> {
        let bytes: usize = page.iter().map(|count| count.key.len()).sum();
        let length = bytes.checked_div(page.len())?;
        let counters = (2 * Batch::MAX_KEY_BYTES).checked_div(length)?;
        Some(counters.clamp(1, Batch::MAX_DIFFS))
    }

    /// For how long any of its diffs matters; zero if there are none.
    pub fn life(&self) -> Duration {
        let lives = self.diffs.iter().map(|diff| diff.expires_in);
        lives.max().unwrap_or_default()
    }

    /// The last batch of the node that the store has, once it has answered [`Pushed::Applied`](super::strategy::Pushed::Applied).
    pub fn last(&self) -> BatchId {
        self.id.unwrap_or(self.previous)
    }
}

/// The total of a counter in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The key.
    pub key: Vec<u8>,
    /// The size of the window.
    pub size: WindowSize,
    /// The number of the window.
    pub window: u64,
    /// Sum of the pushes of all nodes.
    pub total: Hits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_saturate_where_the_scripts_and_the_statements_say() {
        for source in [include_str!("../redis/changes.lua"), include_str!("../postgres/count.sql")]
        {
            assert!(source.contains(&MAX_TOTAL.to_string()));
        }
    }

    #[test]
    fn the_scripts_keep_counts_for_as_long_as_they_should() {
        let margin = format!("MARGIN = 3600000, {}\n", CLOCK_MARGIN.as_millis());
        assert!(include_str!("../redis/changes.lua").contains(&margin));
    }

    #[test]
    fn a_page_of_long_keys_is_small() {
        let page = |length| {
            let count = Count {
                key: vec![b'x'; length],
                size: WindowSize::from_millis(1000).unwrap(),
                window: 0,
                total: Hits::ZERO,
            };
            Batch::page_after(&[count.clone(), count])
        };
        for (length, expected) in [(1, 500), (131, 500), (256, 256), (65_535, 1), (100_000, 1)] {
            assert_eq!(page(length), Some(expected), "{length}");
        }
        assert_eq!(Batch::page_after(&[]), None);
    }
}
