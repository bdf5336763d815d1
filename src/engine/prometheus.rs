//! A node's [`Status`] as Prometheus reads it.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. No key and no
//! client is ever a label: what is written does not grow with the number of keys. It does with that of
//! namespaces, so it is written in pieces: see [`Page`].

use core::time::Duration;

use super::status::{NamespaceStatus, PolicyStatus, Status, StoreStatus, ZoneStatus};
use crate::policy::window::UnixMillis;
use crate::table::{NamespaceStats, SyncStats, ZoneStats};

/// The media type of a [`Page`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// The name under which rejections are counted of policies that have no count of their own.
pub const OTHER_POLICIES: &str = "other";

/// All metrics of a node, in pieces that are written in a bounded time each. Families without samples
/// are left out.
#[derive(Debug)]
pub struct Page<'c> {
    status: Status<'c>,
    /// The family that is being written.
    family: usize,
    /// What of its source comes next.
    next: usize,
    /// The family that was described last.
    described: &'static str,
}

impl<'c> Page<'c> {
    /// A piece is complete when it is so long, and then gets no more than the samples of one thing.
    const LENGTH: usize = 16 << 10;

    /// Or when so many things were looked at.
    const THINGS: usize = 512;

    /// That of a node.
    pub fn new(status: Status<'c>) -> Page<'c> {
        Page {
            status,
            family: 0,
            next: 0,
            described: "",
        }
    }
}

impl Iterator for Page<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut family = FAMILIES.get(self.family)?;
        let mut text = String::with_capacity(Self::LENGTH.saturating_mul(2));
        for _ in 0..Self::THINGS {
            let mut samples = Samples {
                text: &mut text,
                family,
                described: &mut self.described,
            };
            if samples.write_of(&self.status, self.next) {
                self.next = self.next.saturating_add(1);
            } else {
                (self.family, self.next) = (self.family.saturating_add(1), 0);
                match FAMILIES.get(self.family) {
                    Some(next) => family = next,
                    None => break,
                }
            }
            if text.len() >= Self::LENGTH {
                break;
            }
        }
        Some(text)
    }
}

/// A family of samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    source: Source,
}

/// What has samples of a family, and how they are written. They are more than one for a few things
/// only: what is written of one thing is bounded.
enum Source {
    Node(fn(&mut Samples<'_>, &Status<'_>)),
    Zone(fn(&mut Samples<'_>, &ZoneStatus<'_>)),
    Namespace(fn(&mut Samples<'_>, &NamespaceStatus<'_>)),
    /// A namespace that is synced.
    Synced(fn(&mut Samples<'_>, &NamespaceStatus<'_>, &SyncStats)),
    Policy(fn(&mut Samples<'_>, &PolicyStatus<'_>)),
    Store(fn(&mut Samples<'_>, &StoreStatus<'_>)),
}

