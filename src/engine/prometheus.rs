//! A node's [`Status`] as Prometheus reads it.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. No key and no
//! client is ever a label: what is written does not grow with the number of keys.

use core::fmt::{Display, Write as _};
use core::time::Duration;

use super::status::{NamespaceStatus, Status};
use crate::policy::hits::Hits;
use crate::policy::window::UnixMillis;
use crate::table::SyncStats;

/// The media type of [`metrics`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// A sample of a family: what follows its name, the labels, the value.
struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: String,
}

/// All metrics of the node. Families without samples are left out.
pub fn metrics(status: &Status) -> String {
    let Status {
        zones,
        namespaces,
        stores,
    } = status;
    let mut text = String::new();
    let of_namespace = |namespace: &NamespaceStatus| ("namespace", namespace.name.clone());

    let requests = namespaces.iter().flat_map(|namespace| {
        let stats = namespace.stats;
        let results = [
            ("passed", stats.passed),
            ("rejected", stats.rejected),
            ("rejected_dry_run", stats.rejected_dry_run),
            ("error", stats.error),
        ];
        results.map(|(result, count)| {
            sample([of_namespace(namespace), ("result", result.into())], count)
        })
    });
    let help = "Requests by what became of them.";
    family(
        &mut text,
        "ratelimit_requests_total",
        "counter",
        help,
        requests,
    );
    let hits = namespaces.iter().map(|namespace| {
        let hits = hits_of(namespace.stats.hits);
        sample([of_namespace(namespace)], hits)
    });
    let help = "Hits that were counted by this node.";
    family(&mut text, "ratelimit_hits_total", "counter", help, hits);

    let size = zones.iter().map(|zone| {
        let labels = [("zone", zone.name.clone())];
        sample(labels, zone.size)
    });
    let help = "Size of a zone of shared memory.";
    family(&mut text, "ratelimit_zone_size_bytes", "gauge", help, size);
    let keys = zones.iter().map(|zone| {
        let labels = [("zone", zone.name.clone())];
        sample(labels, zone.keys)
    });
    let help = "Counters that have a place in a zone.";
    family(&mut text, "ratelimit_zone_keys", "gauge", help, keys);
    let evicted = zones.iter().flat_map(|zone| {
        let states = [
            ("ended", zone.stats.evicted_ended),
            ("sent", zone.stats.evicted_sent),
            ("unsent", zone.stats.evicted_unsent),
        ];
        states.map(|(state, count)| {
            let labels = [("zone", zone.name.clone()), ("state", state.into())];
            sample(labels, count)
        })
    });
    let help = "Counters that gave their place in a full zone to another one: their windows had \
                ended; they were alive, with nothing unsent; they had hits that the store had not.";
    family(
        &mut text,
        "ratelimit_zone_evicted_total",
        "counter",
        help,
        evicted,
    );

    let syncs: Vec<_> = namespaces
        .iter()
        .filter_map(|namespace| Some((of_namespace(namespace), namespace.syncs?)))
        .collect();
    let cycles = syncs.iter().flat_map(|(label, syncs)| {
        let results = [("ok", syncs.succeeded), ("error", syncs.failed)];
        results.map(|(result, count)| sample([label.clone(), ("result", result.into())], count))
    });
    let help = "Exchanges of a namespace's counts with its store.";
    family(
        &mut text,
        "ratelimit_sync_cycles_total",
        "counter",
        help,
        cycles,
    );
    let durations = syncs.iter().flat_map(|(label, syncs)| {
        let bounds = SyncStats::BOUNDS.map(Duration::from_millis);
        let sum = Duration::from_millis(syncs.duration_sum);
        histogram(label, &bounds, &syncs.durations, sum)
    });
    let help = "How long they took.";
    family(
        &mut text,
        "ratelimit_sync_duration_seconds",
        "histogram",
        help,
        durations,
    );
    let pushed = syncs
        .iter()
        .map(|(label, syncs)| sample([label.clone()], syncs.pushed));
    let help = "Counters of which hits were sent to the store.";
    family(
        &mut text,
        "ratelimit_sync_pushed_keys_total",
        "counter",
        help,
        pushed,
    );
    let fetched = syncs
        .iter()
        .map(|(label, syncs)| sample([label.clone()], syncs.fetched));
    let help = "Counters of which the store told what the cluster counted.";
    family(
        &mut text,
        "ratelimit_sync_fetched_keys_total",
        "counter",
        help,
        fetched,
    );
    let pending = namespaces
        .iter()
        .filter_map(|namespace| Some(sample([of_namespace(namespace)], namespace.pending?)));
    let help = "Keys with hits that the store has not yet.";
    let name = "ratelimit_sync_pending_keys";
    family(&mut text, name, "gauge", help, pending);
    let dropped = namespaces
        .iter()
        .filter(|namespace| namespace.syncs.is_some());
    let dropped = dropped
        .map(|namespace| sample([of_namespace(namespace)], hits_of(namespace.stats.dropped)));
    let help = "Hits that no store got before their windows had ended for good.";
    let name = "ratelimit_sync_dropped_hits_total";
    family(&mut text, name, "counter", help, dropped);
    let last = syncs.iter().filter_map(|(label, syncs)| {
        let UnixMillis(millis) = syncs.last_success?;
        Some(sample([label.clone()], unsigned_seconds(millis)))
    });
    let help = "When a namespace was last synced, in Unix time.";
    let name = "ratelimit_sync_last_success_timestamp_seconds";
    family(&mut text, name, "gauge", help, last);

    let health: Vec<_> = stores
        .iter()
        .filter_map(|store| Some((store, status.health(&store.name)?)))
        .collect();
    let up = health.iter().map(|(store, health)| {
        let labels = [("store", store.name.clone())];
        sample(labels, u8::from(health.is_up))
    });
    let help = "Whether the last exchange with a store succeeded.";
    family(&mut text, "ratelimit_store_up", "gauge", help, up);
    let offset = health.iter().filter_map(|(store, health)| {
        let labels = [("store", store.name.clone())];
        Some(sample(labels, seconds(health.clock_offset?)))
    });
    let help = "How far a store's clock is ahead of this node's.";
    let name = "ratelimit_store_clock_offset_seconds";
    family(&mut text, name, "gauge", help, offset);

    let traffic: Vec<_> = stores
        .iter()
        .filter_map(|store| {
            let label = ("store", store.name.clone());
            Some((label, status.traffic(&store.name)?))
        })
        .collect();
    let connects = traffic
        .iter()
        .map(|(label, traffic)| sample([label.clone()], traffic.connects));
    let help = "Connections that were made to a store.";
    let name = "ratelimit_store_connects_total";
    family(&mut text, name, "counter", help, connects);
    let exchanges = traffic.iter().flat_map(|(label, traffic)| {
        let bounds = SyncStats::EXCHANGE_BOUNDS.map(Duration::from_micros);
        let sum = Duration::from_micros(traffic.exchange_sum);
        histogram(label, &bounds, &traffic.exchanges, sum)
    });
    let help = "How long exchanges with a store took.";
    let name = "ratelimit_store_exchange_duration_seconds";
    family(&mut text, name, "histogram", help, exchanges);

    let hold = Duration::from_nanos(status.longest_hold());
    let hold = zones.first().map(|_| sample([], hold.as_secs_f64()));
    let help = "The longest time for which a callback of this module held a worker's event loop. Of \
                requests that are only counted, one in 256 is measured.";
    let name = "ratelimit_event_loop_hold_seconds_max";
    family(&mut text, name, "gauge", help, hold);
    text
}

