//! How a node is doing: its zones, namespaces and stores, for whoever shows them.

use crate::policy::namespace::SyncMode;
use crate::policy::window::{UnixMillis, WindowSize};
use crate::table::{NamespaceStats, SyncStats, ZoneStats};

/// A node, at a moment.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The zones, in the order of the configuration.
    pub zones: Vec<ZoneStatus>,
    /// The namespaces, likewise.
    pub namespaces: Vec<NamespaceStatus>,
    /// The stores, likewise.
    pub stores: Vec<StoreStatus>,
    /// The policies whose rejections are counted by themselves.
    pub policies: Vec<PolicyStatus>,
    /// What serves.
    pub build: Option<Build>,
    /// When the configuration was loaded.
    pub loaded_at: Option<UnixMillis>,
}

/// What serves.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version of this module.
    pub version: &'static str,
    /// That of nginx.
    pub nginx: &'static str,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    /// The name of its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many requests it rejected.
    pub rejected: u64,
}

/// A zone.
#[derive(Clone, Debug)]
pub struct ZoneStatus {
    /// The name.
    pub name: String,
    /// The size in bytes, as configured.
    pub size: usize,
    /// How many keys have a place: an estimate.
    pub keys: u64,
    /// How many can have one.
    pub capacity: u64,
    /// What happened in it.
    pub stats: ZoneStats,
}

/// A namespace.
#[derive(Clone, Debug)]
pub struct NamespaceStatus {
    /// The name.
    pub name: String,
    /// The name of its zone.
    pub zone: String,
    /// The name of its store, if it has one.
    pub store: Option<String>,
    /// When it is synced.
    pub sync: SyncMode,
    /// The windows that are counted in, ascending.
    pub window_sizes: Vec<WindowSize>,
    /// What happened in it.
    pub stats: NamespaceStats,
    /// What came of its syncs, if it is synced.
    pub syncs: Option<SyncStats>,
    /// How many of its keys have hits that the store has not, if it is synced: an estimate.
    pub pending: Option<u64>,
}

/// A store.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The name.
    pub name: String,
    /// The name of its strategy.
    pub strategy: &'static str,
    /// Whether it does what it is asked; `None` before it was asked anything.
    pub is_up: Option<bool>,
}

/// How a store was talked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTraffic {
    /// Connections that were made.
    pub connects: u64,
    /// How many exchanges took how long, as [`SyncStats::exchanges`] says.
    pub exchanges: [u64; SyncStats::EXCHANGE_BOUNDS.len() + 1],
    /// How long all exchanges took, in microseconds.
    pub exchange_sum: u64,
}

impl Status {
    /// The namespace `name`.
    pub fn namespace(&self, name: &[u8]) -> Option<&NamespaceStatus> {
        let mut namespaces = self.namespaces.iter();
        namespaces.find(|namespace| namespace.name.as_bytes() == name)
    }

    /// The syncs of the namespaces that have the store.
    fn syncs(&self, store: &str) -> impl Iterator<Item = SyncStats> {
        let namespaces = self.namespaces.iter();
        namespaces
            .filter(move |namespace| namespace.store.as_deref() == Some(store))
            .filter_map(|namespace| namespace.syncs)
    }

    /// How the store was talked to by all namespaces that are synced with it; `None`: there are none.
    pub fn traffic(&self, store: &str) -> Option<StoreTraffic> {
        self.syncs(store).fold(None, |sum, syncs| {
            let mut sum: StoreTraffic = sum.unwrap_or_default();
            sum.connects = sum.connects.saturating_add(syncs.connects);
            sum.exchange_sum = sum.exchange_sum.saturating_add(syncs.exchange_sum);
            add(&mut sum.exchanges, &syncs.exchanges);
            Some(sum)
        })
    }

    /// How many callbacks of ours held a worker's event loop how long, as [`ZoneStats::holds`] says, and
    /// how long all of them together, in nanoseconds.
    pub fn holds(&self) -> ([u64; ZoneStats::HOLD_BOUNDS.len() + 1], u64) {
        let zones = self.zones.iter().map(|zone| &zone.stats);
        zones.fold(Default::default(), |(mut counts, sum): (_, u64), zone| {
            add(&mut counts, &zone.holds);
            (counts, sum.saturating_add(zone.hold_sum))
        })
    }

    /// How far the store's clock is ahead of this node's, in milliseconds; `None`: never seen.
    pub fn clock_offset(&self, store: &str) -> Option<i64> {
        let last = self.syncs(store).max_by_key(|syncs| syncs.last_success)?;
        last.last_success.map(|_| last.clock_offset)
    }
}

impl NamespaceStatus {
    /// Whether a store decides.
    pub fn is_synchronous(&self) -> bool {
        self.sync == SyncMode::Synchronous
    }
}

fn add(counts: &mut [u64], more: &[u64]) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count = count.saturating_add(*more);
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod testing {
    use super::*;
    use core::time::Duration;

    /// A node with a local namespace, two that are synced with one store, and one about which that
    /// decides.
    pub(in super::super) fn status() -> Status {
        let size = |millis| WindowSize::from_millis(millis).unwrap();
        let namespace = |name: &str, store: Option<&str>, syncs| NamespaceStatus {
            name: name.into(),
            zone: "counters".into(),
            store: store.map(Into::into),
            sync: match store {
                Some(_) => SyncMode::Periodic(Duration::from_millis(500)),
                None => SyncMode::Local,
            },
            window_sizes: vec![size(500), size(60_000)],
            stats: NamespaceStats {
                passed: 3,
                rejected: 2,
                rejected_dry_run: 1,
                fallbacks: [1, 2, 3],
                invalid: [1, 2, 3, 4],
                rejected_unnamed: if store.is_none() { 7 } else { 0 },
                waits: [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                wait_sum: 12_500,
                hits: 4_250,
                keys: 2,
                dropped: 1_500,
            },
            syncs,
            pending: syncs.map(|_| 5),
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
        Status {
            zones: vec![ZoneStatus {
                name: "counters".into(),
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
                NamespaceStatus {
                    sync: SyncMode::Synchronous,
                    ..namespace("exact", None, None)
                },
            ],
            stores: ["main", "unused"]
                .map(|name| StoreStatus {
                    name: name.into(),
                    strategy: "redis",
                    is_up: (name == "main").then_some(true),
                })
                .into(),
            policies: vec![PolicyStatus {
                namespace: "api".into(),
                name: "api-1m".into(),
                rejected: 2,
            }],
            build: Some(Build {
                version: "1.2.3",
                nginx: "1.28.3",
            }),
            loaded_at: Some(UnixMillis(1_700_000_000_500)),
        }
    }
}
