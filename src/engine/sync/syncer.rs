//! A sync cycle of a namespace: of all its shards, a few concurrently if the store supports that.

use core::time::Duration;

use super::poll_schedule::PollSchedule;
use super::shard_sync::{EarlyPush, Env, ShardSync};
use super::side_by_side::side_by_side;
use super::sync_outcome::{Report, SyncError};
use crate::engine::namespace::Namespace;
use crate::policy::budget::Exchange;
use crate::policy::window::WindowSize;
use crate::store::contract::strategy::{LONGEST_LIFE, Strategy};
use crate::table::{
    ExchangeBudget, LookedAt, MonotonicMillis, POSTPONED_FOR, SyncCycle, SyncState,
};

/// Shortest time for which a node counts as alive; longer than a retry takes.
const SHORTEST_LIFE: Duration = Duration::from_secs(5);

/// Shards that are synced concurrently: more than most clusters have primaries, and fewer than a
/// zone has buffers for batches.
const AT_ONCE: usize = 4;

/// The sync of a namespace with its store.
#[derive(Debug)]
pub struct Syncer<'n, 'm> {
    shards: Vec<ShardSync<'n, 'm>>,
    /// State of the first shard's sync, which also has the state of all shards together.
    state: SyncState<'m>,
    /// The number of the worker that syncs.
    worker: u16,
    /// Whether nodes admit only their shares while the store is down.
    shares_alone: bool,
}

/// The holder of a shard's lease, as it was last seen.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// A number that changes whenever the lease is taken, kept or given back.
    sign: u64,
    /// The uptime since which it has not changed.
    since: Duration,
}

impl<'n, 'm> Syncer<'n, 'm> {
    /// Creates the sync of `namespace`, in windows of `sizes`. A lease lasts for `lifetime`. `None`
    /// if the namespace is local.
    pub fn new(
        namespace: &'n Namespace<'m>,
        sizes: &[WindowSize],
        lifetime: Duration,
    ) -> Option<Self> {
        let shards = ShardSync::of(namespace, sizes, lifetime);
        let state = shards.first()?.state();
        Some(Syncer { shards, state, worker: 0, shares_alone: namespace.shares_alone() })
    }

    /// Disables fetching, since the store is asked about every hit.
    pub fn pushing_only(self) -> Self {
        let shards = self.shards.into_iter().map(ShardSync::pushing_only);
        Syncer { shards: shards.collect(), ..self }
    }

    /// Enables messages to the store that the node is alive for `time` from then on; the answers
    /// have the number of living nodes. Zero means that the node leaves.
    pub fn living_for(self, time: Duration) -> Self {
        let shards = self.shards.into_iter().map(|it| it.living_for(time));
        Syncer { shards: shards.collect(), ..self }
    }

    /// Enables notifications of nodes that [listen](crate::engine::Subscriber).
    pub fn telling(self) -> Self {
        let shards = self.shards.into_iter().map(ShardSync::telling);
        Syncer { shards: shards.collect(), ..self }
    }

    /// Sets the budget of exchanges with the store, in which early pushes and polls wait.
    pub fn within(self, budget: Option<ExchangeBudget<'m>>) -> Self {
        let shards = self.shards.into_iter().map(|it| it.within(budget));
        Syncer { shards: shards.collect(), ..self }
    }

    /// Returns the time until the budget allows an early push or a poll.
    pub fn wait(&self, kind: Exchange, surroundings: &impl Env) -> Duration {
        let budget = self.shards.first().and_then(|it| it.budget);
        budget.map_or(Duration::ZERO, |budget| budget.wait(kind, surroundings.uptime()))
    }

    /// Records that this worker has heard the bell, and will push later. Returns the time after which it
    /// must do so again.
    pub fn postpone_early(&self, surroundings: &impl Env) -> Duration {
        self.state.postpone_early(surroundings.now());
        POSTPONED_FOR
    }

    /// Sets the number of this worker, which is woken when counters are due.
    pub fn by_worker(self, worker: u16) -> Self {
        Syncer { worker, ..self }
    }

