//! A node's [`Status`] as Prometheus reads it.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. No key and no
//! client is ever a label: what is written does not grow with the number of keys.

use core::fmt::{self, Display, Write as _};
use core::time::Duration;

use super::status::Status;
use crate::policy::window::UnixMillis;
use crate::table::{NamespaceStats, SyncStats, ZoneStats};

/// The media type of [`metrics`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// The name under which rejections are counted of policies that have no count of their own.
pub const OTHER_POLICIES: &str = "other";

/// All metrics of the node. Families without samples are left out.
pub fn metrics(status: &Status) -> String {
    let mut text = String::new();
    write_node(&mut text, status);
    write_requests(&mut text, status);
    write_zones(&mut text, status);
    write_syncs(&mut text, status);
    write_stores(&mut text, status);
    text
}

fn write_node(text: &mut String, status: &Status) {
    if let Some(build) = &status.build {
        let help = "What serves, always 1.";
        let mut family = gauge(text, "ratelimit_build_info", help);
        let labels = [("version", build.version), ("nginx", build.nginx)];
        family.sample(&labels, 1);
    }
    if let Some(UnixMillis(millis)) = status.loaded_at {
        let help = "When the configuration was loaded, in Unix time.";
        gauge(text, "ratelimit_config_load_timestamp_seconds", help)
            .sample(&[], Thousandths(millis));
    }
    if !status.zones.is_empty() {
        let help = "How long callbacks of this module held a worker's event loop. Of requests that are \
                    only counted, one in 256 is measured.";
        let name = "ratelimit_event_loop_hold_seconds";
        let (counts, sum) = status.holds();
        let bounds = ZoneStats::HOLD_BOUNDS.map(Duration::from_nanos);
        let sum = Duration::from_nanos(sum);
        histogram(text, name, help).buckets(&[], &bounds, &counts, sum);
    }
}

fn write_requests(text: &mut String, status: &Status) {
    let namespaces = &status.namespaces;
    let help = "Requests by what became of them.";
    let mut family = counter(text, "ratelimit_requests_total", help);
    for namespace in namespaces {
        let stats = &namespace.stats;
        for (result, count) in [
            ("passed", stats.passed),
            ("rejected", stats.rejected),
            ("rejected_dry_run", stats.rejected_dry_run),
        ] {
            let labels = [("namespace", &*namespace.name), ("result", result)];
            family.sample(&labels, count);
        }
    }
    let help = "Requests that on_error decided on, by what it says.";
    let mut family = counter(text, "ratelimit_fallbacks_total", help);
    for namespace in namespaces.iter().filter(|it| it.is_synchronous()) {
        let counts = namespace.stats.fallbacks;
        for (action, count) in ["local", "allow", "deny"].iter().zip(counts) {
            let labels = [("namespace", &*namespace.name), ("action", action)];
            family.sample(&labels, count);
        }
    }
    let help = "Requests that were rejected, by the policy that did.";
    let mut family = counter(text, "ratelimit_rejected_total", help);
    for policy in &status.policies {
        let labels = [("namespace", &*policy.namespace), ("policy", &*policy.name)];
        family.sample(&labels, policy.rejected);
    }
    for namespace in namespaces {
        let rejected = namespace.stats.rejected_unnamed;
        if rejected > 0 {
            let labels = [("namespace", &*namespace.name), ("policy", OTHER_POLICIES)];
            family.sample(&labels, rejected);
        }
    }
    let help = "Hits of requests that were admitted and counted, by each counter that was charged.";
    let mut family = counter(text, "ratelimit_hits_total", help);
    for namespace in namespaces {
        let hits = Thousandths(namespace.stats.hits);
        family.sample(&[("namespace", &*namespace.name)], hits);
    }
    let help = "Values that were wrong at run time.";
    let mut family = counter(text, "ratelimit_invalid_values_total", help);
    for namespace in namespaces {
        let counts = namespace.stats.invalid;
        for (what, count) in ["limit", "cost", "charge", "key"].iter().zip(counts) {
            let labels = [("namespace", &*namespace.name), ("what", what)];
            family.sample(&labels, count);
        }
    }
    let help = "How long requests waited for a store's decision.";
    let mut family = histogram(text, "ratelimit_wait_seconds", help);
    for namespace in namespaces.iter().filter(|it| it.is_synchronous()) {
        let NamespaceStats {
            waits, wait_sum, ..
        } = namespace.stats;
        let bounds = NamespaceStats::WAIT_BOUNDS.map(Duration::from_micros);
        let labels = [("namespace", &*namespace.name)];
        family.buckets(&labels, &bounds, &waits, Duration::from_micros(wait_sum));
    }
}

