//! A full server, items that are evicted, and writers that stop halfway.

use super::*;
use crate::store::memcached::shard::{DoneTransactions, ShardSession};

#[test]
fn a_full_server_refuses_and_keeps_all_or_nothing() {
    let server =
        Server::start(&["--disable-evictions", "--memory-limit=2", "--max-item-size=512k"]);
    block_on(async {
        let mut node = Node::join(connect(&server), shard("api")).await;
        let value = "x".repeat(400_000);
        let mut filled = 0;
        while server.ask(format!("ms fill{filled} 400000\r\n{value}").as_bytes()) == ["HD"] {
            filled += 1;
        }
        let error = loop {
            let key = format!("{} {}", node.number, "x".repeat(10_000));
            let batch = node.batch(node.number + 1, vec![hits(&key, 1)]);
            match node.store.push_diffs(&node.shard, &batch, 500).await {
                Ok(Pushed::Applied { .. }) => node.number += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.failure, Failure::Refused(Refusal::OutOfMemory));
        assert!(error.is_transient());
        // memcached deletes an item that it cannot write. So the head may be gone; or all batches are there, possibly
        // the last one only in the head, and nothing is answered until there is memory.
        let asked = node.batch(node.number, vec![]);
        match node.store.push_diffs(&node.shard, &asked, 500).await {
            Ok(Pushed::NoEpoch) => {}
            Ok(Pushed::Applied { .. }) => {
                let all = node.read_all(&[(MINUTE, 7)]).await.len() as u64;
                assert_eq!(all, node.number);
            }
            other => assert_eq!(other.unwrap_err().failure, error.failure),
        }
    });
}

/// Deletes the items whose names contain this.
fn evict(server: &Server, part: &str) {
    let names = server.names().into_iter().filter(|name| name.contains(part));
    let names: Vec<_> = names.collect();
    assert!(!names.is_empty(), "{part}");
    for name in names {
        assert_eq!(server.ask(format!("md {name}").as_bytes()), ["HD"]);
    }
}

#[test]
fn evictions_are_noticed_and_end_the_epoch() {
    block_on(async {
        for part in ["/head", "/c/", "/i/"] {
            let server = Server::start(&[]);
            let mut node = Node::join(connect(&server), shard("api")).await;
            let mut other = Node::join(connect(&server), shard("api")).await;
            node.push(vec![hits("a", 1), hits("b", 1)]).await;
            other.push(vec![hits("c", 1)]).await;
            // The head has the writes of the last push, which would be done again.
            for _ in 0..2 {
                other.push(vec![hits("d", 1)]).await;
            }
            evict(&server, part);
            let of_another_key = if part == "/i/" { "e" } else { "a" };
            let pushed = node.send(2, vec![hits(of_another_key, 1)]).await;
            assert_eq!(pushed, Pushed::NoEpoch, "{part}");
        }
        // A node that has not pushed a counter knows from the index that there was one, and so does one that reads all.
        for has_new in [true, false] {
            let server = Server::start(&[]);
            let mut node = Node::join(connect(&server), shard("api")).await;
            let mut other = Node::join(connect(&server), shard("api")).await;
            node.push(vec![hits("a", 1)]).await;
            node.push(vec![hits("b", 1)]).await;
            evict(&server, "/c/");
            match has_new {
                true => assert_eq!(other.send(1, vec![hits("a", 1)]).await, Pushed::NoEpoch),
                false => {
                    assert_eq!(other.read_all(&[(MINUTE, 7)]).await, []);
                    assert_eq!(other.send(1, vec![hits("x", 1)]).await, Pushed::NoEpoch);
                }
            }
        }
    });
}

#[test]
fn others_finish_what_a_writer_has_begun() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(connect(&server), shard("api")).await;
        let mut other = Node::join(connect(&server), shard("api")).await;
        node.push(vec![hits("a", 1), hits("b", 1)]).await;
        // As if it had stopped after the head.
        for name in server.names().iter().filter(|name| !name.ends_with("/head")) {
            server.ask(format!("md {name}").as_bytes());
        }
        assert_eq!(totals(&other.fetch().await), pairs(&[("a", 1), ("b", 1)]));
        let all = other.read_all(&[(MINUTE, 7)]).await;
        assert_eq!(totals(&all), pairs(&[("a", 1), ("b", 1)]));
        other.push(vec![hits("a", 2)]).await;
        assert_eq!(totals(&node.fetch().await), pairs(&[("a", 3)]));
    });
}

#[test]
fn a_writer_that_comes_late_changes_nothing() {
    let server = Server::start(&[]);
    block_on(async {
        let mut node = Node::join(connect(&server), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        let (shard, mut done) = (shard("api"), DoneTransactions::new());
        let connection = node.store.link.exchange(async |connection| {
            // It reads the head, and the next push is another one's.
            let mut session = ShardSession::new(connection, &mut done, "rl", &shard);
            let found = session.head().await?;
            let mut other = Node::join(connect(&server), shard.clone()).await;
            other.push(vec![hits("a", 1)]).await;
            let head = found.head.clone().unwrap();
            let changed =
                session.change(&found, head, (node.id, false), Default::default()).await?;
            assert!(!changed);
            // Writes of the former head find newer items.
            let items = session.read(&found.head.clone().unwrap(), &[]).await?;
            assert!(items.is_empty());
            Ok(())
        });
        connection.await.unwrap();
        assert_eq!(totals(&node.read_all(&[(MINUTE, 7)]).await), pairs(&[("a", 2)]));
    });
}
