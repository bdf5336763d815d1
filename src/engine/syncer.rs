//! A sync cycle of a namespace: of all its shards, one after the other.

use core::time::Duration;

use super::ratelimiting::Namespace;
use super::shard_sync::{ShardSync, Surroundings};
use super::sync_outcome::{Report, SyncError};
use crate::policy::window::WindowSize;
use crate::store::strategy::Strategy;
use crate::table::{MonotonicMillis, SyncCycle, SyncState};

/// The sync of a namespace with its store.
#[derive(Debug)]
pub struct Syncer<'n, 'm> {
    shards: Vec<ShardSync<'n, 'm>>,
    /// With the first shard is noted what concerns all.
    state: SyncState<'m>,
}

impl<'n, 'm> Syncer<'n, 'm> {
    /// The sync of `namespace`, which counts in windows of `sizes`; a lease lasts for `lifetime`.
    /// `None`: the namespace is not synced.
    pub fn new(
        namespace: &'n Namespace<'m>,
        sizes: &[WindowSize],
        lifetime: Duration,
    ) -> Option<Self> {
        let shards = ShardSync::of(namespace, sizes, lifetime);
        let state = shards.first()?.state();
        Some(Syncer { shards, state })
    }

    /// The same, but what others counted is not fetched: the store is asked about every hit.
    pub fn pushing_only(self) -> Self {
        let shards = self.shards.into_iter().map(ShardSync::pushing_only);
        Syncer {
            shards: shards.collect(),
            ..self
        }
    }

    /// Whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.state.is_superseded()
    }

    /// Whether this node was synced less than most of `period` ago: then there is no need to.
    pub fn is_fresh(&self, period: Duration, surroundings: &impl Surroundings) -> bool {
        let mut shards = self.shards.iter();
        shards.all(|shard| shard.is_fresh(period, surroundings))
    }

    /// Has the next cycle fetch everything that matters, whatever was fetched before.
    pub fn fetch_anew(&self) {
        for shard in &self.shards {
            shard.state().fetch_anew();
        }
    }

    /// Ends the leases, so that the worker that syncs now does not keep this one from it any longer. If it
    /// lives, it notices before it changes anything.
    pub fn take_over(&self, surroundings: &impl Surroundings) {
        for shard in &self.shards {
            shard.take_over(surroundings);
        }
    }

    /// Pushes what changed since it was last pushed, and fetches what others changed. `None`: another
    /// worker is at it, with some shards at least.
    ///
    /// # Errors
    ///
    /// The last [`SyncError`] of the store, or else that a lease was lost; the other shards are synced
    /// all the same.
    pub async fn sync(
        &self,
        strategy: &mut impl Strategy,
        surroundings: &impl Surroundings,
    ) -> Result<Option<Report>, SyncError> {
        let (start, connects) = (surroundings.monotonic(), strategy.connects());
        let mut report = Report::default();
        let (mut is_at_first, mut is_all, mut failure) = (true, true, None);
        let searches = self.shards.first().map(ShardSync::searches);
        for (shard, search) in self.shards.iter().zip(searches.unwrap_or_default()) {
            let synced = shard.sync(strategy, surroundings, search, &mut report);
            match synced.await {
                Ok(true) => {}
                // That one has just begun, and will come to all.
                Ok(false) if is_at_first => return Ok(None),
                Ok(false) => is_all = false,
                Err(SyncError::LeaseLost) => failure = failure.or(Some(SyncError::LeaseLost)),
                Err(error) => failure = Some(error),
            }
            is_at_first = false;
        }
        let connects = strategy.connects().saturating_sub(connects);
        self.state.count_connects(connects);
        let result = match failure {
            // What was taken over is the other worker's, to count too.
            Some(SyncError::LeaseLost) => return Err(SyncError::LeaseLost),
            Some(error) => Err(error),
            None if !is_all => return Ok(None),
            None => Ok(report),
        };
        self.count(start, &report, result.is_ok(), surroundings);
        result.map(Some)
    }

    /// Counts a cycle that began at `start`, for metrics and the API.
    fn count(
        &self,
        start: MonotonicMillis,
        report: &Report,
        succeeded: bool,
        surroundings: &impl Surroundings,
    ) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.state.count_cycle(&SyncCycle {
            succeeded,
            pushed: number(report.pushed),
            fetched: number(report.fetched),
            duration: surroundings.monotonic().0.saturating_sub(start.0),
            at: surroundings.now(),
            clock_offset: succeeded.then_some(report.clock_offset),
        });
    }
}
