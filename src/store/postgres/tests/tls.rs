//! Servers with TLS: certificates of servers and of clients.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use super::*;
use crate::store::contract::options::TlsOptions;
use crate::testing::certificates::{Authority, pem_file, trusting};
use crate::testing::postgres::fixtures::Place;
use crate::testing::postgres::with_tls;
use crate::testing::proxy::listen;
use crate::testing::server_tests::Served as _;
use crate::testing::server_tests::tls::fails;

#[test]
fn connections_with_tls_are_made_again() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "");
    let store = || with_tls(&server, PUBLIC, trusting(&authority));
    let sessions = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name LIKE 'ngx%'";
    block_on(async {
        let mut node = Node::join(store(), shard("api")).await;
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(node.read_all(&[(MINUTE, 7)]).await.len(), 1);
        assert_eq!(server.ask(sessions), [["t"]]);
        // As without TLS.
        assert_eq!(node.store.connects(), 1);
        server.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_ssl WHERE ssl");
        let ended = tokio::time::timeout(Duration::from_secs(20), async {
            while node.store.connects() == 1 {
                let batch = node.batch(1, vec![]);
                let _ = node.store.push_diffs(&node.shard, &batch, 500).await;
            }
        });
        ended.await.unwrap();
        node.push(vec![hits("a", 1)]).await;
        assert_eq!(total(&mut node, b"a").await, 2);
    });
}

#[test]
fn the_server_receives_the_end_of_a_session() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "");
    block_on(async {
        let mut store = with_tls(&server, PUBLIC, trusting(&authority));
        open(&mut store).await.unwrap();
        drop(store);
        tokio::task::yield_now().await;
    });
    // Sessions of the test itself have another host.
    let is_noted = |line: &str| line.contains("disconnection") && line.contains("host=127.0.0.1");
    let ended = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.log().lines().any(is_noted)
    });
    assert!(ended && !server.log().contains("could not receive data"));
}

#[test]
fn unusable_options_are_errors() {
    let authority = Authority::new();
    let options = TlsOptions {
        trusted_certificate: Some(pem_file("/roots.pem", "something")),
        ..trusting(&authority)
    };
    let cause = "tls_trusted_certificate \"/roots.pem\" holds no certificate";
    fails(&Place::shared(), options, cause);
}

/// Connects to a server that offers channel binding of the password, which is optional.
#[test]
fn passwords_are_given_over_tls() {
    let authority = Authority::new();
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "");
    server.ask(&format!("CREATE ROLE {LOCKED} SUPERUSER LOGIN PASSWORD 'hunter2'"));
    let attempt = |password: &str| {
        let (mut options, postgres) = options(&[server.tcp()], PUBLIC);
        options.tls = Some(trusting(&authority));
        options.credentials = Credentials { username: secret(LOCKED), password: secret(password) };
        block_on(open(&mut Postgres::new(&options, &postgres)))
    };
    assert_eq!(attempt("hunter2"), Ok(()));
    let error = attempt("wrong-one").unwrap_err();
    assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
}

#[test]
fn a_server_without_tls_is_not_used_with_it_nor_the_other_way_round() {
    let authority = Authority::new();
    let cause = "server does not support TLS";
    fails(&Place::shared(), trusting(&authority), cause);
    let server = Server::start_with_tls(&authority, &authority.issue("127.0.0.1"), "");
    let error = block_on(open(&mut connect(server.tcp(), PUBLIC))).unwrap_err();
    assert!(matches!(error.failure, Failure::Denied(_)), "{error}");
    assert!(error.to_string().contains("no encryption"), "{error}");
}

#[test]
fn no_credential_is_sent_before_tls() {
    let request = [0, 0, 0, 8, 4, 210, 22, 47];
    // It has no TLS; it is not Postgres; it agrees to TLS, and continues without; it says nothing.
    for (answer, cause) in [
        (&b"N"[..], "server does not support TLS"),
        (b"E", "server does not support TLS"),
        (b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", "InvalidContentType"),
        (b"", "no connection with TLS within 2000 ms"),
    ] {
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let heard_there = heard.clone();
        let address = listen(move |mut client| {
            let mut buffer = [0; 4096];
            let mut is_first = true;
            while let Ok(length @ 1..) = client.read(&mut buffer) {
                heard_there.lock().unwrap().extend(&buffer[..length]);
                if core::mem::take(&mut is_first) {
                    let _ = client.write_all(answer);
                }
            }
        });
        let (mut options, postgres) = options(&[address], PUBLIC);
        options.connect_timeout = Duration::from_secs(2);
        options.tls = Some(trusting(&Authority::new()));
        options.credentials.username = secret("mallory");
        let error = block_on(open(&mut Postgres::new(&options, &postgres))).unwrap_err();
        assert!(matches!(error.failure, Failure::Unreachable(_)), "{error}");
        assert!(error.to_string().contains(cause), "{error}");
        let heard = heard.lock().unwrap();
        let (first, rest) = heard.split_at(8);
        assert_eq!(first, request);
        // At most the beginning of a TLS handshake.
        assert!(matches!(rest, [] | [22 | 21, 3, ..]), "{rest:?}");
        assert!(!rest.windows(7).any(|bytes| bytes == b"mallory"));
    }
}
