//! Overwrites and deletes every item that nodes have written: the nodes continue.

use std::collections::BTreeMap;

use super::*;
use crate::testing::conformance::Others;

/// Values that somebody may write.
const TEXTS: [&str; 8] = [
    "",
    "garbage",
    "0",
    "7",
    "1 1",
    "99999999999999999999 99999999999999999999",
    "9223372036854775807 9223372036854775807 9223372036854775807",
    "0000000000000000000000000000000000000000",
];

/// Returns the part of a name that says what it is, with a name that items have now.
fn kinds(server: &Server) -> BTreeMap<String, String> {
    let kind = |name: String| {
        let mut parts: Vec<_> = name.split('/').collect();
        // The epoch, and the number of a change.
        if parts.len() > 4 {
            parts[3] = "";
        }
        if parts.get(4) == Some(&"d") {
            parts.truncate(5);
        }
        (parts.join("/"), name)
    };
    server.names().into_iter().map(kind).collect()
}

#[test]
fn nodes_continue_whatever_an_item_contains() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = Others::start(|| connect(&server)).await;
        let all = kinds(&server);
        assert!(all.len() >= 8, "{all:?}");
        for kind in all.into_keys() {
            for text in TEXTS {
                let Some(name) = kinds(&server).remove(&kind) else { continue };
                let set = format!("ms {name} {}\r\n{text}", text.len());
                assert_eq!(server.ask(set.as_bytes()), ["HD"]);
                nodes.go_on(&format!("{kind} {text}")).await;
                assert!(nodes.living() <= Some(2), "{kind} {text}");
                server.ask(format!("md {name}").as_bytes());
                nodes.go_on(&format!("{kind}, gone after {text}")).await;
            }
        }
    });
}
