//! A shard of a namespace, as a sync cycle sees it: which counters of the table are its own, what is told
//! of them, and where totals are noted.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::time::Duration;

use super::sync_search::Search;
use crate::engine::namespace::Namespace;
use crate::engine::totals::record_total;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::store::contract::strategy::{CLOCK_MARGIN, Count, Diff, Occupancy, Shard};
use crate::store::retry::pause;
use crate::table::{
    BatchRecord, Counter, HasKey, IsHeld, LeaseLost, MonotonicMillis, Part, SyncState,
};

/// Pause between two messages that the node lives, in milliseconds.
const LIVING_PAUSE: u64 = 1000;

/// The surroundings of a sync: of the [machine](crate::engine::Machine), or, in tests, of numbers.
pub trait Env: Clock {
    /// The monotonic clock, from a moment that all processes of the machine share.
    fn uptime(&self) -> Duration;
    /// 64 unpredictable bits, not all zero.
    fn random(&self) -> NonZeroU64;
    /// The number of this process.
    fn process(&self) -> u32;

    /// Returns the uptime as leases have it.
    fn monotonic(&self) -> MonotonicMillis {
        MonotonicMillis(u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns how long to wait after so many failures in a row.
    fn back_off(&self, failures: u32) -> Duration {
        self.pause(50, failures)
    }

    /// Returns how long to wait after what happened so many times in a row, where `shortest` milliseconds are doubled each
    /// time: 2 s at most.
    fn pause(&self, shortest: u64, times: u32) -> Duration {
        pause(shortest, times, self.random().get())
    }
}

/// A push before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyPush {
    /// A push of counters that are due, if any are.
    Due,
    /// A push of counters near their limits, with a look at others' changes.
    Near,
}

/// The sync of one shard of a namespace with its store.
#[derive(Debug)]
pub(super) struct ShardSync<'n, 'm> {
    pub(super) namespace: &'n Namespace<'m>,
    pub(super) shard: Shard,
    /// The number of shards.
    shards: u16,
    pub(super) state: SyncState<'m>,
    /// Sync state of the first shard, which counts the events of all.
    pub(super) counts: SyncState<'m>,
    /// The windows that are counted in, with their counters.
    pub(super) counters: Vec<Counter>,
    /// Time for which the lease is taken, in milliseconds.
    pub(super) lifetime: u64,
    /// Whether it is of no use here what others counted.
    pub(super) only_pushes: bool,
    /// Whether nodes that listen are told of what is pushed.
    pub(super) tells: bool,
    /// Time of this worker's next purge.
    pub(super) purge_at: Cell<MonotonicMillis>,
    /// For how long the node is to be counted as one that lives, each time that it says so; `None`: it
    /// says nothing.
    pub(super) lives_for: Option<Duration>,
    /// Time of this worker's next message that the node lives.
    pub(super) living_at: Cell<MonotonicMillis>,
}

impl<'n, 'm> ShardSync<'n, 'm> {
    /// The sync of each shard of `namespace`: none if it is not synced. The rest is as in
    /// [`Syncer::new`](crate::engine::Syncer::new).
    pub(super) fn of(
        namespace: &'n Namespace<'m>,
        sizes: &[WindowSize],
        lifetime: Duration,
    ) -> Vec<Self> {
        let counters: Vec<_> = sizes.iter().map(|size| namespace.counter(*size)).collect();
        let states = namespace.sync_states();
        let shards = u16::try_from(states.len()).unwrap_or(u16::MAX);
        let of_one = |(number, state): (u16, &SyncState<'m>)| ShardSync {
            namespace,
            shard: Shard { namespace: namespace.name().clone(), number },
            shards,
            state: *state,
            counts: *states.first().unwrap_or(state),
            counters: counters.clone(),
            lifetime: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
            only_pushes: false,
            tells: false,
            purge_at: Cell::new(MonotonicMillis(0)),
            lives_for: None,
            living_at: Cell::new(MonotonicMillis(0)),
        };
        (0..shards).zip(states).map(of_one).collect()
    }

    /// Returns the sync without fetching.
    pub(super) fn pushing_only(self) -> Self {
        ShardSync { only_pushes: true, ..self }
    }

    /// Returns the sync with messages that the node lives for so long from then on; for no time:
    /// that it leaves. The first shard's messages are for all.
    pub(super) fn living_for(self, time: Duration) -> Self {
        ShardSync {
            lives_for: (self.shard.number == 0).then_some(time),
            living_at: Cell::new(MonotonicMillis(0)),
            ..self
        }
    }

    /// Returns the sync with news of its pushes for listening nodes.
    pub(super) fn telling(self) -> Self {
        ShardSync { tells: true, ..self }
    }

    /// For how long the node is to be counted as one that lives, if it is time to say so.
    pub(super) fn life(&self, now: MonotonicMillis) -> Option<Duration> {
        let is_due = now >= self.living_at.get() || self.is_failing();
        self.lives_for.filter(|_| is_due)
    }

    /// Whether the last cycle failed, of this worker or another: then the next one leaves out nothing that it may have
    /// failed of.
    pub(super) fn is_failing(&self) -> bool {
        self.counts.stats().is_up() == Some(false)
    }

    /// Notes how many nodes live, as a store told at `now`, if it does.
    pub(super) fn record_nodes(&self, nodes: Option<u64>, now: MonotonicMillis) {
        let next = now.0.saturating_add(LIVING_PAUSE);
        self.living_at.set(MonotonicMillis(next));
        // One that does not tell is as good as alone.
        self.counts.record_nodes(nodes.unwrap_or(1));
    }

