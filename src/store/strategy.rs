//! What every datastore does for the nodes of a cluster, and in what terms.
//!
//! # Exactly once
//!
//! The counts of a namespace are kept in shards; each shard stands for itself. Its counts are born
//! with a random [`Epoch`] and lost with it. Within an epoch a node pushes its batches in a chain:
//! each has a [`BatchId`], and names that of the batch before it. The store applies a batch only if
//! the last one that it applied of this node is the one before it, in one atomic step with noting
//! its id, and answers a repeat without applying it. So a node that does not know what became of a
//! batch sends the same batch again. Whether there are diffs does not matter: a batch is one because
//! it has an id, and all of its counters may have been evicted since it was sealed.
//!
//! A store does not remember a node for ever, but for [`NODE_LIFE`] longer than anything that the
//! node pushed matters. So of a node that it knows nothing of, it has nothing that matters, unless it
//! lost writes. An id has random bits, by which the store's last one tells what happened if it is
//! neither this batch nor the one before: [`Batch::misfit`].
//!
//! # Only what changed
//!
//! With a batch goes the [`Position`] up to which the node has seen the store's changes; the answer
//! holds the totals that others changed since, as they are after the batch. A node without a
//! position, or with one that the store cannot follow up, is given the present one, and then reads
//! everything that matters with [`Strategy::get_counters`]: what is changed meanwhile comes after
//! that position.
//!
//! # Saturation
//!
//! Whoever sends requests may choose their costs, so that no sum may overflow: it would fail for all
//! whose hits travel with it. A total saturates at [`MAX_TOTAL`], up and down.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;
use std::sync::Arc;

use super::error::StoreError;
use super::options::StoreOptions;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// The most that a total is, up and down, in thousandths: 2^53 - 1. Up to it, doubles, which are the
/// numbers of Lua, tell all whole numbers apart; and it is so far from 2^63 that no batch makes an
/// `i64` or a `bigint` overflow. It is more than [`Hits::MAX`], as which a larger total is told: so
/// what little is above that can be taken back exactly.
pub const MAX_TOTAL: i64 = (1 << 53) - 1;

/// A node: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// 16 hexadecimal digits.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Which of a node's batches in an epoch: its number, from 1, and random bits. A later one is greater.
///
/// The random bits tell two nodes apart that are one to the store, such as a machine and its clone,
/// whose memories are alike: neither takes the other's batch for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

impl BatchId {
    /// What comes before a node's first batch.
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

    /// How many batches there were up to this one.
    pub fn number(self) -> u64 {
        self.0 >> Self::NONCE_BITS
    }
}

/// For how much longer than any count that a node pushed the store remembers the node, at least.
pub const NODE_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// A point in the sequence of a shard's changes. Only the strategy that gave it knows what it
/// says. In another epoch the store does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub [u64; 2]);

/// A part of a namespace's counts, which a datastore keeps in one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The name of the namespace.
    pub namespace: Arc<str>,
    /// Less than [`Strategy::shards`]; chosen by the key's bytes alone, so that all counts of a
    /// key are in one shard.
    pub number: u16,
}

impl Shard {
    /// In which of so many shards a key is: its FNV-1a hash of 64 bits, mixed by MurmurHash3's
    /// `fmix64`, modulo their number. All nodes must agree, so that this can never change.
    ///
    /// Sources: <http://www.isthe.com/chongo/tech/comp/fnv/>, and `MurmurHash3.cpp` in
    /// <https://github.com/aappleby/smhasher>. Without the second, similar keys crowd a few shards.
    pub fn number_of(key: &[u8], shards: u16) -> u16 {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        let factors = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];
        let mixed = factors.iter().fold(hash, |hash: u64, factor| {
            (hash ^ hash >> 33).wrapping_mul(*factor)
        });
        let number = (mixed ^ mixed >> 33).checked_rem(shards.into());
        // Less than their number, if there are any.
        number.and_then(|it| it.try_into().ok()).unwrap_or(0)
    }
}

