//! A limit with its counters.

use core::ptr;
use core::time::Duration;
use std::sync::Arc;

use crate::engine::namespace::Namespace;
use crate::engine::sync::shard_sync::record_decided;
use crate::policy::algorithm::{Algorithm, LevelKind, Reading, StoredKind};
use crate::policy::hits::Hits;
use crate::policy::key::told_name;
use crate::policy::limit::Limit;
use crate::policy::namespace::OnError;
use crate::policy::reserve::{Grants, has_reserves};
use crate::policy::window::Clock;
use crate::table::{
    Admission, CountedRate, Counter, CounterTable, Identity, Invalid, Key, NameKind, Named,
    PushedHits, Receipt, Reserve, SyncState,
};

/// A limit with its counters.
#[derive(Debug)]
pub struct BoundLimit<'m> {
    /// The limit.
    pub limit: Limit,
    namespace: Arc<str>,
    pub(super) table: &'m CounterTable<'m>,
    /// The limit's counters. For a variable rate they have rate zero, and [`BoundLimit::at`]
    /// returns those of a rate.
    pub(crate) counter: Counter,
    /// The limit's own counter of rejections; `None` if they are counted with those of other
    /// policies.
    rejections: Option<Named<'m>>,
    pub(super) path: ChargePath,
    /// The counters in which nodes tell each other how many requests are under way; `None` if this node counts alone.
    told: Option<Counter>,
    /// Reserves of its hits; `None` if the store is asked about each hit.
    reserves: Option<Box<LimitReserves<'m>>>,
    /// Whether costs are estimates, which are settled when the response is known.
    is_estimated: bool,
}

/// The reserves of a limit that a store decides.
#[derive(Debug)]
struct LimitReserves<'m> {
    reserves: Counter,
    /// The sync of the first shard, which has the number of living nodes.
    sync: SyncState<'m>,
    /// The syncs of all shards.
    shards: Vec<SyncState<'m>>,
}

/// Returns whether each request chooses the rate of a limit.
#[inline]
fn has_variable_rate(limit: &Limit) -> bool {
    limit.algorithm.is_of_rates() && limit.burst.rate.is_none()
}

/// The function by which requests are charged under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargePath {
    /// In windows of an ordinary size.
    Windows,
    /// In windows of the calendar.
    Calendar,
    /// In an elastic window.
    Elastic,
    /// In the buckets of a rate.
    Bucket,
    /// In a bucket, at a rate that each request chooses.
    VariableRate,
    /// In a log.
    Log,
    /// By a hold, until the request ends.
    Holds,
    /// In a counter that an earlier limit may have charged for the same request.
    Shared,
}

