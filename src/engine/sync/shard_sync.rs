//! The sync of one shard of a namespace: selects its counters in the table, and applies the store's
//! totals, as those that come with decisions.

use core::cell::Cell;
use core::num::NonZeroU64;
use core::time::Duration;

use super::sync_search::Search;
use crate::engine::namespace::Namespace;
use crate::policy::hits::Hits;
use crate::policy::window::{Clock, UnixMillis, WindowSize};
use crate::store::contract::strategy::{CLOCK_MARGIN, Count, Diff, LivingNodes, Occupancy, Shard};
use crate::store::retry::pause;
use crate::table::{
    BatchRecord, Counter, CounterTable, ExchangeBudget, HasKey, IsHeld, Key, LeaseLost,
    MonotonicMillis, Part, SyncState,
};

/// Pause between two messages that the node is alive, in milliseconds.
const LIVING_PAUSE: u64 = 1000;

/// The environment of a sync: the [machine](crate::engine::Machine), or constants in tests.
pub trait Env: Clock {
    /// Returns the time of a monotonic clock that all processes of the machine share.
    fn uptime(&self) -> Duration;
    /// Returns 64 unpredictable bits, not all zero.
    fn random(&self) -> NonZeroU64;
    /// Returns the number of this process.
    fn process(&self) -> u32;

