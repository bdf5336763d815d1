//! The page for Prometheus about a node's [`Status`].
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>. Keys and clients are never labels,
//! so the size of the page does not depend on the number of keys. It does depend on the number of namespaces, so it is
//! written in pieces: see [`Page`].
//!
//! - `families`: the metrics; `text`: their format

use super::families::FAMILIES;
pub use super::families::OTHER_POLICIES;
use super::status::Status;
use super::text::Samples;

/// The media type of a [`Page`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// All metrics of a node, in pieces that take a bounded time to write. Families without samples are left out.
#[derive(Debug)]
pub struct Page<'c> {
    status: Status<'c>,
    /// The index of the family being written.
    family: usize,
    /// The index of the next item of its source.
    next: usize,
    /// The name of the family whose description was written last.
    described: &'static str,
}

impl<'c> Page<'c> {
    /// The minimum length of a full piece. The item that completes it is the last one.
    const LENGTH: usize = 16 << 10;

    /// The maximum number of items per piece.
    const THINGS: usize = 512;

    /// Creates the page of a node's status.
    pub fn new(status: Status<'c>) -> Page<'c> {
        Page { status, family: 0, next: 0, described: "" }
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
                name: family.name,
                kind: family.kind,
                help: family.help,
                described: &mut self.described,
                owner: None,
            };
            if family.write(&mut samples, &self.status, self.next) {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::report::status::NamespaceStatus;
    use crate::engine::report::status::testing::status;
    use std::collections::HashSet;

    fn metrics(status: Status<'_>) -> String {
        Page::new(status).collect()
    }

    #[test]
    fn all_known_values_are_reported() {
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
            "ratelimit_delayed_total{namespace=\"local\"} 5",
            "ratelimit_delayed_total{namespace=\"api\"} 0",
            "ratelimit_wait_seconds_count{namespace=\"local\"} 3",
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
            "ratelimit_nodes{namespace=\"api\"} 3",
            "ratelimit_excess_hits_total{namespace=\"api\"} 2.5",
            "ratelimit_concurrent{namespace=\"api\"} 2",
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
            "ratelimit_nodes{namespace=\"local\"",
            "ratelimit_concurrent{namespace=\"local\"",
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
            status.namespaces =
                many.map(|(name, some)| NamespaceStatus { name, ..*some }).collect();
            let pieces: Vec<_> = Page::new(status.clone()).collect();
            // Beyond the length, a piece has at most the histogram of one item.
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
}
