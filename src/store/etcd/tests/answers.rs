//! Odd answers to requests.

use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::store::etcd::failure;
use crate::store::etcd::http::HttpConnection;
use crate::store::etcd::key::{Head, NodeState};
use crate::store::keyed::change::LoggedChange;
use crate::testing::proxy::with_greeting;

/// Returns the status and the body of an answer that arrives in pieces of this length.
async fn answer(words: &'static [u8], length: usize) -> Result<(String, Vec<u8>), String> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let writing = tokio::spawn(async move {
        for piece in words.chunks(length) {
            theirs.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut connection = HttpConnection::new(Box::new(ours), "host".into());
    let read = async {
        let status = connection.send("POST /", None, b"").await?;
        Ok((status, connection.body().await?))
    };
    let result = read.await.map_err(|error: std::io::Error| error.to_string());
    writing.await.unwrap();
    result
}

#[test]
fn answers_have_any_form_of_http() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nTrailer: x\r\n\r\n\
                    3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\n";
    for (words, expected) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..], Ok(("200 OK", &b"abc"[..]))),
        (chunked, Ok(("200 OK", b"abc0123456789"))),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Ok(("204 No Content", b""))),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", Err("unexpected end of file")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", Err("unexpected end")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Err("an invalid chunk")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", Err("a huge chunk")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Err("unknown transfer coding")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Err("an invalid length")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", Err("an invalid length")),
        (b"+PONG\r\n", Err("invalid HTTP version")),
        (b"", Err("unexpected end of file")),
    ] {
        for length in [1, 2, 7, 1000] {
            let result = block_on(answer(words, length));
            match (&result, expected) {
                (Ok((status, body)), Ok(expected)) => assert_eq!((&**status, &**body), expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                _ => panic!("{}: {result:?}", words.escape_ascii()),
            }
        }
    }
}

#[test]
fn each_error_of_etcd_has_a_meaning() {
    let secret = |text: &str| crate::store::contract::options::Secret::parse(text.as_bytes());
    let credentials = Credentials { username: secret("alice"), password: secret("hunter2") };
    let of = |code: u32, message: &str| {
        let body = format!("{{\"error\":\"x\",\"code\":{code},\"message\":\"{message}\"}}");
        failure::of("500 x", body.as_bytes(), &credentials).into_failure()
    };
    let text = |text: &str| text.into();
    for (code, message, expected) in [
        (3, "etcdserver: user name is empty", Failure::Denied(text("user name is empty"))),
        (7, "etcdserver: permission denied", Failure::Denied(text("permission denied"))),
        (7, "alice may not", Failure::Denied(text("the user may not"))),
        (7, "hunter2", Failure::Denied(text("gRPC code 7"))),
        (
            8,
            "etcdserver: mvcc: database space exceeded",
            Failure::Refused(Refusal::Other(text("mvcc: database space exceeded"))),
        ),
        (14, "etcdserver: no leader", Failure::Unconfirmed(text("no leader"))),
        (3, "etcdserver: too many operations", Failure::Failed(text("too many operations"))),
        (
            5,
            "etcdserver: requested lease not found",
            Failure::Refused(Refusal::Other(text("requested lease not found"))),
        ),
    ] {
        assert_eq!(of(code, message), expected);
    }
    let other = failure::of("502 Bad Gateway", b"<html>", &credentials).into_failure();
    assert_eq!(other, Failure::Misunderstood(text("HTTP status 502 Bad Gateway")));
}

#[test]
fn another_server_is_no_etcd() {
    block_on(async {
        for (words, expected) in [
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"[..],
                "(it does not speak the etcd protocol, but says \"HTTP/1.1 200 OK\")",
            ),
            (b"-ERR unknown command\r\n", "but says \"-ERR unknown command\")"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{\"etcdserver\":\"3.3.27\"}",
                "cannot be used by this build (etcd before 3.4)",
            ),
        ] {
            let (options, own) = options(&[with_greeting(words)], PREFIX);
            let error = open(&mut Etcd::new(&options, &own)).await.unwrap_err();
            assert!(error.to_string().ends_with(expected), "{error}");
        }
    });
}

#[test]
fn values_of_others_are_none() {
    for value in ["", "1", "x 1", "0 1", "0000000000000000 1", "1 x", "1 18446744073709551615"] {
        assert_eq!(Head::parse(value.as_bytes()), None, "{value}");
    }
    for value in ["", "1", "x 1", "1 -1"] {
        assert_eq!(NodeState::parse(value.as_bytes()), None, "{value}");
    }
    let change = LoggedChange {
        number: 7,
        node: crate::store::contract::strategy::NodeId([1, 2]),
        is_news: true,
        counts: vec![crate::store::contract::strategy::Count {
            key: b"key".to_vec(),
            size: MINUTE,
            window: 3,
            total: crate::policy::hits::hits(-4),
        }],
    };
    let value = change.to_value();
    assert_eq!(LoggedChange::parse(&value), Some(change));
    for length in (0..value.len()).filter(|length| *length != 32) {
        assert_eq!(LoggedChange::parse(&value[..length]), None, "{length}");
    }
}
