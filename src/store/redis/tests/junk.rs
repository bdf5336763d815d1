//! Overwrites every key and field that nodes have written with values that no node writes: the
//! nodes continue.

use super::foreign::{TYPES, overwrite};
use super::*;
use crate::testing::conformance::Others;

/// Values that somebody may write instead of a text.
const TEXTS: [&[u8]; 22] = [
    b"",
    b"garbage",
    b"a b",
    b"0",
    b"-1",
    b"7",
    b"1 1",
    b"nan",
    b"inf",
    b"-inf",
    b"1e400",
    b"0x7fffffffffffffff",
    b"9007199254740993",
    b"9223372036854775807",
    b"99999999999999999999",
    b"99999999999999999999 99999999999999999999",
    b"1-99999999999999999999",
    b"9007199254740991-1",
    b"18446744073709551615-18446744073709551615",
    b"0000000000000000",
    b"\xff\0\xfe",
    &[b'9'; 400],
];

/// Commands that somebody may execute on a stream.
const TO_STREAMS: [&[&str]; 12] = [
    &["XADD", "key", "*", "a", "b"],
    &["XADD", "key", "*", "node", "x", "count", "y", "changes", "z"],
    &["XADD", "key", "*", "node", "x", "count", "nan", "changes", "\u{1}"],
    // A list with an invalid window; a list with an invalid key; something other than a list.
    &["XADD", "key", "*", "node", "x", "count", "1", "changes", "\u{2}"],
    &["XADD", "key", "18446744073709551615-18446744073709551615", "a", "b"],
    &["XADD", "key", "9007199254740993-1", "a", "b"],
    &["XTRIM", "key", "MAXLEN", "0"],
    &["XTRIM", "key", "MAXLEN", "1"],
    &["DEL", "key"],
    &["PERSIST", "key"],
    &["PEXPIRE", "key", "1"],
    &["RENAME", "key", "rl:elsewhere"],
];

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.ask(&["KEYS", "rl:*"]).unwrap();
    keys.sort();
    keys
}

/// Returns the end of a key that nodes have written, which distinguishes it from other keys.
fn end_of(key: &str) -> &str {
    key.rsplit("}:").next().unwrap()
}

async fn users(server: &Server) -> Others<Redis> {
    let _: String = server.ask(&["FLUSHALL"]).unwrap();
    Others::start(|| connect(server.tcp())).await
}

#[test]
fn nodes_continue_whatever_type_a_key_has() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = users(&server).await;
        for number in 0..keys(&server).len() {
            for command in TYPES {
                let all = keys(&server);
                let key = &all[number.min(all.len() - 1)];
                overwrite(&server, key, command);
                nodes.go_on(&format!("{} {command:?}", end_of(key))).await;
            }
        }
    });
}

#[test]
fn nodes_continue_whatever_a_field_contains() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = users(&server).await;
        for number in 0..keys(&server).len() {
            let all = keys(&server);
            let key = &all[number.min(all.len() - 1)];
            let fields: Vec<Vec<u8>> = server.ask(&["HKEYS", key]).unwrap_or_default();
            for field in fields {
                for text in TEXTS {
                    let all = keys(&server);
                    let key = &all[number.min(all.len() - 1)];
                    let what =
                        format!("{} {} {}", end_of(key), field.escape_ascii(), text.escape_ascii());
                    // In a new epoch, another key may have this index.
                    let mut connection = server.connection("").unwrap();
                    let set = redis::cmd("HSET").arg(key).arg(&field).arg(text).to_owned();
                    let _ = set.exec(&mut connection);
                    nodes.go_on(&what).await;
                    assert!(nodes.living() <= Some(2), "{what}");
                    let _: Result<i64, _> =
                        server.ask(&["HDEL", key, str::from_utf8(&field).unwrap_or("x")]);
                    nodes.go_on(&format!("{what}, gone")).await;
                }
            }
        }
    });
}

#[test]
fn nodes_continue_whatever_a_text_contains() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = users(&server).await;
        let strings = |server: &Server| {
            let is_text = |key: &String| server.ask::<String>(&["TYPE", key]).unwrap() == "string";
            keys(server).into_iter().filter(is_text).collect::<Vec<_>>()
        };
        let count = strings(&server).len();
        assert_eq!(count, 2);
        for number in 0..count {
            for text in TEXTS.into_iter().chain([&[0xff; 40][..], &[0; 30], &[0x01; 2560]]) {
                let key = &strings(&server)[number];
                let what = format!("{} {}", end_of(key), text.escape_ascii());
                let before: Vec<u8> = redis_get(&server, key);
                server.set(key, text);
                nodes.go_on(&what).await;
                // Some of the nodes' data may still be there, with a change in the middle.
                let key = &strings(&server)[number];
                server.set(key, &[&before[..before.len() / 2], text, &before].concat());
                nodes.go_on(&format!("{what}, in between")).await;
            }
        }
    });
}

fn redis_get(server: &Server, key: &str) -> Vec<u8> {
    let mut connection = server.connection("").unwrap();
    redis::cmd("GET").arg(key).query(&mut connection).unwrap()
}

#[test]
fn nodes_continue_whatever_a_stream_contains() {
    let server = Server::start(&[]);
    block_on(async {
        let mut nodes = users(&server).await;
        for suffix in [":s", ":n"] {
            for command in TO_STREAMS {
                let all = keys(&server);
                let key = all.iter().find(|key| key.ends_with(suffix)).unwrap();
                let mut command = command.to_vec();
                command[1] = key;
                let _: redis::Value = server.ask(&command).unwrap();
                nodes.go_on(&format!("{} {:?}", end_of(key), &command[2..])).await;
            }
        }
    });
}