fn write_zones(text: &mut String, status: &Status) {
    let zones = &status.zones;
    let help = "Size of a zone of shared memory.";
    let mut family = gauge(text, "ratelimit_zone_size_bytes", help);
    for zone in zones {
        family.sample(&[("zone", &*zone.name)], zone.size);
    }
    let help = "Counters that have a place in a zone.";
    let mut family = gauge(text, "ratelimit_zone_counters", help);
    for zone in zones {
        family.sample(&[("zone", &*zone.name)], zone.keys);
    }
    let help = "Counters that can have a place in a zone, if none is synced: those take more room.";
    let mut family = gauge(text, "ratelimit_zone_capacity_counters", help);
    for zone in zones {
        family.sample(&[("zone", &*zone.name)], zone.capacity);
    }
    let help = "Counters that gave their place in a full zone to another one: their windows had \
                ended; they were alive, with nothing unsent; they had hits that the store had not.";
    let mut family = counter(text, "ratelimit_zone_evicted_total", help);
    for zone in zones {
        for (state, count) in [
            ("ended", zone.stats.evicted_ended),
            ("sent", zone.stats.evicted_sent),
            ("unsent", zone.stats.evicted_unsent),
        ] {
            let labels = [("zone", &*zone.name), ("state", state)];
            family.sample(&labels, count);
        }
    }
}

fn write_syncs(text: &mut String, status: &Status) {
    let namespaces = status.namespaces.iter();
    let syncs: Vec<_> = namespaces
        .filter_map(|namespace| Some((namespace, namespace.syncs?)))
        .collect();
    let help = "Exchanges of a namespace's counts with its store.";
    let mut family = counter(text, "ratelimit_sync_cycles_total", help);
    for (namespace, syncs) in &syncs {
        for (result, count) in [("ok", syncs.succeeded), ("error", syncs.failed)] {
            let labels = [("namespace", &*namespace.name), ("result", result)];
            family.sample(&labels, count);
        }
    }
    let help = "How long they took.";
    let mut family = histogram(text, "ratelimit_sync_duration_seconds", help);
    for (namespace, syncs) in &syncs {
        let bounds = SyncStats::BOUNDS.map(Duration::from_millis);
        let sum = Duration::from_millis(syncs.duration_sum);
        let labels = [("namespace", &*namespace.name)];
        family.buckets(&labels, &bounds, &syncs.durations, sum);
    }
    let help = "Counters of which hits were sent to the store.";
    let mut family = counter(text, "ratelimit_sync_pushed_counters_total", help);
    for (namespace, syncs) in &syncs {
        family.sample(&[("namespace", &*namespace.name)], syncs.pushed);
    }
    let help = "Counters of which the store told what the cluster counted.";
    let mut family = counter(text, "ratelimit_sync_fetched_counters_total", help);
    for (namespace, syncs) in &syncs {
        family.sample(&[("namespace", &*namespace.name)], syncs.fetched);
    }
    let help = "Counters with hits that the store has not yet.";
    let mut family = gauge(text, "ratelimit_sync_pending_counters", help);
    for (namespace, _) in &syncs {
        if let Some(pending) = namespace.pending {
            family.sample(&[("namespace", &*namespace.name)], pending);
        }
    }
    let help = "Hits that no store got before their windows had ended for good.";
    let mut family = counter(text, "ratelimit_sync_dropped_hits_total", help);
    for (namespace, _) in &syncs {
        let dropped = Thousandths(namespace.stats.dropped);
        family.sample(&[("namespace", &*namespace.name)], dropped);
    }
    let help = "When a namespace was last synced, in Unix time.";
    let name = "ratelimit_sync_last_success_timestamp_seconds";
    let mut family = gauge(text, name, help);
    for (namespace, syncs) in &syncs {
        if let Some(UnixMillis(millis)) = syncs.last_success {
            let labels = [("namespace", &*namespace.name)];
            family.sample(&labels, Thousandths(millis));
        }
    }
}

