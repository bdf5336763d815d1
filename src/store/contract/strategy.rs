//! The trait of a datastore, and the kinds in which datastores differ.
//!
//! # Exactly once
//!
//! The counts of a namespace are divided into independent shards. A shard's counts are created with
//! a random [`Epoch`] and lost with it. In an epoch, a node pushes its batches as a chain: each has
//! a [`BatchId`], and contains the id of the previous batch. The store applies a batch only if the
//! last one that it applied of this node is the previous one, and answers a repetition without
//! applying it. So a node that does not know whether a batch was applied sends the same batch
//! again. A batch with an id counts even without diffs, since all of its counters may have been
//! evicted after it was sealed.
//!
//! How a store applies a batch once depends on its counts ([`Strategy::Counts`]):
//!
//! - [`Added`]: one total for each counter, to which the diffs are added, in one atomic step with
//!   recording the batch's id.
//! - [`Absolute`]: one row for each counter, node and [`Occupancy`], which is set to
//!   [`Diff::local`]; the total is the sum of the rows. A row keeps the id of the batch that set
//!   it, and a batch with a smaller id does not change it. So a row can be set again, and a batch
//!   can be applied in parts; its id is recorded after all of its rows.
//!
//! A store remembers a node for [`NODE_LIFE`] longer than its counts matter. So if it does not know
//! a node, it has no counts of that node that matter, unless it has lost writes. An id has random
//! bits. If the store's last id is neither this batch's nor the previous one's, they show what has
//! happened: [`Batch::misfit`].
//!
//! # What others changed
//!
//! What a node learns depends on what the store records ([`Strategy::Changes`]):
//!
//! - [`Changes`]: the store has a log. A batch contains the [`Position`] up to which the node knows
//!   the log; the answer has the totals that others changed since, as of the batch. A node without
//!   a position, or with one that the store cannot continue from, gets the current position, and
//!   then fetches all counters that matter with [`Strategy::get_counters`]. Concurrent changes come
//!   after that position.
//! - [`Snapshots`]: the store has only counts. A node fetches all counters that matter once in each
//!   cycle, after it has pushed all of its batches.
//!
//! If the store has a [channel](Strategy::channel), a node may learn of other nodes' pushes
//! immediately, without polling. These are only hints: [`super::channel`].
//!
//! # Decisions
//!
//! A store that can decide about waiting requests is also a [`Decider`](super::decision::Decider).
//!
//! # Saturation
//!
//! Clients may choose the costs of requests, so sums must not overflow, which would fail for all
//! hits in the same batch. Totals saturate at [`MAX_TOTAL`], up and down.

use core::fmt;

pub use super::batch::{
    Batch, BatchId, CLOCK_MARGIN, Count, Diff, Epoch, LONGEST_LIFE, MAX_TOTAL, NODE_LIFE, NodeId,
    Occupancy, Position,
};
pub use super::channel::{PushNews, Subscription};
use super::error::StoreError;
use super::options::StoreOptions;
pub use super::shard::Shard;
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

/// The kind of a store's counts: [`Added`] or [`Absolute`].
pub trait CountsKind: kinds::OfCounts {
    /// Whether a node's write replaces its earlier one. Then a node that takes another identity
    /// opens a new epoch, since its rows under the former identity would count twice.
    const ARE_ABSOLUTE: bool;
}

/// One total for each counter, to which diffs are added.
#[derive(Debug)]
pub enum Added {}

/// One row for each counter, node and occupancy, with an absolute count.
#[derive(Debug)]
pub enum Absolute {}

impl CountsKind for Added {
    const ARE_ABSOLUTE: bool = false;
}

impl CountsKind for Absolute {
    const ARE_ABSOLUTE: bool = true;
}

/// The kind of a store's information about other nodes' changes: [`Changes`] or [`Snapshots`].
pub trait ChangesKind: kinds::OfChanges + fmt::Debug + PartialEq {
    /// Returns the changes from a store with a log; `None` if all counters must be fetched.
    fn logged(self) -> Option<Changes>;
}

/// No changes: all counters must be fetched after all batches are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshots;

