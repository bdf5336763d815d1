//! Odd answers, and values that others wrote.

use super::*;
use crate::store::contract::strategy::{Epoch, NodeId};
use crate::store::memcached::head::{ItemWrite, ShardHead, WindowEntry};
use crate::store::memcached::index::IndexPage;
use crate::store::memcached::wire::{Expected, MetaConnection, MetaReply, Requests};
use crate::testing::memcached::connect_to;
use crate::testing::proxy::with_greeting;
use tokio::io::AsyncWriteExt as _;

/// Returns the replies to `count` commands, which arrive in pieces of this length.
async fn replies(
    words: &'static [u8],
    count: usize,
    length: usize,
) -> Result<Vec<MetaReply>, Failure> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let writing = tokio::spawn(async move {
        for piece in words.chunks(length) {
            // The other side may have given up.
            let _ = theirs.write_all(piece).await;
            tokio::task::yield_now().await;
        }
    });
    let mut requests = Requests::default();
    for _ in 0..count {
        requests.set(b"name", b"value", 0, Expected::Missing);
    }
    let replies = MetaConnection::new(Box::new(ours), false).exchange(&requests).await;
    writing.await.unwrap();
    replies
}

#[test]
fn each_reply_has_a_meaning() {
    let text = |text: &str| text.into();
    let value = |value: &[u8], cas| MetaReply::Value(value.into(), cas);
    for (words, count, expected) in [
        (
            &b"HD\r\nMN\r\nEN\r\nNF\r\n"[..],
            4,
            Ok(vec![MetaReply::Done, MetaReply::Done, MetaReply::Missing, MetaReply::Missing]),
        ),
        (
            b"EX\r\nNS\r\nHD c7\r\n",
            3,
            Ok(vec![MetaReply::Changed, MetaReply::Changed, MetaReply::Done]),
        ),
        (
            b"VA 4 c7\r\n\r\n\r\n\r\nVA 0 t-1 c8\r\n\r\n",
            2,
            Ok(vec![value(b"\r\n\r\n", 7), value(b"", 8)]),
        ),
        (b"VA 1 c0\r\nx\r\n", 1, Err(Failure::Unusable(text("it runs with -C, so without CAS")))),
        (b"VA 1\r\nx\r\n", 1, Err(Failure::Misunderstood(text("VA 1")))),
        (b"VA 99999999 c1\r\nx\r\n", 1, Err(Failure::Misunderstood(text("VA 99999999 c1")))),
        (b"VA 9 c1\r\nx\r\n", 1, Err(Failure::Disconnected(text("unexpected end of file")))),
        (b"HD\r\n", 2, Err(Failure::Disconnected(text("unexpected end of file")))),
        (b"HD\r\nHD\r\n", 1, Err(Failure::Misunderstood(text("HD\\r\\n")))),
        (b"STORED\r\n", 1, Err(Failure::Misunderstood(text("STORED")))),
        (
            b"SERVER_ERROR out of memory storing object\r\nHD\r\n",
            2,
            Ok(vec![MetaReply::NoMemory, MetaReply::Done]),
        ),
        (b"ERROR\r\n", 1, Err(Failure::Failed(text("ERROR")))),
    ] {
        for length in [1, 3, 1000] {
            if words == b"HD\r\nHD\r\n" && length < 1000 {
                // The rest may come later, and is then found before the next exchange.
                continue;
            }
            let replies = block_on(replies(words, count, length));
            assert_eq!(replies, expected, "{}", words.escape_ascii());
        }
    }
    let endless = Box::leak(vec![b'x'; 5000].into_boxed_slice());
    let replies = block_on(replies(endless, 1, 5000));
    assert_eq!(replies, Err(Failure::Misunderstood(text("an endless line"))));
}

#[test]
fn another_server_is_no_memcached() {
    block_on(async {
        for (words, expected) in [
            (&b"VERSION 1.5.6\r\n"[..], "cannot be used by this build (memcached before 1.6.14)"),
            (b"VERSION 1.6.9-beta\r\n", "cannot be used by this build (memcached before 1.6.14)"),
            (b"ERROR\r\n", "(it does not speak the memcached protocol, but says \"ERROR\")"),
            (b"-ERR unknown command\r\n", "but says \"-ERR unknown command\")"),
            (
                b"ERROR Too many open connections\r\n",
                "refuses for now (ERROR Too many open connections)",
            ),
        ] {
            let error = open(&mut connect_to(with_greeting(words))).await.unwrap_err();
            assert!(error.to_string().ends_with(expected), "{error}");
        }
    });
}

#[test]
fn a_server_without_cas_is_refused() {
    let server = Server::start(&["--disable-cas"]);
    block_on(async {
        let mut store = connect(&server);
        let _ = open(&mut store).await;
        let error = open(&mut store).await.unwrap_err();
        assert!(
            error.to_string().ends_with("cannot be used (it runs with -C, so without CAS)"),
            "{error}"
        );
    });
}

#[test]
fn parts_of_values_are_none() {
    let mut head = ShardHead::new(Epoch(7.try_into().unwrap()));
    head.node(NodeId([1, 2])).until = 9;
    head.windows.insert((60_000, 7), WindowEntry { page: 1, until: 2 });
    head.writes.push(ItemWrite { name: b"c/x".to_vec(), value: b"3".to_vec(), until: 5 });
    let value = head.to_value();
    assert_eq!(ShardHead::parse(&value), Some(head));
    for length in 0..value.len() {
        assert_eq!(ShardHead::parse(&value[..length]), None, "{length}");
    }
    let page = IndexPage(vec![b"a".to_vec(), Vec::new()]);
    assert_eq!(IndexPage::parse(&page.to_value()), Some(page.clone()));
    for length in 0..page.to_value().len() {
        assert_eq!(IndexPage::parse(&page.to_value()[..length]), None, "{length}");
    }
}