/// All families, in the order of the page.
static FAMILIES: [Family; 25] = [
    Family {
        name: "ratelimit_build_info",
        kind: "gauge",
        help: "What serves, always 1.",
        source: Source::Node(|samples, status| {
            if let Some(build) = &status.build {
                samples.write(&[("version", build.version), ("nginx", build.nginx)], 1);
            }
        }),
    },
    Family {
        name: "ratelimit_config_load_timestamp_seconds",
        kind: "gauge",
        help: "When the configuration was loaded, in Unix time.",
        source: Source::Node(|samples, status| {
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
        source: Source::Node(|samples, status| {
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
        source: Source::Namespace(|samples, namespace| {
            let stats = &namespace.stats;
            for (result, count) in [
                ("passed", stats.passed),
                ("rejected", stats.rejected),
                ("rejected_dry_run", stats.rejected_dry_run),
            ] {
                samples.write(&[("namespace", namespace.name), ("result", result)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_fallbacks_total",
        kind: "counter",
        help: "Requests that on_error decided on, by what it says.",
        source: Source::Namespace(|samples, namespace| {
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
        source: Source::Policy(|samples, policy| {
            let labels = [("namespace", policy.namespace), ("policy", policy.name)];
            samples.write(&labels, policy.rejected);
        }),
    },
    Family {
        name: "ratelimit_rejected_total",
        kind: "counter",
        help: "Requests that were rejected, by the policy that did.",
        source: Source::Namespace(|samples, namespace| {
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
        source: Source::Namespace(|samples, namespace| {
            let labels = [("namespace", namespace.name)];
            samples.write_decimal(&labels, thousandths(namespace.stats.hits));
        }),
    },
    Family {
        name: "ratelimit_invalid_values_total",
        kind: "counter",
        help: "Values that were wrong at run time.",
        source: Source::Namespace(|samples, namespace| {
            let counts = namespace.stats.invalid;
            for (what, count) in ["limit", "cost", "charge", "key"].into_iter().zip(counts) {
                samples.write(&[("namespace", namespace.name), ("what", what)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_wait_seconds",
        kind: "histogram",
        help: "How long requests waited for a store's decision.",
        source: Source::Namespace(|samples, namespace| {
            if namespace.is_synchronous() {
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
        source: Source::Zone(|samples, zone| {
            samples.write(&[("zone", zone.name)], zone.size as u64);
        }),
    },
    Family {
        name: "ratelimit_zone_counters",
        kind: "gauge",
        help: "Counters that have a place in a zone.",
        source: Source::Zone(|samples, zone| samples.write(&[("zone", zone.name)], zone.keys)),
    },
    Family {
        name: "ratelimit_zone_capacity_counters",
        kind: "gauge",
        help: "Counters that can have a place in a zone, if none is synced: those take more room.",
        source: Source::Zone(|samples, zone| samples.write(&[("zone", zone.name)], zone.capacity)),
    },
    Family {
        name: "ratelimit_zone_evicted_total",
        kind: "counter",
        help: "Counters that gave their place in a full zone to another one: their windows had \
               ended; they were alive, with nothing unsent; they had hits that the store had not.",
        source: Source::Zone(|samples, zone| {
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
        source: Source::Synced(|samples, namespace, syncs| {
            for (result, count) in [("ok", syncs.succeeded), ("error", syncs.failed)] {
                samples.write(&[("namespace", namespace.name), ("result", result)], count);
            }
        }),
    },
    Family {
        name: "ratelimit_sync_duration_seconds",
        kind: "histogram",
        help: "How long they took.",
        source: Source::Synced(|samples, namespace, syncs| {
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
        source: Source::Synced(|samples, namespace, syncs| {
            samples.write(&[("namespace", namespace.name)], syncs.pushed);
        }),
    },
    Family {
        name: "ratelimit_sync_fetched_counters_total",
        kind: "counter",
        help: "Counters of which the store told what the cluster counted.",
        source: Source::Synced(|samples, namespace, syncs| {
            samples.write(&[("namespace", namespace.name)], syncs.fetched);
        }),
    },
    Family {
        name: "ratelimit_sync_pending_counters",
        kind: "gauge",
        help: "Counters with hits that the store has not yet.",
        source: Source::Synced(|samples, namespace, _| {
            if let Some(pending) = namespace.pending {
                samples.write(&[("namespace", namespace.name)], pending);
            }
        }),
    },
    Family {
        name: "ratelimit_sync_dropped_hits_total",
        kind: "counter",
        help: "Hits that no store got before their windows had ended for good.",
        source: Source::Synced(|samples, namespace, _| {
            let labels = [("namespace", namespace.name)];
            samples.write_decimal(&labels, thousandths(namespace.stats.dropped));
        }),
    },
    Family {
        name: "ratelimit_sync_last_success_timestamp_seconds",
        kind: "gauge",
        help: "When a namespace was last synced, in Unix time.",
        source: Source::Synced(|samples, namespace, syncs| {
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
        source: Source::Store(|samples, store| {
            if let Some(is_up) = store.is_up {
                samples.write(&[("store", store.name)], u64::from(is_up));
            }
        }),
    },
    Family {
        name: "ratelimit_store_clock_offset_seconds",
        kind: "gauge",
        help: "How far a store's clock is ahead of this node's.",
        source: Source::Store(|samples, store| {
            if let Some(offset) = store.clock_offset() {
                let offset = Decimal {
                    is_negative: offset < 0,
                    ..thousandths(offset.unsigned_abs())
                };
                samples.write_decimal(&[("store", store.name)], offset);
            }
        }),
    },
    Family {
        name: "ratelimit_store_connects_total",
        kind: "counter",
        help: "Connections that were made to a store.",
        source: Source::Store(|samples, store| {
            if let Some(traffic) = store.traffic {
                samples.write(&[("store", store.name)], traffic.connects);
            }
        }),
    },
    Family {
        name: "ratelimit_store_exchange_duration_seconds",
        kind: "histogram",
        help: "How long exchanges with a store took.",
        source: Source::Store(|samples, store| {
            if let Some(traffic) = store.traffic {
                let bounds = SyncStats::EXCHANGE_BOUNDS.map(Duration::from_micros);
                let sum = Duration::from_micros(traffic.exchange_sum);
                let labels = [("store", store.name)];
                samples.write_buckets(&labels, &bounds, &traffic.exchanges, sum);
            }
        }),
    },
];

/// Labels of a sample, and their values.
type Labels<'l> = [(&'static str, &'l str)];

/// Where the samples of a family are written: the first after what describes it.
struct Samples<'t> {
    text: &'t mut String,
    family: &'static Family,
    described: &'t mut &'static str,
}

impl Samples<'_> {
    /// Writes those of the thing number `index`; returns whether there is one.
    fn write_of(&mut self, status: &Status<'_>, index: usize) -> bool {
        let thing = match self.family.source {
            Source::Node(write) => (index == 0).then(|| write(self, status)),
            Source::Zone(write) => status.zones.get(index).map(|it| write(self, it)),
            Source::Namespace(write) => status.namespaces.get(index).map(|it| write(self, it)),
            Source::Synced(write) => status.namespaces.get(index).map(|it| {
                if let Some(syncs) = &it.syncs {
                    write(self, it, syncs);
                }
            }),
            Source::Policy(write) => status.policies.get(index).map(|it| write(self, it)),
            Source::Store(write) => status.stores.get(index).map(|it| write(self, it)),
        };
        thing.is_some()
    }

    fn write(&mut self, labels: &Labels<'_>, value: u64) {
        self.write_decimal(labels, whole(value));
    }

    fn write_decimal(&mut self, labels: &Labels<'_>, value: Decimal) {
        self.write_sample("", labels, None, value);
    }

    /// A histogram: its buckets, each with those before it; the sum, and the number of all.
    fn write_buckets(
        &mut self,
        labels: &Labels<'_>,
        bounds: &[Duration],
        counts: &[u64],
        sum: Duration,
    ) {
        let bounds = bounds.iter().map(|bound| Bound::UpTo(seconds(*bound)));
        let mut count: u64 = 0;
        for (bound, more) in bounds.chain([Bound::All]).zip(counts) {
            count = count.saturating_add(*more);
            self.write_sample("_bucket", labels, Some(bound), whole(count));
        }
        self.write_sample("_sum", labels, None, seconds(sum));
        self.write_sample("_count", labels, None, whole(count));
    }

    fn write_sample(
        &mut self,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<Bound>,
        value: Decimal,
    ) {
        let Samples {
            text,
            family: Family {
                name, kind, help, ..
            },
            described,
        } = self;
        if **described != *name {
            **described = name;
            let parts = [
                "# HELP ",
                name,
                " ",
                help,
                "\n# TYPE ",
                name,
                " ",
                kind,
                "\n",
            ];
            text.extend(parts);
        }
        text.extend([name, suffix]);
        let mut before = "{";
        for (label, value) in labels {
            text.extend([before, label, "=\""]);
            push_escaped(text, value);
            text.push('"');
            before = ",";
        }
        if let Some(bound) = bound {
            text.extend([before, "le=\""]);
            match bound {
                Bound::UpTo(bound) => bound.push_to(text),
                Bound::All => text.push_str("+Inf"),
            }
            text.push('"');
            before = ",";
        }
        text.push_str(if before == "," { "} " } else { " " });
        value.push_to(text);
        text.push('\n');
    }
}

/// Up to what a bucket counts.
enum Bound {
    UpTo(Decimal),
    All,
}

/// A decimal: `whole`, and so many `billionths`.
struct Decimal {
    is_negative: bool,
    whole: u64,
    billionths: u32,
}

fn whole(whole: u64) -> Decimal {
    Decimal {
        is_negative: false,
        whole,
        billionths: 0,
    }
}

/// Hits, or seconds of so many milliseconds. (A sum of hits may be larger than any
/// [`Hits`](crate::policy::hits::Hits).)
fn thousandths(count: u64) -> Decimal {
    Decimal {
        is_negative: false,
        whole: count / 1000,
        billionths: ((count % 1000) as u32).wrapping_mul(1_000_000),
    }
}

fn seconds(duration: Duration) -> Decimal {
    Decimal {
        is_negative: false,
        whole: duration.as_secs(),
        billionths: duration.subsec_nanos(),
    }
}

impl Decimal {
    /// Writes it, without zeros at its end: a page has tens of thousands, for which formatting would
    /// take most of the time.
    fn push_to(&self, text: &mut String) {
        if self.is_negative {
            text.push('-');
        }
        push_digits(text, self.whole, 1);
        let (mut rest, mut digits) = (u64::from(self.billionths), 9_u32);
        if rest > 0 {
            text.push('.');
            while rest % 10 == 0 {
                (rest, digits) = (rest / 10, digits.saturating_sub(1));
            }
            push_digits(text, rest, digits);
        }
    }
}

/// Writes a number, with zeros before it if it has less digits than so many.
fn push_digits(text: &mut String, number: u64, at_least: u32) {
    let mut digits = [b'0'; 20];
    let (mut rest, mut count) = (number, 0_u32);
    for digit in digits.iter_mut().rev() {
        if rest == 0 && count >= at_least {
            break;
        }
        *digit = b'0' | (rest % 10) as u8;
        (rest, count) = (rest / 10, count.saturating_add(1));
    }
    let start = digits.len().saturating_sub(count as usize);
    let digits = digits.get(start..).unwrap_or_default();
    text.extend(digits.iter().map(|&digit| char::from(digit)));
}

/// Writes the value of a label, as it is between quotes.
fn push_escaped(text: &mut String, value: &str) {
    for part in value.split_inclusive(['\\', '"', '\n']) {
        let plain = part.trim_end_matches(['\\', '"', '\n']);
        text.push_str(plain);
        text.push_str(match part.get(plain.len()..) {
            Some("\\") => "\\\\",
            Some("\"") => "\\\"",
            Some("\n") => "\\n",
            _ => "",
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::status::testing::status;
    use super::*;
    use std::collections::HashSet;

    fn metrics(status: Status<'_>) -> String {
        Page::new(status).collect()
    }

    #[test]
    fn all_that_is_known_is_told() {
        let text = metrics(status());
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
        let text = metrics(status());
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
        assert_eq!(metrics(Status::default()), "");
    }

    #[test]
    fn a_page_is_written_in_bounded_pieces_however_many_namespaces_there_are() {
        for count in [100, 1000] {
            let mut status = status();
            let some = status.namespaces.clone();
            let names: Vec<_> = (0..count).map(|n| format!("namespace-{n}")).collect();
            let many = names.iter().zip(some.iter().cycle());
            status.namespaces = many
                .map(|(name, some)| NamespaceStatus { name, ..*some })
                .collect();
            let pieces: Vec<_> = Page::new(status.clone()).collect();
            // One thing has at most a histogram more.
            let longest = pieces.iter().map(String::len).max().unwrap();
            assert!(longest < Page::LENGTH + (4 << 10), "{longest}");
            let length: usize = pieces.iter().map(String::len).sum();
            let things = FAMILIES.len() * (count + 1);
            let at_most = length / Page::LENGTH + things / Page::THINGS + 2;
            assert!(pieces.len() <= at_most, "{} {at_most}", pieces.len());
            let text = pieces.concat();
            let lines: HashSet<_> = text.lines().collect();
            for name in names {
                let passed = format!("{{namespace=\"{name}\",result=\"passed\"}} 3");
                let passed = format!("ratelimit_requests_total{passed}");
                assert!(lines.contains(&*passed), "{name}");
            }
            assert_eq!(
                text.matches("# TYPE").count(),
                metrics(self::status()).matches("# TYPE").count()
            );
        }
    }

    #[test]
    fn decimals_are_exact_and_short() {
        let text = |decimal: Decimal| {
            let mut text = String::new();
            decimal.push_to(&mut text);
            text
        };
        assert_eq!(text(whole(0)), "0");
        assert_eq!(text(whole(u64::MAX)), u64::MAX.to_string());
        assert_eq!(text(thousandths(1_050)), "1.05");
        assert_eq!(text(thousandths(7)), "0.007");
        assert_eq!(text(seconds(Duration::from_nanos(1))), "0.000000001");
        assert_eq!(text(seconds(Duration::from_millis(2500))), "2.5");
    }

    #[test]
    fn labels_are_escaped() {
        let escaped = |value| {
            let mut text = String::new();
            push_escaped(&mut text, value);
            text
        };
        assert_eq!(escaped("a\\b\"c\nd\\\\"), "a\\\\b\\\"c\\nd\\\\\\\\");
    }
}