fn sample<const N: usize>(labels: [(&'static str, String); N], value: impl Display) -> Sample {
    Sample {
        suffix: "",
        labels: labels.into(),
        value: value.to_string(),
    }
}

/// A sum of hits, in thousandths. It may be below zero for a moment, while hits are given back.
fn hits_of(thousandths: u64) -> Hits {
    Hits::from_thousandths((thousandths as i64).max(0))
}

/// Milliseconds, as seconds.
fn seconds(millis: i64) -> String {
    // Thousandths of hits are written likewise.
    Hits::from_thousandths(millis).to_string()
}

/// Milliseconds, as seconds.
fn unsigned_seconds(millis: u64) -> String {
    seconds(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// The buckets of a histogram, each with those before it; the sum, and the number of all.
fn histogram(
    label: &(&'static str, String),
    bounds: &[Duration],
    counts: &[u64],
    sum: Duration,
) -> Vec<Sample> {
    let bounds = bounds.iter().map(|bound| bound.as_secs_f64().to_string());
    let bounds = bounds.chain(["+Inf".into()]);
    let mut count: u64 = 0;
    let mut samples = Vec::new();
    for (bound, more) in bounds.zip(counts) {
        count = count.saturating_add(*more);
        samples.push(Sample {
            suffix: "_bucket",
            ..sample([label.clone(), ("le", bound)], count)
        });
    }
    samples.push(Sample {
        suffix: "_sum",
        ..sample([label.clone()], sum.as_secs_f64())
    });
    samples.push(Sample {
        suffix: "_count",
        ..sample([label.clone()], count)
    });
    samples
}

fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = Sample>,
) {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return;
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for Sample {
        suffix,
        labels,
        value,
    } in samples
    {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(text, "{name}{suffix}{labels} {value}");
    }
}

/// The value of a label, as it is written between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::status::testing::status;
    use super::*;

    #[test]
    fn all_that_is_known_is_told() {
        let text = metrics(&status());
        for line in [
            "# TYPE ratelimit_requests_total counter",
            "ratelimit_requests_total{namespace=\"local\",result=\"passed\"} 3",
            "ratelimit_requests_total{namespace=\"local\",result=\"rejected_dry_run\"} 1",
            "ratelimit_hits_total{namespace=\"api\"} 4.25",
            "ratelimit_zone_size_bytes{zone=\"counters\"} 1048576",
            "ratelimit_zone_keys{zone=\"counters\"} 4",
            "ratelimit_zone_evicted_total{zone=\"counters\",state=\"unsent\"} 3",
            "ratelimit_sync_cycles_total{namespace=\"api\",result=\"error\"} 1",
            "# TYPE ratelimit_sync_duration_seconds histogram",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"0.001\"} 1",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"0.025\"} 3",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"2.5\"} 3",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"+Inf\"} 4",
            "ratelimit_sync_duration_seconds_sum{namespace=\"api\"} 3.014",
            "ratelimit_sync_duration_seconds_count{namespace=\"api\"} 4",
            "ratelimit_sync_pushed_keys_total{namespace=\"api\"} 7",
            "ratelimit_sync_fetched_keys_total{namespace=\"api\"} 8",
            "ratelimit_sync_last_success_timestamp_seconds{namespace=\"api\"} 1700000000.25",
            "ratelimit_sync_dropped_hits_total{namespace=\"api\"} 1.5",
            "ratelimit_store_up{store=\"main\"} 1",
            "ratelimit_store_clock_offset_seconds{store=\"main\"} -1.5",
            "ratelimit_sync_pending_keys{namespace=\"api\"} 5",
            "ratelimit_store_connects_total{store=\"main\"} 2",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"0.00025\"} 1",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"1\"} 5",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"+Inf\"} 6",
            "ratelimit_store_exchange_duration_seconds_sum{store=\"main\"} 2.00075",
            "ratelimit_event_loop_hold_seconds_max 0.0000125",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        for none in [
            "ratelimit_sync_cycles_total{namespace=\"local\"",
            "ratelimit_sync_last_success_timestamp_seconds{namespace=\"new\"",
            "ratelimit_sync_pending_keys{namespace=\"local\"",
            "ratelimit_store_up{store=\"unused\"",
            "ratelimit_store_connects_total{store=\"unused\"",
        ] {
            assert!(!text.contains(none), "{none}\n{text}");
        }
    }

    #[test]
    fn every_family_is_described_once_before_its_samples() {
        let text = metrics(&status());
        let mut described = Vec::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let name = help.split(' ').next().unwrap();
                assert!(!described.contains(&name), "{name}");
                described.push(name);
            } else if !line.starts_with('#') {
                assert!(line.starts_with(described.last().unwrap()), "{line}");
            }
        }
        assert_eq!(metrics(&Status::default()), "");
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }
}
