//! The state of a node, its zones, namespaces and stores, as reported by the API and the page for Prometheus. Names are
//! borrowed from the configuration.

use crate::policy::namespace::SyncMode;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::{NamespaceStats, SyncStats, ZoneStats};

/// The state of a node at a moment.
#[derive(Clone, Debug, Default)]
pub struct Status<'c> {
    /// The zones, in the order of the configuration.
    pub zones: Vec<ZoneStatus<'c>>,
    /// The namespaces, in the order of the configuration.
    pub namespaces: Vec<NamespaceStatus<'c>>,
    /// The stores, in the order of the configuration.
    pub stores: Vec<StoreStatus<'c>>,
    /// The policies whose rejections are counted separately.
    pub policies: Vec<PolicyStatus<'c>>,
    /// The versions of the module and of nginx.
    pub build: Option<Build>,
    /// The time at which the configuration was loaded.
    pub loaded_at: Option<UnixMillis>,
}

/// The versions of the module and of nginx.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of this module.
    pub version: &'static str,
    /// Version of nginx.
    pub nginx: &'static str,
}

/// The state of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyStatus<'c> {
    /// The name of its namespace.
    pub namespace: &'c str,
    /// The name.
    pub name: &'c str,
    /// The number of requests that it rejected.
    pub rejected: u64,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneStatus<'c> {
    /// The name.
    pub name: &'c str,
    /// The size in bytes, as configured.
    pub size: usize,
    /// The estimated number of keys with a slot.
    pub keys: u64,
    /// The maximum number of keys.
    pub capacity: u64,
    /// Events of the zone.
    pub stats: ZoneStats,
}

/// The state of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceStatus<'c> {
    /// The name.
    pub name: &'c str,
    /// The name of its zone.
    pub zone: &'c str,
    /// The name of its store, if it has one.
    pub store: Option<&'c str>,
    /// The mode of its sync.
    pub sync: SyncMode,
    /// The windows in which it counts.
    pub sizes: &'c [WindowSize],
    /// Events of the namespace.
    pub stats: NamespaceStats,
    /// The number of its requests that are under way, if that is limited.
    pub under_way: Option<u64>,
    /// The results of its syncs, if it is synced.
    pub syncs: Option<SyncStats>,
    /// The number of living nodes that share its store, as far as known, if it is synced.
    pub nodes: Option<u64>,
    /// The estimated number of its keys with unsent hits, if it is synced.
    pub pending: Option<u64>,
    /// The number of its banned keys, if a rule bans keys.
    pub bans: Option<u64>,
}

/// The state of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreStatus<'c> {
    /// The name.
    pub name: &'c str,
    /// The name of its strategy.
    pub strategy: &'static str,
    /// Whether it answers; `None` before the first question.
    pub is_up: Option<bool>,
    /// The traffic of all namespaces synced with it; `None` if there are none.
    pub traffic: Option<StoreTraffic>,
}

/// The traffic between a node and a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTraffic {
    /// Connections that were made.
    pub connects: u64,
    /// The number of exchanges by duration, in the buckets of [`SyncStats::exchanges`].
    pub exchanges: [u64; SyncStats::EXCHANGE_BOUNDS.len() + 1],
    /// The total duration of all exchanges, in microseconds.
    pub exchange_sum: u64,
    /// The time at which its clock was last seen, and the milliseconds by which it was ahead of this node's.
    pub clock: Option<(UnixMillis, i64)>,
}

impl StoreTraffic {
    /// Returns the number of all exchanges.
    pub fn exchange_count(&self) -> u64 {
        self.exchanges.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds the traffic of a namespace.
    pub fn add(&mut self, syncs: &SyncStats) {
        self.connects = self.connects.saturating_add(syncs.connects);
        self.exchange_sum = self.exchange_sum.saturating_add(syncs.exchange_sum);
        add(&mut self.exchanges, &syncs.exchanges);
        let seen = syncs.last_success.map(|at| (at, syncs.clock_offset));
        if seen.map(|(at, _)| at) >= self.clock.map(|(at, _)| at) {
            self.clock = seen;
        }
    }
}

impl StoreStatus<'_> {
    /// Returns the milliseconds by which the store's clock is ahead of this node's; `None` if it was never seen.
    pub fn clock_offset(&self) -> Option<i64> {
        let (_, offset) = self.traffic?.clock?;
        Some(offset)
    }
}

