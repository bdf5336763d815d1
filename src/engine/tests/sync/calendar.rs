//! Nodes that count in windows of the calendar, with clocks that differ.

use std::collections::BTreeMap;

use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};
use proptest::test_runner::RngSeed;

use super::hits;
use super::node::{Node, cluster};
use crate::engine::RateLimiting;
use crate::policy::algorithm::StoredKind;
use crate::policy::calendar::{CalendarUnit, CalendarZone};
use crate::policy::hits::Hits;
use crate::policy::window::{UnixMillis, WindowSize};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn size(unit: CalendarUnit, zone: &str) -> WindowSize {
    WindowSize::of_calendar(unit, CalendarZone::named(zone.as_bytes()).unwrap())
}

/// Returns a node's count of the key in the current window, and in the previous one.
fn counts(node: &Node) -> (Hits, Hits) {
    let library = RateLimiting::new(node.namespace);
    let reading = library.reading(b"k", StoredKind::Windows, node.size.get(), node.time);
    let counts = reading.unwrap().windows();
    (counts.current, counts.previous)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(23),
        ..ProptestConfig::default()
    })]

    /// Each node counts a hit in the window of its own clock. When all have synced, each knows the hits of
    /// all in a window, and in the one before.
    #[test]
    fn the_hits_of_all_nodes_meet_in_the_windows_of_their_clocks(
        unit in prop::sample::select(&CalendarUnit::ALL[..]),
        zone in prop::sample::select(&[
            "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo",
        ][..]),
        // From 2001 to 2032.
        start in 11_323_u64..22_600,
        // Milliseconds by which each clock is ahead of the first one.
        ahead in prop::collection::vec(0_u64..900, 3),
        steps in prop::collection::vec((0_usize..3, 0_u64..100, prop::bool::ANY), 1..60),
    ) {
        let (_, nodes) = cluster(3);
        let size = size(unit, zone);
        // Steps cross some windows of an hour, one or two of a day, and the end of a longer one.
        let end = size.end_of(size.at(UnixMillis(start * DAY)).number).0;
        let (begin, step) = match unit {
            CalendarUnit::Hour => (end, HOUR / 40),
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month => (end - 12 * HOUR, HOUR / 4),
        };
        let mut now = begin;
        let set = |now: u64| {
            for (node, ahead) in nodes.iter().zip(&ahead) {
                node.time.unix.set(now + ahead);
            }
        };
        let mut counted: BTreeMap<u64, i64> = BTreeMap::new();
        for node in &nodes {
            node.size.set(size);
        }
        for (node, after, syncs) in steps {
            now += after * step / 100;
            set(now);
            let (node, ahead) = (&nodes[node], ahead[node]);
            node.hit(b"k", Hits::ONE);
            *counted.entry(size.at(UnixMillis(now + ahead)).number).or_default() += 1;
            if syncs {
                node.sync().unwrap();
            }
        }
        // When no clock is near an end.
        let last = size.at(UnixMillis(now + 1000)).number;
        now = now.max(size.start_of(last).0) + 1000;
        set(now);
        for node in nodes.iter().chain(&nodes) {
            node.sync().unwrap();
        }
        let number = size.at(UnixMillis(now)).number;
        let of = |number: u64| hits(counted.get(&number).copied().unwrap_or(0));
        for node in &nodes {
            prop_assert_eq!(counts(node), (of(number), of(number - 1)));
        }
    }
}
