//! Overwrites and deletes every key that nodes have written: the nodes continue.

use super::*;
use crate::testing::conformance::Others;

/// Values that somebody may write.
const TEXTS: [&str; 9] = [
    "",
    "garbage",
    "0",
    "7",
    "1 1",
    "0000000000000000 0",
    "ffffffffffffffff 18446744073709551615",
    "99999999999999999999 99999999999999999999",
    "9223372036854775807 9223372036854775807 9223372036854775807",
];

fn keys(server: &Server) -> Vec<String> {
    let names = server.ctl(&["get", "--prefix", "--keys-only", "rl/"]);
    names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the part of a key that says what it is, with the key that nodes have now.
fn kinds(server: &Server) -> Vec<(String, String)> {
    let mut kinds = std::collections::BTreeMap::new();
    for key in keys(server) {
        let mut parts: Vec<_> = key.split('/').collect();
        // The epoch, and the name of a node or the number of a change.
        if parts.len() > 4 {
            parts[3] = "";
            if ["n", "a", "d"].contains(&parts[4]) {
                parts.truncate(5);
            }
        }
        kinds.insert(parts.join("/"), key);
    }
    kinds.into_iter().collect()
}

#[test]
fn nodes_continue_whatever_a_key_contains() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = Others::start(|| connect(&server)).await;
        let all: Vec<_> = kinds(&server).into_iter().map(|(kind, _)| kind).collect();
        assert!(all.len() >= 10, "{all:?}");
        for kind in all {
            for text in TEXTS {
                let Some((_, key)) = kinds(&server).into_iter().find(|(it, _)| *it == kind) else {
                    continue;
                };
                server.ctl(&["put", "--", &key, text]);
                nodes.go_on(&format!("{kind} {text}")).await;
                assert!(nodes.living() <= Some(2), "{kind} {text}");
                server.ctl(&["del", &key]);
                nodes.go_on(&format!("{kind}, gone after {text}")).await;
            }
        }
    });
}
