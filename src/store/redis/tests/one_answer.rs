//! A server that is not Redis, and has only one answer.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::store::contract::server::ServerAddress;
use crate::testing::proxy::listen;

/// Starts a server that answers `PING` correctly, rejects `HELLO` as unknown, and answers
/// everything else with `line`.
pub(super) fn with_one_answer(line: impl Into<String>) -> ServerAddress {
    let line: Arc<str> = line.into().into();
    listen(move |mut client| {
        let mut buffer = [0; 65536];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let asks = |command: &[u8]| {
                let mut words = buffer[..length].windows(command.len());
                words.any(|word| word == command)
            };
            let answer = match () {
                () if asks(b"PING") => "+PONG",
                () if asks(b"HELLO") => "-ERR unknown command 'HELLO'",
                () => &*line,
            };
            let _ = client.write_all(format!("{answer}\r\n").as_bytes());
        }
    })
}
