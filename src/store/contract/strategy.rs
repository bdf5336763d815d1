//! The trait of a datastore, and the kinds in which datastores differ.
//!
//! # Exactly once
//!
//! The counts of a namespace are kept in shards; each shard stands for itself. Its counts are born
//! with a random [`Epoch`] and lost with it. Within an epoch a node pushes its batches in a chain:
//! each has a [`BatchId`], and names that of the batch before it. The store applies a batch only if
//! the last one that it applied of this node is the one before it, and answers a repeat without
//! applying it. So a node that does not know what became of a batch sends the same batch again.
//! Whether there are diffs does not matter: a batch is one because it has an id, and all of its
//! counters may have been evicted since it was sealed.
//!
//! What "applies once" takes depends on what the store keeps ([`Strategy::Counts`]):
//!
//! - [`Added`]: one total for each counter, to which the diffs are added. They are added in one atomic
//!   step with noting the batch's id.
//! - [`Absolute`]: a row for each counter, node and [`Occupancy`], which is set to [`Diff::local`]; the
//!   total is the sum of the rows. A row keeps the id of the batch that set it, and one of a smaller id
//!   leaves it as it is. So the same row may be set again, and a batch in parts; its id is noted after
//!   all of its rows.
//!
//! A store does not remember a node for ever, but for [`NODE_LIFE`] longer than anything that the
//! node pushed matters. So of a node that it knows nothing of, it has nothing that matters, unless it
//! lost writes. An id has random bits, by which the store's last one tells what happened if it is
//! neither this batch nor the one before: [`Batch::misfit`].
//!
//! # What others changed
//!
//! What a node is told of it depends on what the store knows ([`Strategy::Changes`]):
//!
//! - [`Changes`]: it keeps a log. With a batch goes the [`Position`] up to which the node has seen that;
//!   the answer holds the totals that others changed since, as they are after the batch. A node without
//!   a position, or with one that the store cannot follow up, is given the present one, and then reads
//!   everything that matters with [`Strategy::get_counters`]: what is changed meanwhile comes after
//!   that position.
//! - [`Snapshots`]: it keeps counts alone. A node that has pushed all of its batches reads everything
//!   that matters, once in each of its cycles.
//!
//! What others push, a node may hear at once, if the store has a [channel](Strategy::channel), so that
//! it need not ask again and again. That is only a hint: [`super::channel`].
//!
//! # Decisions
//!
//! A store that can decide about a request before it goes on is a
//! [`Decider`](super::decision::Decider) too.
//!
//! # Saturation
//!
//! Clients may choose the costs of requests, so that no sum may overflow: it would fail for all
//! whose hits travel with it. A total saturates at [`MAX_TOTAL`], up and down.

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
    /// Whether what a node writes takes the place of what it wrote before. Then a node that takes
    /// another identity opens a new epoch: what it wrote under the former one would count twice.
    const ARE_ABSOLUTE: bool;
}

/// One total for each counter, to which diffs are added.
#[derive(Debug)]
pub enum Added {}

/// A row for each counter, node and occupancy, which is written absolutely.
#[derive(Debug)]
pub enum Absolute {}

impl CountsKind for Added {
    const ARE_ABSOLUTE: bool = false;
}

impl CountsKind for Absolute {
    const ARE_ABSOLUTE: bool = true;
}

/// The kind of a store's news about others' changes: [`Changes`] or [`Snapshots`].
pub trait ChangesKind: kinds::OfChanges + fmt::Debug + PartialEq {
    /// Returns the changes of a store with a log. `None`: everything is to be read.
    fn logged(self) -> Option<Changes>;
}

/// Nothing: all is to be read, when everything is pushed.
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

/// The kinds are those that the engine knows how to sync with.
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
    /// The store has applied it, now or before; or there was nothing to apply.
    Applied {
        /// Changes of others.
        changes: C,
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

impl Batch {
    /// For a store: the answer if `last` is the last batch that it knows of the node, and is neither
    /// this one nor the one before.
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

/// The changes of others since a position, from a store that keeps a log of changes.
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
        /// Position of the changes when the batch was answered.
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
    /// Position in a reading of all counters. The default is the beginning. It is valid for the
    /// strategy object that returned it, for as long as the process lives.
    type Step: Clone + fmt::Debug + Default;
    /// Kind of the news about others' changes.
    type Changes: ChangesKind;
    /// Kind of the counts.
    type Counts: CountsKind;

    /// A strategy that will connect to the servers of `options` when it is first used.
    fn new(options: &StoreOptions, own: &Self::Options) -> Self;

    /// Another one for the same datastore, that can be used at the same time, and has the connections
    /// of this one, on which one waits for the other. `None`: each has its own.
    fn share(&self) -> Option<Self> {
        None
    }

    /// Returns the number of connections to servers made so far.
    fn connects(&self) -> u64;

    /// The server that was connected to last, with its version: as the log tells of it. `None` before
    /// the first.
    fn server(&self) -> Option<String>;

    /// Into how many shards the keys of a namespace are divided; at least 1.
    fn shards(&self) -> u16;

    /// Returns the number of living nodes, the asking one among them, from the answer to the last
    /// batch that said for how long its node [lives](Batch::lives_for). `None`: the store does not
    /// tell.
    fn nodes(&self) -> Option<u64> {
        None
    }

    /// Whether the store has lost what it charged ahead for the node, as the answer told to the last batch that said
    /// [up to when](Batch::grants) there is any: then it has applied no diff below zero.
    fn has_lost_grants(&self) -> bool {
        false
    }

    /// Applies a batch, unless it was applied before, and answers what others changed: of a log, up
    /// to `limit` counters, or those of one batch if these are more.
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
    ) -> Result<Pushed<Self::Changes>, StoreError>;

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

    /// Another one for the same datastore with connections of its own, to [`recv`](Strategy::recv) with.
    /// `None`: it has no channel.
    fn channel(&self) -> Option<Self> {
        None
    }

    /// Waits for batches that are [news](Batch::is_news), about a second at most, and returns those of
    /// the shards of `subscriptions` that were applied after its positions, oldest first in each shard, or several as one. It may
    /// return those of the node itself, and may have missed some. It returns nothing before that second is over where what
    /// it was told was of no use, and the caller pauses before it asks again. Of a datastore with several shards,
    /// `subscriptions` has one. Asked only of what [`channel`](Strategy::channel) returned; dropped, it has lost
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; one that is not [transient](StoreError::is_transient) says that there is no
    /// channel, by a right that is missing or a server that lacks it.
    async fn recv(&mut self, subscriptions: &[Subscription]) -> Result<Vec<PushNews>, StoreError> {
        let _ = subscriptions;
        core::future::pending().await
    }
}