impl Status<'_> {
    /// Returns the number of the module's callbacks by the time for which they blocked a worker's event loop, in the
    /// buckets of [`ZoneStats::holds`], and the total time in nanoseconds.
    pub fn holds(&self) -> ([u64; ZoneStats::HOLD_BOUNDS.len() + 1], u64) {
        let zones = self.zones.iter().map(|zone| &zone.stats);
        zones.fold(Default::default(), |(mut counts, sum): (_, u64), zone| {
            add(&mut counts, &zone.holds);
            (counts, sum.saturating_add(zone.hold_sum))
        })
    }
}

impl NamespaceStatus<'_> {
    /// Whether a store decides about each request.
    pub fn is_synchronous(&self) -> bool {
        self.sync == SyncMode::Synchronous
    }
}

fn add(counts: &mut [u64], more: &[u64]) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count = count.saturating_add(*more);
    }
}

#[cfg(all(any(test, fuzzing), not(loom)))]
pub(crate) mod testing {
    use super::*;
    use core::time::Duration;

    /// Returns a node with a local namespace, two that are synced with one store, and a synchronous one of that store.
    pub(crate) fn status() -> Status<'static> {
        let namespace = |name, store: Option<&'static str>, syncs| NamespaceStatus {
            name,
            zone: "counters",
            store,
            sync: match store {
                Some(_) => SyncMode::Periodic(Duration::from_millis(500)),
                None => SyncMode::Local,
            },
            sizes: if store.is_some() { &[WindowSize::MIN] } else { &[] },
            stats: NamespaceStats {
                outcomes: [3, 2, 1],
                fallbacks: [1, 2, 3],
                invalid: [1, 2, 3, 4],
                rejected_unnamed: if store.is_none() { 7 } else { 0 },
                excess: 2_500,
                delayed: if store.is_none() { 5 } else { 0 },
                banned: if store.is_none() { 4 } else { 0 },
                waits: [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                wait_sum: 12_500,
                hits: 4_250,
                inserted: 3,
                removed: 1,
                dropped: 1_500,
            },
            under_way: store.map(|_| 2),
            syncs,
            nodes: syncs.map(|_| 3),
            pending: syncs.map(|_| 5),
            bans: store.is_none().then_some(6),
        };
        let syncs = SyncStats {
            succeeded: 3,
            failed: 1,
            pushed: 7,
            fetched: 8,
            last_success: Some(UnixMillis(1_700_000_000_250)),
            last_failure: Some(UnixMillis(1_600_000_000_000)),
            duration: 12,
            clock_offset: -1_500,
            durations: [1, 0, 2, 0, 0, 0, 1],
            duration_sum: 3_014,
            holder: Some(4711),
            connects: 2,
            exchanges: [1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            exchange_sum: 2_000_750,
        };
        let mut traffic = StoreTraffic::default();
        for syncs in [syncs, SyncStats::default()] {
            traffic.add(&syncs);
        }
        Status {
            zones: vec![ZoneStatus {
                name: "counters",
                size: 1 << 20,
                keys: 4,
                capacity: 16_000,
                stats: ZoneStats {
                    evicted_ended: 1,
                    evicted_sent: 2,
                    evicted_unsent: 3,
                    holds: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                    hold_sum: 12_500_000,
                },
            }],
            namespaces: vec![
                namespace("local", None, None),
                namespace("api", Some("main"), Some(syncs)),
                namespace("new", Some("main"), Some(SyncStats::default())),
                NamespaceStatus { sync: SyncMode::Synchronous, ..namespace("exact", None, None) },
            ],
            stores: ["main", "unused"]
                .map(|name| StoreStatus {
                    name,
                    strategy: "redis",
                    is_up: (name == "main").then_some(true),
                    traffic: (name == "main").then_some(traffic),
                })
                .into(),
            policies: vec![PolicyStatus { namespace: "api", name: "api-1m", rejected: 2 }],
            build: Some(Build { version: "1.2.3", nginx: "1.28.3" }),
            loaded_at: Some(UnixMillis(1_700_000_000_500)),
        }
    }
}