impl ChangesKind for Changes {
    fn logged(self) -> Option<Changes> {
        Some(self)
    }
}

impl ChangesKind for Snapshots {
    fn logged(self) -> Option<Changes> {
        None
    }
}

/// Restricts the kinds to those that the sync engine supports.
mod kinds {
    pub trait OfCounts {}
    impl OfCounts for super::Added {}
    impl OfCounts for super::Absolute {}

    pub trait OfChanges {}
    impl OfChanges for super::Changes {}
    impl OfChanges for super::Snapshots {}
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed<C = Changes> {
    /// The store has applied the batch, now or before; or there was nothing to apply.
    Applied {
        /// Changes of other nodes.
        changes: C,
        /// The store's clock.
        now: UnixMillis,
    },
    /// The shard is in this epoch; nothing was applied.
    OtherEpoch(Epoch),
    /// The shard has no epoch: it is new, or all of its data was lost or has expired. Nothing was
    /// applied; the node must call [`Strategy::open_epoch`].
    NoEpoch,
    /// The last batch of this node that the store knows is before the previous one: the store has
    /// lost writes. Nothing was applied; the node must open a new epoch.
    Lost,
    /// The store knows no batch of this node, and this is not the first. If [`NODE_LIFE`] has
    /// passed since all of the node's counts ended, the store removed the node as intended, and the
    /// node may begin with a first batch again; otherwise the store has lost writes. Nothing was
    /// applied.
    Forgotten,
    /// The store knows a later batch of this node than the node itself, or another batch with the
    /// same number: another node has the same identity. Nothing was applied; under another
    /// identity, this can be the first batch.
    Twin,
}

impl Batch {
    /// Returns a store's answer if the last batch that it knows of the node, `last`, is neither
    /// this one nor the previous one.
    pub fn misfit<C>(&self, last: BatchId) -> Pushed<C> {
        if last == BatchId::NONE {
            Pushed::Forgotten
        } else if last.number() < self.previous.number() {
            Pushed::Lost
        } else {
            Pushed::Twin
        }
    }
}

/// Other nodes' changes since a position, from a store with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// All changes, or the first part.
    Since {
        /// Each counter that other nodes changed since the position, once. The totals are as of the
        /// answer: they include this node's batches up to the answered one, and no later ones.
        counts: Vec<Count>,
        /// Position up to which `counts` has all changes of other nodes.
        position: Position,
        /// Whether there are more changes after `position`.
        has_more: bool,
    },
    /// The store cannot return the changes: the batch had no position, one that is too old, or one
    /// that the store has lost. The node must fetch the changes up to `position` with
    /// [`Strategy::get_counters`].
    Behind {
        /// Position of the changes at the answer.
        position: Position,
    },
}

/// The living nodes that share a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivingNodes {
    /// Number of the nodes.
    pub count: u64,
    /// Number of those before this node, in an order that is the same for all nodes. `None` while the
    /// store has not counted this node.
    pub place: Option<u64>,
}

/// A datastore, as one node's client of it.
///
/// Each method takes one exchange with a server, or a few. After an error, the next call connects
/// again if needed. No method repeats an operation that may have been applied. A call that is
/// dropped before it ends counts as timed out.
#[expect(
    async_fn_in_trait,
    reason = "used generically, on a runtime of a single thread: futures need not be Send"
)]
pub trait Strategy: Sized {
    /// The options that only this kind of datastore has.
    type Options;
    /// Position in a traversal of all counters; the default is the start. Valid only for the
    /// strategy that returned it.
    type Step: Clone + fmt::Debug + Default;
    /// Kind of the information about other nodes' changes.
    type Changes: ChangesKind;
    /// Kind of the counts.
    type Counts: CountsKind;

    /// Creates a strategy, which connects to the servers of `options` at its first use.
    fn new(options: &StoreOptions, own: &Self::Options) -> Self;

    /// Returns another client of the same datastore that can be used concurrently and shares the
    /// connections of this one, on which they wait for each other. `None` if each client has its
    /// own connections.
    fn share(&self) -> Option<Self> {
        None
    }

    /// Returns the number of connections to servers made so far.
    fn connects(&self) -> u64;