/// What a node counted since it last pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The key: 1 to 65535 bytes, any.
    pub key: Vec<u8>,
    /// The size of the window.
    pub size: WindowSize,
    /// The number of the window: Unix time divided by the size.
    pub window: u64,
    /// What is to be added to the total; may be negative.
    pub diff: Hits,
    /// All that the node counted in the window, this diff included: for a store that keeps a row
    /// for each node, since it cannot add.
    pub local: Hits,
    /// How long from now the window matters: to its start + 2 sizes, and a margin for clocks that
    /// differ. The store keeps its counts for at least as long.
    pub expires_in: Duration,
}

/// What a node pushes, or asks, at once.
///
/// A sensible batch has at most [`Batch::MAX_DIFFS`] diffs and [`Batch::MAX_KEY_BYTES`] bytes of
/// keys. A larger one is taken too, but holds the store's server for longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who pushes.
    pub node: NodeId,
    /// The epoch that the node believes the shard to be in.
    pub epoch: Epoch,
    /// The node's last batch in this epoch that the store acknowledged.
    pub previous: BatchId,
    /// This batch, which follows that one. `None`: the node only asks, and there are no diffs.
    pub id: Option<BatchId>,
    /// Up to where the node has seen the changes of others; `None`: it has seen nothing.
    pub position: Option<Position>,
    /// The diffs. A counter may occur several times; the order does not matter.
    pub diffs: Vec<Diff>,
}

impl Batch {
    /// As many diffs as a store applies in a few milliseconds.
    pub const MAX_DIFFS: usize = 500;
    /// As many bytes of keys as go with them. A batch of one diff may have a longer key.
    pub const MAX_KEY_BYTES: usize = 32 * 1024;

    /// For a store: the answer if `last` is the last batch that it knows of the node, and is neither
    /// this one nor the one before.
    pub fn misfit(&self, last: BatchId) -> Pushed {
        if last == BatchId::NONE {
            Pushed::Forgotten
        } else if last.number() < self.previous.number() {
            Pushed::Lost
        } else {
            Pushed::Twin
        }
    }

    /// The last batch of the node that the store has, once it has answered [`Pushed::Applied`].
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
    /// What all nodes together have pushed.
    pub total: Hits,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The store has applied it, now or before; or there was nothing to apply.
    Applied {
        /// What others changed.
        changes: Changes,
        /// The store's clock.
        now: UnixMillis,
    },
    /// The shard is in this epoch; nothing was applied.
    OtherEpoch(Epoch),
    /// The shard has no epoch: it is new, or everything in it was lost, or has expired. Nothing
    /// was applied; [`Strategy::open_epoch`] is next.
    NoEpoch,
    /// The last batch that the store knows of this node comes before the one before this, so that the
    /// store has lost writes. Nothing was applied; a new epoch is to be opened instead of this one.
    Lost,
    /// The store knows no batch of this node, and this is not the first. If it is [`NODE_LIFE`] since
    /// all that the node had pushed ended, it was forgotten in due time, and may begin with a first
    /// batch again; otherwise the store has lost writes. Nothing was applied.
    Forgotten,
    /// The store knows a later batch of this node than the node itself, or another one of the same
    /// number: some other node has the same identity. Nothing was applied; under another identity,
    /// this may be the first batch.
    Twin,
}

/// What others changed since a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// All of it, or the first part.
    Since {
        /// The counters that another node than the asking one changed since its position, each
        /// once. Totals are as of the answer: they include this node's batches up to the one that
        /// is answered, and no later one.
        counts: Vec<Count>,
        /// Up to where changes are in `counts`, or were this node's own.
        position: Position,
        /// Whether there are further changes after `position`.
        has_more: bool,
    },
    /// The store cannot say: the batch had no position, or one that is too long ago, or that the
    /// store has lost. What others changed up to the present `position` is to be read with
    /// [`Strategy::get_counters`].
    Behind {
        /// Where the changes were when the batch was answered.
        position: Position,
    },
}