fn write_stores(text: &mut String, status: &Status) {
    let stores = &status.stores;
    let help = "Whether a store does what it is asked.";
    let mut family = gauge(text, "ratelimit_store_up", help);
    for store in stores {
        if let Some(is_up) = store.is_up {
            family.sample(&[("store", &*store.name)], u8::from(is_up));
        }
    }
    let help = "How far a store's clock is ahead of this node's.";
    let mut family = gauge(text, "ratelimit_store_clock_offset_seconds", help);
    for store in stores {
        if let Some(offset) = status.clock_offset(&store.name) {
            let sign = if offset < 0 { "-" } else { "" };
            let offset = format!("{sign}{}", Thousandths(offset.unsigned_abs()));
            family.sample(&[("store", &*store.name)], offset);
        }
    }
    let traffic: Vec<_> = stores
        .iter()
        .filter_map(|store| Some((&*store.name, status.traffic(&store.name)?)))
        .collect();
    let help = "Connections that were made to a store.";
    let mut family = counter(text, "ratelimit_store_connects_total", help);
    for (store, traffic) in &traffic {
        family.sample(&[("store", store)], traffic.connects);
    }
    let help = "How long exchanges with a store took.";
    let name = "ratelimit_store_exchange_duration_seconds";
    let mut family = histogram(text, name, help);
    for (store, traffic) in &traffic {
        let bounds = SyncStats::EXCHANGE_BOUNDS.map(Duration::from_micros);
        let sum = Duration::from_micros(traffic.exchange_sum);
        family.buckets(&[("store", store)], &bounds, &traffic.exchanges, sum);
    }
}

/// Labels of a sample, and their values.
type Labels<'l> = [(&'static str, &'l str)];

/// A family of samples, which are written one by one: the first after what describes them.
struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    is_described: bool,
}

fn counter<'t>(text: &'t mut String, name: &'static str, help: &'static str) -> Family<'t> {
    Family::new(text, name, "counter", help)
}

fn gauge<'t>(text: &'t mut String, name: &'static str, help: &'static str) -> Family<'t> {
    Family::new(text, name, "gauge", help)
}

fn histogram<'t>(text: &'t mut String, name: &'static str, help: &'static str) -> Family<'t> {
    Family::new(text, name, "histogram", help)
}

impl<'t> Family<'t> {
    fn new(
        text: &'t mut String,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
    ) -> Family<'t> {
        Family {
            text,
            name,
            kind,
            help,
            is_described: false,
        }
    }

    fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        self.write("", labels, None, value);
    }

    /// A histogram: its buckets, each with those before it; the sum, and the number of all.
    fn buckets(&mut self, labels: &Labels<'_>, bounds: &[Duration], counts: &[u64], sum: Duration) {
        let bounds = bounds.iter().map(|bound| Some(bound.as_secs_f64()));
        let mut count: u64 = 0;
        for (bound, more) in bounds.chain([None]).zip(counts) {
            count = count.saturating_add(*more);
            self.write("_bucket", labels, Some(bound), count);
        }
        self.write("_sum", labels, None, sum.as_secs_f64());
        self.write("_count", labels, None, count);
    }

    /// Writes a sample; with a `bound`, the bucket up to that: `None` is that of all.
    fn write(
        &mut self,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<Option<f64>>,
        value: impl Display,
    ) {
        let Family {
            text,
            name,
            kind,
            help,
            is_described,
        } = self;
        // Writing to a string does not fail.
        if !core::mem::replace(is_described, true) {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        text.push_str(name);
        text.push_str(suffix);
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(text, "{before}{label}=\"{}\"", Escaped(value));
            before = ',';
        }
        if let Some(bound) = bound {
            let _ = match bound {
                Some(bound) => write!(text, "{before}le=\"{bound}\""),
                None => write!(text, "{before}le=\"+Inf\""),
            };
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// A number in thousandths, as a decimal: hits, or seconds of so many milliseconds. (A sum of hits may
/// be larger than any [`Hits`](crate::policy::hits::Hits).)
struct Thousandths(u64);

impl Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        write!(f, "{whole}")?;
        if rest == 0 {
            return Ok(());
        }
        let decimals = format!("{rest:03}");
        write!(f, ".{}", decimals.trim_end_matches('0'))
    }
}