    /// Returns the time for which a node that syncs once in a `period` counts as alive: until it
    /// has missed one or two cycles, and at most as long as stores allow.
    pub fn life_of(period: Duration) -> Duration {
        let life = period.saturating_mul(5).checked_div(2);
        life.unwrap_or(LONGEST_LIFE).clamp(SHORTEST_LIFE, LONGEST_LIFE)
    }

    /// Returns whether there is a newer configuration, whose workers sync now.
    pub fn is_superseded(&self) -> bool {
        self.state.is_superseded()
    }

    /// Returns whether this node was synced less than three quarters of `period` ago, so that no cycle
    /// is needed.
    pub fn is_fresh(&self, period: Duration, surroundings: &impl Env) -> bool {
        let mut shards = self.shards.iter();
        // An early push may have failed in the middle of a period.
        !self.is_store_lost() && shards.all(|shard| shard.is_fresh(period, surroundings))
    }

    /// Makes the next cycle fetch all counters that matter.
    pub fn fetch_anew(&self) {
        for shard in &self.shards {
            shard.state().fetch_anew();
        }
    }

    /// Returns the present holders of the shards' leases, for [`Syncer::take_over_from`].
    pub fn holders(&self, surroundings: &impl Env) -> Vec<Holder> {
        let now = surroundings.uptime();
        let signs = self.shards.iter().map(|shard| shard.state().holder_sign());
        signs.map(|sign| Holder { sign, since: now }).collect()
    }

    /// Ends the leases whose holders have done nothing for `patience`, so that this worker can take
    /// them. A holder that is alive detects that before it changes anything.
    pub fn take_over_from(
        &self,
        holders: &mut [Holder],
        patience: Duration,
        surroundings: &impl Env,
    ) {
        let now = surroundings.uptime();
        for (shard, holder) in self.shards.iter().zip(holders) {
            let sign = shard.state().holder_sign();
            if sign != holder.sign {
                *holder = Holder { sign, since: now };
            } else if now.saturating_sub(holder.since) >= patience {
                shard.state().end_lease(surroundings.monotonic());
                holder.since = now;
            }
        }
    }

    /// Pushes changes and fetches the other nodes' changes. `None` if another worker is syncing. If
    /// two begin at once, each syncs the shards that the other one does not, as their [`Report`]s
    /// say.
    ///
    /// # Errors
    ///
    /// The last [`SyncError`] of the store, or otherwise that a lease was lost. The other shards
    /// are synced all the same.
    pub async fn sync(
        &self,
        strategy: &mut impl Strategy,
        surroundings: &impl Env,
    ) -> Result<Option<Report>, SyncError> {
        let (start, connects) = (surroundings.monotonic(), strategy.connects());
        self.tell_holds(surroundings);
        let mut report = Report::default();
        let (mut is_part, mut failure) = (false, None);
        let searches = self.shards.first().map(ShardSync::searches);
        let mut shards = self.shards.iter().zip(searches.unwrap_or_default());
        let mut note = |synced| match synced {
            Ok(true) => {}
            Ok(false) => is_part = true,
            Err(SyncError::LeaseLost) => failure = failure.take().or(Some(SyncError::LeaseLost)),
            Err(error) => failure = Some(error),
        };
        if let Some((first, search)) = shards.next() {
            let synced = first.sync(strategy, surroundings, search, &mut report);
            match synced.await {
                // Another worker has just begun, and will sync all shards.
                Ok(false) => return Ok(None),
                synced => note(synced),
            }
        }
        // Clients that share their connections are used concurrently.
        let shared: Option<Vec<_>> = (0..shards.len()).map(|_| strategy.share()).collect();
        if let Some(shared) = shared {
            let cycles = shards.zip(shared).map(async |((shard, search), mut strategy)| {
                let mut report = Report::default();
                let synced = shard.sync(&mut strategy, surroundings, search, &mut report);
                (synced.await, report)
            });
            for (synced, of_shard) in side_by_side(cycles, AT_ONCE).await {
                note(synced);
                report = report.and(of_shard);
            }
        } else {
            for (shard, search) in shards {
                let synced = shard.sync(strategy, surroundings, search, &mut report);
                note(synced.await);
            }
        }
        let connects = strategy.connects().saturating_sub(connects);
        self.state.count_connects(connects);
        let result = match failure {
            // The worker that has taken over counts the cycle.
            Some(SyncError::LeaseLost) => return Err(SyncError::LeaseLost),
            Some(error) => Err(error),
            None => Ok(Report { is_part, ..report }),
        };
        self.count(start, &report, result.is_ok(), surroundings);
        self.state.record_worker(self.worker);
        result.map(Some)
    }