/// A datastore, as one node's connection to it.
///
/// Methods take one exchange with a server each, or few. An error leaves a strategy usable: the
/// next call connects again where that is needed. No method repeats by itself what may have been
/// applied. A call that is dropped before it is done counts as one that timed out.
#[expect(
    async_fn_in_trait,
    reason = "used generically, on a runtime of a single thread: futures need not be Send"
)]
pub trait Strategy: Sized {
    /// The options that only this kind of datastore has.
    type Options;
    /// How far a reading of all counters is. The default is the beginning. It is good for the
    /// strategy object that gave it, for as long as the process lives.
    type Step: Clone + fmt::Debug + Default;

    /// A strategy that will connect to the servers of `options` when it is first used.
    fn new(options: &StoreOptions, own: &Self::Options) -> Self;

    /// Another one for the same datastore, that can be used at the same time, and has the connections
    /// of this one, on which one waits for the other. `None`: each has its own.
    fn share(&self) -> Option<Self> {
        None
    }

    /// How many connections to servers have been made so far.
    fn connects(&self) -> u64;

    /// The server that was connected to last, with its version: as the log tells of it. `None` before
    /// the first.
    fn server(&self) -> Option<String>;

    /// Into how many shards the keys of a namespace are divided; at least 1.
    fn shards(&self) -> u16;

    /// Applies a batch, unless it was applied before, and answers what others changed: up to
    /// `limit` counters, or those of one batch if these are more.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; whether the batch was applied is then unknown, unless
    /// [`StoreError::may_have_applied`] says that it was not.
    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed, StoreError>;

    /// Gives the shard the epoch `proposed`, if its epoch is `instead_of` or it has none; the counts
    /// of the old one are gone. Returns the epoch that the shard is in then: of several nodes that
    /// propose one at the same time, one wins, and all get its epoch.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; to call it again is harmless.
    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError>;

    /// One page of the counters of `windows` (size, number), and the step to the next page; `None`
    /// after the last one.
    ///
    /// A count that exists from the first page to the last is returned at least once, with a total
    /// that it had in between. The counts of another epoch are never returned: there are none then.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the same step can be taken again.
    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: Self::Step,
    ) -> Result<(Vec<Count>, Option<Self::Step>), StoreError>;

    /// The total of one counter in the shard's present epoch; zero if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError`]
    async fn get_window(
        &mut self,
        shard: &Shard,
        key: &[u8],
        size: WindowSize,
        window: u64,
    ) -> Result<Hits, StoreError>;

    /// Removes some of the counts that no longer matter at `now`, where the store does not do that
    /// by itself. Returns whether there may be more of them.
    ///
    /// # Errors
    ///
    /// [`StoreError`]
    async fn purge(&mut self, shard: &Shard, now: UnixMillis) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_saturate_where_the_scripts_and_the_statements_say() {
        for source in [
            include_str!("redis/changes.lua"),
            include_str!("postgres/count.sql"),
        ] {
            assert!(source.contains(&MAX_TOTAL.to_string()));
        }
    }

    #[test]
    fn the_shard_of_a_key_never_changes() {
        for (key, of_16, of_3) in [
            (&b""[..], 6, 2),
            (b"a", 11, 2),
            (b"foobar", 11, 1),
            (b"203.0.113.9", 14, 2),
            (&[0xff, 0], 10, 1),
        ] {
            let name = key.escape_ascii();
            assert_eq!(Shard::number_of(key, 16), of_16, "{name}");
            assert_eq!(Shard::number_of(key, 3), of_3, "{name}");
            assert_eq!(Shard::number_of(key, 1), 0);
        }
    }

    #[test]
    fn keys_are_spread_over_all_shards() {
        for format in [
            |n: u32| format!("{n}"),
            |n| format!("10.0.{}.{}", n / 256, n % 256),
        ] {
            let mut counts = [0; 16];
            for n in 0..16_000 {
                counts[usize::from(Shard::number_of(format(n).as_bytes(), 16))] += 1;
            }
            assert!(
                counts.iter().all(|count| (850..1150).contains(count)),
                "{counts:?}"
            );
        }
    }
}