/// The value of a label, as it is written between quotes.
struct Escaped<'v>(&'v str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(['\\', '"', '\n']) {
            let text = part.trim_end_matches(['\\', '"', '\n']);
            f.write_str(text)?;
            f.write_str(match part.get(text.len()..) {
                Some("\\") => "\\\\",
                Some("\"") => "\\\"",
                Some("\n") => "\\n",
                _ => "",
            })?;
        }
        Ok(())
    }
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
            "ratelimit_build_info{version=\"1.2.3\",nginx=\"1.28.3\"} 1",
            "ratelimit_config_load_timestamp_seconds 1700000000.5",
            "ratelimit_fallbacks_total{namespace=\"exact\",action=\"deny\"} 3",
            "ratelimit_rejected_total{namespace=\"api\",policy=\"api-1m\"} 2",
            "ratelimit_rejected_total{namespace=\"local\",policy=\"other\"} 7",
            "ratelimit_invalid_values_total{namespace=\"local\",what=\"charge\"} 3",
            "# TYPE ratelimit_wait_seconds histogram",
            "ratelimit_wait_seconds_bucket{namespace=\"exact\",le=\"0.0005\"} 1",
            "ratelimit_wait_seconds_count{namespace=\"exact\"} 3",
            "ratelimit_wait_seconds_sum{namespace=\"exact\"} 0.0125",
            "ratelimit_zone_counters{zone=\"counters\"} 4",
            "ratelimit_zone_capacity_counters{zone=\"counters\"} 16000",
            "ratelimit_zone_evicted_total{zone=\"counters\",state=\"unsent\"} 3",
            "ratelimit_sync_cycles_total{namespace=\"api\",result=\"error\"} 1",
            "# TYPE ratelimit_sync_duration_seconds histogram",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"0.001\"} 1",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"0.025\"} 3",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"2.5\"} 3",
            "ratelimit_sync_duration_seconds_bucket{namespace=\"api\",le=\"+Inf\"} 4",
            "ratelimit_sync_duration_seconds_sum{namespace=\"api\"} 3.014",
            "ratelimit_sync_duration_seconds_count{namespace=\"api\"} 4",
            "ratelimit_sync_pushed_counters_total{namespace=\"api\"} 7",
            "ratelimit_sync_fetched_counters_total{namespace=\"api\"} 8",
            "ratelimit_sync_last_success_timestamp_seconds{namespace=\"api\"} 1700000000.25",
            "ratelimit_sync_dropped_hits_total{namespace=\"api\"} 1.5",
            "ratelimit_store_up{store=\"main\"} 1",
            "ratelimit_store_clock_offset_seconds{store=\"main\"} -1.5",
            "ratelimit_sync_pending_counters{namespace=\"api\"} 5",
            "ratelimit_store_connects_total{store=\"main\"} 2",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"0.00025\"} 1",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"1\"} 5",
            "ratelimit_store_exchange_duration_seconds_bucket{store=\"main\",le=\"+Inf\"} 6",
            "ratelimit_store_exchange_duration_seconds_sum{store=\"main\"} 2.00075",
            "ratelimit_event_loop_hold_seconds_bucket{le=\"0.000001\"} 1",
            "ratelimit_event_loop_hold_seconds_bucket{le=\"+Inf\"} 2",
            "ratelimit_event_loop_hold_seconds_sum 0.0125",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        for none in [
            "ratelimit_sync_cycles_total{namespace=\"local\"",
            "ratelimit_sync_last_success_timestamp_seconds{namespace=\"new\"",
            "ratelimit_sync_pending_counters{namespace=\"local\"",
            "ratelimit_store_up{store=\"unused\"",
            "ratelimit_wait_seconds_count{namespace=\"api\"",
            "ratelimit_fallbacks_total{namespace=\"api\"",
            "namespace=\"api\",policy=\"other\"",
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
        let escaped = |value| Escaped(value).to_string();
        assert_eq!(escaped("a\\b\"c\nd\\\\"), "a\\\\b\\\"c\\nd\\\\\\\\");
    }
}