    /// Returns the places where each shard of the namespace looks for its changes. If there are
    /// several shards, each key is looked at once for all.
    pub(super) fn searches(&self) -> Vec<Search> {
        if self.shards == 1 {
            return vec![Search::everywhere()];
        }
        let (table, namespace) = (self.namespace.table(), self.namespace.index());
        let shard_of = |key: &[u8]| Shard::number_of(key, self.shards);
        let divided = table.divide_changes(namespace, self.shards, shard_of);
        let divided = divided.into_iter();
        divided.map(Search::in_places).collect()
    }

    /// Returns the state of the sync.
    pub(super) fn state(&self) -> SyncState<'m> {
        self.state
    }

    /// Whether this node was synced less than most of `period` ago.
    pub(super) fn is_fresh(&self, period: Duration, surroundings: &impl Env) -> bool {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let since = self.state.since_sync(surroundings.monotonic());
        since.is_some_and(|since| since < period.saturating_sub(period / 4))
    }

    /// Whether something of it is due.
    pub(super) fn has_due(&self) -> bool {
        let has_key = |key: &[u8]| self.has_key(key);
        self.namespace.table().has_due(self.part(&has_key))
    }

    /// Takes what of it is due.
    pub(super) fn take_due(&self, now: UnixMillis) -> Vec<(usize, u64)> {
        let has_key = |key: &[u8]| self.has_key(key);
        let (table, early) = (self.namespace.table(), self.namespace.early_share());
        table.take_due(self.part(&has_key), early, now)
    }

    /// Returns the places at which counters near their limits may have changed.
    pub(super) fn near_places(&self) -> Vec<(usize, u64)> {
        let has_key = |key: &[u8]| self.has_key(key);
        self.namespace.table().near_places(self.part(&has_key))
    }

    /// Ends the lease of its present holder: this worker may take it.
    pub(super) fn take_over(&self, surroundings: &impl Env) {
        self.state.end_lease(surroundings.monotonic());
    }

    /// Counts how long an exchange with the store takes.
    pub(super) async fn timed<T>(
        &self,
        exchange: impl Future<Output = T>,
        surroundings: &impl Env,
    ) -> T {
        let start = surroundings.uptime();
        let result = exchange.await;
        let took = surroundings.uptime().saturating_sub(start);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts.count_exchange(micros);
        result
    }

    /// The counters of the shard.
    pub(super) fn part<'p>(&self, has_key: HasKey<'p>) -> Part<'p> {
        Part {
            namespace: self.namespace.index(),
            // Of one that is all, no key needs to be looked at.
            has_key: (self.shards > 1).then_some(has_key),
        }
    }

    /// Whether a key is counted in the shard.
    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        Shard::number_of(key, self.shards) == self.shard.number
    }

    /// Notes what the rest of the cluster counted. Returns whether all of it could be noted: what
    /// others count in windows that are still to come here has no place yet.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`].
    pub(super) fn apply(
        &self,
        counts: &[Count],
        clock: &impl Clock,
        is_held: IsHeld<'_>,
    ) -> Result<bool, LeaseLost> {
        let table = self.namespace.table();
        let mut is_all = true;
        for Count { key, size, window, total } in counts {
            if let Some(counter) = self.counters.iter().find(|it| it.size() == *size) {
                let key = table.key(key);
                is_all &= record_total(table, counter, key, *window, *total, clock, is_held)?;
            }
        }
        Ok(is_all)
    }

    /// Counts again what a reset of this node took of a total that another node had set to zero before: the
    /// later one of them has made it less than zero. After the batch is acknowledged, so at most once.
    pub(super) fn undo_resets(&self, records: &[BatchRecord], counts: &[Count]) {
        let table = self.namespace.table();
        let resets = || records.iter().filter(|record| record.diff < Hits::ZERO);
        for count in counts.iter().filter(|it| it.total < Hits::ZERO) {
            let is_it = |record: &&BatchRecord| {
                let key = table.key_of(record.counter);
                record.window == count.window
                    && key.is_some_and(|(key, size)| key == count.key && size == count.size)
            };
            if let Some(record) = resets().find(is_it) {
                let excess = Hits::ZERO.minus(count.total.max(record.diff));
                table.count_again(record.counter, record.window, excess);
            }
        }
    }

    /// Counts the hits of a batch that were admitted above limits, as the store's answer tells.
    pub(super) fn count_excess(&self, records: &[BatchRecord], now: UnixMillis) {
        let table = self.namespace.table();
        let excess = |it: &BatchRecord| table.excess(it.counter, it.window, it.diff, now);
        let excess = records.iter().map(excess).fold(Hits::ZERO, Hits::plus);
        if let Some(counter) = self.counters.first().filter(|_| excess > Hits::ZERO) {
            table.count_excess(counter, excess);
        }
    }

    /// Returns the diff of a counter; `None` if it is gone.
    pub(super) fn diff(&self, record: &BatchRecord, now: UnixMillis) -> Option<Diff> {
        let (key, size) = self.namespace.table().key_of(record.counter)?;
        let end = record.window.saturating_add(2).saturating_mul(size.millis());
        let left = Duration::from_millis(end.saturating_sub(now.0));
        Some(Diff {
            key,
            size,
            window: record.window,
            diff: record.diff,
            local: record.up_to,
            occupancy: Occupancy(record.counter.occupancy()),
            expires_in: left.saturating_add(CLOCK_MARGIN),
        })
    }
}