impl<'m> BoundLimit<'m> {
    /// Binds `limit` to its counters in `namespace`. `earlier` are the limits that a request is
    /// charged under before.
    pub fn new<'a>(
        limit: Limit,
        namespace: &Namespace<'m>,
        earlier: impl IntoIterator<Item = &'a BoundLimit<'m>>,
    ) -> Self
    where
        'm: 'a,
    {
        let rate = limit.burst.rate.unwrap_or_default();
        let kind = limit.algorithm.kind().at_rate(rate);
        let (table, counter) = (namespace.table(), namespace.counter_of(kind, limit.size));
        let is_variable = has_variable_rate(&limit);
        let may_be_shared = |other: &BoundLimit<'m>| {
            let is_same = || match is_variable || has_variable_rate(&other.limit) {
                true => other.counter.has_namespace_and_kind_of(&counter),
                false => other.counter.is_same(&counter),
            };
            ptr::eq(other.table, table) && is_same()
        };
        let path = match kind {
            _ if earlier.into_iter().any(may_be_shared) => ChargePath::Shared,
            _ if is_variable => ChargePath::VariableRate,
            StoredKind::Windows if limit.size.is_of_calendar() => ChargePath::Calendar,
            StoredKind::Windows => ChargePath::Windows,
            StoredKind::Level(LevelKind::Elastic) => ChargePath::Elastic,
            StoredKind::Level(LevelKind::Bucket(_)) => ChargePath::Bucket,
            StoredKind::Log => ChargePath::Log,
            // Other nodes' numbers are rare, and in other counters.
            StoredKind::Holds if namespace.told_counter().is_some() => ChargePath::Shared,
            StoredKind::Holds => ChargePath::Holds,
        };
        let policy = [&**namespace.name(), &*limit.name];
        BoundLimit {
            rejections: table.named(NameKind::Policy, policy),
            limit,
            namespace: namespace.name().clone(),
            table,
            counter,
            told: namespace.told_counter().filter(|_| kind == StoredKind::Holds),
            path,
            reserves: None,
            is_estimated: false,
        }
    }

    /// Returns the limit with costs that are estimates, or not.
    pub fn estimated(self, is_estimated: bool) -> Self {
        BoundLimit { is_estimated, ..self }
    }

    /// Returns the limit of bans. Their counters have the bytes of their keys even in a local
    /// namespace, so that they can be listed.
    pub(super) fn of_bans(self) -> Self {
        BoundLimit { counter: self.counter.synced(true), ..self }
    }

    /// Returns whether the limit refuses banned keys.
    pub fn is_of_bans(&self) -> bool {
        self.limit.algorithm == Algorithm::Ban
    }

    /// Returns whether costs are estimates.
    pub(super) fn is_estimated(&self) -> bool {
        self.is_estimated
    }

    /// Returns the limit with reserves in `namespace`, if it supports them: limits with windows do.
    pub fn reserving(self, namespace: &Namespace<'m>) -> Self {
        let sync = namespace.sync_state();
        let sync = sync.filter(|_| self.counter.kind() == StoredKind::Windows);
        let reserves = sync.map(|sync| {
            let size = self.limit.size;
            let name = namespace.name().as_bytes();
            let reserves = self.table.reserves(namespace.index(), name, size);
            Box::new(LimitReserves { reserves, sync, shards: namespace.sync_states().to_vec() })
        });
        BoundLimit { reserves, ..self }
    }

    /// Returns whether hits are reserved.
    pub fn is_reserving(&self) -> bool {
        self.reserves.is_some()
    }

    /// Returns whether both limits use the same counters, whatever rates requests choose.
    pub fn has_counters_of(&self, other: &BoundLimit<'_>) -> bool {
        ptr::addr_eq(self.table, other.table) && self.counter.is_same(&other.counter)
    }

    /// Returns the reserve of a key under a limit of `limit` hits. `None` if hits are not reserved,
    /// or while the store has lost its charges, of which nothing may be spent any more.
    pub(crate) fn reserve(&self, key: Key<'_>, limit: Hits) -> Option<Reserve> {
        let LimitReserves { reserves, sync, shards } = &**self.reserves.as_ref()?;
        let is_there = shards.iter().all(|it| it.grants() != Grants::Lost);
        let is_reserved = is_there && has_reserves(limit, self.limit.size, sync.nodes());
        let algorithm = self.limit.algorithm;
        is_reserved.then(|| self.table.reserve(reserves, key, limit, algorithm))
    }

    /// Returns whether hits may be charged ahead. They may not before the first sync of a
    /// configuration, which may find the store in another epoch, where reserves are void.
    pub(super) fn may_charge_ahead(&self) -> bool {
        let reserves = self.reserves.as_ref();
        reserves.is_some_and(|it| it.shards.iter().all(SyncState::has_synced))
    }

    /// Returns the sync's state, which has the number of living nodes; `None` if hits are not
    /// reserved.
    pub(super) fn living(&self) -> Option<SyncState<'m>> {
        self.reserves.as_ref().map(|it| it.sync)
    }

    /// Returns the counter and its limit for `told`, which is the number of hits or the rate that
    /// the request chooses.
    #[inline]
    pub(super) fn at(&self, told: Hits) -> (Counter, Hits) {
        if has_variable_rate(&self.limit) {
            self.record_rate(told);
        }
        (self.counter_at(told), self.limit.most(told))
    }

    /// Returns the counter for `told`: see [`BoundLimit::at`].
    #[inline]
    pub(super) fn counter_at(&self, told: Hits) -> Counter {
        match has_variable_rate(&self.limit) {
            true => self.counter_at_rate(told),
            false => self.counter,
        }
    }

    #[cold]
    fn counter_at_rate(&self, rate: Hits) -> Counter {
        let kind = self.counter.kind().at_rate(rate);
        let (index, name) = (self.counter.namespace(), self.namespace.as_bytes());
        self.table.counter_of(index, name, kind, self.limit.size)
    }

    /// Records that keys use this rate, so that a reset includes its bucket.
    pub(super) fn record_rate(&self, hits: Hits) {
        let size = self.limit.size;
        let rate = CountedRate { hits, size };
        self.table.record_counted_rate(self.counter.namespace(), rate);
    }

    /// Returns the counter that `reading` belongs to.
    pub(super) fn counter_of_reading(&self, reading: &Reading) -> Counter {
        match self.counter.kind().at_rate_of(reading) {
            StoredKind::Level(LevelKind::Bucket(rate)) => self.counter_at(rate),
            StoredKind::Windows
            | StoredKind::Level(LevelKind::Elastic)
            | StoredKind::Log
            | StoredKind::Holds => self.counter,
        }
    }

    /// Returns how many requests of `key` are under way on other nodes, as far as they have told.
    pub(super) fn held_by_others(&self, key: Key<'_>, clock: &impl Clock) -> Hits {
        let Some(told) = &self.told else { return Hits::ZERO };
        let name = told_name(key.bytes());
        self.table.held_by_others(told, self.table.key(&name), clock)
    }

    /// Tells the other nodes of a hold of `key` under a limit of `hits`.
    pub(super) fn tell_hold(
        &self,
        key: Key<'_>,
        hold: &Receipt<'m>,
        hits: Hits,
        clock: &impl Clock,
    ) {
        if let Some(told) = &self.told {
            let name = told_name(key.bytes());
            self.table.tell_hold(told, self.table.key(&name), hold, clock);
            self.table.look_at_holds(told, hold, hits, clock);
        }
    }

    /// Releases a hold under a limit of `hits`.
    #[inline]
    pub(super) fn release(&self, hold: &Receipt<'m>, hits: Hits, clock: &impl Clock) {
        self.table.release(hold);
        if let Some(told) = &self.told {
            self.table.look_at_holds(told, hold, hits, clock);
        }
    }

    /// Releases a hold of `key` by this process, under a limit of `hits`. Returns `false` if there is none.
    pub(crate) fn release_key(&self, key: Key<'_>, hits: Hits, clock: &impl Clock) -> bool {
        let Some(hold) = self.table.hold_of(&self.counter, key) else { return false };
        let is_released = self.table.release(&hold);
        if let Some(told) = &self.told {
            self.table.look_at_holds(told, &hold, hits, clock);
        }
        is_released
    }

    /// Returns the name of the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns a shared reference to the name of the namespace.
    pub(super) fn shared_namespace(&self) -> Arc<str> {
        self.namespace.clone()
    }

    /// Returns the identity of a key's counter for `told`: see [`BoundLimit::at`].
    pub(super) fn identity(&self, key: Key<'_>, told: Hits) -> Identity {
        self.counter_at(told).identity(key)
    }

    /// Records the store's count of a key in the node's table. A log's times are not in the answer,
    /// so the node has only the times that [`BoundLimit::log_charged`] records. `pushed` are this node's
    /// hits in a count of windows; by default those that the store has now.
    pub(crate) fn record_store(
        &self,
        key: Key<'_>,
        reading: &Reading,
        pushed: Option<&PushedHits>,
        clock: &impl Clock,
    ) {
        match self.limit.algorithm.kind() {
            StoredKind::Windows => {}
            StoredKind::Level(kind) => {
                let level = kind.level_of(self.limit.size, *reading, clock.now());
                let counter = self.counter_of_reading(reading);
                return self.table.set_level(&counter, key, level, clock);
            }
            StoredKind::Log | StoredKind::Holds => return,
        }
        let counts = reading.windows();
        let before = counts.window.wrapping_sub(1);
        for (window, total) in [(before, counts.previous), (counts.window, counts.current)] {
            let ours = pushed.map(|it| it.of(window));
            record_decided(self.table, &self.counter, key, (window, total), ours, clock);
        }
    }

    /// Returns this node's hits in the counter of a key that the store has.
    pub(super) fn pushed(&self, key: Key<'_>) -> PushedHits {
        self.table.pushed_hits(&self.counter, key)
    }

    /// Returns the number of keys that were reset in their stores by this node.
    pub(super) fn resets(&self) -> u64 {
        self.table.resets()
    }

    /// Counts hits of this node that will not be refunded.
    pub(super) fn count_hits(&self, hits: Hits) {
        self.table.count_hits(&self.counter, hits);
    }

    /// Counts hits that the store has charged in the node's own counter under the limit `most`, if
    /// [`BoundLimit::record_store`] cannot record them.
    pub(super) fn log_charged(&self, most: Hits, key: Key<'_>, hits: Hits, clock: &impl Clock) {
        if self.limit.algorithm.kind() == StoredKind::Log && hits > Hits::ZERO {
            let admission = Admission::Regardless(most);
            self.table.add(&self.counter, key, clock, hits, admission);
        }
    }

    /// Counts a request that `on_error` decided.
    pub fn count_fallback(&self, on_error: OnError) {
        self.table.count_fallback(&self.counter, on_error);
    }

    /// Counts a value that was invalid at run time.
    pub fn count_invalid(&self, what: Invalid) {
        self.table.count_invalid(&self.counter, what);
    }

    /// Counts a request that a ban rejected.
    pub fn count_banned(&self) {
        self.table.count_banned(&self.counter);
    }

    /// Counts a request that this limit delays.
    pub fn count_delayed(&self) {
        self.table.count_delayed(&self.counter);
    }

    /// Counts a wait of a request for a store or a rate.
    pub fn count_wait(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.table.count_wait(&self.counter, micros);
    }

    /// Counts a request that this limit rejected; if several did, only the tightest counts it.
    pub fn count_rejection(&self) {
        match &self.rejections {
            Some(rejections) => rejections.count(),
            None => self.table.count_rejected(&self.counter),
        }
    }

    #[inline]
    pub(super) fn has_namespace_of(&self, other: &BoundLimit<'_>) -> bool {
        ptr::addr_eq(self.table, other.table)
            && self.counter.namespace() == other.counter.namespace()
    }

    /// Returns the table, for which keys are hashed.
    #[inline]
    pub fn table(&self) -> &'m CounterTable<'m> {
        self.table
    }
}
