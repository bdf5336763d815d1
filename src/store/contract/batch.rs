//! Batches of a node, and their names in a store; and positions in a traversal of all counters.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::hits::Hits;
use crate::policy::reserve::Grants;
use crate::policy::window::WindowSize;
#[cfg(not(loom))]
use crate::table::words::system::random_number;

/// Bound of totals, up and down, in thousandths: 2^53 - 1. Lua's numbers are doubles, which
/// represent all integers up to it; and it is so far from 2^63 that no batch overflows an `i64` or
/// a `bigint`. It is more than [`Hits::MAX`], at which larger totals are returned, so that small
/// excesses can be subtracted exactly.
pub const MAX_TOTAL: i64 = (1 << 53) - 1;

/// A node: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u64; 2]);

/// Formats the node as 32 hexadecimal digits.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeId([high, low]) = self;
        write!(f, "{high:016x}{low:016x}")
    }
}

/// The name of a shard's counts from their creation to their loss: 64 random bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(pub NonZeroU64);

#[cfg(not(loom))]
impl Epoch {
    /// Proposes an epoch that no other node proposes, and no process that was forked from this one.
    pub fn proposed() -> Epoch {
        Epoch(random_number())
    }
}

/// Formats the epoch as 16 hexadecimal digits.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of a node's batch in an epoch, from 1, with random bits. Later batches have greater
/// ids.
///
/// The random bits distinguish two nodes with the same identity, such as a machine and its clone
/// with the same memory: neither takes the other's batch for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The id before a node's first batch.
    pub const NONE: BatchId = BatchId(0);
    const NONCE_BITS: u32 = 24;

    /// Creates the id of batch `number`, of which 36 bits are used, with 24 random bits. Number 0
    /// is [`BatchId::NONE`].
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

/// Shortest time for which a store remembers a node after all counts that it has pushed ended.
pub const NODE_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest time for which a node says that it is alive. A store ignores longer ones.
pub const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for which counts are kept after they ceased to matter, since clocks differ.
pub const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// A position in the sequence of a shard's changes. Only the strategy that returned it interprets
/// it. It is valid in one epoch.
///
/// The first word is less than [`u64::MAX`]. A store whose position does not fit, such as one with
/// a number for each node, stores it and returns a name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub [u64; 2]);

impl Position {
    /// Returns whether this is after another position of the same epoch. Only for a store with a
    /// [`channel`](super::strategy::Strategy::channel), whose positions are ordered by their first
    /// word.
    pub fn is_after(self, Position([other, _]): Position) -> bool {
        let Position([this, _]) = self;
        this > other
    }
}

/// The occupancy of a counter in a node's table. A counter that was evicted and comes back starts
/// at zero, with another occupancy.
///
/// It consists of the counter's slot and 16 bits of the slot's generation, which is practically
/// unique among the occupancies of a counter that matter at the same time. A store may use 0 for
/// its own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occupancy(pub NonZeroU64);

/// A node's hits since its last push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The key: 1 to 65535 bytes, any.
    pub key: Vec<u8>,
    /// The size of the window.
    pub size: WindowSize,
    /// The number of the window: [`WindowSize::at`].
    pub window: u64,
    /// Number to add to the total; may be negative.
    pub diff: Hits,
    /// All hits of this node in the window during this occupancy, including this diff.
    pub local: Hits,
    /// Occupancy of the counter.
    pub occupancy: Occupancy,
    /// Time from now until the window ceases to matter: the end of the next one + [`CLOCK_MARGIN`]. The
    /// store keeps its counts at least as long.
    pub expires_in: Duration,
}

/// A push of a node, or a question without one.
///
/// A batch should have at most [`Batch::MAX_DIFFS`] diffs and [`Batch::MAX_KEY_BYTES`] bytes of
/// keys. A larger one works, but blocks the store's server for longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The node that pushes.
    pub node: NodeId,
    /// The epoch that the node believes to be current.
    pub epoch: Epoch,
    /// Time for which the node is alive from now on; zero if it leaves. Then
    /// [`Strategy::living`](super::strategy::Strategy::living) returns the number of living nodes.
    /// `None` changes nothing.
    pub lives_for: Option<Duration>,
    /// The node's last batch in this epoch that the store acknowledged.
    pub previous: BatchId,
    /// The id of this batch, which follows that one. `None` if the node only asks; then there are
    /// no diffs.
    pub id: Option<BatchId>,
    /// Position up to which the node knows the changes of others; `None` if it knows none.
    pub position: Option<Position>,
    /// The diffs, in any order. A counter may occur several times, with different occupancies.
    pub diffs: Vec<Diff>,
    /// State of the store's charges for reserves, if the store decides about the node's requests.
    /// Diffs below zero then give them back, as far as the store still has them, and never make a
    /// total negative. A store that cannot bound them counts such a batch as one whose charges are
    /// [lost](super::strategy::Strategy::has_lost_grants). `None`: each diff is simply added.
    pub grants: Option<Grants>,
    /// Whether listening nodes are notified of the batch, with its totals, since it is urgent. Only
    /// used by a store with a [`channel`](super::strategy::Strategy::channel).
    pub is_news: bool,
}