    /// Tells in this window how many requests are under way, before the changes are gathered.
    fn tell_holds(&self, surroundings: &impl Env) {
        if let Some(namespace) = self.shards.first().map(|it| it.namespace)
            && namespace.told_counter().is_some()
        {
            namespace.table().tell_all(namespace.index(), surroundings);
        }
    }

    /// Returns the time from an exchange to the next [poll](EarlyPush::Near) for other nodes'
    /// changes, without a channel. `None` if the period suffices.
    pub fn next_look(&self, times: &mut PollSchedule, surroundings: &impl Env) -> Option<Duration> {
        let namespace = self.shards.first()?.namespace;
        let (table, now) = (namespace.table(), surroundings.now());
        let near = table.near(namespace.index(), now);
        times.note(near, namespace.early_share(), surroundings.monotonic())
    }

    /// Returns whether this worker was the last one of the node to sync.
    pub fn is_last(&self) -> bool {
        self.state.last_worker() == Some(self.worker)
    }

    /// Returns whether there are hits that the store has not confirmed.
    pub fn has_unsent(&self, surroundings: &impl Env) -> bool {
        let is_sealed = |shard: &ShardSync<'_, '_>| shard.state.sealed_records() > 0;
        self.shards.iter().any(is_sealed)
            || self.shards.first().is_some_and(|shard| {
                let pending =
                    shard.namespace.table().pending(surroundings.now(), LookedAt::BOUNDED);
                pending.of(shard.namespace.index()) > 0
            })
    }

    /// Pushes early, and fetches the other nodes' changes if something was pushed, or in any case
    /// for [`EarlyPush::Near`]. `None` if another worker syncs at least some of the shards, so that
    /// counters may be left.
    ///
    /// # Errors
    ///
    /// See [`Syncer::sync`].
    pub async fn sync_early(
        &self,
        what: EarlyPush,
        strategy: &mut impl Strategy,
        surroundings: &impl Env,
    ) -> Result<Option<Report>, SyncError> {
        if self.is_superseded() {
            // The bell is rung for the workers of the newer configuration.
            return Ok(None);
        }
        if self.state.begin_early(self.worker) {
            // More counters are due than there are cells, so all changes are pushed.
            let result = self.sync(strategy, surroundings).await;
            if !matches!(result, Ok(report) if Report::is_whole(report)) {
                self.state.leave_crowd();
            }
            return result;
        }
        let (start, connects) = (surroundings.monotonic(), strategy.connects());
        let mut report = Report::default();
        let (mut is_all, mut failure) = (true, None);
        let shards = self.shards.iter();
        for shard in shards.filter(|shard| what == EarlyPush::Near || shard.has_due()) {
            let synced = shard.sync_early(what, strategy, surroundings, &mut report);
            match synced.await {
                Ok(is_done) => is_all &= is_done,
                Err(error) => failure = Some(error),
            }
        }
        let connects = strategy.connects().saturating_sub(connects);
        self.state.count_connects(connects);
        let result = match failure {
            Some(SyncError::LeaseLost) => return Err(SyncError::LeaseLost),
            Some(error) => Err(error),
            None if !is_all => return Ok(None),
            None => Ok(report),
        };
        if result.is_err() || report != Report::default() {
            self.count(start, &report, result.is_ok(), surroundings);
        }
        result.map(Some)
    }

    /// Returns whether the store's last operation failed.
    pub fn is_store_lost(&self) -> bool {
        self.state.stats().is_up() == Some(false)
    }

    /// Counts a cycle that began at `start`, for the metrics and the API.
    fn count(
        &self,
        start: MonotonicMillis,
        report: &Report,
        succeeded: bool,
        surroundings: &impl Env,
    ) {
        self.state.set_alone(!succeeded && self.shares_alone);
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
