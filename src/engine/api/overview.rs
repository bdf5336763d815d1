//! The answers about a node: its overview, and for load balancers the health of its stores.

use super::json::{Thousandths, json, object};
use super::namespace::namespace;
use crate::engine::report::status::{NamespaceStatus, Status, StoreStatus, ZoneStatus};
use crate::policy::window::UnixMillis;

/// The answer to [`ApiCall::Overview`](super::ApiCall::Overview), in pieces that take a bounded time to write.
#[derive(Debug)]
pub struct Overview<'c> {
    status: Status<'c>,
    detail: Option<OverviewDetail>,
    next: Piece,
}

/// The facts beside the status of an overview with everything (`all=1`).
#[derive(Clone, Copy, Debug)]
pub struct OverviewDetail {
    /// The time of the answer.
    pub now: UnixMillis,
    /// Whether the API accepts writes.
    pub may_write: bool,
}

/// The next piece of an overview.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// The piece before the namespaces.
    Zones,
    /// The namespaces from this index on, or the end of the answer if none are left.
    Namespaces(usize),
    /// Nothing.
    End,
}

impl<'c> Overview<'c> {
    /// The number of namespaces in a piece.
    const NAMES: usize = 64;

    /// The number of namespaces in a piece that has everything about them.
    const NAMESPACES: usize = 8;

    /// Creates the overview of a node's status: with everything if `detail` is given.
    pub fn new(status: Status<'c>, detail: Option<OverviewDetail>) -> Overview<'c> {
        Overview { status, detail, next: Piece::Zones }
    }

    fn zones(&self) -> String {
        let zones = self.status.zones.iter().map(|zone| {
            let evicted = object! {
                ended: zone.stats.evicted_ended,
                sent: zone.stats.evicted_sent,
                unsent: zone.stats.evicted_unsent,
            };
            let ZoneStatus { name, size, keys, capacity, .. } = *zone;
            match self.detail {
                None => json(&object! { name: name, size: size, keys: keys, evicted: evicted }),
                Some(_) => json(&object! {
                    name: name,
                    size: size,
                    keys: keys,
                    evicted: evicted,
                    capacity: capacity,
                }),
            }
        });
        let (version, zones) = (env!("CARGO_PKG_VERSION"), zones.collect::<Vec<_>>().join(","));
        let mut text = format!("{{\"version\":\"{version}\",");
        if let Some(detail) = self.detail {
            let node = json(&object! {
                nginx: self.status.build.map(|it| it.nginx),
                time: Thousandths::from(detail.now),
                loaded_at: self.status.loaded_at.map(Thousandths::from),
                write: detail.may_write,
            });
            text.push_str(node.trim_start_matches('{').trim_end_matches('}'));
            text.push(',');
        }
        text + &format!("\"zones\":[{zones}],\"namespaces\":[")
    }

    fn namespaces(&self, from: usize) -> String {
        let mut text = String::new();
        let namespaces = self.status.namespaces.iter().enumerate();
        for (index, status) in namespaces.skip(from).take(self.step()) {
            if index > 0 {
                text.push(',');
            }
            let NamespaceStatus { name, zone, store, .. } = status;
            text.push_str(&match self.detail {
                None => json(&object! { name: name, zone: zone, store: store }),
                Some(_) => namespace(status),
            });
        }
        text
    }

    /// Returns the number of namespaces in a piece.
    fn step(&self) -> usize {
        if self.detail.is_some() { Self::NAMESPACES } else { Self::NAMES }
    }

    fn stores(&self) -> String {
        let stores = self.status.stores.iter().map(|store| {
            let StoreStatus { name, strategy, is_up, traffic } = store;
            let clock_offset = store.clock_offset().map(Thousandths);
            match self.detail {
                None => json(&object! {
                    name: name,
                    strategy: strategy,
                    up: is_up,
                    clock_offset: clock_offset,
                }),
                Some(_) => json(&object! {
                    name: name,
                    strategy: strategy,
                    up: is_up,
                    clock_offset: clock_offset,
                    connects: traffic.map(|it| it.connects),
                    exchanges: traffic.map(|it| it.exchange_count()),
                    exchange_seconds: traffic.map(|it| it.exchange_sum as f64 / 1e6),
                }),
            }
        });
        format!("],\"stores\":[{}]}}", stores.collect::<Vec<_>>().join(","))
    }
}

impl Iterator for Overview<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let names = self.status.namespaces.len();
        let (text, next) = match self.next {
            Piece::Zones => (self.zones(), Piece::Namespaces(0)),
            Piece::Namespaces(from) if from < names => {
                let next = from.saturating_add(self.step());
                (self.namespaces(from), Piece::Namespaces(next))
            }
            Piece::Namespaces(_) => (self.stores(), Piece::End),
            Piece::End => return None,
        };
        self.next = next;
        Some(text)
    }
}