    /// Returns the server of the last connection, with its version, for the log. `None` before the
    /// first one.
    fn server(&self) -> Option<String>;

    /// Returns the most diffs of a batch, which the store applies well within its timeout: from 1 to
    /// [`Batch::MAX_DIFFS`].
    fn max_diffs(&self) -> usize {
        Batch::MAX_DIFFS
    }

    /// Returns the number of shards of a namespace; at least 1.
    fn shards(&self) -> u16;

    /// Returns the number of servers over which the shards are spread, as far as it is known; at
    /// least 1.
    fn servers(&self) -> u16 {
        1
    }

    /// Returns the living nodes, including this one, from the answer to the last batch with
    /// [`lives_for`](Batch::lives_for). `None` if the store does not return them.
    fn living(&self) -> Option<LivingNodes> {
        None
    }

    /// Returns whether the store has lost its charges for reserves, from the answer to the last
    /// batch with [`grants`](Batch::grants). Then it has applied no diff below zero.
    fn has_lost_grants(&self) -> bool {
        false
    }

    /// Returns the counters that the last batch has made negative, with their totals right after it:
    /// their node has subtracted hits that another one had subtracted before. Empty if the batch was
    /// applied before.
    fn overdrawn(&self) -> &[Count] {
        &[]
    }

    /// Applies a batch, unless it was applied before, and returns the other nodes' changes. From a
    /// log, returns up to `limit` counters, or those of one batch if these are more.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. It is then unknown whether the batch was applied, unless
    /// [`StoreError::may_have_applied`] says that it was not.
    async fn push_diffs(
        &mut self,
        shard: &Shard,
        batch: &Batch,
        limit: usize,
    ) -> Result<Pushed<Self::Changes>, StoreError>;

    /// Sets the shard's epoch to `proposed`, if it is `instead_of` or missing; the counts of the
    /// old epoch are lost. Returns the shard's epoch afterwards. Of several concurrent proposals
    /// one wins, and all nodes get that epoch.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The call can be repeated.
    async fn open_epoch(
        &mut self,
        shard: &Shard,
        instead_of: Option<Epoch>,
        proposed: Epoch,
    ) -> Result<Epoch, StoreError>;

    /// Returns one page of the counters in `windows` (size, number), and the step to the next page;
    /// `None` after the last one.
    ///
    /// A count that exists during the whole traversal is returned at least once, with a total that
    /// it had in between. Counts of another epoch are never returned.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The same step can be repeated.
    async fn get_counters(
        &mut self,
        shard: &Shard,
        epoch: Epoch,
        windows: &[(WindowSize, u64)],
        step: Self::Step,
    ) -> Result<(Vec<Count>, Option<Self::Step>), StoreError>;

    /// Returns the total of a counter in the shard's current epoch; zero if there is none.
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

    /// Removes some of the counts that do not matter any more at `now`. Returns whether more may be left. By default, it
    /// does nothing: for a store that expires them itself.
    ///
    /// # Errors
    ///
    /// [`StoreError`]
    async fn purge(&mut self, shard: &Shard, now: UnixMillis) -> Result<bool, StoreError> {
        let _ = (shard, now);
        Ok(false)
    }

    /// Returns another client of the same datastore with connections of its own, for
    /// [`recv`](Strategy::recv). `None` if the datastore has no channel.
    fn channel(&self) -> Option<Self> {
        None
    }

    /// Waits at most about a second for batches that are [news](Batch::is_news). Returns those of
    /// the shards in `subscriptions` that were applied after their positions, in the order of each
    /// shard, possibly several as one. They may include the node's own batches, and may be
    /// incomplete. If a wake-up brought no news, returns an empty list early, and the caller pauses
    /// before the next call. If the datastore has several shards, `subscriptions` has one element.
    /// Only called on a client from [`channel`](Strategy::channel). No news are lost if the call is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. One that is not [transient](StoreError::is_transient) means that there is no
    /// channel, since a right is missing or the server does not support it.
    async fn recv(&mut self, subscriptions: &[Subscription]) -> Result<Vec<PushNews>, StoreError> {
        let _ = subscriptions;
        core::future::pending().await
    }
}
