//! The families of metrics, each with its source.

use core::time::Duration;

use self::MetricSource::{Namespace, Node, Policy, Store, Synced, Zone};
use super::status::{NamespaceStatus, PolicyStatus, Status, StoreStatus, ZoneStatus};
use super::text::{Decimal, Samples, thousandths};
use crate::policy::window::UnixMillis;
use crate::table::{NamespaceStats, SyncStats, ZoneStats};

/// The label of policies whose rejections are not counted separately.
pub const OTHER_POLICIES: &str = "other";

/// A family of samples.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    source: MetricSource,
}

/// The source of a family's samples, with the function that writes them. Each item of a source has few samples, so that
/// its text is bounded. The samples of a zone, namespace or store have its name as their first label.
pub(super) enum MetricSource {
    Node(fn(&mut Samples<'_>, &Status<'_>)),
    Zone(fn(&mut Samples<'_>, &ZoneStatus<'_>)),
    Namespace(fn(&mut Samples<'_>, &NamespaceStatus<'_>)),
    /// Synced namespaces.
    Synced(fn(&mut Samples<'_>, &NamespaceStatus<'_>, &SyncStats)),
    /// Policies, with the label of their namespace.
    Policy(fn(&mut Samples<'_>, &PolicyStatus<'_>)),
    Store(fn(&mut Samples<'_>, &StoreStatus<'_>)),
}

/// All families, in the order of the page.
pub(super) static FAMILIES: [Family; 31] = [
    gauge(
        "ratelimit_build_info",
        "Versions of the module and of nginx. The value is always 1.",
        Node(|samples, status| {
            if let Some(build) = &status.build {
                samples.write_labeled(&[("version", build.version), ("nginx", build.nginx)], 1);
            }
        }),
    ),
    gauge(
        "ratelimit_config_load_timestamp_seconds",
        "Time at which the configuration was loaded, in Unix time.",
        Node(|samples, status| samples.write_decimal(status.loaded_at.map(unix_time))),
    ),
    histogram(
        "ratelimit_event_loop_hold_seconds",
        "Time for which callbacks of this module blocked a worker's event loop. Of requests \
         that are only counted, one in 256 is measured.",
        Node(|samples, status| {
            if !status.zones.is_empty() {
                let (counts, sum) = status.holds();
                samples.write_buckets(&ZoneStats::HOLD_BOUNDS, &counts, sum, Duration::from_nanos);
            }
        }),
    ),
    counter(
        "ratelimit_requests_total",
        "Requests by result.",
        Namespace(|samples, namespace| {
            let results = ["passed", "rejected", "rejected_dry_run"];
            samples.write_by("result", results, namespace.stats.outcomes);
        }),
    ),
    counter(
        "ratelimit_fallbacks_total",
        "Requests decided by on_error, by its action.",
        Namespace(|samples, namespace| {
            if namespace.is_synchronous() {
                let actions = ["local", "allow", "deny"];
                samples.write_by("action", actions, namespace.stats.fallbacks);
            }
        }),
    ),
    counter(
        "ratelimit_rejected_total",
        "Rejected requests by policy.",
        Policy(|samples, policy| samples.write_by("policy", [policy.name], [policy.rejected])),
    ),
    counter(
        "ratelimit_rejected_total",
        "Rejected requests by policy.",
        Namespace(|samples, namespace| {
            let rejected = namespace.stats.rejected_unnamed;
            if rejected > 0 {
                samples.write_by("policy", [OTHER_POLICIES], [rejected]);
            }
        }),
    ),
    counter(
        "ratelimit_hits_total",
        "Hits of requests, once for each counter that was charged.",
        Namespace(|samples, it| samples.write_decimal(thousandths(it.stats.hits))),
    ),
    gauge(
        "ratelimit_concurrent",
        "Requests that are under way, once for each counter of a concurrent= that they count in.",
        Namespace(|samples, it| {
            if let Some(under_way) = it.under_way {
                samples.write(under_way);
            }
        }),
    ),
    counter(
        "ratelimit_invalid_values_total",
        "Values that were invalid at run time.",
        Namespace(|samples, namespace| {
            let values = ["limit", "cost", "charge", "key"];
            samples.write_by("what", values, namespace.stats.invalid);
        }),
    ),
    gauge(
        "ratelimit_bans",
        "Banned keys.",
        Namespace(|samples, namespace| {
            if let Some(bans) = namespace.bans {
                samples.write(bans);
            }
        }),
    ),
    counter(
        "ratelimit_banned_requests_total",
        "Requests rejected by a ban.",
        Namespace(|samples, namespace| {
            if namespace.bans.is_some() {
                samples.write(namespace.stats.banned);
            }
        }),
    ),
    counter(
        "ratelimit_delayed_total",
        "Requests delayed by a rate.",
        Namespace(|samples, namespace| samples.write(namespace.stats.delayed)),
    ),
    histogram(
        "ratelimit_wait_seconds",
        "Time that requests waited for a store's decision, or were delayed by a rate.",
        Namespace(|samples, namespace| {
            let stats = &namespace.stats;
            if namespace.is_synchronous() || stats.delayed > 0 {
                let (bounds, unit) = (&NamespaceStats::WAIT_BOUNDS, Duration::from_micros);
                samples.write_buckets(bounds, &stats.waits, stats.wait_sum, unit);
            }
        }),
    ),
    gauge(
        "ratelimit_zone_size_bytes",
        "Configured size of a zone.",
        Zone(|samples, zone| samples.write(zone.size as u64)),
    ),
    gauge(
        "ratelimit_zone_counters",
        "Counters in a zone, including those whose windows have ended.",
        Zone(|samples, zone| samples.write(zone.keys)),
    ),
    gauge(
        "ratelimit_zone_capacity_counters",
        "Maximum number of counters in a zone if none is synced. A synced one takes more room.",
        Zone(|samples, zone| samples.write(zone.capacity)),
    ),
    counter(
        "ratelimit_zone_evicted_total",
        "Counters evicted from a full zone. ended: their windows had ended. sent: they were \
         live, without unsent hits. unsent: they were live, with unsent hits.",
        Zone(|samples, zone| {
            let stats = &zone.stats;
            let counts = [stats.evicted_ended, stats.evicted_sent, stats.evicted_unsent];
            samples.write_by("state", ["ended", "sent", "unsent"], counts);
        }),
    ),
    counter(
        "ratelimit_sync_cycles_total",
        "Sync cycles by result.",
        Synced(|samples, _, syncs| {
            samples.write_by("result", ["ok", "error"], [syncs.succeeded, syncs.failed]);
        }),
    ),
    histogram(
        "ratelimit_sync_duration_seconds",
        "Durations of sync cycles.",
        Synced(|samples, _, syncs| {
            let (bounds, unit) = (&SyncStats::BOUNDS, Duration::from_millis);
            samples.write_buckets(bounds, &syncs.durations, syncs.duration_sum, unit);
        }),
    ),
    counter(
        "ratelimit_sync_pushed_counters_total",
        "Counters pushed to the store, once for each window.",
        Synced(|samples, _, syncs| samples.write(syncs.pushed)),
    ),
    counter(
        "ratelimit_sync_fetched_counters_total",
        "Counters whose totals were fetched from the store, once for each window.",
        Synced(|samples, _, syncs| samples.write(syncs.fetched)),
    ),
    gauge(
        "ratelimit_sync_pending_counters",
        "Counters with hits that the store does not have yet.",
        Synced(|samples, namespace, _| samples.write(namespace.pending)),
    ),
    counter(
        "ratelimit_excess_hits_total",
        "Hits that this node admitted above a limit, as the store's totals show.",
        Synced(|samples, it, _| samples.write_decimal(thousandths(it.stats.excess))),
    ),
    gauge(
        "ratelimit_nodes",
        "Living nodes that sync the namespace with the same store, including this one.",
        Synced(|samples, namespace, _| samples.write(namespace.nodes)),
    ),
    counter(
        "ratelimit_sync_dropped_hits_total",
        "Hits that the store did not get: their windows had ended, or there were too many to keep.",
        Synced(|samples, it, _| samples.write_decimal(thousandths(it.stats.dropped))),
    ),
    gauge(
        "ratelimit_sync_last_success_timestamp_seconds",
        "Time of the last sync cycle that succeeded, in Unix time.",
        Synced(|samples, _, syncs| samples.write_decimal(syncs.last_success.map(unix_time))),
    ),
    gauge(
        "ratelimit_store_up",
        "1 while the store answers, else 0.",
        Store(|samples, store| samples.write(store.is_up.map(u64::from))),
    ),
    gauge(
        "ratelimit_store_clock_offset_seconds",
        "Seconds by which the store's clock is ahead of this node's.",
        Store(|samples, store| samples.write_decimal(store.clock_offset().map(signed_seconds))),
    ),
    counter(
        "ratelimit_store_connects_total",
        "Connections made to the store.",
        Store(|samples, store| samples.write(store.traffic.map(|it| it.connects))),
    ),
    histogram(
        "ratelimit_store_exchange_duration_seconds",
        "Durations of exchanges with the store.",
        Store(|samples, store| {
            if let Some(traffic) = store.traffic {
                let (bounds, unit) = (&SyncStats::EXCHANGE_BOUNDS, Duration::from_micros);
                samples.write_buckets(bounds, &traffic.exchanges, traffic.exchange_sum, unit);
            }
        }),
    ),
];

