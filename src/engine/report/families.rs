//! The families of metrics, each with its source.

use core::time::Duration;

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
/// its text is bounded.
pub(super) enum MetricSource {
    Node(fn(&mut Samples<'_>, &Status<'_>)),
    Zone(fn(&mut Samples<'_>, &ZoneStatus<'_>)),
    Namespace(fn(&mut Samples<'_>, &NamespaceStatus<'_>)),
    /// Synced namespaces.
    Synced(fn(&mut Samples<'_>, &NamespaceStatus<'_>, &SyncStats)),
    Policy(fn(&mut Samples<'_>, &PolicyStatus<'_>)),
    Store(fn(&mut Samples<'_>, &StoreStatus<'_>)),
}

/// All families, in the order of the page.
pub(super) static FAMILIES: [Family; 28] = [
    Family {
        name: "ratelimit_build_info",
        kind: "gauge",
        help: "What serves, always 1.",
        source: MetricSource::Node(|samples, status| {
            if let Some(build) = &status.build {
                samples.write(&[("version", build.version), ("nginx", build.nginx)], 1);
            }
        }),
    },
    Family {
        name: "ratelimit_config_load_timestamp_seconds",
        kind: "gauge",
        help: "When the configuration was loaded, in Unix time.",
        source: MetricSource::Node(|samples, status| {
            if let Some(UnixMillis(millis)) = status.loaded_at {
                samples.write_decimal(&[], thousandths(millis));
            }
        }),
    },
    Family {
        name: "ratelimit_event_loop_hold_seconds",
        kind: "histogram",
        help: "How long callbacks of this module held a worker's event loop. Of requests that are \
               only counted, one in 256 is measured.",
        source: MetricSource::Node(|samples, status| {
            if !status.zones.is_empty() {
                let (counts, sum) = status.holds();
                let bounds = ZoneStats::HOLD_BOUNDS.map(Duration::from_nanos);
                samples.write_buckets(&[], &bounds, &counts, Duration::from_nanos(sum));
            }
        }),
    },
    Family {
        name: "ratelimit_requests_total",
        kind: "counter",
        help: "Requests by what became of them.",
        source: MetricSource::Namespace(|samples, namespace| {
            let counts = namespace.stats.outcomes;
            for (result, count) in
                ["passed", "rejected", "rejected_dry_run"].into_iter().zip(counts)
            {
                samples.write(&[("namespace", namespace.name), ("result", result)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_fallbacks_total",
        kind: "counter",
        help: "Requests that on_error decided on, by what it says.",
        source: MetricSource::Namespace(|samples, namespace| {
            if namespace.is_synchronous() {
                let counts = namespace.stats.fallbacks;
                for (action, count) in ["local", "allow", "deny"].into_iter().zip(counts) {
                    samples.write(&[("namespace", namespace.name), ("action", action)], count);
                }
            }
        }),
    },
    Family {
        name: "ratelimit_rejected_total",
        kind: "counter",
        help: "Requests that were rejected, by the policy that did.",
        source: MetricSource::Policy(|samples, policy| {
            let labels = [("namespace", policy.namespace), ("policy", policy.name)];
            samples.write(&labels, policy.rejected);
        }),
    },
    Family {
        name: "ratelimit_rejected_total",
        kind: "counter",
        help: "Requests that were rejected, by the policy that did.",
        source: MetricSource::Namespace(|samples, namespace| {
            let rejected = namespace.stats.rejected_unnamed;
            if rejected > 0 {
                let labels = [("namespace", namespace.name), ("policy", OTHER_POLICIES)];
                samples.write(&labels, rejected);
            }
        }),
    },
    Family {
        name: "ratelimit_hits_total",
        kind: "counter",
        help: "Hits of requests that were admitted and counted, by each counter that was charged.",
        source: MetricSource::Namespace(|samples, namespace| {
            let labels = [("namespace", namespace.name)];
            samples.write_decimal(&labels, thousandths(namespace.stats.hits));
        }),
    },
    Family {
        name: "ratelimit_invalid_values_total",
        kind: "counter",
        help: "Values that were wrong at run time.",
        source: MetricSource::Namespace(|samples, namespace| {
            let counts = namespace.stats.invalid;
            for (what, count) in ["limit", "cost", "charge", "key"].into_iter().zip(counts) {
                samples.write(&[("namespace", namespace.name), ("what", what)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_delayed_total",
        kind: "counter",
        help: "Requests that were held back until their rate had caught up.",
        source: MetricSource::Namespace(|samples, namespace| {
            samples.write(&[("namespace", namespace.name)], namespace.stats.delayed);
        }),
    },
    Family {
        name: "ratelimit_wait_seconds",
        kind: "histogram",
        help: "How long requests waited: for a store's decision, or held back by a rate.",
        source: MetricSource::Namespace(|samples, namespace| {
            if namespace.is_synchronous() || namespace.stats.delayed > 0 {
                let bounds = NamespaceStats::WAIT_BOUNDS.map(Duration::from_micros);
                let sum = Duration::from_micros(namespace.stats.wait_sum);
                let labels = [("namespace", namespace.name)];
                samples.write_buckets(&labels, &bounds, &namespace.stats.waits, sum);
            }
        }),
    },
    Family {
        name: "ratelimit_zone_size_bytes",
        kind: "gauge",
        help: "Size of a zone of shared memory.",
        source: MetricSource::Zone(|samples, zone| {
            samples.write(&[("zone", zone.name)], zone.size as u64);
        }),
    },
    Family {
        name: "ratelimit_zone_counters",
        kind: "gauge",
        help: "Counters that have a place in a zone.",
        source: MetricSource::Zone(|samples, zone| {
            samples.write(&[("zone", zone.name)], zone.keys)
        }),
    },
    Family {
        name: "ratelimit_zone_capacity_counters",
        kind: "gauge",
        help: "Counters that can have a place in a zone, if none is synced: those take more room.",
        source: MetricSource::Zone(|samples, zone| {
            samples.write(&[("zone", zone.name)], zone.capacity)
        }),
    },
    Family {
        name: "ratelimit_zone_evicted_total",
        kind: "counter",
        help: "Counters that gave their place in a full zone to another one: their windows had \
               ended; they were alive, with nothing unsent; they had hits that the store had not.",
        source: MetricSource::Zone(|samples, zone| {
            for (state, count) in [
                ("ended", zone.stats.evicted_ended),
                ("sent", zone.stats.evicted_sent),
                ("unsent", zone.stats.evicted_unsent),
            ] {
                samples.write(&[("zone", zone.name), ("state", state)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_sync_cycles_total",
        kind: "counter",
        help: "Exchanges of a namespace's counts with its store.",
        source: MetricSource::Synced(|samples, namespace, syncs| {
            for (result, count) in [("ok", syncs.succeeded), ("error", syncs.failed)] {
                samples.write(&[("namespace", namespace.name), ("result", result)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_sync_duration_seconds",
        kind: "histogram",
        help: "How long they took.",
        source: MetricSource::Synced(|samples, namespace, syncs| {
            let bounds = SyncStats::BOUNDS.map(Duration::from_millis);
            let sum = Duration::from_millis(syncs.duration_sum);
            let labels = [("namespace", namespace.name)];
            samples.write_buckets(&labels, &bounds, &syncs.durations, sum);
        }),
    },
    Family {
        name: "ratelimit_sync_pushed_counters_total",
        kind: "counter",
        help: "Counters of which hits were sent to the store.",
        source: MetricSource::Synced(|samples, namespace, syncs| {
            samples.write(&[("namespace", namespace.name)], syncs.pushed);
        }),
    },
    Family {
        name: "ratelimit_sync_fetched_counters_total",
        kind: "counter",
        help: "Counters of which the store told what the cluster counted.",
        source: MetricSource::Synced(|samples, namespace, syncs| {
            samples.write(&[("namespace", namespace.name)], syncs.fetched);
        }),
    },
    Family {
        name: "ratelimit_sync_pending_counters",
        kind: "gauge",
        help: "Counters with hits that the store has not yet.",
        source: MetricSource::Synced(|samples, namespace, _| {
            if let Some(pending) = namespace.pending {
                samples.write(&[("namespace", namespace.name)], pending);
            }
        }),
    },
    Family {
        name: "ratelimit_excess_hits_total",
        kind: "counter",
        help: "Hits that were admitted here above a limit, as the store's answers tell.",
        source: MetricSource::Synced(|samples, namespace, _| {
            let labels = [("namespace", namespace.name)];
            samples.write_decimal(&labels, thousandths(namespace.stats.excess));
        }),
    },
    Family {
        name: "ratelimit_nodes",
        kind: "gauge",
        help: "Nodes that live and sync a namespace with the same store, this one among them.",
        source: MetricSource::Synced(|samples, namespace, _| {
            if let Some(nodes) = namespace.nodes {
                samples.write(&[("namespace", namespace.name)], nodes);
            }
        }),
    },
    Family {
        name: "ratelimit_sync_dropped_hits_total",
        kind: "counter",
        help: "Hits that no store got before their windows had ended for good.",
        source: MetricSource::Synced(|samples, namespace, _| {
            let labels = [("namespace", namespace.name)];
            samples.write_decimal(&labels, thousandths(namespace.stats.dropped));
        }),
    },
    Family {
        name: "ratelimit_sync_last_success_timestamp_seconds",
        kind: "gauge",
        help: "When a namespace was last synced, in Unix time.",
        source: MetricSource::Synced(|samples, namespace, syncs| {
            if let Some(UnixMillis(millis)) = syncs.last_success {
                let labels = [("namespace", namespace.name)];
                samples.write_decimal(&labels, thousandths(millis));
            }
        }),
    },
    Family {
        name: "ratelimit_store_up",
        kind: "gauge",
        help: "Whether a store does what it is asked.",
        source: MetricSource::Store(|samples, store| {
            if let Some(is_up) = store.is_up {
                samples.write(&[("store", store.name)], u64::from(is_up));
            }
        }),
    },
    Family {
        name: "ratelimit_store_clock_offset_seconds",
        kind: "gauge",
        help: "How far a store's clock is ahead of this node's.",
        source: MetricSource::Store(|samples, store| {
            if let Some(offset) = store.clock_offset() {
                let offset =
                    Decimal { is_negative: offset < 0, ..thousandths(offset.unsigned_abs()) };
                samples.write_decimal(&[("store", store.name)], offset);
            }
        }),
    },
    Family {
        name: "ratelimit_store_connects_total",
        kind: "counter",
        help: "Connections that were made to a store.",
        source: MetricSource::Store(|samples, store| {
            if let Some(traffic) = store.traffic {
                samples.write(&[("store", store.name)], traffic.connects);
            }
        }),
    },
    Family {
        name: "ratelimit_store_exchange_duration_seconds",
        kind: "histogram",
        help: "How long exchanges with a store took.",
        source: MetricSource::Store(|samples, store| {
            if let Some(traffic) = store.traffic {
                let bounds = SyncStats::EXCHANGE_BOUNDS.map(Duration::from_micros);
                let sum = Duration::from_micros(traffic.exchange_sum);
                let labels = [("store", store.name)];
                samples.write_buckets(&labels, &bounds, &traffic.exchanges, sum);
            }
        }),
    },
];

impl Family {
    /// Writes the samples of the source's item at `index`. Returns whether it exists.
    pub(super) fn write(
        &self,
        samples: &mut Samples<'_>,
        status: &Status<'_>,
        index: usize,
    ) -> bool {
        let thing = match self.source {
            MetricSource::Node(write) => (index == 0).then(|| write(samples, status)),
            MetricSource::Zone(write) => status.zones.get(index).map(|it| write(samples, it)),
            MetricSource::Namespace(write) => {
                status.namespaces.get(index).map(|it| write(samples, it))
            }
            MetricSource::Synced(write) => status.namespaces.get(index).map(|it| {
                if let Some(syncs) = &it.syncs {
                    write(samples, it, syncs);
                }
            }),
            MetricSource::Policy(write) => status.policies.get(index).map(|it| write(samples, it)),
            MetricSource::Store(write) => status.stores.get(index).map(|it| write(samples, it)),
        };
        thing.is_some()
    }
}