/// The answer to [`ApiCall::Health`](super::ApiCall::Health).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The status of the response: 200, or 503 while a store is down.
    pub status: u16,
    /// Its body.
    pub body: String,
}

/// Returns the answer for a node; `down` has the names of its stores that are down.
pub fn health(down: &[&str]) -> Health {
    match down {
        [] => Health { status: 200, body: json(&object! { status: "ok" }) },
        stores => Health { status: 503, body: json(&object! { status: "down", stores: stores }) },
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::report::status::testing::status;

    #[test]
    fn an_overview_is_written_in_bounded_pieces() {
        let mut status = status();
        let many = status.namespaces.iter().cycle().take(1000);
        status.namespaces = many.copied().collect();
        let detail = OverviewDetail { now: UnixMillis(0), may_write: true };
        for (detail, step) in [(None, Overview::NAMES), (Some(detail), Overview::NAMESPACES)] {
            let pieces: Vec<_> = Overview::new(status.clone(), detail).collect();
            assert_eq!(pieces.len(), 2 + 1000usize.div_ceil(step));
            assert!(pieces.iter().all(|piece| piece.len() < 64 * Overview::NAMES));
            let text: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
            assert_eq!(text["namespaces"].as_array().unwrap().len(), 1000);
        }
    }

    #[test]
    fn an_overview_with_everything_has_the_members_of_the_short_one() {
        let status = status();
        let parsed = |detail| -> serde_json::Value {
            let text: String = Overview::new(status.clone(), detail).collect();
            serde_json::from_str(&text).unwrap()
        };
        let detail = OverviewDetail { now: UnixMillis(1_700_000_001_500), may_write: false };
        let (short, full) = (parsed(None), parsed(Some(detail)));
        assert_is_part(&short, &full);
        let expected = serde_json::json!({
            "nginx": "1.28.3", "time": 1_700_000_001.5, "loaded_at": 1_700_000_000.5, "write": false,
        });
        assert_is_part(&expected, &full);
        assert_eq!(full["zones"][0]["capacity"], 16_000);
        let traffic = serde_json::json!({
            "connects": 2, "exchanges": 6, "exchange_seconds": 2.00075,
        });
        assert_is_part(&traffic, &full["stores"][0]);
        assert_eq!(full["stores"][1]["exchanges"], serde_json::Value::Null);
        for (shown, status) in full["namespaces"].as_array().unwrap().iter().zip(&status.namespaces)
        {
            assert_eq!(
                *shown,
                serde_json::from_str::<serde_json::Value>(&namespace(status)).unwrap()
            );
        }
    }

    /// Asserts that all members of `part` are in `whole`, at each depth.
    fn assert_is_part(part: &serde_json::Value, whole: &serde_json::Value) {
        match part {
            serde_json::Value::Object(members) => {
                members.iter().for_each(|(name, part)| assert_is_part(part, &whole[name]));
            }
            serde_json::Value::Array(items) => {
                assert_eq!(items.len(), whole.as_array().unwrap().len());
                items.iter().enumerate().for_each(|(at, part)| assert_is_part(part, &whole[at]));
            }
            _ => assert_eq!(part, whole),
        }
    }

    #[test]
    fn stores_that_are_down_are_named() {
        for (down, status, body) in [
            (&[][..], 200, r#"{"status":"ok"}"#),
            (&["main", "other"], 503, r#"{"status":"down","stores":["main","other"]}"#),
        ] {
            let body = body.to_owned();
            assert_eq!(health(down), Health { status, body });
        }
    }
}