const fn counter(name: &'static str, help: &'static str, source: MetricSource) -> Family {
    Family { name, kind: "counter", help, source }
}

const fn gauge(name: &'static str, help: &'static str, source: MetricSource) -> Family {
    Family { name, kind: "gauge", help, source }
}

const fn histogram(name: &'static str, help: &'static str, source: MetricSource) -> Family {
    Family { name, kind: "histogram", help, source }
}

fn unix_time(time: UnixMillis) -> Decimal {
    thousandths(time.0)
}

fn signed_seconds(millis: i64) -> Decimal {
    Decimal { is_negative: millis < 0, ..thousandths(millis.unsigned_abs()) }
}

impl Family {
    /// Writes the samples of the source's item at `index`. Returns whether it exists.
    pub(super) fn write<'s>(
        &self,
        samples: &mut Samples<'s>,
        status: &'s Status<'_>,
        index: usize,
    ) -> bool {
        let zone = status.zones.get(index);
        let namespace = status.namespaces.get(index);
        match self.source {
            Node(write) => (index == 0).then(|| write(samples, status)),
            Zone(write) => zone.map(|it| write(samples.of("zone", it.name), it)),
            Namespace(write) => namespace.map(|it| write(samples.of("namespace", it.name), it)),
            Synced(write) => namespace.map(|it| {
                let samples = samples.of("namespace", it.name);
                it.syncs.iter().for_each(|syncs| write(samples, it, syncs));
            }),
            Policy(write) => {
                let policy = status.policies.get(index);
                policy.map(|it| write(samples.of("namespace", it.namespace), it))
            }
            Store(write) => {
                status.stores.get(index).map(|it| write(samples.of("store", it.name), it))
            }
        }
        .is_some()
    }
}
