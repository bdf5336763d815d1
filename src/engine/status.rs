//! How a node is doing: its zones, namespaces and stores, for whoever shows them.

use crate::policy::namespace::SyncMode;
use crate::policy::window::WindowSize;
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
}

/// What is known of a store from the syncs with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// Whether the last cycle succeeded.
    pub is_up: bool,
    /// How far its clock is ahead of this node's, in milliseconds; `None`: never seen.
    pub clock_offset: Option<i64>,
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
            for (count, more) in sum.exchanges.iter_mut().zip(syncs.exchanges) {
                *count = count.saturating_add(more);
            }
            Some(sum)
        })
    }

    /// The longest time for which a callback of ours held a worker's event loop, in nanoseconds.
    pub fn longest_hold(&self) -> u64 {
        let holds = self.zones.iter().map(|zone| zone.stats.longest_hold);
        holds.max().unwrap_or(0)
    }

    /// What the last cycle of any namespace with the store tells of it; `None` before the first.
    pub fn health(&self, store: &str) -> Option<StoreHealth> {
        let last = self.syncs(store).max_by_key(SyncStats::last)?;
        let last_success = self.syncs(store).max_by_key(|syncs| syncs.last_success)?;
        Some(StoreHealth {
            is_up: last.is_up()?,
            clock_offset: last_success.last_success.map(|_| last_success.clock_offset),
        })
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod testing {
    use super::*;
    use crate::policy::window::UnixMillis;
    use core::time::Duration;

    /// A node with a local namespace and two that are synced with one store.
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
                error: 0,
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
                stats: ZoneStats {
                    evicted_ended: 1,
                    evicted_sent: 2,
                    evicted_unsent: 3,
                    longest_hold: 12_500,
                },
            }],
            namespaces: vec![
                namespace("local", None, None),
                namespace("api", Some("main"), Some(syncs)),
                namespace("new", Some("main"), Some(SyncStats::default())),
            ],
            stores: ["main", "unused"]
                .map(|name| StoreStatus {
                    name: name.into(),
                    strategy: "redis",
                })
                .into(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::window::UnixMillis;

    #[test]
    fn a_store_is_up_if_the_last_cycle_succeeded() {
        let mut status = testing::status();
        let health = |is_up| {
            Some(StoreHealth {
                is_up,
                clock_offset: Some(-1_500),
            })
        };
        assert_eq!(status.health("main"), health(true));
        assert_eq!(status.health("unused"), None);
        status.namespaces[2].syncs = Some(SyncStats {
            failed: 1,
            last_failure: Some(UnixMillis(1_700_000_000_251)),
            ..SyncStats::default()
        });
        assert_eq!(status.health("main"), health(false));
    }
}