impl Batch {
    /// Most diffs of a batch, which a store applies in a few milliseconds.
    pub const MAX_DIFFS: usize = 500;
    /// Most bytes of keys of a batch. A batch of one diff may have a longer key.
    pub const MAX_KEY_BYTES: usize = 32 * 1024;

    /// Returns the number of counters of the next page, for keys of about this length, so that it
    /// takes a server no longer than a batch. `None` if the page is empty.
    pub fn page_after(page: &[Count]) -> Option<usize> {
        let bytes: usize = page.iter().map(|count| count.key.len()).sum();
        let length = bytes.checked_div(page.len())?;
        let counters = (2 * Batch::MAX_KEY_BYTES).checked_div(length)?;
        Some(counters.clamp(1, Batch::MAX_DIFFS))
    }

    /// Returns the longest time for which a diff matters; zero without diffs.
    pub fn life(&self) -> Duration {
        let lives = self.diffs.iter().map(|diff| diff.expires_in);
        lives.max().unwrap_or_default()
    }

    /// Returns the sum of the diffs of each counter, by the size and number of its window and its key: in thousandths,
    /// with the longest time for which one of them matters.
    pub fn sums(&self) -> BTreeMap<(WindowSize, u64, &[u8]), (i64, Duration)> {
        let mut sums: BTreeMap<_, (i64, Duration)> = BTreeMap::new();
        for diff in &self.diffs {
            let (sum, life) = sums.entry((diff.size, diff.window, &*diff.key)).or_default();
            *sum = sum.saturating_add(diff.diff.thousandths());
            *life = diff.expires_in.max(*life);
        }
        sums
    }

    /// Returns the last batch of the node that the store has after
    /// [`Pushed::Applied`](super::strategy::Pushed::Applied).
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
    /// Sum of all nodes' pushes.
    pub total: Hits,
}

/// A position in a traversal of all counters of a store. It goes through sections, each with an order of its own.
#[cfg(not(loom))]
#[derive(Clone, Debug)]
pub struct PageStep<C> {
    /// Index of the section, which is a window or a part of one.
    pub(crate) section: usize,
    /// The place in the section after which the page begins. The default is the start of the
    /// section.
    pub(crate) after: C,
    /// Approximate number of counters of the page.
    pub(crate) counters: usize,
}

#[cfg(not(loom))]
impl<C: Default> Default for PageStep<C> {
    /// The first page is small, since the length of the keys is unknown.
    fn default() -> PageStep<C> {
        PageStep { section: 0, after: C::default(), counters: Batch::MAX_DIFFS / 5 }
    }
}

#[cfg(not(loom))]
impl<C: Default> PageStep<C> {
    /// Returns the step after this page. `last` is the place where the page ends; `None` at the end
    /// of the section. Returns `None` after the last section.
    pub(crate) fn next(
        &self,
        page: &[Count],
        last: Option<C>,
        sections: usize,
    ) -> Option<PageStep<C>> {
        let section = match last {
            Some(_) => self.section,
            None => self.section.saturating_add(1),
        };
        (section < sections).then(|| PageStep {
            section,
            after: last.unwrap_or_default(),
            counters: Batch::page_after(page).unwrap_or(self.counters),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{self, Read as _, Write as _};

    use super::*;
    use crate::testing::table::in_process;

    #[test]
    fn a_forked_process_proposes_other_epochs() {
        let propose = || Epoch::proposed().0.get().to_ne_bytes();
        propose();
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert_eq!(in_process(|| writer.write_all(&propose()).unwrap()), None);
        let mut proposed = [0; 8];
        reader.read_exact(&mut proposed).unwrap();
        assert_ne!(proposed, propose());
    }

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
