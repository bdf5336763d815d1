//! The answers about a node: its overview, and for load balancers the health of its stores.

use super::json::{Thousandths, json, object};
use crate::engine::report::status::{NamespaceStatus, Status};

/// The answer to [`ApiCall::Overview`](super::ApiCall::Overview), in pieces that take a bounded time to write.
#[derive(Debug)]
pub struct Overview<'c> {
    status: Status<'c>,
    next: Piece,
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

    /// Creates the overview of a node's status.
    pub fn new(status: Status<'c>) -> Overview<'c> {
        Overview { status, next: Piece::Zones }
    }

    fn zones(&self) -> String {
        let zones = self.status.zones.iter().map(|zone| {
            object! {
                name: zone.name,
                size: zone.size,
                keys: zone.keys,
                evicted: object! {
                    ended: zone.stats.evicted_ended,
                    sent: zone.stats.evicted_sent,
                    unsent: zone.stats.evicted_unsent,
                },
            }
        });
        let (version, zones) = (env!("CARGO_PKG_VERSION"), json(&zones.collect::<Vec<_>>()));
        format!("{{\"version\":\"{version}\",\"zones\":{zones},\"namespaces\":[")
    }

    fn namespaces(&self, from: usize) -> String {
        let mut text = String::new();
        let namespaces = self.status.namespaces.iter().enumerate();
        for (index, namespace) in namespaces.skip(from).take(Self::NAMES) {
            if index > 0 {
                text.push(',');
            }
            let NamespaceStatus { name, zone, store, .. } = namespace;
            text.push_str(&json(&object! { name: name, zone: zone, store: store }));
        }
        text
    }

    fn stores(&self) -> String {
        let stores = self.status.stores.iter().map(|store| {
            object! {
                name: store.name,
                strategy: store.strategy,
                up: store.is_up,
                clock_offset: store.clock_offset().map(Thousandths),
            }
        });
        format!("],\"stores\":{}}}", json(&stores.collect::<Vec<_>>()))
    }
}

impl Iterator for Overview<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let names = self.status.namespaces.len();
        let (text, next) = match self.next {
            Piece::Zones => (self.zones(), Piece::Namespaces(0)),
            Piece::Namespaces(from) if from < names => {
                let next = from.saturating_add(Self::NAMES);
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
        let pieces: Vec<_> = Overview::new(status).collect();
        assert_eq!(pieces.len(), 2 + 1000usize.div_ceil(Overview::NAMES));
        assert!(pieces.iter().all(|piece| piece.len() < 64 * Overview::NAMES));
        let text: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
        assert_eq!(text["namespaces"].as_array().unwrap().len(), 1000);
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