    /// Returns the monotonic time in the unit of leases.
    fn monotonic(&self) -> MonotonicMillis {
        MonotonicMillis(u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the pause after this number of failures in a row.
    fn back_off(&self, failures: u32) -> Duration {
        self.pause(50, failures)
    }

    /// Returns the pause after `times` events in a row: `shortest` milliseconds, doubled each time,
    /// up to 2 s.
    fn pause(&self, shortest: u64, times: u32) -> Duration {
        pause(shortest, times, self.random().get())
    }
}

/// The kind of an early push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyPush {
    /// Push counters that are due, if any are.
    Due,
    /// Push counters near their limits, and fetch the other nodes' changes.
    Near,
}

/// The sync of one shard of a namespace with its store.
#[derive(Debug)]
pub(super) struct ShardSync<'n, 'm> {
    pub(super) namespace: &'n Namespace<'m>,
    pub(super) shard: Shard,
    /// Number of shards.
    shards: u16,
    pub(super) state: SyncState<'m>,
    /// State of the first shard's sync, which counts the events of all shards.
    pub(super) counts: SyncState<'m>,
    /// The configured windows, with their counters.
    pub(super) counters: Vec<Counter>,
    /// Duration of the lease in milliseconds.
    pub(super) lifetime: u64,
    /// Whether the sync only pushes, since other nodes' hits are not needed.
    pub(super) only_pushes: bool,
    /// Whether nodes that listen are notified of pushes.
    pub(super) tells: bool,
    /// Budget of exchanges with the store; `None` without a bound.
    pub(super) budget: Option<ExchangeBudget<'m>>,
    /// Time of this worker's next purge.
    pub(super) purge_at: Cell<MonotonicMillis>,
    /// Time for which each message says that the node is alive; `None` if it sends no such
    /// messages.
    pub(super) lives_for: Option<Duration>,
    /// Time of this worker's next message that the node lives.
    pub(super) living_at: Cell<MonotonicMillis>,
}

impl<'n, 'm> ShardSync<'n, 'm> {
    /// Returns the sync of each shard of `namespace`; empty if it is local. For the other arguments
    /// see [`Syncer::new`](crate::engine::Syncer::new).
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
            budget: None,
            purge_at: Cell::new(MonotonicMillis(0)),
            lives_for: None,
            living_at: Cell::new(MonotonicMillis(0)),
        };
        (0..shards).zip(states).map(of_one).collect()
    }

    /// Disables fetching.
    pub(super) fn pushing_only(self) -> Self {
        ShardSync { only_pushes: true, ..self }
    }

    /// Enables messages that the node is alive for `time` from then on; zero means that it leaves.
    /// The first shard sends them for all shards.
    pub(super) fn living_for(self, time: Duration) -> Self {
        ShardSync {
            lives_for: (self.shard.number == 0).then_some(time),
            living_at: Cell::new(MonotonicMillis(0)),
            ..self
        }
    }

    /// Sets the budget of exchanges with the store.
    pub(super) fn within(self, budget: Option<ExchangeBudget<'m>>) -> Self {
        ShardSync { budget, ..self }
    }

    /// Enables notifications of listening nodes.
    pub(super) fn telling(self) -> Self {
        ShardSync { tells: true, ..self }
    }

    /// Returns the time for which the node is alive, if a message is due.
    pub(super) fn life(&self, now: MonotonicMillis) -> Option<Duration> {
        let is_due = now >= self.living_at.get() || self.is_failing();
        self.lives_for.filter(|_| is_due)
    }

    /// Returns whether the last cycle of any worker failed. Then the next one omits nothing that
    /// may have been the cause.
    pub(super) fn is_failing(&self) -> bool {
        self.counts.stats().is_up() == Some(false)
    }

    /// Records the living nodes that a store returned at `now`.
    pub(super) fn record_living(&self, living: Option<LivingNodes>, now: MonotonicMillis) {
        let next = now.0.saturating_add(LIVING_PAUSE);
        self.living_at.set(MonotonicMillis(next));
        match living {
            Some(LivingNodes { count, place }) => self.counts.record_living(count, place),
            // The node counts as the only one.
            None => self.counts.record_living(1, None),
        }
    }

    /// Returns each shard's search for changes. With several shards, each key is read once for all
    /// of them.
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

    /// Returns whether this node was synced less than three quarters of `period` ago.
    pub(super) fn is_fresh(&self, period: Duration, surroundings: &impl Env) -> bool {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let since = self.state.since_sync(surroundings.monotonic());
        since.is_some_and(|since| since < period.saturating_sub(period / 4))
    }

    /// Returns whether the shard has due counters.
    pub(super) fn has_due(&self) -> bool {
        let has_key = |key: &[u8]| self.has_key(key);
        self.namespace.table().has_due(self.part(&has_key))
    }

    /// Takes the due counters of the shard.
    pub(super) fn take_due(&self, now: UnixMillis) -> Vec<(usize, u64)> {
        let has_key = |key: &[u8]| self.has_key(key);
        let (table, early) = (self.namespace.table(), self.namespace.early_share());
        table.take_due(self.part(&has_key), early, now)
    }

    /// Returns the places of counters near their limits that may have changed.
    pub(super) fn near_places(&self) -> Vec<(usize, u64)> {
        let has_key = |key: &[u8]| self.has_key(key);
        self.namespace.table().near_places(self.part(&has_key))
    }

    /// Runs `exchange` with one of so many servers, and records it and its duration.
    pub(super) async fn timed<T>(
        &self,
        exchange: impl Future<Output = T>,
        servers: u16,
        surroundings: &impl Env,
    ) -> T {
        let start = surroundings.uptime();
        if let Some(budget) = self.budget {
            budget.record(start, self.counts.nodes(), servers);
        }
        let result = exchange.await;
        let took = surroundings.uptime().saturating_sub(start);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts.count_exchange(micros);
        result
    }

    /// Returns the counters of the shard.
    pub(super) fn part<'p>(&self, has_key: HasKey<'p>) -> Part<'p> {
        Part {
            namespace: self.namespace.index(),
            // With one shard, all keys belong to it.
            has_key: (self.shards > 1).then_some(has_key),
        }
    }

    /// Returns whether a key belongs to the shard.
    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        Shard::number_of(key, self.shards) == self.shard.number
    }

    /// Records the other nodes' hits. Returns whether all of them could be recorded: hits in
    /// windows that have not begun here have no place yet.
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
                is_all &=
                    record_total(table, counter, key, (*window, *total), None, clock, is_held)?;
            }
        }
        Ok(is_all)
    }

    /// Counts hits again that a reset of this node subtracted from a total which another node had
    /// reset before: the later reset makes the total negative. Called after the batch is
    /// acknowledged, so at most once.
    pub(super) fn undo_resets(&self, records: &[BatchRecord], overdrawn: &[Count]) {
        let table = self.namespace.table();
        let resets = || records.iter().filter(|record| record.diff < Hits::ZERO);
        for count in overdrawn {
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

    /// Counts the hits of a batch that exceed their limits by the store's answer.
    pub(super) fn count_excess(&self, records: &[BatchRecord], now: UnixMillis) {
        let table = self.namespace.table();
        let excess = |it: &BatchRecord| table.excess(it.counter, it.window, it.diff, now);
        let excess = records.iter().map(excess).fold(Hits::ZERO, Hits::plus);
        if let Some(counter) = self.counters.first().filter(|_| excess > Hits::ZERO) {
            table.count_excess(counter, excess);
        }
    }

    /// Returns the difference of a counter to push; `None` if the counter is gone.
    pub(super) fn diff(&self, record: &BatchRecord, now: UnixMillis) -> Option<Diff> {
        let (key, size) = self.namespace.table().key_of(record.counter)?;
        let end = size.end_of(record.window.saturating_add(1));
        let left = Duration::from_millis(end.0.saturating_sub(now.0));
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

/// Records a store's total of a key in a window, from which the other nodes' hits are computed. `ours`
/// are this node's hits in the total; by default those that the store has now. Returns whether it
/// could be recorded: hits in a window that has not begun here have no place yet.
///
/// # Errors
///
/// [`LeaseLost`].
fn record_total(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    (window, total): (u64, Hits),
    ours: Option<Hits>,
    clock: &impl Clock,
    is_held: IsHeld<'_>,
) -> Result<bool, LeaseLost> {
    let (size, now) = (counter.size(), clock.now());
    let at = size.at(now);
    if window.saturating_add(1) < at.number {
        return Ok(true);
    }
    if window > at.number && !at.is_before_next(size) {
        return Ok(false);
    }
    // A full zone has no slot for a counter with only other nodes' hits.
    if let Some(found) = table.make_room_for(counter, key, clock) {
        let ours = ours.unwrap_or_else(|| table.pushed_of(found, window));
        table.set_remote(found, window, total.minus(ours), now, is_held)?;
        table.look_at_remote(found, counter, clock);
    }
    Ok(true)
}

/// Records a store's total of a key in a window, from its decision about a request: see [`record_total`].
/// Needs no lease, since only decisions while the store is down, and bans, depend on it.
pub(crate) fn record_decided(
    table: &CounterTable<'_>,
    counter: &Counter,
    key: Key<'_>,
    count: (u64, Hits),
    ours: Option<Hits>,
    clock: &impl Clock,
) {
    // Cannot fail: no lease is involved.
    let _ = record_total(table, counter, key, count, ours, clock, &|| true);
}
